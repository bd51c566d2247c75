"""Keys and their entropy on paper, at their extremes, and against a dictionary of strings."""

import math
from collections import defaultdict

import pytest
import torch

from torchcaps.analysis import MeasureKeys, quantise
from traces import network, recoupled, result_of


def keys_of(coupling, predicted, **options):
    trace = network({"classes": coupling})
    return result_of(MeasureKeys(**options), trace, torch.as_tensor(predicted))


def random_case(images=200):
    generator = torch.Generator().manual_seed(3)
    coupling = (torch.randn(images, 2, 3, generator=generator) / 2).softmax(-1).double()
    return coupling, torch.randint(2, (images,), generator=generator)


def test_two_objects_have_a_key_each():
    coupling, _ = random_case(20)
    pairs = torch.tensor([[0, 1], [1, 0]] * 10)
    both = keys_of(coupling, pairs)
    apart = [keys_of(coupling, pairs[:, m]) for m in range(2)]
    assert both.images == 20
    # Every image names both classes, in either order.
    assert [row.images for row in both.classes] == [20, 20, 0]
    assert sum(row.images for each in apart for row in each.classes) == 40


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_keys_are_those_of_quantised_couplings_in_every_dtype(dtype):
    # Half way between two levels but for the last digit, as dead children leave an even split.
    tenth = torch.tensor(0.1, dtype=dtype)
    around = [tenth.nextafter(tenth.new_tensor(end)) for end in (0.0, 1.0)]
    coupling = torch.stack([tenth, *around]).view(3, 1, 1).expand(3, 4, 2)
    (layer,) = network({"classes": coupling})
    found = []
    for each in (quantise(coupling, levels=6), coupling):
        measurement = MeasureKeys(levels=6, sweep=())
        measurement.add((recoupled(layer, each),), torch.zeros(3, dtype=torch.int64))
        found.append((measurement.result().classes[0].counts, measurement.dictionary(0)))
    assert found[0] == found[1]
    assert found[0][0] == (3,)


@pytest.mark.parametrize("levels", [3, 11, 50])
def test_brute_force_agrees(levels):
    coupling, predicted = random_case()
    images = defaultdict(lambda: defaultdict(int))
    for image, label in enumerate(predicted.tolist()):
        string = ",".join(str(round(float(c) * (levels - 1))) for c in coupling[image, :, label])
        images[label][string] += 1
    found = keys_of(coupling, predicted, levels=levels)
    for label in (0, 1):
        row, counts = found.classes[label], images[label].values()
        total = sum(counts)
        assert (row.images, row.keys) == (total, len(counts))
        expected = -sum(n / total * math.log(n / total, 2) for n in counts)
        assert row.entropy == pytest.approx(expected, abs=1e-12)
