"""Runs on images with groups: none is trained on and tested too, and the result counts them."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

import torchcaps as tc
from error_text import text_of
from single_steps import FIT
from torchcaps.data import ImageSet, image_folder
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model
from torchcaps.tasks import doctor, evaluate_file
from torchcaps.tasks.dissect import facts_of
from torchcaps.tasks.examination.images import examine_groups
from torchcaps.tasks.trained import open_trained
from torchcaps.train import fit, make_recipe
from torchcaps.train.grouped import warn_of_groups


def patients(first, count):
    """Three pictures of each patient, who shows one class."""
    number = torch.arange(3 * count) // 3
    groups = tuple(f"p{first + each}" for each in number.tolist())
    pixels = torch.rand(3 * count, 1, 20, 20, generator=torch.Generator().manual_seed(first))
    return ImageSet("patients", pixels, number % 2, ("benign", "malignant"), groups=groups)


def recipe(**changed):
    fields = {"model": "mitterreiter_5x16", "data": "own", "epochs": 1, "batch_size": 16}
    return make_recipe(**{"options": {"decoder": False}} | fields | changed)


def pictures(root, count=20):
    """Three pictures of each patient, who shows one class."""
    images = patients(0, count)
    for at, group in enumerate(images.groups):
        folder = root / images.class_names[images.labels[at]]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (255 * images.images[at, 0]).to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / f"{group}_{at % 3}.png")
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("data") / "skin")


PATTERN = "(p[0-9]+)_"


@pytest.fixture(scope="module")
def run(root, tmp_path_factory):
    grouped = recipe(data="folder", groups=PATTERN)
    return fit(grouped, tmp_path_factory.mktemp("runs") / "skin", root=root)


PARTED = (
    "parted by 20 groups of '(p[0-9]+)_': 16 in training, 4 in the test, none in both; as even as "
    "whole groups allow, the test has 20% of benign, 20% of malignant"
)


def test_a_run_counts_its_groups_and_tells_how_they_are_parted(run):
    assert run.result()["groups"] == {"train": 14, "validation": 2, "test": 4, "parted": PARTED}
    assert facts_of(run)["groups"] == PARTED


def test_whoever_reads_the_images_of_a_run_reads_them_by_its_groups(run):
    trained = open_trained(run.folder)
    parts = [set(trained.images(split).groups) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [14, 2, 4]
    assert len(set.union(*parts)) == 20
    found = evaluate_file(run.folder)
    assert not found.changed
    assert set(found.groups) == parts[2]
    assert (found.parted, found.suggested) == (PARTED, None)
    assert PARTED in found.text().splitlines()
    assert found.numbers()["parted"] == PARTED
    # What is trained on is not tested.
    assert evaluate_file(run.folder, split="validation").parted is None


def test_groups_are_told_before_training_too(run, root):
    (found,) = examine_groups(run.recipe, root)
    assert (found.check, found.verdict, found.text) == ("groups", "fine", f"{PARTED}.")
    assert doctor(run.recipe, root=root, seconds=0).findings[-1] == found


HINT = (
    "8 of 8 groups of the test are in training too, if names as 'p0' tell pictures that belong "
    "together; what is right about them may be memory: part them by --groups "
    "'(p[0-9]+)_'"
)


def test_names_that_suggest_groups_are_told_by_all_who_look(root, tmp_path, caplog):
    plain = recipe(data="folder")
    warn_of_groups(plain, root, None)
    assert caplog.messages == [HINT]
    (found,) = examine_groups(plain, root)
    assert (found.verdict, found.text) == ("look", f"{HINT}.")
    assert (found.numbers["both"], found.numbers["test"]) == (8, 8)
    network = create_model("mitterreiter_5x16", image=(1, 20, 20), n_classes=2)
    tc.save(network, tmp_path / "net.safetensors")
    seen = evaluate_file(tmp_path / "net.safetensors", data="folder", root=root)
    assert HINT in seen.text().splitlines()
    assert seen.numbers()["groups_by_names"]["pattern"] in HINT


def test_training_begins_with_what_names_suggest(root, tmp_path, monkeypatch, caplog):
    def stop(*_, **__):
        raise TorchcapsError("it was to begin.")

    monkeypatch.setattr(FIT.Going, "steps", stop)
    plain = recipe(data="folder")
    assert text_of(lambda: fit(plain, tmp_path / "run", root=root)) == "it was to begin."
    assert caplog.messages == [HINT]


def test_own_images_of_files_are_looked_at_as_a_folder_is(root, caplog):
    own = image_folder(root), image_folder(root, "test")
    warn_of_groups(recipe(), None, own)
    assert caplog.messages == [HINT]


def test_nothing_is_told_where_groups_are_known_or_not_suggested(root, caplog):
    warn_of_groups(recipe(data="folder", groups=PATTERN), root, None)
    both = [image_folder(root, split, groups=PATTERN) for split in ("train", "test")]
    warn_of_groups(recipe(), None, tuple(both))
    nameless = [replace(images, groups=None, files=None) for images in both]
    warn_of_groups(recipe(), None, tuple(nameless))
    warn_of_groups(recipe(data="part-whole"), None, None)
    assert caplog.messages == []
    assert examine_groups(recipe(data="part-whole"), root) == []


def test_own_images_with_groups(tmp_path):
    found = fit(recipe(), tmp_path / "own", own=(patients(0, 20), patients(50, 4))).result()
    assert found["groups"] == {
        "train": 18,
        "validation": 2,
        "test": 4,
        "parted": "parted by 24 groups: 20 in training, 4 in the test, none in both; as even as "
        "whole groups allow, the test has 17% of benign, 17% of malignant",
    }


def test_a_group_that_is_trained_on_and_tested_is_refused(tmp_path):
    own = patients(0, 20), patients(18, 4)
    assert text_of(lambda: fit(recipe(), tmp_path / "own", own=own)) == (
        "patients: 2 of the 4 groups of the test are in training too, 'p18' for one, so the test "
        "would count what was learnt of them by heart; give every group to one of both."
    )
    assert not (tmp_path / "own").exists()


def test_a_run_on_a_fold_is_known_by_every_command(root, tmp_path):
    """The test images of the run are those of its fold, wherever it is looked at."""
    run = fit(recipe(data="folder", groups=PATTERN, fold=(2, 5)), tmp_path / "run", root=root)
    test = image_folder(root, "test", groups=PATTERN, fold=(2, 5))
    assert run.image_digests()["test"] == test.digest()
    found = evaluate_file(run.folder)
    assert (found.files, found.changed) == (test.files, False)
    assert found.accuracy == pytest.approx(run.result()["test_accuracy"])
    assert found.parted == run.result()["groups"]["parted"]
