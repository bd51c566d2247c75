"""Training on a backbone: frozen, or at a rate of its own, and what makes no sense."""

import pytest
import safetensors.torch
import torch
from torch import nn

from laid_trunk import published
from torchcaps.data import part_whole
from torchcaps.errors import Interrupted
from torchcaps.models import create_model
from torchcaps.train import fit, make_recipe
from torchcaps.train.update import Update


def recipe(**fields):
    options = fields.pop("options", {})
    model = fields.pop("model", "capsules_on_backbone")
    return make_recipe(model=model, data="own", epochs=1, options=options, **fields)


class Small(nn.Module):
    """A backbone and a head of one number each."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(1, 1, bias=False)
        self.head = nn.Linear(1, 1, bias=False)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_backbone_moves_by_its_share_of_the_rate(optimiser):
    model = Small()
    nn.init.ones_(model.backbone.weight), nn.init.ones_(model.head.weight)
    update = Update(model, recipe(learning_rate=0.5, backbone_rate=0.1, optimiser=optimiser))
    update.fill()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    update.optimiser.step()
    # A step of Adam begins with the rate, whatever the gradient; here it is one for SGD too.
    assert model.head.weight.item() == pytest.approx(0.5)
    assert model.backbone.weight.item() == pytest.approx(0.95)
    rates = [group["lr"] for group in update.state()["param_groups"]]
    assert rates == pytest.approx([0.5, 0.05])
    again = Update(Small(), recipe(learning_rate=0.5, backbone_rate=0.1, optimiser=optimiser))
    again.load_state(update.state(), step=3)
    again.fill()
    assert [float(group["lr"]) for group in again.optimiser.param_groups] == rates


def test_without_a_share_there_is_one_group_as_ever():
    update = Update(Small(), recipe())
    assert len(update.optimiser.param_groups) == 1
    assert "share" not in update.state()["param_groups"][0]
    assert recipe().digest() == recipe(backbone_rate=1.0).digest()
    assert recipe().digest() != recipe(backbone_rate=0.5).digest()


@pytest.fixture
def images():
    return part_whole("train", 40), part_whole("test", 20)


@pytest.mark.parametrize(
    "model",
    ["capsules_on_backbone", pytest.param("linear_on_backbone", marks=pytest.mark.slow)],
)
def test_a_frozen_backbone_stays_and_the_run_goes_on(model, images, tmp_path):
    state = published("resnet18")
    safetensors.torch.save_file(state, tmp_path / "weights.safetensors")
    options = {"weights": str(tmp_path / "weights.safetensors")}
    frozen = recipe(
        model=model, freeze=["backbone"], options=options, batch_size=12, validation_share=0.2
    )
    with pytest.raises(Interrupted):
        fit(frozen, tmp_path / "run", own=images, time_budget=1e-6)
    run = fit(frozen, tmp_path / "run", own=images)
    whole = fit(frozen, tmp_path / "whole", own=images)
    network = run.model()
    torch.testing.assert_close(network.state_dict(), whole.model().state_dict(), rtol=0, atol=0)
    assert torch.equal(network.backbone.module[0].weight, state["conv1.weight"])
    assert torch.equal(network.backbone.module[1].running_mean, state["bn1.running_mean"])
    begun = create_model(
        model, image=images[0].image_shape, n_classes=len(images[0].class_names), **options
    )
    assert network.config["weights"] == begun.config["weights"]
