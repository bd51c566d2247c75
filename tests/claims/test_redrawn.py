"""A decoder on a frozen network, and what its components draw."""

import pytest
import torch

from torchcaps.data import load
from torchcaps.data.some import some_of
from torchcaps.errors import Diverged, Interrupted
from torchcaps.study.look import Look, looks_named
from torchcaps.study.measure import look_at
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.images import as_shown
from torchcaps_claims import redrawn
from torchcaps_claims.redrawn import decoder_recipe, draws_something, redrawn_of

# At -0.2, -0.15, -0.1, -0.05 and back.
GROWS = (0.04, 0.03, 0.02, 0.01)


@pytest.mark.parametrize(
    ("changes", "draws"),
    [
        ((*GROWS, *GROWS[::-1]), True),
        # One end is not visible.
        ((*GROWS, 0.002, 0.004, 0.006, 0.009), False),
        # It changes as much however far it moves.
        ((0.04,) * 8, False),
        # The other way round.
        ((*GROWS[::-1], *GROWS), False),
        # Ranks lie at ±1 and ±3, twice each: two neighbours change places, 36 / 40; four, 32 / 40.
        ((*GROWS, 0.02, 0.01, 0.03, 0.04), True),
        ((0.03, 0.04, 0.01, 0.02, *GROWS[::-1]), False),
    ],
)
def test_a_component_draws_what_grows_and_is_seen(changes, draws):
    assert draws_something(changes) is draws


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = make_recipe(
        model="rem_dr",
        options={"width": 4, "types": 2},
        data="part-whole",
        image_size=(28, 28),
        train_images=40,
        validation_share=0.1,
        epochs=2,
        prune="magnitude",
        prune_to=0.5,
        prune_scope="layer",
        prune_ramp=1,
        seed=3,
    )
    return fit(recipe, tmp_path_factory.mktemp("runs") / "net")


@pytest.mark.slow
def test_a_decoder_is_trained_and_nothing_else(run):
    images = some_of(as_shown(run.recipe, load("part-whole", split="test")), 30)
    found = redrawn_of(run, images, root=None)
    assert found.keys() == {"drawn_components", "drawn_change", "drawn_known"}
    assert found["drawn_known"] == 1
    assert 0 <= found["drawn_components"] <= 1
    drawing = Run(run.folder.with_name("net.decoder"))
    before, after = run.model().state_dict(), drawing.model().state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {name.partition(".")[0] for name in after.keys() - before.keys()} == {"decoder"}
    # Looking again trains nothing and gives the same.
    assert redrawn_of(run, images, root=None) == found
    (look,) = looks_named(["drawn_components"], "part-whole")
    assert look.kind == "redrawn"


def test_the_time_budget_reaches_the_decoder(run):
    look = Look("redrawn", "part-whole")
    with pytest.raises(Interrupted, match="time budget"):
        look_at(run, look, root=None, time_budget=1e-9)


def test_a_decoder_that_diverges_takes_nothing_from_the_network(run, monkeypatch):
    def diverges(*args, **options):
        raise Diverged("the loss is nan")

    monkeypatch.setattr(redrawn, "fit", diverges)
    assert look_at(run, Look("redrawn", "part-whole"), root=None) == {"drawn_known": 0.0}


def test_its_recipe_is_that_of_the_network_without_its_pruning(run):
    recipe = decoder_recipe(run)
    assert (recipe.prune, recipe.seed, recipe.train_images) == (None, 3, 40)
    assert (recipe.image_size, recipe.epochs) == ((28, 28), 2)
    assert recipe.freeze == ("backbone", "primary", "layers")
    assert recipe.options == {"width": 4, "types": 2, "decoder": True}
