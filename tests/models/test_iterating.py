"""`model(x, iterations=…)` is the network made with so many iterations, and leaves no mark."""

import pytest
import torch

from error_text import text_of
from torchcaps import create_model

SMALL = {"image": (1, 12, 11), "n_classes": 3, "widths": "4,5", "d_pose": 4}
NETWORKS = {
    "mitterreiter_grid": SMALL,
    "peer_sign_em": {},
    "tsai_inverted_simple_c10": {"image": (2, 13, 14), "types": 4, "d_pose": 4},
    "deepcaps": {"image": (2, 5, 9)},
}


def made(name, **options):
    torch.manual_seed(0)
    return create_model(name, **NETWORKS[name], **options).eval()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("iterations", [1, 5])
def test_it_is_the_network_made_with_so_many_iterations(name, iterations):
    model, other = made(name), made(name, iterations=iterations)
    other.load_state_dict(model.state_dict())
    x = torch.rand(2, *model.image)
    before = model(x)
    on, expected = model(x, iterations=iterations, keep="steps"), other(x, keep="steps")
    assert torch.equal(on.scores, expected.scores)
    assert not torch.equal(on.scores, before.scores)
    for our_layer, expected_layer in zip(on.trace, expected.trace, strict=True):
        assert len(our_layer.routed.steps) == len(expected_layer.routed.steps) == iterations
        assert torch.equal(
            our_layer.routed.steps[-1].coupling, expected_layer.routed.steps[-1].coupling
        )
    assert torch.equal(model(x).scores, before.scores)


@pytest.mark.parametrize("name", ["mitterreiter_grid", "tsai_inverted_simple_c10"])
def test_what_is_set_of_every_routing_by_hand_is_that_too(name):
    model, other = made(name), made(name, iterations=4)
    other.load_state_dict(model.state_dict())
    x = torch.rand(2, *model.image)
    for layer in model.layers.values():
        layer.routing.iterations = 4
    assert torch.equal(model(x).scores, other(x).scores)


def test_further_updates_of_gamma_go_by_the_last_stored_distance():
    options = {**SMALL, "routing": "distance"}
    torch.manual_seed(0)
    model = create_model("gamma_capsnet", image=(1, 17, 17), n_classes=3).train()
    x = torch.rand(4, 1, 17, 17)
    model(x)
    stored = {name: b.clone() for name, b in model.named_buffers() if "running" in name}
    # More iterations in training teach nothing to the means of other updates.
    model(x, iterations=5)
    assert all(torch.equal(b, stored[name]) for name, b in model.named_buffers() if name in stored)
    model.eval()
    longer = create_model("gamma_capsnet", image=(1, 17, 17), n_classes=3, iterations=5).eval()
    state = model.state_dict()
    for name, (first, last) in stored.items():
        state[name] = torch.stack([first, last, last, last])
    longer.load_state_dict(state)
    assert torch.equal(model(x, iterations=5).scores, longer(x).scores)
    once = create_model("gamma_capsnet", image=(1, 17, 17), n_classes=3, iterations=1).eval()
    assert once(x, iterations=1).scores.shape == (4, 3)
    assert create_model("mitterreiter_grid", **options).eval()(
        torch.rand(1, 1, 12, 11), iterations=4
    ).scores.shape == (1, 3)


def test_layers_iterate_below_classes_that_do_not():
    # The classes pass once; the skip of the last cell below them does not.
    model = made("deepcaps", routing="self_attention")
    x = torch.rand(2, *model.image)
    skip, classes = model(x, iterations=5, keep="steps").trace
    assert len(skip.routed.steps) == 5
    assert len(classes.routed.steps) == 1


def test_no_mark_is_left_by_a_call_that_fails():
    model = made("mitterreiter_grid")
    before = [layer.routing.iterations for layer in model.layers.values()]
    assert "iterations" in text_of(lambda: model(torch.rand(1, *model.image), iterations=0))
    with pytest.raises(ValueError, match="stop"):
        model(torch.rand(1, *model.image), iterations=9, couple=stop)
    assert [layer.routing.iterations for layer in model.layers.values()] == before


def stop(coupling):
    raise ValueError("stop")
