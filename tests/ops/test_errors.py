"""What ops say of what they cannot take, in errors.txt, word by word."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from error_text import cases_of, said_by
from torchcaps import ops
from torchcaps.ops import fused, materialise
from torchcaps.types import Capsules, Output, VoteMap, Window

ERRORS = Path(__file__).with_name("errors.txt")
VOTES, LENGTHS, LABELS = torch.zeros(2, 5, 3, 4), torch.ones(2, 5), torch.tensor([0])
CHILD_ID = torch.zeros(2, 5, dtype=torch.int64)
SCORES = torch.tensor([[0.8, 0.3, 0.05]], dtype=torch.float64)
POSE, WEIGHT = torch.rand(2, 6, 4), torch.rand(6, 3, 5, 4)
MADE = VoteMap(Capsules(POSE, POSE[..., 0]), WEIGHT)


def em(**given):
    sizes = {"votes": VOTES, "activation": LENGTHS, "beta_a": torch.zeros(3)}
    return ops.em_routing(**sizes | {"beta_u": torch.zeros(3)} | given)


def conv3d(*, votes=torch.zeros(2, 5, 12, 3), parent_grid=(2, 3, 2), **options):  # noqa: B008
    return ops.conv3d_routing(votes, parent_grid=parent_grid, **options)


def votes_of(pose, weight, /, **options):
    """Of poses and weights of these shapes, in which dtypes."""
    pose, weight = (torch.ones(x) if isinstance(x, tuple) else x for x in (pose, weight))
    return materialise(VoteMap(Capsules(pose), weight, **options))


NAMES = {name: getattr(ops, name) for name in ops.__all__}
NAMES |= {"math": math, "np": np, "torch": torch, "Window": Window, "Capsules": Capsules}
NAMES |= {"VoteMap": VoteMap, "Output": Output, "VOTES": VOTES, "LENGTHS": LENGTHS}
NAMES |= {"CHILD_ID": CHILD_ID, "LABELS": LABELS, "SCORES": SCORES, "POSE": POSE, "WEIGHT": WEIGHT}
NAMES |= {"MADE": MADE, "em": em, "conv3d": conv3d, "votes_of": votes_of, "fused": fused}
said = partial(said_by, names=NAMES)


@pytest.mark.parametrize(("call", "sentence"), cases_of(ERRORS))
def test_what_is_told(call, sentence):
    assert said(call) == sentence


# Each looks at the poses in its own way before it routes.
@pytest.mark.parametrize("backend", ["auto", "plain", "fused", "native"])
@pytest.mark.parametrize(
    ("call", "sentence"), [each for each in cases_of(ERRORS) if "'distance'" in each.id]
)
def test_every_backend_says_it_of_a_vote_map(call, sentence, backend):
    assert (
        said_by(call.replace("'distance'", f"'distance', backend={backend!r}"), NAMES) == sentence
    )
