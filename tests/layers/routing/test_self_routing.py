"""Self-routing as a module: equal shares at first, then by the poses, in every kind of layer."""

import pytest
import torch

from torchcaps.layers import ConvCapsules, DenseCapsules, SelfRouting, use_backend
from torchcaps.ops import materialise, self_routing
from torchcaps.types import Capsules

DENSE = {"n_in": 40, "d_in": 3, "n_out": 4, "d_out": 5}
WINDOWS = {"child_grid": (4, 5, 2), "d_in": 3, "types": 4, "d_out": 5, "kernel": (3, 2)}
LAYERS = [(DenseCapsules, DENSE, 40), (ConvCapsules, WINDOWS, 12)]
CHILDREN = Capsules(torch.randn(2, 40, 3), torch.rand(2, 40))


@pytest.mark.parametrize(("kind", "sizes", "slots"), LAYERS)
def test_every_child_begins_with_equal_shares(kind, sizes, slots):
    layer = kind(**sizes, routing="self_routing")
    found = {name: tuple(p.shape) for name, p in layer.routing.named_parameters()}
    assert found == {"weight": (slots, 4, 3), "bias": (slots, 4)}
    routed = layer(CHILDREN, keep="last")
    assert torch.equal(routed.steps[0].coupling, torch.full_like(routed.steps[0].coupling, 0.25))
    torch.testing.assert_close(
        routed.parents.activation, torch.full_like(routed.parents.activation, 0.25)
    )


@pytest.mark.parametrize(("kind", "sizes", "slots"), LAYERS)
def test_the_layer_gives_the_op_what_its_children_are(kind, sizes, slots):
    layer = kind(**sizes, routing=SelfRouting())
    with torch.no_grad():
        for parameter in layer.routing.parameters():
            parameter.normal_()
    vote_map, window = layer.vote_map(CHILDREN), layer.window
    poses, active = CHILDREN
    if window is not None:
        poses, active = window.of(poses), window.of(active.unsqueeze(-1)).squeeze(-1)
    expected = self_routing(
        materialise(vote_map),
        active,
        poses=poses,
        weight=layer.routing.weight,
        bias=layer.routing.bias,
        keep="last",
    )
    for backend in ("auto", "plain"):
        use_backend(layer, backend)
        routed = layer(CHILDREN, keep="last")
        assert torch.equal(routed.steps[0].coupling, expected.steps[0].coupling)
        assert torch.equal(routed.parents.pose.flatten(), expected.parents.pose.flatten())
    assert not torch.equal(layer(Capsules(CHILDREN.pose)).parents.pose, routed.parents.pose)


def test_it_is_no_form_without_stored_votes():
    layer = DenseCapsules(**DENSE, routing="self_routing")
    use_backend(layer, "fused")
    with pytest.raises(Exception, match="SelfRouting has no fused form"):
        layer(CHILDREN)
