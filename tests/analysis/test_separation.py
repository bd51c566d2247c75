"""Silhouettes and nearest centroids on paper, against loops, in batches."""

from types import SimpleNamespace

import pytest
import torch

from torchcaps.analysis import MeasureSeparation, silhouette
from torchcaps.types import Capsules


def measured(points, labels, size=100, **options):
    """Of points that a network gives as class capsules of one component, with others at zero."""
    measurement = MeasureSeparation(lambda classes, labels: classes.pose.flatten(1), **options)
    for part in torch.arange(len(points)).split(size):
        poses = torch.nn.functional.pad(points[part], (0, 5)).unsqueeze(-1)
        out = SimpleNamespace(classes=Capsules(poses))
        measurement.update(out, SimpleNamespace(pixels=points[part], labels=labels[part]))
    return measurement.result()


def test_on_paper():
    points = torch.tensor([[0.0], [1.0], [4.0], [6.0]])
    labels = torch.tensor([3, 3, 5, 5])
    # (5 − 1) / 5, (4 − 1) / 4, (3.5 − 2) / 3.5 and (5.5 − 2) / 5.5.
    expected = [4 / 5, 3 / 4, 1.5 / 3.5, 3.5 / 5.5]
    assert silhouette(points, labels).tolist() == pytest.approx(expected, abs=1e-15)
    found = measured(points, labels)
    assert found.silhouette == pytest.approx(sum(expected) / 4, abs=1e-15)
    # The centroids are 0.5 and 5.
    assert found.nearest_centroid == 1
    assert found.images == 4


def test_a_point_among_the_others_is_nearer_to_their_centroid():
    points = torch.tensor([[0.0], [1.0], [5.0], [5.2], [6.0]])
    # Centroids 2 and 5.6: of the first class, 5 is nearer to the second.
    assert measured(points, torch.tensor([0, 0, 0, 1, 1])).nearest_centroid == pytest.approx(4 / 5)


def test_noise_is_at_chance_in_any_dimension():
    """With itself in its centroid every point of 40 in 160 dimensions would be at home."""
    torch.manual_seed(0)
    found = measured(torch.randn(200, 160, dtype=torch.float64), torch.arange(200) % 10)
    assert found.nearest_centroid == pytest.approx(0.1, abs=0.06)
    # Alone in its class a point has no centroid to go home to.
    alone = measured(torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0, 0, 1]))
    assert alone.nearest_centroid == pytest.approx(2 / 3)


def test_nearest_centroids_by_loops():
    torch.manual_seed(1)
    points, labels = torch.randn(23, 3, dtype=torch.float64), torch.arange(23) % 4
    right = 0
    for i in range(23):
        rest = {k: [j for j in range(23) if labels[j] == k and j != i] for k in range(4)}
        far = {k: float((points[i] - points[js].mean(0)).norm()) for k, js in rest.items()}
        right += min(far, key=far.get) == int(labels[i])
    assert measured(points, labels).nearest_centroid == pytest.approx(right / 23)


def test_alone_or_all_at_one_place():
    assert silhouette(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])).tolist() == [0, 0]
    assert silhouette(torch.ones(4, 2), torch.tensor([0, 0, 1, 1])).tolist() == [0] * 4


def test_loops_agree():
    points, labels = torch.randn(23, 3, dtype=torch.float64), torch.arange(23) % 4
    found = silhouette(points, labels)
    for i in range(23):
        mean = {}
        for label in range(4):
            rest = [j for j in range(23) if labels[j] == label and j != i]
            mean[label] = sum(float((points[i] - points[j]).norm()) for j in rest) / len(rest)
        a = mean.pop(int(labels[i]))
        b = min(mean.values())
        assert float(found[i]) == pytest.approx((b - a) / max(a, b), abs=1e-12)


def test_near_points_keep_their_digits():
    # Far from zero, a hundredth of a millionth apart.
    points = 1e3 + 1e-8 * torch.tensor([[0.0], [1.0], [4.0], [6.0]], dtype=torch.float64)
    found = silhouette(points, torch.tensor([0, 0, 1, 1]))
    assert found.tolist() == pytest.approx([4 / 5, 3 / 4, 1.5 / 3.5, 3.5 / 5.5], abs=1e-4)
