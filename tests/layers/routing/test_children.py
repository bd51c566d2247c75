"""A routing that asks for the poses of the children gets them, and who does not ask gets none."""

import pytest
import torch

import torchcaps as tc
from torchcaps.layers import ConvCapsules, DenseCapsules, Routing
from torchcaps.testing import RoutingContractError, assert_routing_contract


def by_first_component(votes, *, poses, keep="none"):
    """A child goes to the later parents the more, the larger its first component is."""
    ranks = torch.arange(votes.shape[-2], device=votes.device, dtype=torch.float64)
    coupling = (poses[..., :1].double().tanh() * ranks).softmax(-1).to(votes.dtype)
    pose = (coupling.unsqueeze(-1) * votes).sum(-3)
    parents = tc.Capsules(pose, pose.norm(dim=-1))
    return tc.Routed(parents, () if keep == "none" else (tc.Step(None, coupling, parents),))


class Asking(Routing):
    """Keeps what it was given."""

    def create_parameters(self, *, n_in, n_out, d_out, d_in):
        self.sizes = (n_in, n_out, d_out, d_in)

    def forward(self, votes, activation=None, *, poses, keep="none"):
        self.seen = poses
        return by_first_component(votes, poses=poses, keep=keep)


class NotAsking(Routing):
    def create_parameters(self, *, n_in, n_out, d_out):
        self.sizes = (n_in, n_out, d_out)

    def forward(self, votes, activation=None, *, keep="none", **others):
        self.others = others
        return by_first_component(votes, poses=votes.mean(-2), keep=keep)


def test_a_dense_layer_gives_the_poses_and_their_size():
    routing = Asking()
    layer = DenseCapsules(n_in=6, d_in=5, n_out=3, d_out=4, routing=routing)
    pose = torch.randn(2, 7, 6, 5)
    layer(tc.Capsules(pose))
    assert routing.sizes == (6, 3, 4, 5)
    assert torch.equal(routing.seen, pose)


def test_through_windows_poses_come_as_parents_see_them():
    routing = Asking()
    layer = ConvCapsules(
        child_grid=(4, 5, 2), d_in=3, types=4, d_out=6, kernel=(3, 2), routing=routing
    )
    pose = torch.randn(2, 40, 3)
    layer(tc.Capsules(pose))
    assert routing.sizes == (12, 4, 6, 3)
    # Window 5 begins at row 1, column 1; its slot 4 is row 2 of the grid, column 1, type 0.
    assert routing.seen.shape == (2, 8, 12, 3)
    assert torch.equal(routing.seen[:, 5, 4], pose[:, 2 * 10 + 1 * 2])


def test_who_does_not_ask_is_given_nothing():
    routing = NotAsking()
    DenseCapsules(n_in=6, d_in=5, n_out=3, d_out=4, routing=routing)(
        tc.Capsules(torch.randn(2, 6, 5))
    )
    assert routing.others == {}
    assert routing.sizes == (6, 3, 4)


def test_gradients_reach_children_by_their_poses():
    layer = DenseCapsules(n_in=6, d_in=5, n_out=3, d_out=4, routing=Asking()).double()
    pose = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: layer(tc.Capsules(p)).parents.pose, (pose,))


def test_the_contract_brings_poses_that_move_with_the_children():
    errors = assert_routing_contract(
        by_first_component, fixed_coupling=True, interchangeable="children"
    )
    assert errors["child_permutation"] <= 1e-10

    def of_its_place(votes, *, poses, keep="none"):
        places = torch.arange(poses.shape[-2]).unsqueeze(-1)
        return by_first_component(votes, poses=poses + places, keep=keep)

    with pytest.raises(RoutingContractError, match=r"^child_permutation: "):
        assert_routing_contract(of_its_place, fixed_coupling=True, interchangeable="children")


def test_a_reference_may_ask_too():
    def twin(votes, *, poses):
        routed = by_first_component(votes, poses=poses, keep="last")
        return routed.parents.pose, routed.steps[0].coupling

    declared = {"fixed_coupling": True, "interchangeable": "children"}
    assert assert_routing_contract(by_first_component, reference=twin, **declared)["parity"] == 0

    def other(votes):
        return twin(votes, poses=-votes.mean(-2))

    with pytest.raises(RoutingContractError, match=r"^parity: "):
        assert_routing_contract(by_first_component, reference=other, **declared)
