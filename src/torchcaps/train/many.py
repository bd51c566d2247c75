"""Several runs that one process trains at once, a step of each in turn.

On a GPU every run has a stream of its own, so that their kernels are at work side by side. A step
is what it is where a run trains alone, and so is every weight.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

from torchcaps._paths import path_of
from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.train.fit import Going, apart, begin
from torchcaps.train.folder.run import Run
from torchcaps.train.prepare import Call
from torchcaps.train.ranks import join
from torchcaps.train.recipe import Recipe
from torchcaps.train.told import Told


def fit_many(
    recipes: Sequence[Recipe],
    outs: Sequence[str | os.PathLike[str]],
    *,
    root: str | os.PathLike[str] | None = None,
    time_budget: float | None = None,
) -> list[Run]:
    """Train several recipes at once, each into a run folder of its own, as `fit` would one by one.

    It pays on a GPU that small networks leave idle. Each run can go on alone, by `fit` or by the
    same call. One that fails lets the others end; then its error is raised.

    Arguments:
        recipes: what to train, of `make_recipe`; they may differ in anything.
        outs: a folder for each.
        root: where the data lies, for data sets that are files.
        time_budget: seconds, after which every run saves its state and `Interrupted` is raised.

    >>> fit_many([make_recipe(seed=seed) for seed in (0, 1)], ["a", "b"])  # doctest: +SKIP
    """
    recipes, outs = list(recipes), list(outs)
    if len(recipes) != len(outs):
        raise TorchcapsError(
            f"fit_many needs a folder for each recipe, but got {len(recipes)} recipes and "
            f"{len(outs)} folders."
        )
    if len({path_of("outs", out).resolve() for out in outs}) < len(outs):
        raise TorchcapsError(
            f"fit_many needs a folder of its own for each recipe, but of {len(outs)} one came "
            f"twice."
        )
    given = {"root": root, "time_budget": time_budget}
    ended = outcomes(
        [{"recipe": recipe, "out": out, **given} for recipe, out in zip(recipes, outs, strict=True)]
    )
    runs = [each for each in ended if isinstance(each, Run)]
    errors = {
        out: each for out, each in zip(outs, ended, strict=True) if isinstance(each, Exception)
    }
    for error in errors.values():
        if not isinstance(error, Interrupted):
            raise error
    if errors:
        raise Interrupted(
            f"training was stopped before {len(errors)} of {len(outs)} runs were done; the same "
            f"call goes on."
        )
    return runs


def outcomes(calls: Sequence[Mapping[str, Any]]) -> list[Run | Exception]:
    """Say what became of each run; a call is what `fit` is called with, by its names."""
    ranks = join()
    if ranks.count > 1:
        raise TorchcapsError(
            f"several runs at once are for one process, but {ranks.count} processes train "
            f"together here; start one, or train the runs one by one."
        )
    found: dict[int, Run | Exception] = {}
    told = Told()
    with ExitStack() as held:
        going: dict[int, tuple[Going, Iterator[None]]] = {}
        for index, call in enumerate(calls):
            try:
                one = begin(Call(**call), held, told, beside=len(calls) > 1)
            except Exception as error:
                found[index] = error
                continue
            if isinstance(one, Run):
                found[index] = one
            else:
                going[index] = one, one.steps()
        streams = {index: stream_of(one.ranks.device) for index, (one, _) in going.items()}
        with told:
            while going:
                with apart(ranks):
                    over = _until_one_is_over(going, streams)
                for index, why in over.items():
                    one, _ = going.pop(index)
                    found[index] = _result(one) if why is None else why
    return [found[index] for index in range(len(calls))]


def _until_one_is_over(
    going: Mapping[int, tuple[Going, Iterator[None]]],
    streams: Mapping[int, Callable[[], AbstractContextManager[Any]]],
) -> dict[int, Exception | None]:
    """Take a step of each in turn, until some have no more; with the error of those that failed."""
    over: dict[int, Exception | None] = {}
    while not over:
        for index, (_, steps) in going.items():
            try:
                with streams[index]():
                    next(steps)
            except StopIteration:
                over[index] = None
            except Exception as error:
                over[index] = error
    return over


def stream_of(device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Give what a run's steps are taken in."""
    if device.type != "cuda":
        return nullcontext
    stream = torch.cuda.Stream(device)
    # Its first weights, and its images, are made on the usual one.
    stream.wait_stream(torch.cuda.current_stream(device))
    return lambda: torch.cuda.stream(stream)


def _result(one: Going) -> Run | Exception:
    """Give the run with its result. It may be measured on another stream than it was trained on."""
    if one.ranks.device.type == "cuda":
        torch.cuda.synchronize(one.ranks.device)
    try:
        return one.end()
    except Exception as error:
        return error
