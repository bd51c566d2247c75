"""Saliency maps that are known: how far pruning moves them, and whose run it is held against; and
the share of them on the object."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

import traces
from error_text import text_of
from torchcaps.data import ImageSet, load, part_masks
from torchcaps.errors import Diverged
from torchcaps.study.look import Look, looks_named
from torchcaps.study.measure import look_at
from torchcaps.study.same import plain
from torchcaps.study.system import Cell
from torchcaps.train import Run, fit, make_recipe
from torchcaps.types import Output
from torchcaps_claims import find_claim, looks, plan_of
from torchcaps_claims.looks import looks_of
from torchcaps_claims.saliency import BATCH, apart_of, dense_recipe, dense_run, focus_of

NORB = "rem-q-norb-saliency-less"
PIXELS = torch.zeros(3, 1, 1, 2, dtype=torch.uint8)
IMAGES = ImageSet("part-whole", PIXELS, torch.zeros(3, dtype=torch.int64), ("a", "b"))


def network(lengths, *, says=0, coupling=((0.5, 0.5), (0.5, 0.5))):
    """One with children of these lengths in 1 × 2 positions, a pixel each, a row an image."""

    def seen(pixels):
        n = len(pixels)
        (layer,) = traces.network(
            {"classes": torch.tensor([coupling] * n)}, {"primary": torch.tensor(lengths[:n])}
        )
        trace = (replace(layer, child_grid=(1, 2, 1)),)
        return Output(torch.eye(2)[[says] * n], "lengths", trace=trace)

    return seen


def test_the_distance_is_that_of_each_image_by_itself():
    dense = network([[0.3, 0.4], [0.3, 0.4], [0.5, 0.0]])
    # 1 - 24 / 25 where both change places, 0 where both are doubled, 1 where nothing is shared.
    pruned = network([[0.4, 0.3], [0.6, 0.8], [0.0, 0.5]])
    found = apart_of(dense, pruned, IMAGES)
    assert found == pytest.approx({"saliency": (0.04 + 0 + 1) / 3, "saliency_known": 1}, abs=1e-6)


def test_images_without_a_map_are_in_no_mean():
    dense = network([[0.3, 0.4], [0.3, 0.4], [0.3, 0.4]])
    pruned = network([[0.4, 0.3], [0.0, 0.0], [0.0, 0.0]])
    found = apart_of(dense, pruned, IMAGES)
    assert found == pytest.approx({"saliency": 0.04, "saliency_known": 1 / 3}, abs=1e-6)
    assert apart_of(network([[0.0, 0.0]] * 3), pruned, IMAGES) == {"saliency_known": 0.0}


def test_each_network_has_the_map_of_the_class_that_it_says():
    """One sees class 0 on the left, and class 1 on the right."""
    sides = ((1.0, 0.0), (0.0, 1.0))
    lengths = [[0.5, 0.5]] * 3
    first, second = (network(lengths, says=k, coupling=sides) for k in (0, 1))
    assert apart_of(first, second, IMAGES)["saliency"] == pytest.approx(1)
    assert apart_of(first, first, IMAGES)["saliency"] == pytest.approx(0)


@pytest.mark.parametrize("is_reduced", [False, True])
def test_it_is_held_against_the_dense_network_of_its_plan(is_reduced):
    jobs = [job.smaller() if is_reduced else job for job in plan_of(find_claim(NORB)).jobs]
    pairs = [*zip(jobs[::2], jobs[1::2], strict=True)]
    assert len(pairs) == 4
    for dense, pruned in pairs:
        recipe = plain(pruned.recipe(seed=3))
        assert dense_recipe(recipe) == plain(dense.recipe(seed=3)) != recipe
        assert dense_recipe(recipe).digest() == plain(dense.recipe(seed=3)).digest()
        # Nothing is held against the pruned one, and both have their accuracy.
        assert [look.kind for look in looks_of(pruned)] == ["accuracy", "saliency"]
        assert [look.kind for look in looks_of(dense)] == ["accuracy"]
        assert {look.levels for look in looks_of(pruned)} == {(11,)}


def test_a_network_of_ones_own_study_keeps_all_but_its_pruning():
    fields = {"model": "rem_dr", "data": "part-whole", "keep": "last", "epochs": 7}
    pruned = make_recipe(prune="magnitude", prune_to=0.5, prune_scope="layer", **fields)
    assert dense_recipe(pruned) == make_recipe(**fields)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = make_recipe(
        model="rem_dr",
        options={"width": 2, "types": 2},
        data="part-whole",
        train_images=40,
        epochs=1,
        prune="random_masks",
        prune_to=0.5,
    )
    return fit(recipe, tmp_path_factory.mktemp("runs") / Cell(recipe, ()).name)


def commit_of(run, commit):
    about = json.loads(run.environment_file.read_text())
    about["commit"] = commit
    run.write(run.environment_file, json.dumps(about))


def test_the_run_beside_it_is_taken_and_else_it_is_trained(run):
    (look,) = [
        each for each in looks_of(plan_of(find_claim(NORB)).jobs[1]) if each.kind == "saliency"
    ]
    look = look._replace(data="part-whole", levels=())
    trained = run.folder.with_name(f"{run.folder.name}.dense")
    first = look_at(run, look, root=None)
    assert 0 < first["saliency"] < 1
    assert Run(trained).recipe == dense_recipe(run.recipe)
    # The run of a cell is as good, and nothing is trained then.
    cell = Cell(dense_recipe(run.recipe), ())
    trained.rename(run.folder.with_name(cell.name))
    beside = Run(run.folder.with_name(cell.name))
    commit_of(run, "a1b2c3d4e5f6")
    commit_of(beside, "a1b2c3d4e5f6")
    assert look_at(run, look, root=None) == first
    assert not trained.exists()
    # Of changed code it is none that a record of a commit could rest on.
    commit_of(beside, "a1b2c3d4e5f6+changes")
    assert dense_run(run, root=None).folder == trained
    shutil.rmtree(trained)
    commit_of(run, "a1b2c3d4e5f6+changes")
    assert dense_run(run, root=None) == beside


def test_a_dense_network_that_diverges_does_not_take_the_pruned_one_with_it(run, monkeypatch):
    """The pruned one was written down as diverged, with nothing of what was measured of it."""

    def diverges(*_, **__):
        raise Diverged("the loss of the dense network is NaN.")

    monkeypatch.setattr(looks, "dense_run", diverges)
    look = Look("saliency", "part-whole")
    assert look_at(run, look, root=None) == {"saliency_known": 0.0}


@pytest.fixture(scope="module")
def images():
    return load("part-whole", split="test")


def object_of(images):
    """By a loop over images and slots."""
    masks = part_masks(images.truth, torch.arange(len(images)))
    whole = torch.zeros_like(masks[:, 0])
    for n, owners in enumerate(images.truth.owner.tolist()):
        for slot, owner in enumerate(owners):
            if owner == 0:
                whole[n] |= masks[n, slot]
    return whole.double()


def test_an_even_map_lies_on_the_object_as_far_as_the_object_reaches(images):
    found = focus_of(network([[1.0, 1.0]] * BATCH), images)
    assert found["focus"] == pytest.approx(float(object_of(images).mean()), abs=1e-6)
    assert found["focus_known"] == 1


def test_a_map_of_one_side_sees_that_side(images):
    weight = torch.nn.functional.interpolate(
        torch.tensor([[[[1.0, 0.0]]]]).double(), size=(32, 32), mode="bilinear"
    )[0, 0]
    share = (object_of(images) * weight).sum((1, 2)) / weight.sum()
    found = focus_of(network([[1.0, 0.0]] * BATCH), images)
    assert found["focus"] == pytest.approx(float(share.mean()), abs=1e-6)


def test_maps_that_are_zero_have_no_focus(images):
    assert focus_of(network([[0.0, 0.0]] * BATCH), images) == {"focus_known": 0.0}


def test_images_that_do_not_tell_are_refused(images):
    (look,) = looks_named(["focus"], "part-whole")
    assert look.kind == "focus"
    half = ImageSet("part-whole", images.images[:9], images.labels[:9], images.class_names)
    assert text_of(lambda: focus_of(network([[1.0, 1.0]] * BATCH), half)) == (
        "focus asks where the object is, which the images of part-whole do not tell; take the test "
        "images of part-whole."
    )
