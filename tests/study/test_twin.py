"""The plain network beside a capsule network: on the same backbone, or nearly as large."""

import pytest
import torch
from torch import nn

from error_text import text_of
from torchcaps.models import MODELS, create_model
from torchcaps.models.preset import Preset
from torchcaps.study.twin import parameters_of, plain_twin
from torchcaps.train import make_recipe


def recipe(model: str, **fields):
    return make_recipe(model=model, data="folder", **fields)


@pytest.mark.parametrize("options", [{}, {"decoder": False}])
def test_parameters_are_those_that_score(options):
    found = parameters_of(recipe("efficient_capsnet", options=options), (1, 28, 28), 10)
    assert found == 161_824


@pytest.mark.parametrize(
    ("image", "n_classes"), [((1, 28, 28), 10), ((3, 48, 64), 3), ((3, 64, 64), 2)]
)
def test_the_small_trunk_has_its_control(image, n_classes):
    capsules = recipe("efficient_capsnet", groups="(p[0-9]+)_", epochs=7)
    plain = plain_twin(capsules, image, n_classes)
    assert (plain.model, plain.options) == ("efficient_convnet", {})
    assert (plain.groups, plain.epochs) == ("(p[0-9]+)_", 7)
    sizes = [parameters_of(each, image, n_classes) for each in (capsules, plain)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)
    made = [
        create_model(each.model, image=image, n_classes=n_classes) for each in (capsules, plain)
    ]
    backbones = [made[0].backbone.state_dict(), made[1].features[0].state_dict()]
    assert [w.shape for w in backbones[0].values()] == [w.shape for w in backbones[1].values()]


@pytest.mark.parametrize(
    ("model", "image", "options"),
    [
        ("capsnet", (1, 28, 28), {}),
        ("capsnet", (3, 40, 28), {}),
        ("mitterreiter_5x16", (1, 32, 32), {}),
        ("rem_effconv", (3, 64, 64), {}),
        ("rem_eff_norb", (2, 48, 48), {}),
        ("efficient_capsnet", (2, 48, 48), {"stereo": True}),
        # On which two kernels of nine find no place.
        ("capsnet", (1, 15, 15), {"kernel": 5}),
    ],
)
def test_any_other_gets_one_of_its_size(model, image, options):
    capsules = recipe(model, options=options)
    plain = plain_twin(capsules, image, 4)
    assert plain.model == "convnet_avg"
    sizes = [parameters_of(each, image, 4) for each in (capsules, plain)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


def test_what_is_measured_of_capsules_is_not_of_a_plain_network():
    capsules = recipe("capsnet", measure=["activity"], measure_every=2)
    plain = plain_twin(capsules, (1, 28, 28), 3)
    assert (plain.measure, plain.measure_every) == ((), 1)


class Tiny(nn.Module):
    def __init__(self, image, n_classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(50))


def test_a_network_that_nothing_is_as_small_as_is_told(monkeypatch):
    monkeypatch.setitem(MODELS, "tiny_one", Preset(Tiny, (1, 28, 28), 3, "mine", is_own=True))
    assert text_of(lambda: plain_twin(recipe("tiny_one"), (1, 28, 28), 3)) == (
        "no width of convnet_avg comes within 5% of the 50 parameters of tiny_one; name what to "
        "compare it with, or nothing: --against NAME, --against none."
    )
