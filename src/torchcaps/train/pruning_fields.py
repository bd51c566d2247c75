"""What a recipe may say of pruning: which fields go with which way, and which shares make sense."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torchcaps.train.recipe import Recipe

Prune = Literal["lobster", "magnitude", "mask_at_the_end", "random_masks", "snip"]
# A share of the weights, or one for every epoch.
Share = float | tuple[float, ...]


def uses(recipe: "Recipe") -> list[tuple[str, bool, str]]:
    """List for every field but `prune`: its name, whether it is of use, and what with."""
    way, to = recipe.prune, recipe.prune_to
    ramps = way == "magnitude" and not isinstance(to, tuple)
    return [
        ("prune_to", way is not None, "prune"),
        ("prune_ramp", ramps, 'prune = "magnitude" and one number to prune to'),
        ("prune_scope", way not in (None, "lobster"), "every way to prune but lobster"),
        ("prune_shrink", way == "lobster", 'prune = "lobster"'),
        ("prune_tolerance", way == "lobster", 'prune = "lobster"'),
        ("prune_batches", way == "snip", 'prune = "snip"'),
    ]


def check_pruning(recipe: "Recipe") -> None:
    """Refuse, by a ValueError, what would prune nothing, everything, or not in time."""
    way, to, patience = recipe.prune, recipe.prune_to, recipe.patience
    if way is None:
        return
    if to is None and way != "lobster":
        raise ValueError(f'prune = "{way}" needs prune_to, the share of weights, for example 0.9')
    # A control, whose weights shrink and are not pruned.
    only_shrinks = way == "lobster" and to == 0
    if to is not None and not only_shrinks:
        _check_shares(way, to)
    if recipe.prune_scope == "lamp" and way not in ("magnitude", "mask_at_the_end"):
        raise ValueError(
            f'prune_scope = "lamp" compares magnitudes, which {way} does not look at; take '
            f'"network" or "layer"'
        )
    field = "prune_to" if isinstance(to, tuple) else "prune_ramp"
    done = len(to) if isinstance(to, tuple) else recipe.prune_ramp
    if way == "magnitude" and done > recipe.epochs:
        raise ValueError(
            f"{field} ends after epoch {done}, but epochs is {recipe.epochs}; take more epochs or "
            f"a shorter ramp, and leave epochs in which the remaining weights train on"
        )
    if way == "magnitude" and recipe.stop_at is not None:
        raise ValueError(
            f"stop_at could end training before {field} does, with less pruned than was asked for; "
            f"leave it out"
        )
    if way == "magnitude" and patience is not None and patience < done:
        raise ValueError(
            f"patience = {patience} could end training before epoch {done}, when {field} ends, "
            f"with less pruned than was asked for; take a patience of {done} or more"
        )
    if way in ("lobster", "magnitude") and recipe.keep == "best":
        raise ValueError(
            f'keep = "best" could save an epoch before the pruning; take keep = "last" with prune '
            f'= "{way}"'
        )


def _check_shares(way: Prune, to: Share) -> None:
    several = isinstance(to, tuple)
    if several and way != "magnitude":
        raise ValueError(f"prune_to is one number for {way}; only magnitude takes a list")
    shares = to if isinstance(to, tuple) else (to,)
    if not shares:
        raise ValueError(
            "prune_to needs a share for each epoch of its list, for example [0.5, 0.9]"
        )
    for share in shares:
        if not 0 < share < 1:
            what = "nothing would be pruned" if share <= 0 else "no weight would be left"
            raise ValueError(f"prune_to must lie between 0 and 1, but at {share:g} {what}")
    if list(shares) != sorted(shares):
        raise ValueError(f"prune_to must grow from epoch to epoch, but is {list(shares)}")
