"""The learning-rate range test: the steepest fall on paper, and on a network."""

import importlib
import itertools
import math

import pytest

from error_text import text_of
from torchcaps.data import PartWholeSpec, by_name, part_whole
from torchcaps.tasks import rate_test
from torchcaps.tasks.rate_test import _smoothed, steepest
from torchcaps.train import make_recipe
from torchcaps.train.batches import Batches
from torchcaps.train.images import images_of
from torchcaps.train.loss import loss_parts
from torchcaps.train.start import initial_model


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    images = part_whole("train", 60, spec=PartWholeSpec(size=24))
    monkeypatch.setitem(by_name.SOURCES, "few", lambda split, root: images)


def recipe(**fields):
    return make_recipe(model="rem_multilayer", data="few", batch_size=12, **fields)


def test_the_steepest_fall_of_a_line_with_one_step():
    rates = [10.0**k for k in range(-5, 1)]
    # It falls by 3 from 10⁻³ to 10⁻², and less elsewhere: their geometric mean.
    assert steepest(rates, [5, 5, 4.5, 1.5, 1, 6]) == pytest.approx(10**-2.5)
    assert steepest(rates, [1, 1, 2, 3, 4, 5]) is None


def test_rates_grow_by_one_factor_and_end_where_the_loss_shoots_up():
    found = rate_test(recipe(), low=1e-4, high=1e4, steps=17)
    ratios = [after / before for before, after in zip(found.rates, found.rates[1:], strict=False)]
    assert ratios == pytest.approx([10**0.5] * len(ratios))
    assert len(found.losses) == len(found.smoothed) == len(found.rates) <= 17
    # By hand, of both sides: (0.9 l₀ + l₁ + 0.9 l₂ + 0.81 l₃ + …) / (0.9 + 1 + 0.9 + 0.81 + …).
    weights = [0.9 ** abs(k - 1) for k in range(len(found.losses))]
    mean = sum(w * loss for w, loss in zip(weights, found.losses, strict=True)) / sum(weights)
    assert found.smoothed[1] == pytest.approx(mean)
    assert all(map(math.isfinite, found.losses))


def test_a_loss_is_that_after_the_step_of_its_rate():
    """At rates of 1e-30 nothing is learned, so losses are those of the untrained network."""
    quiet = rate_test(recipe(), low=1e-30, high=1e-29, steps=10)
    images = images_of(recipe(), "train")
    network = initial_model(recipe(), images, None).train()
    batches, losses = Batches(images, 12, seed=recipe().seed), []
    for batch in itertools.islice(itertools.chain(batches, batches, batches), 11):
        out = network(batch.pixels, batch.labels)
        losses.append(sum(loss_parts(recipe(), out, batch, 0).values()).item())
    # The first batch is that of the first step, whose loss is of no rate.
    assert quiet.losses == pytest.approx(losses[1:11], rel=1e-5)


def test_a_network_that_is_lost_at_the_first_rate_says_so(monkeypatch):
    def broken(*asked):
        parts = loss_parts(*asked)
        return {name: part * math.nan for name, part in parts.items()}

    # The package has a function of the name of the module.
    module = importlib.import_module("torchcaps.tasks.rate_test")
    monkeypatch.setattr(module, "loss_parts", broken)
    said = text_of(lambda: rate_test(recipe(), low=1e-3, high=1, steps=10))
    assert said.startswith("the loss is nan at the first rate already, 0.001; torchcaps doctor")


def test_smoothing_moves_no_fall():
    rates = [10 ** (-6 + 6 * k / 99) for k in range(100)]
    losses = [1 / (1 + math.exp(4 * (math.log10(rate) + 3))) for rate in rates]
    assert steepest(rates, _smoothed(losses)) == pytest.approx(1e-3, rel=0.1)


def test_the_rate_of_the_recipe_changes_nothing_and_it_repeats():
    first = rate_test(recipe(), low=1e-4, high=1e-1, steps=10)
    again = rate_test(recipe(learning_rate=0.5), low=1e-4, high=1e-1, steps=10)
    assert first == again


def test_own_images_are_shown_as_training_shows_them():
    own = part_whole("train", 60, spec=PartWholeSpec(size=24))
    fields = {"model": "rem_multilayer", "data": "own", "batch_size": 12, "image_size": (20, 20)}
    given = rate_test(make_recipe(**fields), own=own, steps=10)
    fields |= {"data": "few"}
    assert rate_test(make_recipe(**fields), steps=10).losses == given.losses


@pytest.mark.parametrize(
    ("data", "own", "says"),
    [
        ("few", part_whole("train", 3), 'the recipe says data "few", but images of your own were'),
        ("own", None, 'the recipe says data "own", but no images were given; data "own" and'),
        ("own", (None, None), "own takes the training images alone, since nothing is tested here"),
    ],
)
def test_own_images_and_their_name_belong_together(data, own, says):
    given = make_recipe(model="rem_multilayer", data=data)
    assert text_of(lambda: rate_test(given, own=own)).startswith(says)


def test_bounds_are_checked():
    assert text_of(lambda: rate_test(recipe(), low=1, high=0.1)) == (
        "the lowest rate must be above 0 and below the highest, but they came as 1 and 0.1."
    )
    assert text_of(lambda: rate_test("capsnet")) == (
        "rate_test takes a recipe, what train.make_recipe returns, but got 'capsnet'."
    )
    for steps in (100_001, 10**12, 10**5000):
        assert text_of(lambda steps=steps: rate_test(recipe(), steps=steps)).startswith(
            "a slope is seen in some hundred steps, and more than 100,000 would be training, but "
        )
    for steps in (3, "ten"):
        assert text_of(lambda steps=steps: rate_test(recipe(), steps=steps)) == (
            f"steps must be a whole number from 10, but came as {steps!r}; a slope is not seen in "
            f"fewer."
        )
