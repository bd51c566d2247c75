"""What layers say of what they cannot be made of or take, in errors.txt, word by word."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import torchcaps as tc
from error_text import cases_of, said_by
from layers.routing.bound import bound
from layers.test_head import IMAGE, backbone, head
from torchcaps import layers, ops
from torchcaps.layers import (
    Conv3dCapsules,
    ConvCapsules,
    Decoder,
    DeconvDecoder,
    DenseCapsules,
    InvertedRouting,
    Routing,
)
from torchcaps.layers import backbone as backbones
from torchcaps.layers.balance import balance
from torchcaps.types import Capsules, Routed, Step, VoteMap

ERRORS = Path(__file__).with_name("errors.txt")


def of(*shape):
    return Capsules(torch.zeros(shape))


def conv(**options):
    sizes = {"child_grid": (5, 4, 2), "d_in": 4, "types": 3, "d_out": 4, "kernel": 3}
    return ConvCapsules(**sizes | options)


def conv3d(**options):
    return Conv3dCapsules(**{"child_grid": (3, 2, 2), "d_in": 3, "types": 4, "d_out": 2} | options)


def dense(**options):
    return DenseCapsules(**{"n_in": 5, "d_in": 3, "n_out": 4, "d_out": 2} | options)


def fused(layer):
    layers.use_backend(layer, "fused")
    return layer


def decoder(**options):
    return Decoder(n_classes=4, d_in=2, image=(3, 4, 5), **options)


def deconv():
    return DeconvDecoder(d_in=2, image=(3, 4, 5)).eval()


def network(routing="dynamic", **options):
    sizes = {"image": (1, 20, 20), "n_classes": 3, "widths": "6,5", "d_pose": 4}
    return tc.create_model("mitterreiter_grid", routing=routing, **sizes, **options).eval()


def stack():
    """Of two layers, which may route at once."""
    return {
        "hidden": DenseCapsules(n_in=24, d_in=4, n_out=5, d_out=3, routing=InvertedRouting()),
        "classes": DenseCapsules(n_in=5, d_in=3, n_out=2, d_out=4, routing=InvertedRouting()),
    }


def routed(route, **asked):
    return route(**{"layers": stack(), "children": of(2, 24, 4)} | asked)


class Loose(Routing):
    """A routing as somebody writes it at the first try: its forward gives a tensor."""

    def create_parameters(self, **_):
        pass

    def forward(self, votes, activation=None, *, keep="none"):
        return votes.mean(-3)


class NoKeep(Loose):
    def forward(self, votes, activation=None):
        return Routed(Capsules(votes.mean(-3)), ())


class Plain(Loose):
    def forward(self, votes, activation=None, *, keep="none"):
        return ops.uniform_routing(votes, keep=keep)


class Forgetful(Loose):
    """It keeps its steps under a word that nobody says."""

    def forward(self, votes, activation=None, *, keep="none"):
        steps = ops.uniform_routing(votes, keep="last").steps
        return Routed(steps[0].parents, steps if keep == "all" else ())


class Odd(Loose):
    """Whatever of a good result is said otherwise."""

    def __init__(self, **parts):
        super().__init__()
        self.parts = parts

    def forward(self, votes, activation=None, *, keep="none"):
        pose = self.parts.get("pose", votes.mean(-3))
        parents = Capsules(pose, self.parts.get("activation", pose.norm(dim=-1)))
        coupling = self.parts.get("coupling", votes.new_ones(votes.shape[:-1]))
        step = self.parts.get("step", Step(None, coupling, parents))
        return Routed(self.parts.get("parents", parents), (step,))


def through(routing, keep="none", **options):
    layer = DenseCapsules(n_in=3, d_in=2, n_out=2, d_out=2, routing=routing)
    return layer(Capsules(torch.ones(4, 3, 2)), keep=keep, **options)


NAMES = vars(layers) | vars(layers.routing) | vars(backbones) | globals()
NAMES |= {
    "balance": balance,
    "math": math,
    "VoteMap": VoteMap,
    "bound": bound,
    **{"IMAGE": IMAGE, "backbone": backbone, "head": head},
    "route_sequentially": partial(routed, layers.route_sequentially),
    "route_at_once": partial(routed, partial(layers.route_concurrently, iterations=2)),
    "deepcaps": partial(tc.create_model, "rem_deepcaps", image=(1, 16, 16), n_classes=3),
    "IMAGES": torch.rand(3, 1, 20, 20),
    "MAPS": torch.rand(2, 6, 5, 7),
    "CHILDREN": Capsules(torch.rand(2, 5, 3), torch.rand(2, 5)),
    "PRIMARY": layers.PrimaryCapsules(nn.Conv2d(3, 8, 3), d_out=8),
    "VOTES": torch.rand(3, 5, 4, 2),
}
said = partial(said_by, names=NAMES)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence):
    assert said(call) == sentence


@pytest.mark.parametrize("keep", ["none", "last", "steps"])
def test_a_routing_of_ones_own_that_fits_passes(keep):
    assert through(Odd(), keep).parents.activation.shape == (4, 2)
    assert through(Odd(activation=None), keep).parents.activation is None
    assert through(Forgetful()).steps == ()
