"""The recipes of the benchmark of pruning hold, and those of its records can be asked for."""

import itertools
from pathlib import Path

import pruned_trees
import pytest

from torchcaps.study.record import read_records
from torchcaps.train import make_recipe
from torchcaps_claims.pruned import MATCHED

ROOT = Path(__file__).parents[2]
WHOLE, MIDDLE, REDUCED = pruned_trees.WHOLE, pruned_trees.MIDDLE, pruned_trees.REDUCED


@pytest.mark.parametrize("form", [WHOLE, MIDDLE, REDUCED])
@pytest.mark.parametrize("way", [each for each in pruned_trees.WAYS if "mask_" not in each])
def test_every_way_is_a_recipe(form, way):
    for data in form.data:
        recipe = make_recipe(
            **pruned_trees.fields_of(form, pruned_trees.Cell(data, 1, way)),
        )
        named = {"dense": None, "longer": None, "lamp": "magnitude", "only_shrinks": "lobster"}
        assert recipe.prune == named.get(way, way)
        assert recipe.epochs == form.fields["epochs"] * (4 if way == "longer" else 3) // 3
        assert recipe.train_images == form.fields["train_images"]
        if way == "lobster":
            assert recipe.prune_to == MATCHED[data] / 100
        if way == "only_shrinks":
            assert (recipe.prune_to, recipe.prune_shrink) == (0, form.shrink)


def test_every_record_has_a_recipe_that_can_be_asked_for():
    asked = set()
    forms = (WHOLE, MIDDLE, MIDDLE._replace(shrink=3.4e-3), REDUCED)
    for form, precision in itertools.product(forms, ("float32", "bfloat16")):
        fields = {**form.fields, "precision": precision}
        for cell in pruned_trees.cells_of(form):
            if cell.way == "mask_like_lobster":
                # It is masked as far as another network came, and has no record.
                continue
            of_cell = pruned_trees.fields_of(form._replace(fields=fields), cell)
            asked.add(make_recipe(**of_cell).digest())
    for study in (pruned_trees.STUDY, pruned_trees.OF_SHRINKING):
        records = read_records(ROOT / "evidence", study=study, drafts=True)
        assert records
        assert {each.recipe_hash for each in records.values()} <= asked
