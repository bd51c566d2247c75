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

from collections.abc import Callable
from typing import Any

from torchcaps.errors import Diverged, TorchcapsError
from torchcaps.study.look import KINDS, Look, kind_of, register_look
from torchcaps.study.measure import Shown, root_of, trunk_file
from torchcaps.tasks.trained import open_trained
from torchcaps.train import Recipe
from torchcaps_claims.at_rest import fixed_point_of
from torchcaps_claims.job import Job
from torchcaps_claims.opposed import cancellation_of
from torchcaps_claims.pruned import way_in
from torchcaps_claims.read_off import at_start, begun, needs_parts
from torchcaps_claims.redrawn import redrawn_of
from torchcaps_claims.saliency import apart_of, dense_run, focus_of
from torchcaps_claims.spread import spread_of
from torchcaps_claims.viewpoint import compactness_of, invariance_of, tree_size_of, trees_of

Measure = Callable[..., dict[str, float]]
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
        Look(kind, job.test, job.split, job.levels if KINDS[kind].has_grid else ())
        for kind in kinds
    )


def _is_pruned(look: Look, recipe: Recipe) -> None:
    if recipe.prune is None:
        raise TorchcapsError(
            f"measure asks how far pruning moves saliency ({look.name}), but nothing is pruned; "
            f'set a way to prune, for example prune = "lobster", or leave it out.'
        )


@register_look("saliency", "saliency", trains=".dense", check=_is_pruned)
def _saliency(shown: Shown) -> dict[str, float]:
    # Refused before anything is trained, where they are others now.
    run, root, images = shown.run, shown.root, shown.images
    where, trunk = root_of(run.recipe.data, root), trunk_file(run.recipe, root)
    try:
        beside = dense_run(run, root=where, trunk=trunk, time_budget=shown.time_budget)
    except Diverged:
        # It says nothing of the pruned network, which came to its end.
        return {"saliency_known": 0.0}
    both = (open_trained(beside.folder), shown.trained)
    dense, pruned = (shown.network("tree-distance", of=each) for each in both)
    return apart_of(dense, pruned, images)


@register_look("fixed-point", "fixed_point_distance", has_grid=False)
def _fixed_point(shown: Shown) -> dict[str, float]:
    model, device = shown.trained.model.eval(), shown.trained.device
    return fixed_point_of(lambda x, **more: model(x.to(device), **more), shown.images)


@register_look("redrawn", "drawn_components", has_grid=False, trains=".decoder")
def _redrawn(shown: Shown) -> dict[str, float]:
    where = root_of(shown.look.data, shown.root)
    return redrawn_of(shown.run, shown.images, root=where, time_budget=shown.time_budget)


@register_look("cancellation", "gradient_cancellation", has_grid=False)
def _cancellation(shown: Shown) -> dict[str, float]:
    return cancellation_of(shown.trained.model.eval(), shown.run.recipe, shown.images)


@register_look("cancellation-at-start", "gradient_cancellation_at_start", has_grid=False)
def _cancellation_at_start(shown: Shown) -> dict[str, float]:
    return at_start(cancellation_of(begun(shown), shown.run.recipe, shown.images))


def _of_traces(
    name: str, statistic: str, measure: Measure, needs: str = "tree-distance", **how: Any
) -> None:
    """Register a look at images and the network, whose trace has what a measurement needs."""
    look = register_look(name, statistic, **how)
    look(lambda shown: measure(shown.network(needs), shown.images))


_of_traces("agreement-spread", "agreement_spread", spread_of, "polarisation", has_grid=False)
_of_traces("compactness", "compactness", compactness_of)
_of_traces("focus", "focus", focus_of, check=needs_parts)
_of_traces("invariance", "activation_correlation", invariance_of)
_of_traces("tree-size", "tree_size", tree_size_of)
_of_traces("trees", "parse_tree_distance", trees_of)
