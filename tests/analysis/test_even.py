"""Couplings that prefer no parent, by hand and of networks."""

import pytest
import torch

from torchcaps.analysis.even_split import evenly
from torchcaps.analysis.trace import last_coupling
from torchcaps.models import create_model
from torchcaps.types import Capsules, LayerTrace, Routed, Window


def layer(coupling, normalised_over, window=None):
    parents = Capsules(torch.ones(1, coupling.shape[-1], 2))
    children = Capsules(torch.ones(1, 3, 2))
    routed = Routed(parents)
    return LayerTrace("hidden", children, routed, normalised_over=normalised_over, window=window)


def test_a_child_is_shared_among_its_parents_and_attention_among_its_children():
    coupling = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]])
    over_parents = evenly(layer(coupling, "parents"))(coupling)
    assert torch.equal(over_parents, torch.full((1, 3, 2), 0.5))
    of_attention = coupling / coupling.sum(-2, keepdim=True)
    over_children = evenly(layer(of_attention, "children"))(of_attention)
    torch.testing.assert_close(over_children, torch.full((1, 3, 2), 1 / 3))


def test_a_child_of_several_windows_is_shared_among_all_that_compete_for_it():
    # Three children in a column, windows of two: child 1 lies in both.
    window = Window(child_grid=(3, 1, 1), kernel=(2, 1), stride=(1, 1))
    coupling = torch.tensor([[[[0.9, 0.1], [0.5, 0.1]], [[0.1, 0.3], [0.2, 0.8]]]])
    even = evenly(layer(coupling, "parents_and_positions", window))(coupling)
    assert even[0].tolist() == [[[0.5] * 2, [0.25] * 2], [[0.25] * 2, [0.5] * 2]]
    # Where they do not compete, each window has the child to itself.
    alone = evenly(layer(coupling, "parents", window))(coupling)
    torch.testing.assert_close(alone[0, :, :, 0], torch.tensor([[0.5, 0.3], [0.2, 0.5]]))


@pytest.mark.parametrize("compete", ["all", "window"])
def test_what_a_network_with_windows_gives_a_child_stays_what_it_was(compete):
    model = create_model(
        "matrix_capsnet", image=(1, 24, 24), n_classes=3, compete=compete, sizes="4-3-3-3"
    ).eval()
    out = model(torch.rand(2, 1, 24, 24), keep="last")
    for each in out.trace:
        coupling = last_coupling(each)
        dims = tuple(range(1, coupling.dim()))
        even = evenly(each)(coupling)
        torch.testing.assert_close(even.sum(dims), coupling.sum(dims))
        assert torch.equal(even[..., 0], even[..., 1])
