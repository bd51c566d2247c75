"""What may stand for no routing: couplings of 1/I, of 1/J, or of one."""

import math
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from torchcaps.ops import materialise, squash, uniform_routing
from torchcaps.study import read_records
from torchcaps.types import Capsules, VoteMap
from torchcaps_claims import find_claim

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "claims/pages/findings/no-routing.md").read_text(encoding="utf-8").split())
CHILDREN, PARENTS = 3200, 10


def test_a_fully_connected_layer_is_the_sum_of_votes():
    """[gu2021] §3.3: ConvNet-CR-SF. Neither mean is that."""
    child, weight = torch.randn(3, 50, 8).double(), torch.randn(50, 10, 16, 8).double()
    connected = torch.nn.functional.linear(
        child.flatten(1), weight.permute(1, 2, 0, 3).reshape(160, 400)
    ).unflatten(-1, (10, 16))
    votes = materialise(VoteMap(Capsules(child), weight))
    for normalise, factor in (("mean", 50), ("softmax", 10)):
        pose = uniform_routing(votes, normalise=normalise, squash="none").parents.pose
        torch.testing.assert_close(factor * pose, connected, rtol=0, atol=1e-10)


def test_by_how_much_the_scales_differ():
    children = []
    for side in (36, 40):
        with torch.device("meta"):
            network = tc.create_model("gu_capsnet", image=(1, side, side))
        children.append(network.layers["classes"].weight.shape[0])
    assert children[0] == CHILDREN
    pairs, framed = (f"{round(each / PARENTS)} " for each in children)
    assert f"{pairs}for CapsNet of [gu2021] on pairs of digits ({CHILDREN:,} children" in PAGE
    assert f"{framed}on its images of 40 × 40 ({children[1]:,} children)" in PAGE


@pytest.fixture(scope="module")
def votes():
    """Of children that are half a unit long, with W ~ N(0, 0.1²)."""
    draw = torch.Generator().manual_seed(0)
    child = torch.randn(CHILDREN, 8, generator=draw, dtype=torch.float64)
    child = child / (2 * child.norm(dim=-1, keepdim=True))
    weight = 0.1 * torch.randn(CHILDREN, PARENTS, 16, 8, generator=draw, dtype=torch.float64)
    return child, torch.einsum("ijde,ie->ijd", weight, child)


def test_parents_at_the_start(votes):
    _, votes = votes

    def length(normalise):
        return uniform_routing(votes, normalise=normalise).parents.activation.mean().item()

    # s_j has 16 components of variance c² · I · 0.1² · 0.5², and a short one is squashed to r².
    of_mean = 16 * 0.1**2 * 0.5**2 / CHILDREN
    assert length("mean") == pytest.approx(of_mean, rel=0.25)
    assert length("softmax") == pytest.approx(0.55, abs=0.05)
    assert squash(votes.sum(0)).norm(dim=-1).min() > 0.98
    assert "0.000013 long with 1/I, 0.55 with 1/J and 0.99 with 1." in PAGE


def test_how_far_a_long_parent_is(votes):
    """If every weight moves by 0.001 an update, the way its child points, each component of s_j
    grows by c · 0.001 · Σ_i ‖u_i‖₁; sixteen alike of 3/4 make a length of 3."""
    child, _ = votes
    (most,) = squash(torch.full((1, 16), 0.75)).norm(dim=-1).tolist()
    assert most == pytest.approx(0.9)
    a_step = 0.001 * child.abs().sum().item()
    updates = [math.ceil(0.75 / (coupling * a_step)) for coupling in (1 / CHILDREN, 1 / PARENTS)]
    assert updates[1] == 3
    assert f"about {updates[0]} updates away with 1/I, and three with 1/J" in PAGE


def test_what_routing_gains_by_either_meaning():
    def right(study, model):
        """Of the network as the paper has it, or with its couplings even."""
        (record,) = (
            each
            for each in read_records(ROOT / "evidence", study=study).values()
            if each.recipe["model"] == model
            and each.recipe["loss"] == "auto"
            and each.recipe["options"] in ({}, {"routing": "uniform"})
        )
        values = record.values("accuracy")
        return sum(values) / len(values)

    dynamic = right("gu2021/gu2021-q-margin-beats-bce", "gu_capsnet")
    mean = right("gu2021/gu2021-q-all-components-help-multimnist", "gu_capsnet_nor")
    even = right("even-split", "gu_capsnet")
    assert mean < dynamic < even
    assert f"right on {dynamic:.1f} % with dynamic routing" in PAGE
    assert f"{mean:.1f} % with 1/I" in PAGE
    assert f"routing gains {dynamic - mean:.1f} points" in PAGE
    # The even ones were trained on a CPU, and so was this one.
    beside = right("multi-mnist", "gu_capsnet")
    assert f"right on {even:.1f} %, where three seeds with dynamic routing" in PAGE
    assert (
        f"are right on {beside:.1f} %: by this meaning it costs {even - beside:.1f} points" in PAGE
    )
    routed, none = (find_claim(f"gu2021-t4-routing-{each}-test").value for each in ("dr", "nor"))
    assert f"gain of {routed - none:.2f} points" in PAGE


def test_votes_of_one_matrix_do_not_cancel():
    """Classes at the start, of images of noise; and what becomes of those that start so long."""
    images = torch.rand(8, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    lengths = {}
    for name in ("gu_aff_capsnet", "gu_aff_capsnet_dr", "gu_capsnet"):
        torch.manual_seed(0)
        network = tc.create_model(name, width=64, decoder=False)
        with torch.no_grad():
            lengths[name] = network(images).scores.mean().item()
    assert lengths["gu_aff_capsnet"] < 0.001
    assert lengths["gu_aff_capsnet_dr"] > 0.8
    assert lengths["gu_capsnet"] < 0.05

    records = read_records(ROOT / "evidence")
    for name, n_children, chance in (("509d59256ea4", 4608, 9.8), ("a4e8c61278e8", 3200, 2.8)):
        record = records[name]
        assert record.recipe["model"] == "gu_aff_capsnet_dr"
        assert record.measured == 5
        for seed in record.seeds:
            assert seed.per_epoch[0]["dead_capsules/primary"] == n_children
            assert seed.values["accuracy"] <= chance


def test_what_starts_too_long_dies_without_routing_too():
    """Couplings of a tenth, as dynamic routing begins with; by the mean none dies."""
    records = read_records(ROOT / "evidence", study="shared-scale").values()
    by_mean = {r.recipe["options"].get("normalise", "mean") == "mean": r for r in records}
    assert by_mean[True].measured == by_mean[False].measured == 3
    for is_mean, dead in ((True, 0), (False, 4608)):
        for seed in by_mean[is_mean].seeds:
            assert seed.per_epoch[0]["dead_capsules/primary"] == dead
            assert (seed.values["accuracy"] > 30) == is_mean
