"""Prediction: any picture file, what was done to it, and what is said of it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from error_text import text_of
from laid_runs import lay_run, small_network, tiny_images
from torchcaps.models import create_model, save
from torchcaps.tasks import predict
from torchcaps.tasks.predict import Prediction, _draw
from torchcaps.train import fit, make_recipe

NAMES = ["cat", "dog", "hen", "ant", "bee", "cow", "eel", "fox", "gnu", "owl"]


tiny = tiny_images(40)


@pytest.fixture(scope="module")
def colours():
    return small_network("gu_convnet_r", (3, 24, 20), n_classes=3)


@pytest.fixture
def run(tmp_path):
    brightness = {"mean": 0.5, "std": 0.05}
    return lay_run(tmp_path / "mine", {"class_names": NAMES, "brightness": brightness})


PIXELS = np.random.default_rng(0).integers(0, 256, (24, 24), dtype=np.uint8)


@pytest.fixture
def grey(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "grey.png")
    return tmp_path / "grey.png"


def test_a_picture_is_seen_as_it_is(run, network, grey):
    (found,) = predict(run.folder, [grey])
    pixels = torch.from_numpy(PIXELS).float() / 255
    assert torch.equal(found.pixels, pixels[None])
    with torch.no_grad():
        out = network(pixels[None, None])
    assert torch.allclose(found.scores, out.scores[0], atol=1e-6)
    assert torch.equal(found.probabilities, found.scores)
    assert torch.allclose(found.reconstruction, out.reconstruction[0], atol=1e-6)
    assert found.notes == ()
    winner = NAMES[int(out.scores.argmax())]
    numbers = found.numbers()
    assert (numbers["path"], numbers["class"]) == (str(grey), winner)
    assert numbers["scores_are"] == "lengths"
    assert numbers["classes"] == tuple(NAMES)
    assert numbers["scores"] == found.scores.tolist()
    json.dumps(numbers, allow_nan=False)
    assert found.text().startswith(f"{grey}: {winner}, {float(out.scores.max()):.2f}; then ")


def test_of_two_certain_classes_the_one_with_the_higher_score_is_said_and_marked(monkeypatch):
    """Both probabilities round to one; the lower class was named, and the other in JSON."""
    scores = torch.tensor([20.0, 25.0, 1.0])
    found = Prediction(
        Path("x.png"),
        ("a", "b", "c"),
        torch.zeros(1, 2, 2),
        scores,
        "independent_logits",
        scores.sigmoid(),
        None,
        (),
    )
    assert found.text() == "x.png: b, 1.00; then a, 1.00"
    assert found.numbers()["class"] == "b"
    figures = []
    monkeypatch.setattr("torchcaps.viz.write_figure", lambda each, path: figures.append(each))
    _draw([found], Path("x.svg"))
    (number,) = figures[0].axes[1].texts
    assert number.get_position()[1] == 1


def test_a_picture_is_the_same_alone_and_among_others(run, grey, tmp_path):
    Image.fromarray(255 - PIXELS).save(tmp_path / "other.png")
    (alone,) = predict(run.folder, [grey])
    _, found, _ = predict(run.folder, [tmp_path / "other.png", grey, tmp_path / "other.png"])
    assert torch.equal(found.scores, alone.scores)


def test_a_saved_network_knows_the_numbers_of_its_classes(run, grey):
    (named,), (numbered,) = predict(run.folder, [grey]), predict(run.model_file, [grey])
    assert numbered.class_names == tuple("0123456789")
    assert NAMES[int(numbered.class_names[numbered.winner])] == named.class_names[named.winner]


def test_a_trained_run_knows_the_names_and_the_brightness_of_its_data(tmp_path, grey):
    recipe = make_recipe(model="mitterreiter_5x16", data="tiny", epochs=1, batch_size=20)
    run = fit(recipe, tmp_path / "run")
    images = tiny("train")
    (found,) = predict(run.folder, [grey])
    assert found.class_names == images.class_names
    each = images.pixels(slice(0, 40)).flatten(1).mean(1)
    assert run.result()["brightness"]["mean"] == pytest.approx(float(each.mean()))
    assert run.result()["brightness"]["std"] == pytest.approx(float(each.std(correction=0)))


def test_logits_become_probabilities_of_a_softmax(tmp_path, grey):
    save(create_model("resnet18", image=(1, 24, 24), n_classes=3), tmp_path / "m.safetensors")
    (found,) = predict(tmp_path / "m.safetensors", [grey])
    assert found.scores_are == "logits"
    assert torch.allclose(found.probabilities, found.scores.softmax(-1))
    assert "softmax" in found.meaning
    assert "one half" not in found.text()


def test_doubt_is_told_where_no_class_reaches_one_half(run, grey):
    (found,) = predict(run.folder, [grey])
    for scores, doubt in [([0.4, 0.3], True), ([0.6, 0.3], False)]:
        text = type(found)(
            **{**vars(found), "scores": torch.tensor(scores), "probabilities": torch.tensor(scores)}
        ).text()
        assert text.endswith("; no class reaches one half") == doubt
        assert ": cat, 0." in text


@pytest.mark.parametrize(
    ("mode", "channels", "note"),
    [
        ("RGB", 1, "colours made grey"),
        ("RGBA", 1, "transparent places made white, colours made grey"),
        ("P", 1, "colours made grey"),
        ("LA", 1, "transparent places made white"),
        ("I;16", 1, "16 bits a pixel cut to 8"),
        ("L", 1, None),
        ("1", 1, None),
        ("L", 3, "grey repeated in three channels"),
        ("RGB", 3, None),
    ],
)
def test_every_mode_of_picture_is_read(tmp_path, network, colours, mode, channels, note):
    model = network if channels == 1 else colours
    save(model, tmp_path / "m.safetensors")
    size = (24, 24) if channels == 1 else (20, 24)
    if mode == "I;16":
        picture = Image.fromarray(PIXELS.astype(np.uint16) * 257)
    else:
        picture = Image.fromarray(PIXELS).convert("RGB").convert(mode)
    file = tmp_path / "x.png"
    picture.crop((0, 0, *size)).save(file)
    (found,) = predict(tmp_path / "m.safetensors", [file])
    assert found.pixels.shape == (channels, 24, size[0])
    assert found.notes == (() if note is None else (f"{file}: {note}.",))
    if mode in ("L", "I;16", "RGB"):
        expected = torch.from_numpy(PIXELS[:, : size[0]].copy()).float() / 255
        assert torch.allclose(found.pixels, expected.expand(channels, -1, -1), atol=1 / 255)


def test_a_photograph_stands_upright(tmp_path, colours):
    save(colours, tmp_path / "m.safetensors")
    lying = Image.fromarray(np.repeat(PIXELS[:20, :, None], 3, 2))
    exif = Image.Exif()
    exif[0x0112] = 6
    lying.save(tmp_path / "x.png", exif=exif)
    (found,) = predict(tmp_path / "m.safetensors", [tmp_path / "x.png"])
    turned = torch.from_numpy(np.rot90(PIXELS[:20], -1).copy()).float() / 255
    assert torch.equal(found.pixels, turned.expand(3, -1, -1))


def test_another_size_is_stretched_only_when_told(run, tmp_path):
    file = tmp_path / "wide.png"
    Image.fromarray(PIXELS).resize((60, 30)).save(file)
    assert text_of(lambda: predict(run.folder, [file])) == (
        f"{file} has 30 × 60 pixels and the network takes 24 × 24; crop it to what it should look "
        f"at, let --crop take its middle, or let --resize stretch it."
    )
    (found,) = predict(run.folder, [file], resize=True)
    assert found.pixels.shape == (1, 24, 24)
    assert found.notes == (
        f"{file}: stretched from 30 × 60 to 24 × 24 pixels, which changes its proportions.",
    )
    Image.fromarray(PIXELS).resize((48, 48)).save(file)
    (found,) = predict(run.folder, [file], resize=True)
    assert found.notes == (f"{file}: stretched from 48 × 48 to 24 × 24 pixels.",)


def test_proportions_are_those_of_the_network(tmp_path, colours):
    save(colours, tmp_path / "m.safetensors")
    file = tmp_path / "x.png"
    for width, ending in [(40, "."), (48, ", which changes its proportions.")]:
        Image.new("RGB", (width, 48), "red").save(file)
        (found,) = predict(tmp_path / "m.safetensors", [file], resize=True)
        assert found.notes == (f"{file}: stretched from 48 × {width} to 24 × 20 pixels{ending}",)


@pytest.mark.parametrize(("level", "word"), [(255, "bright"), (0, "dark"), (140, None)])
def test_a_picture_unlike_all_that_was_trained_on_is_told(run, tmp_path, level, word):
    file = tmp_path / "plain.png"
    Image.new("L", (24, 24), level).save(file)
    (found,) = predict(run.folder, [file])
    if word is None:
        assert found.notes == ()
    else:
        assert found.notes == (
            f"{file}: mean brightness {level / 255:.2f}, while the training images have 0.50 ± "
            f"0.05; the network was shown nothing as {word}, so its answer means little. Are light "
            f"and dark swapped?",
        )


def test_a_picture_that_claims_to_be_huge_is_told(run, grey, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    assert text_of(lambda: predict(run.folder, [grey])).startswith(
        f"{grey} claims more than 500 pixels, the most that Pillow reads; it may"
    )


def test_scores_that_are_not_finite_are_told(tmp_path, grey):
    broken = create_model("mitterreiter_5x16", image=(1, 24, 24))
    nn.init.constant_(broken.layers["classes"].weight, torch.nan)
    save(broken, tmp_path / "m.safetensors")
    assert text_of(lambda: predict(tmp_path / "m.safetensors", [grey])) == (
        f"the scores of {grey} are not finite, so nothing can be said of it; torchcaps doctor "
        f"tells in which layer it begins."
    )


def test_more_pictures_than_are_drawn_are_told_before_the_work():
    assert text_of(lambda: predict("none", ["none.png"] * 51, picture="all.png")) == (
        "a picture shows up to 50 images, but there are 51; draw fewer at a time."
    )


@pytest.mark.parametrize("name", ["all.png", "all.svg"])
def test_all_of_it_is_drawn(run, grey, tmp_path, name):
    predict(run.folder, [grey, grey], picture=tmp_path / name)
    if name == "all.png":
        with Image.open(tmp_path / name) as drawn:
            assert drawn.size[0] == 600
            assert drawn.size[1] > drawn.size[0] / 2
    else:
        first = (tmp_path / name).read_bytes()
        assert first.startswith(b"<?xml")
        predict(run.folder, [grey, grey], picture=tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
    assert not list(tmp_path.glob(".*"))


def test_a_run_on_windows_sees_the_middle_of_the_picture(tmp_path, grey):
    run = lay_run(tmp_path / "windows", {}, image_size=(30, 28), crop=(24, 24))
    large = np.random.default_rng(1).integers(0, 256, (30, 28), dtype=np.uint8)
    Image.fromarray(large).save(tmp_path / "large.png")
    (found,) = predict(run.folder, [tmp_path / "large.png"])
    assert torch.equal(found.pixels[0], torch.from_numpy(large[3:27, 2:26]).float() / 255)
    assert found.notes == (f"{tmp_path}/large.png: the middle 24 × 24 of its pixels shown.",)
    assert "takes 30 × 28; crop it" in text_of(lambda: predict(run.folder, [grey]))


def test_light_and_dark_are_swapped_on_demand(run, grey):
    (found,) = predict(run.folder, [grey], invert=True)
    torch.testing.assert_close(found.pixels[0], 1 - torch.from_numpy(PIXELS).float() / 255)
    assert found.notes[0] == f"{grey}: light and dark swapped."


def test_the_middle_is_taken_in_the_proportions_of_the_network(run, tmp_path):
    wide = np.random.default_rng(2).integers(0, 256, (48, 100), dtype=np.uint8)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    Image.fromarray(wide[:, 26:74]).save(tmp_path / "middle.png")
    cropped, plain = predict(
        run.folder, [tmp_path / "wide.png", tmp_path / "middle.png"], crop=True
    )
    assert torch.equal(cropped.pixels, plain.pixels)
    (expected,) = predict(run.folder, [tmp_path / "middle.png"], resize=True)
    # Pillow rounds to bytes after each of two passes.
    assert (plain.pixels - expected.pixels).abs().max() < 1.01 / 255
    assert cropped.notes[0] == (
        f"{tmp_path}/wide.png: the middle 48 × 48 of 48 × 100 pixels taken, stretched from 48 × 48 "
        f"to 24 × 24 pixels."
    )


def test_the_centre_of_brightness_comes_to_the_middle(run, tmp_path):
    corner = np.zeros((24, 24), np.uint8)
    corner[2:5, 17:21] = 200
    Image.fromarray(corner).save(tmp_path / "corner.png")
    (found,) = predict(run.folder, [tmp_path / "corner.png"], centre=True)
    rows, columns = found.pixels[0].nonzero().unbind(1)
    # Rows 2 to 4 have their middle at 3, columns 17 to 20 at 18.5; the middle is 11.5.
    assert (int(rows.min()), int(rows.max())) == (10, 12)
    assert (int(columns.min()), int(columns.max())) == (10, 13)
    assert found.notes[0] == (
        f"{tmp_path}/corner.png: moved by 7 pixels to the left and 8 pixels down."
    )
    Image.fromarray(corner * 0).save(tmp_path / "black.png")
    (black,) = predict(run.folder, [tmp_path / "black.png"], centre=True)
    assert not black.pixels.any()


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"class_names": 7}, "'class_names' is no list of names"),
        ({"class_names": [1] * 10}, "'class_names' is no list of names"),
        ({"class_names": NAMES[:3]}, "it names 3 classes of 10 of the network"),
        ({"brightness": {"mean": "x"}}, "'brightness' has no mean and std"),
        ({"brightness": 5}, "'brightness' has no mean and std"),
    ],
)
def test_a_result_of_another_shape_is_a_sentence(tmp_path, grey, result, why):
    run = lay_run(tmp_path / "odd", {"training_images": 36, **result})
    words = text_of(lambda: predict(run.folder, [grey]))
    assert words.startswith(f"{run.result_file} cannot be read ({why}); ")
