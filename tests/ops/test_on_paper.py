"""Numbers worked out by hand, on_paper.toml and losses_on_paper.toml, are what ops give."""

import math
from functools import partial

import pytest
import torch

from tables import cases_beside, worked_out
from torchcaps import ops
from torchcaps.types import Capsules, VoteMap


def numbers(value):
    value = worked_out(value, vars(math))
    return None if value is None else torch.tensor(value, dtype=torch.float64)


def votes_of(tensors, options):
    vote_map = VoteMap(Capsules(tensors["pose"]), tensors["weight"], **options)
    return {"votes": ops.materialise(vote_map)}


def squashed(tensors, options):
    return {"pose": ops.squash(**tensors, **options)}


def routed_by(route, tensors, options):
    routed = route(**tensors, **options, keep="steps")
    steps = routed.steps
    return {
        "pose": routed.parents.pose,
        "activation": routed.parents.activation,
        "scale": routed.scale,
        "coupling": steps[-1].coupling,
        "couplings": torch.stack([step.coupling for step in steps]),
        "poses": torch.stack([step.parents.pose for step in steps]),
        "activations": [step.parents.activation for step in steps],
    }


@pytest.mark.parametrize("case", cases_beside(__file__, "on_paper.toml"))
def test_numbers_on_paper(case):
    tensors = {name: numbers(x) for name, x in case["given"].items()}
    if "norm" in tensors:
        tensors["norm"] = tuple(tensors["norm"])
    how = {"materialise": votes_of, "squash": squashed}.get(case["op"])
    how = how or partial(routed_by, getattr(ops, case["op"]))
    found = how(tensors, case.get("options", {}))
    for name, expected in case["gives"].items():
        x, expected = found[name], numbers(expected)
        if expected is None:
            assert x is None
        else:
            x = torch.stack(x) if isinstance(x, list) else x
            torch.testing.assert_close(x, expected, rtol=0, atol=case.get("near", 1e-7))


@pytest.mark.parametrize("case", cases_beside(__file__, "losses_on_paper.toml"))
def test_losses_on_paper(case):
    loss, options = getattr(ops, case["op"]), case.get("options", {})
    scores = numbers(case["scores"])
    target = numbers(case["image"]) if "image" in case else torch.tensor(case["target"])
    if "weight" in case:
        options = options | {"weight": numbers(case["weight"])}
    ways = [(scores, options)]
    if options.get("scores_are") == "lengths":
        ways.append((scores.logit(), options | {"scores_are": "independent_logits"}))
    for given_scores, how in ways:
        found = loss(given_scores, target, **how)
        near = case.get("near", 1e-15)
        torch.testing.assert_close(found, numbers(case["gives"]), rtol=0, atol=near)
