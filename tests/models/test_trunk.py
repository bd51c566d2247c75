"""A frozen trunk: the maps that a twin makes by the published names, and that training leaves."""

import copy
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

import laid_trunk
from error_text import text_of
from torchcaps.data import ImageSet
from torchcaps.models import create_model, load, save, scores_only, take_trunk
from torchcaps.prune import prunable
from torchcaps.tasks import doctor
from torchcaps.train import fit, make_recipe


@pytest.fixture(scope="module")
def published():
    return laid_trunk.published()


def test_names_are_those_of_public_code(published):
    assert len(published) == 102
    assert {"conv1.weight", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight"} < set(
        published
    )
    assert {"layer4.1.bn2.running_var", "layer3.0.downsample.1.bias", "bn1.weight"} < set(published)
    assert published["layer4.0.conv1.weight"].shape == (512, 256, 3, 3)
    assert not any(name.startswith("layer1.0.downsample") for name in published)


def test_its_maps_are_those_of_a_twin_with_six_zeros_around(published, tmp_path):
    safetensors.torch.save_file(published, tmp_path / "weights.safetensors")
    others = published | {"conv1.weight": 2 * published["conv1.weight"]}
    safetensors.torch.save_file(others, tmp_path / "others.safetensors")
    network = create_model(
        "rem_dr", image=(3, 70, 66), n_classes=4, types=1, trunk="resnet18_imagenet"
    )
    of_others = take_trunk(network, tmp_path / "others.safetensors")
    assert take_trunk(network, tmp_path / "weights.safetensors") != of_others
    images = torch.rand(2, 3, 70, 66)
    expected = laid_trunk.maps_of("resnet18", published, images)
    for mode in (True, False):
        found = network.train(mode).backbone(images)
        torch.testing.assert_close(found[:, :, 6:-6, 6:-6], expected)
        found[:, :, 6:-6, 6:-6] = 0
        assert not found.any()


@pytest.mark.parametrize(("kind", "side"), [("resnet18", 64), ("resnet18_imagenet", 224)])
def test_tiny_imagenet_has_36_capsules_of_one_type(kind, side):
    with torch.device("meta"):
        network = create_model("rem_dr", image=(3, side, side), n_classes=200, types=1, trunk=kind)
        out = network(torch.empty(1, 3, side, side), keep="last")
    assert network.primary_grid == (6, 6, 1)
    assert out.classes.pose.shape == (1, 200, 16)


def test_the_weights_of_our_resnet_are_taken_from_its_file(tmp_path):
    trained = create_model("resnet18", image=(1, 20, 20), n_classes=7).eval()
    trained.features[0][1].running_mean.uniform_()
    save(trained, tmp_path / "model.safetensors")
    network = create_model("rem_dr", image=(1, 20, 20), trunk="resnet18", types=1)
    take_trunk(network, tmp_path / "model.safetensors")
    images = torch.rand(2, 1, 20, 20)
    assert torch.equal(
        network.train().backbone(images)[:, :, 6:-6, 6:-6], trained.features[0](images)
    )


def test_a_frozen_trunk_is_no_part_of_what_is_trained_or_pruned():
    network = create_model("rem_dr", image=(1, 20, 20), trunk="resnet18", types=1)
    learns = [name for name, weight in network.named_parameters() if weight.requires_grad]
    assert not any(name.startswith("backbone") for name in learns)
    assert set(prunable(network)) == {"primary.projection.weight", "layers.classes.weight"}
    network(torch.rand(2, 1, 20, 20)).scores.sum().backward()
    assert all(weight.grad is None for weight in network.backbone.parameters())


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("trunk") / "r.safetensors"
    save(create_model("resnet18", image=(1, 20, 20), n_classes=3), path)
    return path


def test_a_run_leaves_the_trunk_as_it_came_and_writes_down_which(tmp_path: Path, file: Path):
    images = ImageSet("noise", torch.rand(16, 1, 20, 20), torch.arange(16) % 2, ("a", "b"))
    options = {"types": 1, "trunk": "resnet18"}
    fields = {"model": "rem_dr", "options": options, "data": "own", "batch_size": 8}
    recipe = make_recipe(**fields, epochs=1)
    own = (images, images)
    assert (
        "so it needs weights that were trained before: fit(trunk=FILE), on the command"
        in text_of(lambda: fit(recipe, tmp_path / "run", own=own))
    )
    assert not (tmp_path / "run").exists()
    run = fit(recipe, tmp_path / "run", own=own, trunk=file)
    before, after = load(file).features[0].state_dict(), load(run.model_file).backbone.maps
    assert all(torch.equal(before[name], each) for name, each in after.state_dict().items())
    assert json.loads(run.environment_file.read_text())["trunk"] == take_trunk(
        create_model("rem_dr", image=(1, 20, 20), **options), file
    )
    # A run that goes on has its trunk.
    more = fit(make_recipe(**fields, epochs=2), tmp_path / "run", own=own)
    assert len(more.metrics()) == 2


def test_before_training_a_trunk_needs_its_weights_too():
    """The features of a trunk that was drawn at random would be examined."""
    options = {"types": 1, "trunk": "resnet18"}
    recipe = make_recipe(model="rem_dr", options=options, data="part-whole", epochs=1)
    assert "so it needs weights that were trained before" in text_of(lambda: doctor(recipe))


def test_a_trunk_of_other_channels_is_not_begun_with(tmp_path, file):
    """Its first convolution was drawn anew, and frozen."""
    options = {"types": 1, "trunk": "resnet18"}
    grey = create_model("rem_dr", image=(1, 20, 20), n_classes=2, **options)
    take_trunk(grey, file)
    save(grey, tmp_path / "grey.safetensors")
    colour = ImageSet("noise", torch.rand(16, 3, 20, 20), torch.arange(16) % 2, ("a", "b"))
    recipe = make_recipe(model="rem_dr", options=options, data="own", batch_size=8, epochs=1)
    assert "so it needs weights that were trained before" in text_of(
        lambda: fit(
            recipe,
            tmp_path / "run",
            own=(colour, colour),
            begin_with=tmp_path / "grey.safetensors",
        )
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trunk_of_random_weights_says_so_at_its_first_images(published, tmp_path, caplog):
    """It ran in Python as if it were trained, and training never made up for it."""
    images = torch.rand(1, 3, 40, 40)

    def new():
        return create_model("rem_dr", image=(3, 40, 40), types=1, trunk="resnet18_imagenet").eval()

    network = new()
    assert not caplog.messages
    network(images)
    network(images)
    assert caplog.messages == [
        "the frozen trunk resnet18_imagenet has random weights, which training leaves as they are; "
        "give it those of a trained network: models.take_trunk(network, file)."
    ]
    caplog.clear()
    torch.jit.trace(scores_only(new()), images, check_trace=False)
    with torch.device("meta"):
        new()(torch.empty(1, 3, 40, 40))
    given = new()
    safetensors.torch.save_file(published, tmp_path / "weights.safetensors")
    take_trunk(given, tmp_path / "weights.safetensors")
    save(given, tmp_path / "model.safetensors")
    for network in (given, copy.deepcopy(given), load(tmp_path / "model.safetensors")):
        network(images)
    assert not caplog.messages


def test_weights_that_are_none_are_told(tmp_path, file):
    network = create_model("rem_dr", image=(3, 70, 70), trunk="resnet18_imagenet", types=1)
    assert (
        "the trunk resnet18_imagenet takes conv1.weight as floats [64, 3, 7, 7], but "
        in text_of(lambda: take_trunk(network, file))
    )
    other = create_model("rem_dr", image=(3, 20, 20), trunk="resnet18", types=1)
    assert (
        "has torch.float32 [64, 1, 3, 3]; it must be a network resnet18 that torchcaps"
        in text_of(lambda: take_trunk(other, file))
    )
    assert "there is no file" in text_of(lambda: take_trunk(network, tmp_path / "none"))
