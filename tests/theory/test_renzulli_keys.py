"""[renzulli2025] Eqs. 6, 8, 10, 11, 14 and 15: what couplings, keys and entropies are at their
extremes, and that sparse votes need not make sparse couplings."""

import math
import os

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import traces
from torchcaps import create_model
from torchcaps.analysis import (
    MeasureInequality,
    MeasureKeys,
    MeasureZeroVotes,
    key_entropy,
    polarisation,
)
from torchcaps.data import PartWholeSpec, by_name, load, part_whole
from torchcaps.ops import dynamic_routing, materialise
from torchcaps.train import fit, make_recipe
from torchcaps.train.loop import Loop
from torchcaps.types import Capsules, LayerTrace, VoteMap


def keys_of(coupling, predicted, **options):
    found = MeasureKeys(**options)
    found.add(traces.network({"classes": coupling}), predicted)
    return found.result()


def test_equation_6_one_hot_couplings_have_one_key_a_class():
    predicted = torch.arange(40) % 5
    ideal = torch.nn.functional.one_hot(predicted, 5).double()[:, None].expand(-1, 7, -1)
    found = keys_of(ideal, predicted)
    assert found.entropy == 0
    assert [row.keys for row in found.classes] == [1] * 5
    # Leaves go to the class, and nowhere else: the couplings are as polarised as can be.
    assert polarisation(ideal).eq(1).all()


def test_equation_8_untrained_couplings_are_near_even():
    images = part_whole("test", 20)
    model = create_model("rem_dr", image=images.image_shape, n_classes=10).eval()
    with torch.no_grad():
        out = model(images.pixels(torch.arange(20)), keep="last")
    coupling = out.trace[-1].routed.steps[-1].coupling
    assert (10 * coupling - 1).abs().mean() < 0.05
    found = MeasureKeys()
    found.add(out.trace, out.scores.argmax(-1))
    assert found.result().entropy < 0.5


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("seed", range(5))
def test_equation_8_of_digits_and_five_seeds(seed):
    """A thousand test images; entropy with the eleven levels of the claim."""
    root = os.environ.get("TORCHCAPS_DATA")
    if root is None:
        pytest.skip("TORCHCAPS_DATA is not set; it names the folder that holds MNIST/raw")
    digits = load("mnist", split="test", root=root)
    torch.manual_seed(seed)
    model = create_model("rem_dr", image=digits.image_shape, n_classes=10).eval()
    found, away = MeasureKeys(levels=11), 0.0
    for index in torch.arange(1000).split(100):
        with torch.no_grad():
            out = model(digits.pixels(index), keep="last")
        away += float((10 * out.trace[-1].routed.steps[-1].coupling - 1).abs().mean()) / 10
        found.add(out.trace, out.scores.argmax(-1))
    assert away < 0.05
    assert found.result().entropy < 0.5


@pytest.fixture
def flops(monkeypatch):
    """Those of every training step, forward and backward."""
    counters, step = [], Loop.training_step

    def training_step(self, *batch):
        counters.append(FlopCounterMode(display=False))
        with counters[-1]:
            step(self, *batch)

    monkeypatch.setattr(Loop, "training_step", training_step)
    return counters


@pytest.mark.parametrize("prune", [{}, {"prune": "lobster"}], ids=["plain", "pruned"])
def test_quantised_couplings_of_every_epoch_change_no_weight(tmp_path, monkeypatch, flops, prune):
    """Two runs of one seed: one finds the keys of couplings on eleven levels after every epoch.
    Weights are the same bit for bit, and training steps take as many FLOPs."""

    def tiny(split, root):
        return part_whole(split, {"train": 48, "test": 12}[split], spec=PartWholeSpec(size=20))

    monkeypatch.setitem(by_name.SOURCES, "tiny", tiny)
    fields = {"model": "rem_dr", "data": "tiny", "epochs": 2, "batch_size": 16, **prune}
    fields |= {"options": {"width": 16, "types": 4}, "validation_share": 0.25}
    plain = fit(make_recipe(**fields), tmp_path / "plain")
    counted = [counter.get_total_flops() for counter in flops]
    flops.clear()
    quantised = fit(make_recipe(**fields, measure=["keys"]), tmp_path / "quantised")
    assert not any("measured" in row for row in plain.metrics())
    assert [row["measured"]["keys"]["levels"] for row in quantised.metrics()] == [11, 11]
    weights = plain.model().state_dict()
    for name, weight in quantised.model().state_dict().items():
        assert torch.equal(weight, weights[name])
    # Of 36 images, three steps an epoch.
    assert [counter.get_total_flops() for counter in flops] == counted
    assert len(counted) == 6
    assert min(counted) > 0


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_equations_10_and_11_sparse_votes_need_not_make_sparse_couplings(share):
    """Children whose votes are zero for all parents stay even, however many there are; so couplings
    are the less sparse, the more of the votes are zero."""
    n_in, n_out = 40, 5
    weight = torch.randn(n_in, n_out, 4, 4, dtype=torch.float64)
    dead = int(share * n_in)
    weight[:dead] = 0
    children = Capsules(torch.randn(3, n_in, 4, dtype=torch.float64))
    votes = materialise(VoteMap(children, weight))
    assert float((votes == 0).all(-1).double().mean()) == share
    coupling = dynamic_routing(votes, iterations=3, keep="last").steps[0].coupling
    assert coupling[:, :dead].eq(1 / n_out).all()
    low = float((coupling < 1 / (2 * n_out)).double().mean())
    assert low <= 1 - share
    assert float(polarisation(coupling).mean()) <= 1 - share


@pytest.mark.parametrize("seed", range(5))
def test_three_votes_of_four_are_zero_and_few_couplings_are_small(seed):
    """The row asks for a layer with half of its votes zero or more, and small couplings for less
    than half as many; among the other children couplings are as sparse as can be."""
    torch.manual_seed(seed)
    weight = 20 * torch.randn(40, 5, 4, 4, dtype=torch.float64)
    weight[:30] = 0
    children = Capsules(torch.randn(8, 40, 4, dtype=torch.float64))
    votes = materialise(VoteMap(children, weight))
    routed = dynamic_routing(votes, iterations=3, keep="last")
    trace = (LayerTrace("classes", children, routed, weight=weight),)
    zero, couplings = MeasureZeroVotes(), MeasureInequality()
    zero.add(trace)
    couplings.add(trace)
    share, small = zero.result().layers[0].zero_votes, couplings.result().layers[0].small
    assert share == 0.75
    assert 0.15 < small <= 1 - share < share / 2


def test_equation_10_a_zero_vote_has_the_prior_logit_beside_others():
    # Of so many images some have a child that disagrees with all the others.
    votes = torch.randn(200, 6, 4, 3, dtype=torch.float64)
    votes[:, 1, 2] = 0
    coupling = dynamic_routing(votes, iterations=3, keep="last").steps[0].coupling
    agreed = torch.einsum(
        "bijd,bjd->bij", votes, _sum_of_parents(votes, iterations=2)
    )  # The logits of the last iteration.
    expected = 1 / (1 + agreed[:, 1, [0, 1, 3]].exp().sum(-1))
    torch.testing.assert_close(coupling[:, 1, 2], expected, rtol=0, atol=1e-12)
    # Where its rivals disagree, it gets more than its even share: no sparsity there.
    disagreeing = (agreed[:, 1, [0, 1, 3]] < 0).all(-1)
    assert disagreeing.any()
    assert (coupling[:, 1, 2][disagreeing] > 1 / 4).all()


def _sum_of_parents(votes, iterations):
    steps = dynamic_routing(votes, iterations=iterations, keep="steps").steps
    return sum(step.parents.pose for step in steps)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 1000])
def test_equation_14_equal_keys_have_the_logarithm_of_their_number(n):
    assert key_entropy((7,) * n) == pytest.approx(math.log2(n), abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_equation_14_random_keys_never_exceed_the_bound(seed):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 50, (int(torch.randint(1, 40, (), generator=generator)),))
    share = counts.double() / counts.sum()
    entropy = key_entropy(tuple(counts.tolist()))
    assert entropy == pytest.approx(float(-(share * share.log2()).sum()), abs=1e-12)
    assert 0 <= entropy <= math.log2(int(counts.sum())) + 1e-12


def test_equation_15_is_the_mean_over_classes_with_those_never_predicted():
    predicted = torch.tensor([0] * 4 + [1] * 4)
    coupling = torch.zeros(8, 2, 3)
    # Four trees for class 0, two for class 1, class 2 is never said.
    coupling[torch.arange(4), 0, 0] = torch.tensor([0, 0.2, 0.4, 0.6])
    coupling[torch.arange(4, 8), 1, 1] = torch.tensor([0, 0, 1.0, 1.0])
    found = keys_of(coupling, predicted)
    assert [row.entropy for row in found.classes] == [2, 1, 0]
    assert found.entropy == 1


def test_one_iteration_has_no_entropy():
    model = create_model("rem_dr", image=(1, 20, 20), n_classes=4, iterations=1).eval()
    with torch.no_grad():
        out = model(torch.rand(30, 1, 20, 20), keep="last")
    assert out.trace[-1].routed.steps[-1].coupling.eq(1 / 4).all()
    found = MeasureKeys()
    found.add(out.trace, torch.arange(30) % 4)
    assert found.result().entropy == 0
    assert [row.keys for row in found.result().classes] == [1] * 4
