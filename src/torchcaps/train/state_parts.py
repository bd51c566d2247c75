"""What the state of a run must hold. Lightning passes over what is not there, and trains other
weights."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from torchcaps.errors import short
from torchcaps.train.optimiser import names_kept
from torchcaps.train.recipe import Recipe

__all__ = ["faults"]

Where = tuple[str | int, ...]

FIT = ("loops", "fit_loop")
STEPS = "epoch_loop.automatic_optimization.optim_progress"
ENDS = ("ready", "completed")
# What Lightning counts, by where it keeps it, and at which moments it counts.
COUNTERS: tuple[tuple[Where, tuple[str, ...]], ...] = (
    (("epoch_progress",), (*ENDS, "started", "processed")),
    (("epoch_loop.batch_progress",), (*ENDS, "started", "processed")),
    (("epoch_loop.scheduler_progress",), ENDS),
    ((STEPS, "optimizer", "step"), ENDS),
)
COUNTS: tuple[Where, ...] = (
    ("epoch",),
    ("global_step",),
    ("lr_schedulers", 0, "last_epoch"),
    (*FIT, "state_dict", "combined_loader", 0, "given"),
    *(
        (*FIT, *counter, span, moment)
        for counter, moments in COUNTERS
        for span in ("total", "current")
        for moment in moments
    ),
)
# What is kept twice.
SAME: tuple[tuple[Where, Where], ...] = (
    (("epoch",), (*FIT, "epoch_progress", "current", "completed")),
    (("global_step",), (*FIT, STEPS, "optimizer", "step", "total", "completed")),
)


def faults(state: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """What is wrong with what a state holds beside the weights; nothing, if it is whole."""
    return [*_of_counts(state), *_of_callbacks(state, recipe), *_of_optimiser(state, recipe)]


def _of_counts(state: Mapping[str, Any]) -> Iterator[str]:
    for where in COUNTS:
        if not _is_count(_at(state, where)):
            yield f"{_dotted(where)} should be a count, but is {_shown(_at(state, where))}"
    for one, other in SAME:
        here, there = _at(state, one), _at(state, other)
        if _is_count(here) and _is_count(there) and here != there:
            yield f"{_dotted(one)} is {here}, but {_dotted(other)} is {there}"


def _of_callbacks(state: Mapping[str, Any], recipe: Recipe) -> Iterator[str]:
    remember = {
        "SaveState": True,
        "Measures": True,
        "StopAtAccuracy": recipe.stop_at is not None,
        "StopWithoutProgress": recipe.patience is not None,
        "KeepBest": recipe.keep == "best",
        # Masks say themselves that they are not there.
    }
    for name, does in remember.items():
        found = _at(state, ("callbacks", name))
        if does and not (isinstance(found, dict) and found):
            yield f"callbacks.{name} is {_shown(found)}"
    yield from _of_measures(state)


def _of_measures(state: Mapping[str, Any]) -> Iterator[str]:
    measures: Where = ("callbacks", "Measures")
    for name in ("norms", "dead_for"):
        where = (*measures, name)
        found = _at(state, where)
        if not isinstance(found, dict):
            yield f"{_dotted(where)} should be by name, but is {_shown(found)}"
            continue
        for part, value in found.items():
            if not isinstance(value, Tensor) or (name == "norms" and value.shape != (2,)):
                yield f"{_dotted((*where, part))} is no measured tensor"


def _of_optimiser(state: Mapping[str, Any], recipe: Recipe) -> Iterator[str]:
    kept = _at(state, ("optimizer_states", 0, "state"))
    weights = _at(state, ("optimizer_states", 0, "param_groups", 0, "params"))
    if not isinstance(kept, dict) or not isinstance(weights, list):
        yield "optimizer_states holds no optimiser"
        return
    names = names_kept(recipe)
    # Those without a gradient have nothing, and a step that overflows in float16 is left out.
    numbers = {weight for weight in weights if _is_count(weight)}
    of_weights = {weight: found for weight, found in kept.items() if weight in numbers}
    done = state["global_step"]
    has_stepped = _is_count(done) and done > 0 and recipe.precision != "float16"
    if names and has_stepped and not of_weights:
        yield "its optimiser has done steps, but keeps nothing of them"
    for weight, found in of_weights.items():
        for name in names:
            if _at(found, (name,)) is None:
                yield f"its optimiser keeps no {name!r} of weight {weight}"
    if recipe.precision == "float16" and _at(state, ("MixedPrecision", "scale")) is None:
        yield "it holds no scale of the loss"


def _at(state: Any, where: Where) -> Any:
    """What lies there; None if nothing does."""
    for key in where:
        if isinstance(state, list):
            state = dict(enumerate(state))
        if not isinstance(state, dict):
            return None
        state = state.get(key)
    return state


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _dotted(where: Where) -> str:
    return ".".join(map(str, where))


def _shown(found: object) -> str:
    return "missing" if found is None else short(found)
