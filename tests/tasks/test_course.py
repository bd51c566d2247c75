"""How long a run was: updates counted by hand, and the two sentences for one that was too short."""

import pytest
import torch

from torchcaps.data import from_arrays
from torchcaps.tasks.examination.course import examine_course
from torchcaps.train import make_recipe

# 144 images, of which nine tenths are trained on: 130.
IMAGES = from_arrays(torch.rand(144, 1, 20, 20), torch.arange(144) % 3, ("a", "b", "c"))


def course(rows, **fields):
    recipe = make_recipe(model="peer_deep_dynamic", data="own", **fields)
    return examine_course(recipe, IMAGES, rows)


def rows(count, accuracy):
    return [{"accuracy": 0.0}] * (count - 1) + [{"accuracy": accuracy}]


def test_too_few_updates_are_told_before_and_after():
    found = course((), epochs=3)
    assert (found.verdict, found.numbers["updates"]) == ("look", 6)
    assert found.text == (
        "6 updates in 3 epochs of about 130 images, 128 a batch: few networks learn anything from "
        "fewer than 100; take more --epochs or a smaller --batch-size."
    )
    assert course(rows(3, 1.0), epochs=50).text == found.text


@pytest.mark.parametrize(
    ("accuracy", "verdict", "words"),
    [
        (
            0.39,
            "look",
            "were right, and always saying 'a' would give 33%: it has not begun to learn.",
        ),
        (0.41, "fine", "in the last epoch 41% of the training images were right."),
    ],
)
def test_a_network_that_has_not_begun_to_learn_is_told(accuracy, verdict, words):
    found = course(rows(15, accuracy), epochs=15, batch_size=16)  # the line is 1/3, begun from 0.4
    assert (found.verdict, found.numbers["updates"]) == (verdict, 15 * 9)
    assert words in found.text


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.85, "look"), (0.86, "look"), (0.87, "fine")])
def test_uneven_classes_raise_the_line(accuracy, verdict):
    """85 % of one class: to be above chance, a third, shows nothing; begun from 0.865."""
    labels = torch.tensor([0] * 8 + [1] * 7 + [2] * 85)
    uneven = from_arrays(torch.rand(100, 1, 20, 20), labels, ("malign", "odd", "benign"))
    recipe = make_recipe(model="peer_deep_dynamic", data="own", epochs=30, batch_size=16)
    found = examine_course(recipe, uneven, rows(30, accuracy))
    assert found.verdict == verdict
    assert found.numbers["commonest"] == {"class": "benign", "share": 0.85}
    assert ("always saying 'benign' would give 85%" in found.text) == (verdict == "look")


def test_a_network_that_learns_by_heart_is_told():
    last = {"accuracy": 0.98, "validation_accuracy": 0.3}
    found = course([last] * 15, epochs=15, batch_size=16)
    assert found.verdict == "look"
    assert found.text.endswith(
        "98% of the training images were right, but only 30% of those held out, and always "
        "saying 'a' would give 33%: it learns by heart. More images help, or --set "
        "augment=shift2-flip."
    )
    well = {"accuracy": 0.98, "validation_accuracy": 0.9}
    assert course([well] * 15, epochs=15, batch_size=16).verdict == "fine"


def test_gathered_batches_and_chosen_images_make_fewer_updates():
    assert course((), epochs=30, batch_size=16, accumulate=4).numbers["updates"] == 30 * 3
    assert course((), epochs=30, batch_size=16, train_images=40).numbers["updates"] == 30 * 3
