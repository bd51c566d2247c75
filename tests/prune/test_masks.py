"""Masks by hand and by brute force: what is chosen, what stays zero, whose they are."""

import io
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from torchcaps import create_model
from torchcaps.prune import Masks, lowest, prunable, sparsity


class Small(nn.Module):
    """Seven weights in two convolutions, and others that are never pruned."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(1, 3, 1)
        self.norm = nn.BatchNorm2d(3)
        self.two = nn.Conv2d(1, 4, 1, bias=False)
        self.decoder = nn.Conv2d(1, 5, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.two(self.norm(self.one(x)).mean(1, keepdim=True)).mean((2, 3))


def magnitudes(masks):
    return {name: weight.detach().abs() for name, weight in masks.weights.items()}


def test_convolutions_and_capsules_are_pruned_and_the_decoder_is_not():
    assert list(prunable(Small())) == ["one.weight", "two.weight"]
    assert list(prunable(create_model("mitterreiter_5x16", image=(1, 20, 20)))) == [
        *(f"backbone.{k}.weight" for k in (0, 3, 6, 9)),
        "primary.projection.weight",
        *(f"layers.{name}.weight" for name in ("hidden_2", "hidden_3", "hidden_4", "classes")),
    ]
    with torch.device("meta"):
        deep = prunable(create_model("deepcaps"))
        attending = prunable(create_model("mhsa_stack"))
    assert "layers.cell_4_skip.weight" in deep
    assert not [name for name in deep if "decoder" in name]
    # Nobody votes in self-attention between capsules.
    assert [name for name in attending if name.startswith("layers")] == ["layers.classes.weight"]


def test_the_denominator_of_the_paper():
    # 6.8M parameters without a decoder [renzulli2025] Table 9, 512 of them biases.
    assert sparsity(create_model("rem_dr")).weights == 6_804_224 - 512


def test_zeros_are_counted_over_all_and_by_layer():
    model = Small()
    with torch.no_grad():
        model.one.weight[0] = 0
        model.two.weight[:2] = 0
        model.decoder.weight.zero_()
    found = sparsity(model)
    assert (found.weights, found.zeros, found.share) == (7, 3, 3 / 7)
    assert found.layers == {"one.weight": 1 / 3, "two.weight": 1 / 2}


def test_frozen_weights_and_those_made_of_others_are_not_pruned():
    model = Small()
    weight_norm(model.one)
    assert list(prunable(model)) == ["two.weight"]
    assert sparsity(model).weights == 4


@pytest.mark.parametrize("count", range(8))
def test_the_lowest_are_the_lowest_of_all_subsets(count):
    scores = {"a": torch.tensor([[2.0, 0.5], [1.0, 3.0]]), "b": torch.tensor([0.5, 1.5, 0.1])}
    flat = torch.cat([scores["a"].flatten(), scores["b"]])
    found = torch.cat([mask.flatten() for mask in lowest(scores, count).values()])
    assert int(found.sum()) == count
    least = min(sum(flat[list(some)]) for some in itertools.combinations(range(7), count))
    assert float(flat[found].sum()) == pytest.approx(float(least))


def test_of_equal_scores_the_first_are_chosen():
    found = lowest({"a": torch.zeros(3), "b": torch.zeros(2)}, 4)
    assert found["a"].tolist() == [True, True, True]
    assert found["b"].tolist() == [True, False]


def test_what_is_pruned_stays_pruned_however_large_its_score_is():
    model = Small()
    masks = Masks(model)
    first = masks.state_dict()
    first["two.weight"][3] = True
    masks.add(first)
    with torch.no_grad():
        model.two.weight[3] = 100.0
    masks.add(lowest(masks.scored(magnitudes(masks)), 2))
    assert masks.count == 2
    assert bool(masks.pruned["two.weight"][3])
    masks.apply()
    assert float(model.two.weight.detach()[3]) == 0


OPTIMISERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("adam", torch.float32),
        *(
            pytest.param(name, dtype, marks=pytest.mark.slow)
            for name in OPTIMISERS
            for dtype in (torch.float32, torch.bfloat16)
            if (name, dtype) != ("adam", torch.float32)
        ),
    ],
)
def test_pruned_weights_are_exactly_zero_after_a_thousand_steps_and_a_resume(name, dtype):
    def begun():
        model = Small()
        return model, OPTIMISERS[name](model.parameters()), Masks(model)

    model, optimiser, masks = begun()
    images = torch.randn(2, 1, 2, 2)
    left = {}
    for step in range(1010):
        if step == 500:
            file = io.BytesIO()
            torch.save([each.state_dict() for each in (model, optimiser, masks)], file)
            file.seek(0)
            # As after a stop: everything is made anew, and takes what was saved.
            model, optimiser, masks = begun()
            states = torch.load(file, weights_only=True)
            for each, state in zip((model, optimiser, masks), states, strict=True):
                each.load_state_dict(state)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = (model(images).float() - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        masks.apply()
        if step == 9:
            # Momentum is there, and goes on pulling at them.
            masks.add(lowest(masks.scored(magnitudes(masks)), 2))
            masks.apply()
            left = {n: w.detach().clone() for n, w in masks.weights.items()}
    for where, weight in masks.weights.items():
        pruned = masks.pruned[where]
        assert bool((weight[pruned] == 0).all())
        assert not torch.equal(weight[~pruned], left[where][~pruned])
        assert bool((left[where][pruned] == 0).all())
    assert masks.count == 2


def test_masks_move_nothing_else():
    model = Small()
    masks = Masks(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    masks.add(lowest(magnitudes(masks), 3))
    masks.apply()
    moved = {n for n, value in model.state_dict().items() if not torch.equal(value, before[n])}
    assert moved <= {"one.weight", "two.weight"}


def test_a_weight_that_two_layers_share_counts_once():
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3) for _ in range(3)))
    model[1].weight = model[0].weight
    masks = Masks(model)
    assert masks.size == 2 * 4 * 4 * 9
    masks.add(lowest(magnitudes(masks), 144))
    masks.apply()
    assert sparsity(model).share == masks.count / masks.size == 0.5


def test_masks_stay_where_they_are_in_memory():
    """A step that a GPU repeats reads them there."""
    masks = Masks(Small())
    kept = masks.state_dict()
    before = {name: mask.data_ptr() for name, mask in masks.pruned.items()}
    masks.add({name: torch.arange(mask.numel()).view_as(mask) == 1 for name, mask in kept.items()})
    assert masks.count == 2
    # What was written down of them is not what they are now.
    assert not any(bool(mask.any()) for mask in kept.values())
    masks.load_state_dict(kept)
    assert masks.count == 0
    assert {name: mask.data_ptr() for name, mask in masks.pruned.items()} == before
