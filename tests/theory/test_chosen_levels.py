"""[renzulli2025] §3.1.2: the levels on which trees are counted, chosen for each network."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from torchcaps.analysis.keys import key_entropy
from torchcaps.analysis.quantise import quantised_index
from torchcaps.study import read_records

EVIDENCE = Path(__file__).parents[2] / "evidence"
CHILDREN, IMAGES = 32, 500
# Ten classes in each of which 1,000 of 10,000 images have a tree of their own.
BOUND = 9.97


def entropy(coupling, levels):
    keys = quantised_index(coupling, levels=levels)
    return key_entropy(Counter(bytes(row.tolist()) for row in keys))


@pytest.mark.parametrize(
    ("levels", "is_border"), [(5, False), (6, True), (8, False), (11, False), (16, True)]
)
def test_an_even_split_of_ten_lies_on_a_border_of_six_levels(levels, is_border):
    below, above = quantised_index(torch.tensor([0.1 - 1e-6, 0.1 + 1e-6]).double(), levels=levels)
    assert (below != above) == is_border


def test_nearly_even_couplings_are_one_tree_or_as_many_as_images():
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(IMAGES, CHILDREN, generator=draw, dtype=torch.float64)
    coupling = 0.1 + 1e-6 * noise
    assert entropy(coupling, 11) == entropy(coupling, 8) == 0
    # Any two images have one key with a probability of 2⁻³².
    assert entropy(coupling, 6) == pytest.approx(torch.tensor(IMAGES).double().log2().item())


def test_the_rule_moves_entropy_by_more_than_pruning_does():
    records = read_records(EVIDENCE, study="renzulli2025/pruned_trees").values()
    wide = [
        each
        for each in records
        if each.recipe["options"]["width"] == 32
        and each.recipe["precision"] == "bfloat16"
        and each.recipe["data"] == "fashion-mnist"
    ]
    values = {
        (each.recipe["prune"], each.recipe["prune_shrink"]): [seed.values for seed in each.seeds]
        for each in wide
    }

    def of(way, name, shrink=1e-4):
        return [seed[name] for seed in values[way, shrink]]

    chosen, on_eleven = of(None, "entropy_at_chosen_levels"), of(None, "entropy+K11")
    assert of(None, "chosen_levels") == [8, 6, 8]
    assert [round(each, 2) for each in chosen] == [2.70, 9.95, 2.55]
    assert max(on_eleven) - min(on_eleven) < 0.3
    # Pruning by magnitude lowers the entropy by 2.7 bit.
    lowered = [a - b for a, b in zip(on_eleven, of("magnitude", "entropy+K11"), strict=True)]
    assert max(lowered) < 3 < 7 < max(chosen) - min(chosen)
    # By LOBSTER three times as strong as the paper's, to one tree a class; and as strong.
    assert of("lobster", "entropy+K11", 3.4e-3) == [0.0, 0.0, 0.0]
    assert of("lobster", "chosen_levels", 3.4e-3)[0] == 6
    assert of("lobster", "entropy_at_chosen_levels", 3.4e-3)[0] == pytest.approx(BOUND, abs=0.2)
    assert of("lobster", "entropy_at_chosen_levels", 1.1e-3) == [0.0, 0.0, 0.0]
    assert max(of("lobster", "entropy+K11", 1.1e-3)) < 0.5
