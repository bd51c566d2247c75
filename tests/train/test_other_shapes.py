"""Sequences, volumes and images of many channels: what works, and what is said of the rest."""

import numpy as np
import pytest
import torch
from torch import nn

import torchcaps as tc
from error_text import text_of
from torchcaps.data import from_arrays, from_npz
from torchcaps.models import MODELS
from torchcaps.models.registry import check_made

LABELS = torch.arange(48) % 3


class Headed(nn.Module):
    """A capsule head on a backbone."""

    def __init__(self, backbone, image, **options):
        super().__init__()
        self.image, self.backbone = image, backbone
        self.head = tc.layers.CapsuleHead.after(backbone, image=image, n_classes=3, **options)

    def forward(self, images, *, keep="none"):
        return self.head(self.backbone(images), keep=keep)


def trained(images, folder, own=None, **named):
    """Train on images and test on the same, through fit and through evaluate."""
    fields = {"model": "own", "data": "own", "epochs": 6, "batch_size": 8, "learning_rate": 0.01}
    recipe = tc.train.make_recipe(**fields | named)
    run = tc.train.fit(recipe, folder, own=(images, images), model=own)
    network = run.model(own)
    assert tc.tasks.evaluate(network, images).accuracy == run.result()["test_accuracy"]
    return run.result()["test_accuracy"], network(images.batch(slice(4)).pixels, keep="last")


def test_a_network_learns_sequences(tmp_path):
    """Two signals, of which each class is louder in another third."""
    torch.manual_seed(0)
    sequences = 0.3 * torch.rand(48, 2, 60)
    for k in range(3):
        sequences[k == LABELS, :, 20 * k : 20 * k + 20] += 0.6
    images = from_arrays(sequences[:, :, None], LABELS)
    assert images.image_shape == (2, 1, 60)
    backbone = nn.Sequential(nn.Conv2d(2, 8, (1, 9), stride=(1, 4)), nn.ReLU())
    accuracy, out = trained(images, tmp_path, Headed(backbone, (2, 1, 60)))
    assert accuracy > 0.9
    # (60 − 9) / 4 + 1 places in one row.
    assert out.trace[0].child_grid == (1, 13, 8)


def test_a_network_learns_volumes(tmp_path):
    """Of eight slices each class is bright in two others."""
    torch.manual_seed(0)
    volumes = 0.3 * torch.rand(48, 8, 10, 10)
    for k in range(3):
        volumes[k == LABELS, 2 * k : 2 * k + 2] += 0.6
    backbone = nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv3d(1, 4, 3), nn.ReLU(), nn.Flatten(1, 2)
    )
    model = Headed(backbone, (8, 10, 10), kernel=3, stride=3)
    accuracy, out = trained(from_arrays(volumes, LABELS), tmp_path, model)
    assert accuracy > 0.9
    assert out.trace[0].child_grid == (2, 2, 8)


@pytest.mark.parametrize("bands", [30, 200])
def test_a_network_learns_hyperspectral_patches(bands, tmp_path):
    """Each class has a band of its own; channels of an .npz file, brought to mean 0."""
    generator = np.random.default_rng(0)
    patches = generator.uniform(0, 0.3, (48, bands, 15, 15)).astype("float32")
    for k in range(3):
        patches[LABELS.numpy() == k, bands // 3 * k] += 0.6
    np.savez(tmp_path / "cube.npz", images=patches, labels=LABELS.numpy())
    images = from_npz(tmp_path / "cube.npz", ("water", "grass", "stone"))
    named = {"model": "rem_eff_cifar", "standardise": "set", "options": {"decoder": False}}
    accuracy, out = trained(images, tmp_path / "run", learning_rate=0.003, epochs=4, **named)
    assert accuracy > 0.9
    assert out.scores.shape == (4, 3)


def test_the_named_networks_that_take_one_row_are_those_of_the_page():
    for name in ("peer_sign_dynamic", "peer_sign_em", "deepcaps", "tsai_dynamic_resnet_c10"):
        check_made(name, {}, image=(2, 1, 120), n_classes=3)
    for name in ("capsnet", "efficient_capsnet", "mitterreiter_5x16", "matrix_capsnet"):
        assert name in MODELS
        said = text_of(lambda: tc.create_model(name, image=(2, 1, 120), n_classes=3))  # noqa: B023
        assert "(2, 1, 120) does not pass through the convolutions" in said


def test_a_remedy_mends_what_it_is_for():
    sequence, volume = torch.rand(6, 300), torch.rand(6, 1, 8, 16, 16)
    assert from_arrays(sequence[:, None, None], LABELS[:6]).image_shape == (1, 1, 300)
    assert from_arrays(volume.flatten(1, 2), LABELS[:6]).image_shape == (8, 16, 16)
    cube = np.random.default_rng(0).random((6, 9, 9, 200), "float32")
    assert from_arrays(cube.transpose(0, 3, 1, 2), LABELS[:6]).image_shape == (200, 9, 9)
    names = ("a", "b", "c")
    as_it_is = tc.data.ImageSet("wide", torch.from_numpy(cube), LABELS[:6], names)
    assert as_it_is.image_shape == (9, 9, 200)


@pytest.mark.parametrize("image", [(300,), (1, 300), (1, 8, 16, 16)])
def test_sizes_that_are_no_image_say_what_is_one(image):
    for call in (
        lambda: tc.create_model("capsnet", image=image),
        lambda: tc.layers.CapsuleHead.after(nn.Conv2d(1, 8, 3), image=image, n_classes=3),
    ):
        said = text_of(call)
        assert said.endswith("a sequence has one row, the slices of a volume are channels.")
