"""Backbones of others: maps by a twin with the published names, files, caches, timm's interface."""

import sys
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from torch import nn

from error_text import text_of
from laid_trunk import maps_of, published
from torchcaps.layers import CapsuleHead, PretrainedBackbone, feature_shape
from torchcaps.models import create_model, load, save

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize(
    ("name", "suffix"), [("resnet18", "pth"), ("resnet34", "safetensors"), ("resnet50", "pth")]
)
def test_maps_and_scores_are_those_of_the_twin(name, suffix, tmp_path):
    state, file = published(name), tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save({"epoch": 3, "state_dict": state}, file)
    else:
        safetensors.torch.save_file(state, file)
    network = create_model(
        "linear_on_backbone", image=(3, 40, 64), n_classes=4, backbone=name, weights=str(file)
    )
    network = network.double().eval()
    state = {key: value.double() for key, value in state.items()}
    image = torch.rand(2, 3, 40, 64, dtype=torch.float64)
    shown = (image - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    expected = maps_of(name, state, shown)
    assert expected.shape[1:] == feature_shape(network.backbone, (3, 40, 64))
    # The numbers of its normalisation are of single precision.
    torch.testing.assert_close(network.backbone(image), expected, rtol=1e-6, atol=1e-6)
    scores = expected.mean((2, 3)) @ network.head.weight.T + network.head.bias
    torch.testing.assert_close(network(image).scores, scores, rtol=1e-6, atol=1e-6)


@pytest.fixture
def file(tmp_path):
    safetensors.torch.save_file(published("resnet18"), tmp_path / "resnet18.safetensors")
    return tmp_path / "resnet18.safetensors"


def capsules(image=(3, 64, 64), **options):
    return create_model("capsules_on_backbone", image=image, n_classes=3, **options)


def test_grey_pictures_are_shown_in_every_colour(file):
    grey, colour = (capsules((c, 64, 64), weights=str(file)).eval() for c in (1, 3))
    image = torch.rand(2, 1, 64, 64)
    assert torch.equal(grey.backbone(image), colour.backbone(image.expand(-1, 3, -1, -1)))
    # Of other channels nobody has trained any.
    assert capsules((5, 64, 64)).backbone.module[0].in_channels == 5
    said = text_of(lambda: capsules((5, 64, 64), weights=str(file)))
    assert said == (
        f"the backbone resnet18 takes conv1.weight as floats [64, 5, 7, 7], but {file} has "
        f"torch.float32 [64, 3, 7, 7]; it must be weights of resnet18 for colour pictures, by the "
        f"names of torchvision or timm."
    )


def test_a_saved_network_needs_the_file_no_more(file, tmp_path):
    network = capsules(weights=str(file)).eval()
    assert len(network.config["weights"]) == 12
    assert capsules().config["weights"] == "random"
    save(network, tmp_path / "saved.safetensors")
    file.unlink()
    again, image = load(tmp_path / "saved.safetensors"), torch.rand(2, 3, 64, 64)
    assert again.config == network.config
    assert torch.equal(again(image).scores, network(image).scores)
    assert load(tmp_path / "saved.safetensors", n_classes=5)(image).scores.shape == (2, 5)
    network.reset_classes(4)
    assert network(image).scores.shape == (2, 4)


def test_pretrained_weights_come_out_of_the_caches(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    of_torch = tmp_path / "torch" / "checkpoints" / "resnet18-f37072fd.pth"
    of_timm = tmp_path / "hub" / "models--timm--resnet18.a1_in1k" / "snapshots" / "0123"
    assert text_of(lambda: capsules(weights="pretrained")) == (
        f"there is no resnet18 in the caches, {tmp_path}/torch/checkpoints/resnet18-*.pth, "
        f"{tmp_path}/hub/models--timm--resnet18.*/snapshots/*/model.safetensors; say which file "
        f"it is, weights=FILE, on the command line --option weights=FILE, or train it from "
        f"nothing, weights=random."
    )
    state = published("resnet18")
    of_timm.mkdir(parents=True)
    safetensors.torch.save_file(state, of_timm / "model.safetensors")
    first = capsules(weights="pretrained")
    assert torch.equal(first.backbone.module[0].weight, state["conv1.weight"])
    of_torch.parent.mkdir(parents=True)
    torch.save({key: 2 * value for key, value in state.items()}, of_torch)
    assert text_of(lambda: capsules(weights="pretrained")).startswith(
        f"there are several resnet18 in the caches, {of_torch}, {of_timm}/model.safetensors; say"
    )
    (of_timm / "model.safetensors").unlink()
    second = capsules(weights="pretrained")
    assert torch.equal(second.backbone.module[0].weight, 2 * state["conv1.weight"])
    assert first.config["weights"] != second.config["weights"]


class Evil:
    def __reduce__(self):
        return (print, ("run",))


def test_files_that_hold_no_weights_are_refused(tmp_path, capsys):
    for name, content in (("evil.pth", Evil()), ("damaged.pth", None)):
        torch.save(content, tmp_path / name)
    (tmp_path / "damaged.pth").write_bytes(b"PK\x03\x04 cut short")
    for name in ("evil.pth", "damaged.pth", "none.pth", "none.safetensors"):
        said = text_of(lambda name=name: capsules(weights=str(tmp_path / name)))
        assert said.startswith(f"{tmp_path / name} holds no weights that can be read (")
        assert said.endswith("; it must be safetensors, or what torch.save made of a state_dict.")
    assert capsys.readouterr().out == ""
    state = {key: value.clone() for key, value in published("resnet18").items()}
    state["layer3.1.bn2.running_var"][7] = torch.nan
    torch.save(state, tmp_path / "nan.pth")
    assert text_of(lambda: capsules(weights=str(tmp_path / "nan.pth"))) == (
        f"layer3.1.bn2.running_var in {tmp_path}/nan.pth holds NaN or infinite values; it is "
        f"damaged."
    )


def test_a_backbone_that_does_not_normalise_may_be_told_to():
    with torch.device("meta"):
        capsules((2, 64, 64), standardise=([0.5] * 2, [0.2] * 2))


class Stand(nn.Module):
    """What timm makes, in small: two convolutions, a classifier, and its names."""

    num_features = 6

    def __init__(self, gives="maps", **cfg):
        super().__init__()
        self.gives, self.pretrained_cfg = gives, cfg
        self.stem, self.last = nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 6, 3, 2)
        self.feature_info = SimpleNamespace(channels=lambda: [4, 6], reduction=lambda: [2, 4])
        if gives == "NHWC":
            self.output_fmt = "NHWC"

    def maps(self, x):
        first = self.stem(x)
        return first, self.last(first)

    def forward(self, x):
        first, last = self.maps(x)
        return {
            "maps": last,
            "list": [first, last],
            "NHWC": (last.movedim(1, -1),),
            "pooled": last.mean((2, 3)),
            "scores": last.mean((2, 3))[:, :5],
            "dictionary": {"last": last},
        }[self.gives]


class Whole(Stand):
    """With a classifier, as timm makes it without features_only."""

    def __init__(self):
        super().__init__("scores", mean=MEAN, std=STD)
        self.fc = nn.Linear(6, 5)

    def reset_classifier(self, n_classes):
        assert n_classes == 0
        self.fc = nn.Identity()

    def forward_features(self, x):
        return self.maps(x)[1]


@pytest.mark.parametrize("gives", ["maps", "list", "NHWC", "pooled"])
def test_whatever_has_the_names_of_timm_is_a_backbone(gives):
    stand = Stand(gives, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    backbone, image = PretrainedBackbone(stand), torch.rand(2, 3, 17, 21)
    mean, std = (torch.tensor(each)[:, None, None] for each in ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    expected = stand.maps((image - mean) / std)[1]
    if gives == "pooled":
        expected = expected.mean((2, 3), keepdim=True)
    torch.testing.assert_close(backbone(image), expected)
    head = CapsuleHead.after(backbone, image=(3, 17, 21), n_classes=4, types=2)
    assert head(backbone(image)).scores.shape == (2, 4)
    grey = CapsuleHead.after(backbone, image=(1, 17, 21), n_classes=4)
    assert grey(backbone(image[:, :1])).scores.shape == (2, 4)


def test_a_whole_network_loses_its_classifier():
    whole = Whole()
    backbone = PretrainedBackbone(whole)
    assert not any("fc" in name for name, _ in backbone.named_parameters())
    assert feature_shape(backbone, (3, 17, 21)) == (6, 3, 4)


def test_without_numbers_images_stay_as_they_are():
    stand, image = Stand(), torch.rand(2, 3, 9, 9)
    assert torch.equal(PretrainedBackbone(stand)(image), stand(image))


@pytest.mark.parametrize(("gives", "came"), [("scores", [2, 5]), ("dictionary", "dict")])
def test_what_is_no_map_is_refused(gives, came):
    backbone = PretrainedBackbone(Stand(gives))
    assert text_of(lambda: backbone(torch.rand(2, 3, 9, 9))) == (
        f"a backbone gives feature maps [batch, channels, height, width], or pooled vectors of its "
        f"num_features, but Stand gave {came}; of timm take it with features_only=True."
    )


@pytest.fixture
def timm(monkeypatch):
    """A stand-in for the package, which is not there."""
    asked = []

    def create(name, *, pretrained, features_only):
        asked.append((name, pretrained, features_only))
        if name != "stand":
            raise RuntimeError(f"Unknown model ({name})")
        made = Stand("list", mean=MEAN, std=STD)
        if pretrained:
            nn.init.constant_(made.last.weight, 0.25)
        return made

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create))
    return asked


def test_a_backbone_of_timm(timm, tmp_path):
    network = capsules((3, 17, 21), backbone="timm:stand", weights="pretrained").eval()
    assert timm[0] == ("stand", False, True)
    assert timm[-1] == ("stand", True, True)
    assert network.backbone.module.last.weight.eq(0.25).all()
    save(network, tmp_path / "saved.safetensors")
    image = torch.rand(2, 3, 17, 21)
    again = load(tmp_path / "saved.safetensors")
    assert torch.equal(again(image).scores, network(image).scores)
    twin = create_model(
        "linear_on_backbone", image=(3, 17, 21), n_classes=3, backbone="timm:stand"
    ).eval()
    maps = twin.backbone(image)
    expected = maps.mean((2, 3)) @ twin.head.weight.T + twin.head.bias
    torch.testing.assert_close(twin(image).scores, expected)
    assert text_of(lambda: capsules(backbone="timm:other")) == (
        "timm did not make other (RuntimeError: Unknown model (other)); it must be installed, with "
        "the torchvision that it imports and that fits this torch, and know this name, or take "
        "resnet18, resnet34, resnet50."
    )


def test_why_timm_cannot_be_had(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    (tmp_path / "timm.py").write_text("import a_torchvision_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    assert text_of(lambda: capsules(backbone="timm:resnet18")) == (
        "timm did not make resnet18 (ModuleNotFoundError: No module named "
        "'a_torchvision_that_is_not_there'); it must be installed, with the torchvision that it "
        "imports and that fits this torch, and know this name, or take resnet18, resnet34, "
        "resnet50."
    )
    assert "torchvision" not in sys.modules
