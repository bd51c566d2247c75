"""Steps of a plan that prune: which recipe they are, and what a command says of them."""

from functools import partial

import pytest

from made_records import job_of
from torchcaps_claims import find_claim, plan_of
from torchcaps_claims.pruned import WAYS, pruning_fields

job = partial(job_of, model="rem_dr", protocol="rem_pruned")


def test_lobster_finds_its_own_sparsity_unless_one_is_said():
    assert pruning_fields(("prune", "quantise"), {}, train="mnist") == {"prune": "lobster"}
    at = {"sparsity": 80}
    assert pruning_fields(("prune",), at, train="mnist") == {"prune": "lobster", "prune_to": 0.8}
    assert pruning_fields(("quantise",), at, train="mnist") == {}


@pytest.mark.parametrize("step", sorted(set(WAYS) - {"prune"}))
def test_controls_have_the_sparsity_of_the_paper(step):
    # [renzulli2025] Table 9, DR-CapsNet+REM on MNIST.
    found = find_claim("rem-t9-dr-capsnet-rem-sparsity").value
    assert pruning_fields((step,), {}, train="mnist") == {"prune": step, "prune_to": found / 100}
    assert pruning_fields((step,), {"sparsity": 50}, train="mnist")["prune_to"] == 0.5


def test_the_recipe_prunes():
    recipe = job(after=("prune",)).recipe()
    assert (recipe.prune, recipe.prune_to, recipe.keep) == ("lobster", None, "last")
    assert recipe.departures() == ()
    recipe = job(after=("snip",), at={"sparsity": 60}).recipe()
    assert (recipe.prune, recipe.prune_to) == ("snip", 0.6)
    assert recipe.departures() == ("prune: 'snip', where the protocol rem_pruned has 'lobster'",)


def test_the_command_says_so():
    (train,) = job(after=("prune",)).commands()
    assert "prune" not in train.replace("rem_pruned", "")
    (train,) = job(after=("magnitude",), at={"sparsity": 80}).commands()
    assert "--set prune=magnitude --set prune_to=0.8" in train


def test_every_way_to_prune_can_be_trained():
    for claim in ("rem-q-any-pruning", "rem-q-entropy-falls-by-pruning", "rem-t12-single-shot-acc"):
        for each in plan_of(find_claim(claim)).jobs:
            for one in (each, each.smaller()):
                assert one.recipe().prune == pruning_fields(one.after, one.at, train=one.train).get(
                    "prune"
                )
