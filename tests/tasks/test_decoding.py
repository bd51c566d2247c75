"""What decoders see: the poses of the true class, or all units."""

import pytest
import torch

from error_text import text_of
from torchcaps.models import create_model
from torchcaps.tasks.decoding import decoder_of

POINTS = {"image": (2, 1, 1), "n_classes": 3}
GRID = {"image": (1, 20, 20), "n_classes": 3, "widths": "6,5", "d_pose": 4}


def looked(name, **options):
    torch.manual_seed(0)
    model = create_model(name, **options).eval()
    labels = torch.tensor([2, 0])
    with torch.no_grad():
        out = model(torch.rand(2, *options["image"]), labels)
    decoder = decoder_of(model)
    seen = decoder.seen(out.classes, labels)
    return out, seen, decoder.layers(seen).view_as(out.reconstruction)


@pytest.mark.parametrize(
    ("name", "options"),
    [("gu_convnet_cr", {**POINTS, "kernel": 1}), ("mitterreiter_grid", {**GRID, "decoder": True})],
)
def test_a_mask_leaves_the_true_class(name, options):
    out, seen, drawn = looked(name, **options)
    d = out.classes.pose.shape[-1]
    expected = torch.zeros_like(seen)
    expected[0, 2 * d :], expected[1, :d] = out.classes.pose[0, 2], out.classes.pose[1, 0]
    assert torch.equal(seen, expected)
    torch.testing.assert_close(drawn, out.reconstruction)


def test_without_a_mask_all_units_are_seen():
    out, seen, drawn = looked("gu_convnet_r", **POINTS, kernel=1)
    assert torch.equal(seen, out.classes.pose.flatten(1))
    torch.testing.assert_close(drawn, out.reconstruction)


def test_networks_that_draw_otherwise_are_refused():
    model = create_model("mitterreiter_grid", **GRID, decoder=False)
    assert text_of(lambda: decoder_of(model)) == (
        "what a decoder sees is looked at where its layers are fully connected to the components "
        f"of all classes, but this {type(model).__name__} has no decoder; take another network, "
        "or train this one with --option decoder=true."
    )


@pytest.mark.parametrize(
    "name", ["rem_dr", "rem_effconv", "matrix_capsnet_mnist", "rem_deepcaps", "deepcaps"]
)
def test_an_option_is_named_where_it_helps(name):
    """It was named to networks that refuse it, and to DeepCaps, whose decoder draws by
    convolutions."""
    helps = name in ("rem_dr", "rem_effconv")
    with torch.device("meta"):
        text = text_of(lambda: decoder_of(create_model(name)))
        assert ("or train this one with --option decoder=true" in text) == helps
        if helps:
            decoder_of(create_model(name, decoder=True))
    assert helps or text.endswith("; take another network.")
