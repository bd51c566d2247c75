"""Prune a finished run: its network trains on while weights become zero, in a run of its own."""

import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from torchcaps._digests import NAME, digest_of
from torchcaps._paths import path_of
from torchcaps.data.registry import Root
from torchcaps.errors import Emptied, TorchcapsError, short
from torchcaps.models.own import OWN
from torchcaps.prune import Magnitude, MaskAtTheEnd, Masks, sparsity
from torchcaps.tasks.trained import Trained, open_trained
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.folder.alone import alone
from torchcaps.train.frozen import freeze
from torchcaps.train.judging import judge
from torchcaps.train.pruning import make_pruner
from torchcaps.train.ranks import is_first, join
from torchcaps.train.recipe import Recipe

EPOCHS = 10
# Weights that are trained need smaller steps than those that were drawn.
SLOWER = 10
# Fields of the first training that say how long it took, and how its rate and its margin went.
NOT_AGAIN = {
    "begins_with",
    "decay",
    "decay_every",
    "keep",
    "milestones",
    "patience",
    "protocol",
    "schedule",
    "spread_steps",
    "stop_at",
    "stop_every",
    "stop_on",
}
# What masks at the end go by; the rest of a recipe is that of the training they end.
OF_MASKS = {"prune", "prune_scope", "prune_to"}
# What a run says of its network beside the environment.
OF_NETWORK = ("class", "trunk")
OF_NETWORK_AND_IMAGES = ("model", "options", "data", "image_size", "groups", "crop", "standardise")
OF_HELD_OUT = ("seed", "train_images", "validation_share")


def prune_run(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    by: str = "magnitude",
    to: float | None = None,
    epochs: int | None = None,
    root: Root | None = None,
    time_budget: float | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Run:
    """Prune the network of a finished run, and write what comes of it as a run of its own.

    Training goes on with the same images held out and a constant rate, a tenth of the first.
    Called again, it continues where it was stopped. By "mask_at_the_end" nothing is trained.

    Arguments:
        run: the folder of the finished run; nothing in it is changed.
        out: the folder of the new one.
        by: a way to prune, as the `prune` of a recipe.
        to: the share of weights to prune.
        epochs: for how long what is left trains on; 10 if not given.
        root: where the images lie, for data sets that are files, if the run does not remember it.
        time_budget: seconds, as for `train.fit`.
        fields: other fields of the recipe.

    >>> prune_run(Path("my-run"), Path("my-run-90"), to=0.9)  # doctest: +SKIP
    """
    run, out = path_of("run", run), path_of("out", out)
    if by != "lobster" and to is None and (fields or {}).get("prune_to") is None:
        raise TorchcapsError(
            f"to prune by {by}, say which share of the weights: to=0.9 in Python, --to 0.9 on the "
            f"command line."
        )
    trained, before = _opened(run, out)
    old, root = before.recipe, before.root_or(root)
    if not trained.knows(trained.images_now("train", root=root), "train"):
        raise TorchcapsError(
            f"{trained.path} was trained on other images than there are now, so it could be tested "
            f"by images that it has seen; put them back as they were, or name their --root."
        )
    more = {**(fields or {}), "prune": by, **({} if to is None else {"prune_to": to})}
    if by == "mask_at_the_end":
        _check_never_pruned(run, old)
        masked = _recipe(old, more, keep=set())
        # What was not trained is not pruned either, and no pruner counts it.
        freeze(trained.model, masked.freeze)
        _check_further(trained, masked)
        given = {"epochs": epochs, "time_budget": time_budget}
        _check_idle({**more, **{name: each for name, each in given.items() if each is not None}})
        return _masked(trained, before, masked, out, root)
    _check_can_be_made(trained, old)
    begin_with = before.model_file
    first = {
        "epochs": EPOCHS if epochs is None else epochs,
        "begins_with": digest_of(begin_with)[:12],
    }
    recipe = _recipe_on(old, {**first, **more})
    _check_alike(old, recipe)
    freeze(trained.model, recipe.freeze)
    _check_further(trained, recipe)
    if not Run(out).recipe_file.is_file():
        _check_leaves_some(trained.model, recipe)
    with _nothing_left_if_emptied(Run(out)):
        return fit(recipe, out, root=root, begin_with=begin_with, time_budget=time_budget)


def _opened(run: Path, out: Path) -> tuple[Trained, Run]:
    """Open the network that is to be pruned, and its run, which knows where its images are."""
    trained = open_trained(run)
    if trained.run is None:
        raise TorchcapsError(
            f"{run} is a saved network, which does not say how it was trained; name its run folder."
        )
    if out.resolve() == run.resolve() or run.resolve() in out.resolve().parents:
        raise TorchcapsError(
            f"{out} is the run that is to be pruned, or lies in it; a pruned network gets a folder "
            f"of its own: name another one with --out."
        )
    if trained.run.recipe.data == "own":
        model = "model=..., " if trained.run.recipe.model == OWN else ""
        raise TorchcapsError(
            f"{run} was trained on images of your own, which are not written down; prune in "
            f"Python, with fit(recipe, out, own=..., {model}begin_with=...)."
        )
    return trained, trained.run


@contextmanager
def _nothing_left_if_emptied(run: Run) -> Iterator[None]:
    """Leave a run as it was that would empty a layer again, however often it goes on."""
    finished = (run.recipe, run.metrics(), run.result()) if run.is_done else None
    try:
        yield
    except Emptied as error:
        if is_first():
            _remove(run) if finished is None else _restore(run, *finished)
        said = "removed again" if finished is None else "as it was before"
        raise Emptied(f"{str(error)[:-1]}; what was written in {run.folder} is {said}.") from None


def _restore(
    run: Run, recipe: Recipe, metrics: list[dict[str, Any]], result: Mapping[str, Any]
) -> None:
    # It would go on from an epoch that is too many.
    run.state_file.unlink(missing_ok=True)
    run.write(run.recipe_file, recipe.model_dump_json(indent=2))
    run.write_metrics(metrics)
    run.write(run.result_file, json.dumps(result, indent=2))


def _remove(run: Run) -> None:
    """Remove all that was written of a run; what somebody else put into its folder stays."""
    networks = (run.model_file, run.best_file, run.state_file)
    measured = (run.result_file, run.metrics_file, run.environment_file, run.folder / NAME)
    # The recipe last: it is what makes the folder a run.
    for file in (*networks, *measured, run.recipe_file):
        file.unlink(missing_ok=True)
    run.remove_partial_files()
    if not any(run.folder.iterdir()):
        run.folder.rmdir()


def _recipe_on(old: Recipe, changes: Mapping[str, Any]) -> Recipe:
    first: dict[str, Any] = {"learning_rate": old.learning_rate / SLOWER}
    if old.loss == changes.get("loss", old.loss) == "spread":
        # The margin has grown already.
        first["spread_steps"] = 1
    return _recipe(old, {**first, **changes}, keep=NOT_AGAIN)


def _recipe(old: Recipe, changes: Mapping[str, Any], *, keep: set[str]) -> Recipe:
    """Make the recipe of the run with other fields, and without some."""
    fields = old.model_dump(exclude_defaults=True)
    for name in fields.copy():
        # A run that was pruned is pruned on from its weights, whichever way it came to them.
        if name in keep or name.startswith("prune"):
            del fields[name]
    # It would fill in again what the run had otherwise.
    protocol = fields.pop("protocol", None)
    recipe = make_recipe(**{**fields, "channels_last": old.channels_last, **changes})
    return recipe if protocol is None else recipe.model_copy(update={"protocol": protocol})


def _check_can_be_made(trained: Trained, recipe: Recipe) -> None:
    """Refuse a network of one's own, which is made by its owner: how, its class does not say."""
    if recipe.model == OWN:
        assert isinstance(trained.model.config, dict)
        needed = trained.model.config["class"]
        raise TorchcapsError(
            f"{trained.path} holds a network of your own, of the class {needed}, which no recipe "
            f"can make; prune it in Python: tc.train.fit(recipe, out, "
            f'model={needed.rpartition(".")[2]}(...), begin_with="{trained.path}"), with prune '
            f"and prune_to in the recipe."
        )


def _check_never_pruned(run: Path, recipe: Recipe) -> None:
    """Refuse a pruned run: a recipe says one way to prune."""
    if recipe.prune is not None:
        raise TorchcapsError(
            f"{run} was pruned before, by {recipe.prune}, and no recipe says both: mask a run that "
            f"was not pruned, or prune this one further by a way that trains on, as magnitude."
        )


def _check_further(trained: Trained, recipe: Recipe) -> None:
    """Refuse less than was pruned before, which stays so."""
    to = recipe.prune_to[-1] if isinstance(recipe.prune_to, tuple) else recipe.prune_to
    if to is None:
        return
    # As a pruner counts, in whole weights: of all together or, where that is more, of each layer.
    masks = Masks(trained.model)
    of_layers = sum(round(to * mask.numel()) for mask in masks.pruned.values())
    if masks.count > max(round(to * masks.size), of_layers):
        share = masks.count / masks.size
        raise TorchcapsError(
            f"{trained.path} was pruned before: {share:.1%} of its weights are zero and stay so, "
            f"which is more than the {to:.1%} to prune to; prune to more, or prune the run from "
            f"which it came."
        )


def _check_idle(fields: Mapping[str, Any]) -> None:
    """Refuse fields of training, which is over where masks are put on a network."""
    for name, value in fields.items():
        if name not in OF_MASKS and value is not None:
            raise TorchcapsError(
                f"by mask_at_the_end nothing is trained, so {name} {short(value)} would do "
                f"nothing; leave it out."
            )


def _check_leaves_some(model: nn.Module, recipe: Recipe) -> None:
    """Refuse at once what would empty a layer: small steps of a pruning change little of that."""
    pruner = make_pruner(recipe, copy.deepcopy(model))
    if isinstance(pruner, Magnitude):
        pruner.prune(pruner.magnitudes(), pruner.targets[-1])


def _check_alike(old: Recipe, new: Recipe) -> None:
    """Refuse other images, another network, and held-out images that it was trained on."""
    held_out = OF_HELD_OUT if new.validation_share else ()
    for name in (*OF_NETWORK_AND_IMAGES, *held_out):
        before, now = getattr(old, name), getattr(new, name)
        if now != before and name in OF_NETWORK_AND_IMAGES:
            raise TorchcapsError(
                f"{name} {short(now)} is not that of the run, {short(before)}: a network is pruned "
                f"as it was trained, on the same images; leave {name} out."
            )
        if now != before:
            raise TorchcapsError(
                f"with {name} {now} other images would be held out than in training, where it was "
                f"{before}, and the network has seen those; leave it out."
            )


def _masked(trained: Trained, run: Run, recipe: Recipe, out: Path, root: Root | None) -> Run:
    """Write the run as it would be, had its recipe masked the network at its end."""
    assert isinstance(recipe.prune_to, float)
    new = Run(out)
    if new.is_finished(recipe):
        return new
    if new.is_done:
        # A run may go on for more epochs, but what is masked is written anew.
        before = new.recipe.epochs
        raise TorchcapsError(
            f"{out} holds what was masked after {before} epoch{'' if before == 1 else 's'}, and "
            f"{run.folder} has been trained for {recipe.epochs} since; give what is masked now a "
            f"folder of its own: name another one with --out."
        )
    pruner = MaskAtTheEnd(trained.model, to=recipe.prune_to, scope=recipe.prune_scope)
    pruner.at_the_end()
    test = trained.images("test", root=root)
    digests = {**run.image_digests(), "test": test.digest()}
    # Of the test images as they are now, which may be others than the run had.
    result = {
        **run.result(),
        **judge(trained.model, test, join()).numbers(),
        "judged_by": test.judged_by,
        "test_images": len(test),
        "digests": digests,
        "departures": list(recipe.departures()),
        "sparsity": sparsity(trained.model).numbers(),
    }
    # All that is read is read before anything is written, for it may be damaged.
    metrics = run.metrics()
    about = {name: value for name, value in run.about().items() if name in OF_NETWORK}
    if root is not None:
        about["root"] = str(path_of("root", root).resolve())

    def write() -> None:
        new.folder.mkdir(parents=True, exist_ok=True)
        with alone(new.folder):
            new.begin(recipe, digests["train"], **about)
            new.write_metrics(metrics)
            new.put_network(trained.model, new.model_file)
            new.write(new.result_file, json.dumps(result, indent=2))

    join().first_does(write)
    return new
