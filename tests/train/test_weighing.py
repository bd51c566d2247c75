"""Classes of unequal size evened out: what their images weigh, and how often they are shown."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from error_text import text_of
from single_steps import ending, raising, step_that
from torchcaps.data import Batch, ImageSet, PartWholeSpec, part_whole
from torchcaps.study import compare
from torchcaps.study.own import own_study
from torchcaps.tasks import evaluate_file
from torchcaps.tasks.dissect import facts_of
from torchcaps.tasks.examination.doctor import examine
from torchcaps.train import Training, fit, loss_of, make_recipe
from torchcaps.train.batches import Batches
from torchcaps.train.images import watched
from torchcaps.train.loop import Loop, validated
from torchcaps.train.loss import loss_parts
from torchcaps.train.start import initial_model
from torchcaps.train.weighing import weighed
from torchcaps.types import Output


@cache
def uneven(split, root=None):
    """40 images of the first class, 8 of the second and 12 of the third; of the test 9."""
    images = part_whole(split, 480, spec=PartWholeSpec(size=20))
    counts = (40, 8, 12) if split == "train" else (5, 2, 2)
    some = [(images.labels == k).nonzero()[:n, 0] for k, n in enumerate(counts)]
    taken = images.take(torch.cat(some))
    return replace(taken, class_names=images.class_names[:3], truth=None)


DATA = {"uneven": uneven}


def recipe(**changed):
    fields = {"model": "mitterreiter_5x16", "data": "uneven", "epochs": 2, "batch_size": 16}
    return make_recipe(**{"options": {"decoder": False}} | fields | changed)


def test_balanced_weights_by_hand_and_as_scikit_learn_has_them():
    labels = uneven("train").labels.numpy()
    found = weighed(recipe(class_weights="balanced"), uneven("train")).class_weights
    # 60 / (3 · 40), 60 / (3 · 8), 60 / (3 · 12)
    assert found == pytest.approx((0.5, 2.5, 5 / 3))
    assert found == pytest.approx(compute_class_weight("balanced", classes=np.arange(3), y=labels))
    # The mean over images is one, so the rate of a recipe keeps its meaning.
    assert torch.tensor(found)[uneven("train").labels].mean().item() == pytest.approx(1)
    assert weighed(recipe(), uneven("train")) == recipe()
    numbers = recipe(class_weights=[1, 2, 3])
    assert weighed(numbers, uneven("train")) is numbers


def error_of(fields, out, labels):
    batch = Batch(torch.zeros(len(labels), 1, 2, 2), labels)
    return loss_parts(recipe(**fields), out, batch)["classification_loss"]


def test_of_all_images_at_once_it_is_the_mean_that_torch_takes():
    labels = uneven("train").labels
    scores = torch.randn(60, 3)
    weights = weighed(recipe(class_weights="balanced"), uneven("train")).class_weights
    found = error_of({"class_weights": weights}, Output(scores, "logits"), labels)
    expected = functional.cross_entropy(scores, labels, torch.tensor(weights))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        loss_of(Output(scores, "logits"), labels, weight=torch.tensor(weights)), expected
    )


@pytest.mark.parametrize("loss", ["margin", "spread", "cross_entropy", "binary", "focal"])
def test_slices_of_a_batch_add_up_to_the_whole(loss):
    """Several devices share a batch, and an update may go by several."""
    out, labels = Output(torch.rand(8, 3), "lengths"), torch.tensor([0, 0, 1, 2, 0, 0, 0, 1])
    fields = {"loss": loss, "class_weights": [0.5, 2.5, 1.5]}
    whole = error_of(fields, out, labels)
    halves = [
        error_of(fields, Output(out.scores[x], "lengths"), labels[x])
        for x in (slice(5), slice(5, 8))
    ]
    torch.testing.assert_close((5 * halves[0] + 3 * halves[1]) / 8, whole)
    assert not torch.isclose(whole, error_of({"loss": loss}, out, labels))


def test_focal_loss_of_a_recipe_on_paper():
    # (1 − 0.5)^γ log 2 for the class that is there, 0.25^γ log 4/3 for the other
    out = Output(torch.tensor([[0.5, 0.25]]), "lengths")
    found = [
        error_of({"loss": "focal", "focal_gamma": g}, out, torch.tensor([0])) for g in (1.0, 3.0)
    ]
    log2, log43 = torch.tensor([2.0, 4 / 3]).log()
    torch.testing.assert_close(found[0], log2 / 2 + log43 / 4)
    torch.testing.assert_close(found[1], log2 / 8 + log43 / 64)


def shown(seed, epoch, size=16):
    batches = Batches(uneven("train"), size, seed=seed, sampling="balanced")
    batches.sampler.set_epoch(epoch)
    return torch.cat([index for _, index in batches.sampler])


def test_a_balanced_epoch_shows_every_class_equally_often():
    labels = uneven("train").labels
    for epoch in range(3):
        index = shown(3, epoch)
        assert labels[index].bincount().tolist() == [20, 20, 20]
        times = index.bincount(minlength=60)
        # Of 40 images 20; each of 8 twice or three times; each of 12 once or twice.
        for k, (low, high) in enumerate([(0, 1), (2, 3), (1, 2)]):
            of_class = times[labels == k]
            assert (int(of_class.min()), int(of_class.max())) == (low, high)
    assert not torch.equal(shown(3, 0), shown(3, 1))
    assert not torch.equal(shown(3, 0), shown(4, 0))


def test_a_remainder_is_shared_and_what_is_looked_at_stays_as_it_is():
    images = ImageSet("two", torch.rand(7, 1, 2, 2), torch.tensor([0] * 6 + [1]), ("a", "b"))
    even = Batches(images, 2, seed=0, sampling="balanced")
    shown = torch.cat([index for _, index in even.sampler])
    assert sorted(images.labels[shown].bincount().tolist()) == [3, 4]
    looked_at = Batches(images, 2, sampling="balanced")
    assert torch.cat([i for _, i in looked_at.sampler]).tolist() == list(range(7))


FIELDS = {
    "weights": {"class_weights": "balanced"},
    "sampling": {"sampling": "balanced", "loss": "focal"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: fit(recipe(**fields), folder / name) for name, fields in FIELDS.items()}


@pytest.mark.parametrize("name", FIELDS)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(name, runs, tmp_path):
    with ending(Loop, "training_step", step_that(raising(KeyboardInterrupt()), 5)):
        fit(recipe(**FIELDS[name]), tmp_path)
    found = fit(recipe(**FIELDS[name]), tmp_path)
    assert found.model_file.read_bytes() == runs[name].model_file.read_bytes()


def test_a_class_of_weight_0_costs_nothing():
    one = recipe(class_weights=[0.0, 0.0, 1.0])
    images = uneven("train")
    model = initial_model(one, images).eval()
    batch = images.batch(slice(None))
    each = loss_parts(recipe(), model(batch.pixels, batch.labels), batch)["classification_loss"]
    found = loss_parts(one, model(batch.pixels, batch.labels), batch)["classification_loss"]
    of_third = batch.labels == 2
    third = Batch(batch.pixels[of_third], batch.labels[of_third])
    alone = loss_parts(recipe(), model(third.pixels, third.labels), third)["classification_loss"]
    torch.testing.assert_close(found, alone * 12 / 60)
    assert not torch.isclose(found, each)


def test_a_run_says_what_its_classes_weighed(runs):
    run = runs["weights"]
    # Of 54 training images as many as were not held out.
    weights = run.result()["class_weights"]
    assert list(weights) == list(uneven("train").class_names)
    counts = [54 / (3 * weight) for weight in weights.values()]
    assert sum(counts) == pytest.approx(54)
    assert counts == pytest.approx([round(count) for count in counts])
    words = "class weights " + ", ".join(f"{name} {x:.3g}" for name, x in weights.items())
    assert run.evened == words
    assert facts_of(run)["trained on"].endswith(f", with {words}")
    found = evaluate_file(run.folder)
    assert f"\ntrained   with {words}\n" in found.text()
    assert found.numbers()["trained_with"] == words


def test_a_run_says_that_classes_were_shown_equally_often(runs):
    run = runs["sampling"]
    assert "class_weights" not in run.result()
    assert facts_of(run)["trained on"].endswith(", with every class shown equally often")
    assert "trained   with every class shown equally often" in evaluate_file(run.folder).text()
    labels = [each.label for each in compare([each.folder for each in runs.values()]).variants]
    assert any("class_weights=balanced" in label for label in labels)


def test_epochs_are_trained_and_validated_by_the_weighed_loss(runs, tmp_path):
    one = recipe(class_weights=[0.2, 3, 1], epochs=1, batch_size=60, validation_share=0.0)
    images = uneven("train")
    batch = images.batch(slice(None))
    model = initial_model(one, images).train()
    expected = loss_parts(one, model(batch.pixels, batch.labels), batch)["classification_loss"]
    (row,) = fit(one, tmp_path).metrics()
    assert row["loss"] == pytest.approx(expected.item(), rel=1e-4)
    run = runs["weights"]
    training, held = watched(run.recipe, images)
    batch, model = held.batch(slice(None)), run.model().eval()
    by = weighed(run.recipe, training)
    expected = loss_parts(by, model(batch.pixels), batch)["classification_loss"]
    assert run.metrics()[-1]["validation_loss"] == pytest.approx(expected.item(), rel=1e-4)


def test_a_network_is_examined_by_the_same_loss():
    for fields in FIELDS.values():
        one = recipe(**fields)
        network = initial_model(one, uneven("train"))
        how = {"stage": "before training", "seconds": 0.1}
        found = examine(network, one, uneven("train"), lambda: uneven("test"), **how)
        assert not [each for each in found.findings if each.verdict == "broken"]


def test_a_study_varies_them():
    vary = {"class_weights": ["none", "balanced", [1, 5, 5]], "sampling": ["shuffled"]}
    fields = {"model": "mitterreiter_5x16", "data": "uneven"}
    study = own_study(fields, name="x", vary=vary, measure=["accuracy"])
    assert [each.recipe.class_weights for each in study.systems] == [None, "balanced", (1, 5, 5)]


def test_a_trainer_of_ones_own_is_told_what_it_cannot_know():
    model = initial_model(recipe(), uneven("train"))
    for fields in ({"class_weights": "balanced"}, {"sampling": "balanced"}):
        assert text_of(lambda: Training(model, recipe(**fields))) == (  # noqa: B023
            "what is balanced goes by the labels of all training images, which Training does not "
            "see; give class_weights numbers, or the loader a sampler."
        )
    own = Training(model, recipe(class_weights=[1, 2, 3]))
    batch = uneven("train").batch(slice(4))
    _, found = validated(own.model, own.recipe, batch, judged_by="class")
    assert found["validation_loss"].isfinite()
