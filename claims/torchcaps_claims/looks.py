"""What only the claims look at, registered with the studies of torchcaps.

The look `compactness` gives that of each factor, `compactness.trans-x`, and their mean. The look
`invariance` gives `corr.rotation 20°.2` of the second layer of capsules, Pearson's beside it, and
`spearman.rotation.2`; the look `trees` `distance.different` and `share_as_far`, and the look
`tree-size` `tree_size`. The look `cancellation` gives `cancellation_cosine`, `cancellation_chi` and
the `input_cosine` of the pairs, and `cancellation-at-start` the same with `_at_start`. The look
`redrawn` trains a decoder on the frozen network and gives `drawn_components`, a share,
`drawn_change` and `drawn_known`. The look `fixed-point` gives `fixed_point_distance.7` of the step
from iteration 7 to 8, up to that of 50. Of the part-whole set alone the look `focus` gives `focus`
and `focus_known`, of pruned networks alone the look `saliency` `saliency` and `saliency_known`. The
look `agreement-spread` gives `agreement_spread.2` and `prior_spread.2` of the second routed layer.
"""

from torchcaps.errors import Diverged, TorchcapsError
from torchcaps.study.look import WITHOUT_GRID, Look, kind_of, register_look
from torchcaps.study.measure import Shown, at_start, root_of, trunk_file
from torchcaps.study.own import needs_parts
from torchcaps.tasks.trained import open_trained
from torchcaps.train import Recipe
from torchcaps_claims.apart import apart_of, dense_run
from torchcaps_claims.at_rest import fixed_point_of
from torchcaps_claims.focused import focus_of
from torchcaps_claims.job import Job
from torchcaps_claims.opposed import cancellation_of
from torchcaps_claims.pruned import way_in
from torchcaps_claims.redrawn import redrawn_of
from torchcaps_claims.spread import spread_of
from torchcaps_claims.viewpoint import compactness_of, invariance_of, tree_size_of, trees_of

# What every epoch measures of its own accord, so that a record has it with its accuracy.
OF_EPOCHS = ("area", "gradient_norms", "jitter", "onset", "revivals", "time_to")


def looks_of(job: Job) -> tuple[Look, ...]:
    """The looks that a job asks for, as far as they exist."""
    asked = ("accuracy" if name in OF_EPOCHS else name for name in job.metrics)
    kinds = dict.fromkeys(kind for name in asked if (kind := kind_of(name)) is not None)
    # That of a dense network is what those of pruned ones are held against.
    if way_in(job.after) is None:
        kinds.pop("saliency", None)
    return tuple(
        Look(kind, job.test, job.split, () if kind in WITHOUT_GRID else job.levels)
        for kind in kinds
    )


def _saliency(shown: Shown) -> dict[str, float]:
    run, root = shown.run, shown.root
    where, trunk = root_of(run.recipe.data, root), trunk_file(run.recipe, root)
    try:
        beside = dense_run(run, root=where, trunk=trunk, time_budget=shown.time_budget)
    except Diverged:
        # It says nothing of the pruned network, which came to its end.
        return {"saliency_known": 0.0}
    both = (open_trained(beside.folder), shown.trained)
    dense, pruned = (shown.network_of(each, "tree-distance") for each in both)
    return apart_of(dense, pruned, shown.images)


def _fixed_point(shown: Shown) -> dict[str, float]:
    model, device = shown.trained.model.eval(), shown.trained.device
    return fixed_point_of(lambda x, **more: model(x.to(device), **more), shown.images)


def _redrawn(shown: Shown) -> dict[str, float]:
    where = root_of(shown.look.data, shown.root)
    return redrawn_of(shown.run, shown.images, root=where, time_budget=shown.time_budget)


def _is_pruned(look: Look, recipe: Recipe) -> None:
    if recipe.prune is None:
        raise TorchcapsError(
            f"measure asks how far pruning moves saliency ({look.name}), but nothing is pruned; "
            f'set a way to prune, for example prune = "lobster", or leave it out.'
        )


register_look(
    "agreement-spread",
    lambda shown: spread_of(shown.network("polarisation"), shown.images),
    statistics=["agreement_spread"],
    has_grid=False,
)
register_look(
    "cancellation",
    lambda shown: cancellation_of(shown.trained.model.eval(), shown.run.recipe, shown.images),
    statistics=["gradient_cancellation"],
    has_grid=False,
)
register_look(
    "cancellation-at-start",
    lambda shown: at_start(cancellation_of(shown.begun(), shown.run.recipe, shown.images)),
    statistics=["gradient_cancellation_at_start"],
    has_grid=False,
)
register_look(
    "compactness",
    lambda shown: compactness_of(shown.network("tree-distance"), shown.images),
    statistics=["compactness"],
)
register_look("fixed-point", _fixed_point, statistics=["fixed_point_distance"], has_grid=False)
register_look(
    "focus",
    lambda shown: focus_of(shown.network("tree-distance"), shown.images),
    statistics=["focus"],
    check=lambda look, recipe: needs_parts(look),
)
register_look(
    "invariance",
    lambda shown: invariance_of(shown.network("tree-distance"), shown.images),
    statistics=["activation_correlation"],
)
register_look(
    "redrawn", _redrawn, statistics=["drawn_components"], has_grid=False, trains=".decoder"
)
register_look("saliency", _saliency, statistics=["saliency"], trains=".dense", check=_is_pruned)
register_look(
    "tree-size",
    lambda shown: tree_size_of(shown.network("tree-distance"), shown.images),
    statistics=["tree_size"],
)
register_look(
    "trees",
    lambda shown: trees_of(shown.network("tree-distance"), shown.images),
    statistics=["parse_tree_distance"],
)
