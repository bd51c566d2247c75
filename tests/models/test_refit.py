"""Other classes: what fits is kept bit for bit, what does not is named."""

import pytest
import torch

import torchcaps as tc
from error_text import text_of

IMAGE = (1, 20, 20)
NETWORKS = {
    "peer_deep_dynamic": {},
    "capsnet": {"kernel": 5},  # its decoder sees the classes
    "gu_convnet_cr": {"width": 16},  # counts its classes itself
    "gu_convnet_cr_sf": {"width": 16},
    "resnet18": {},
    "matrix_capsnet_mnist": {},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_ten_classes_become_seven(name, tmp_path, caplog):
    model = tc.create_model(name, image=IMAGE, n_classes=10, **NETWORKS[name])
    tc.save(model, tmp_path / "net.safetensors")
    loaded = tc.load(tmp_path / "net.safetensors", n_classes=7)
    in_place = tc.load(tmp_path / "net.safetensors")
    new = in_place.reset_classes(7)
    for network in (loaded, in_place):
        assert network(torch.rand(2, *IMAGE)).scores.shape == (2, 7)
        assert network.config["n_classes"] == 7
        for key, value in network.state_dict().items():
            same = model.state_dict()[key].shape == value.shape
            assert same == (key not in new), key
            assert not same or torch.equal(value, model.state_dict()[key]), key
    assert new
    assert f"{', '.join(new)} {'is' if len(new) == 1 else 'are'} made new" in caplog.text
    tc.save(in_place, tmp_path / "seven.safetensors")
    assert tc.load(tmp_path / "seven.safetensors").config["n_classes"] == 7


def test_parts_that_fit_stay_the_same_objects():
    model = tc.create_model("peer_deep_dynamic", image=IMAGE, n_classes=10)
    backbone = model.backbone[0].weight
    model.reset_classes(7)
    assert model.backbone[0].weight is backbone
    assert model.layers["classes"].n_out == 7


def test_as_many_classes_as_before_leave_the_file_as_it_is(tmp_path, caplog):
    model = tc.create_model("peer_deep_dynamic", image=IMAGE, n_classes=3).eval()
    tc.save(model, tmp_path / "net.safetensors")
    images = torch.rand(2, *IMAGE)
    again = tc.load(tmp_path / "net.safetensors", n_classes=3)
    assert torch.equal(again(images).scores, model(images).scores)
    assert caplog.text == ""


def test_mistakes(tmp_path):
    model = tc.create_model("peer_deep_dynamic", image=IMAGE, n_classes=3)
    tc.save(torch.nn.Linear(2, 2), tmp_path / "own.safetensors")
    assert "does not know where its classes are" in text_of(
        lambda: tc.load(tmp_path / "own.safetensors", n_classes=7)
    )
    del model.config
    assert "give it a new last layer yourself." in text_of(lambda: model.reset_classes(7))


def test_double_precision_is_kept_to_its_last_digit(tmp_path):
    # Of its decoder all tensors fit but one, and it is replaced as a whole.
    model = tc.create_model("capsnet", image=IMAGE, n_classes=3, kernel=5, width=8, types=2)
    model.double()
    for value in model.parameters():
        value.data += torch.rand_like(value) * 1e-12  # less than float32 tells apart
    tc.save(model, tmp_path / "net.safetensors")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loaded = tc.load(tmp_path / "net.safetensors", n_classes=7)
    model.reset_classes(7)
    for network in (loaded, model):
        for key, value in network.state_dict().items():
            assert value.dtype == torch.float64, key
            same = value.shape == before[key].shape
            assert not same or torch.equal(value, before[key]), key


def test_what_was_chosen_by_hand_stays_where_a_part_is_replaced():
    model = tc.create_model("capsnet", image=IMAGE, n_classes=3, kernel=5, width=8, types=2)
    tc.layers.use_backend(model, "plain")
    model.decoder.requires_grad_(False)
    model.decoder.eval()
    new = model.reset_classes(7)
    assert new == ("layers.classes.weight", "decoder.layers.0.weight")
    assert model.layers["classes"].routing.backend == "plain"
    assert not model.decoder.layers.training
    assert model.training
    # What was learnt stays frozen; what is new would never learn.
    learns = {name for name, value in model.decoder.named_parameters() if value.requires_grad}
    assert learns == {"layers.0.weight"}
