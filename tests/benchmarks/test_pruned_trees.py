"""The networks that the benchmark of pruning trains: recipes that hold, and their hours."""

import pruned_trees
import pytest

from torchcaps.train import make_recipe


@pytest.mark.parametrize("data", pruned_trees.AUGMENT)
@pytest.mark.parametrize("way", pruned_trees.WAYS)
def test_every_way_is_a_recipe(data, way):
    fields = pruned_trees.fields_of(data, 1, tiny=False)
    recipe = make_recipe(**fields, **pruned_trees.WAYS[way])
    assert (recipe.epochs, recipe.train_images, recipe.options) == (30, 20_000, {"width": 128})
    assert recipe.prune == (None if way == "dense" else way)


def test_lobster_costs_more_and_masking_nothing():
    dense, lobster, masked = map(pruned_trees.hours, ("dense", "lobster", "mask_at_the_end"))
    assert masked == 0 < dense < lobster < 2 * dense
