"""Train a recipe into a run folder; the same call continues a stopped run."""

import logging
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from torch import nn

from torchcaps._digests import check_digest
from torchcaps._paths import path_of
from torchcaps.data import Images, augmented, some_of
from torchcaps.data.by_name import Split
from torchcaps.data.crop import anywhere
from torchcaps.data.some import can_be_parted
from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.layers import keep_memory
from torchcaps.prune import sparsity
from torchcaps.train.alone import alone
from torchcaps.train.batches import Batches, held_on
from torchcaps.train.beginning import begin, beginning, check_unseen, freeze, images_for
from torchcaps.train.call import check_call, check_classes
from torchcaps.train.callbacks import SaveState, ShowProgress
from torchcaps.train.denormals import denormals_as_zero
from torchcaps.train.epoch_classes import EpochClasses
from torchcaps.train.going_on import FirstStep, going_on_from
from torchcaps.train.grouped import groups_of_result, warn_of_groups
from torchcaps.train.judging import judge, share_right
from torchcaps.train.measures import Measures
from torchcaps.train.module import Training
from torchcaps.train.parting import parted
from torchcaps.train.pruning import Prune, make_pruner
from torchcaps.train.ranks import MeanOfAll, Ranks, join
from torchcaps.train.recipe import Precision, Recipe
from torchcaps.train.run import Run
from torchcaps.train.sampled import Sampled
from torchcaps.train.seeds import AUGMENT, CROP, HOLD_OUT, seed_of
from torchcaps.train.selecting import check_selectable
from torchcaps.train.start import (
    check_alike,
    check_own,
    check_updates,
    initial_model,
    is_without,
    named_class,
    take_frozen,
    take_weights,
)
from torchcaps.train.state import state_of
from torchcaps.train.stopping import KeepBest, StopAtAccuracy, StopWithoutProgress

__all__ = ["fit", "initial_model"]

# Training images that an epoch is measured on where none are held out.
SAMPLE = 1000

# Lightning's words: weights and sums stay in float32.
PRECISIONS: dict[Precision, Any] = {
    "float32": "32-true",
    "bfloat16": "bf16-mixed",
    "float16": "16-mixed",
}


def fit(
    recipe: Recipe,
    out: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    own: tuple[Images, Images] | None = None,
    begin_with: str | os.PathLike[str] | None = None,
    label: str | None = None,
    workers: int = 0,
    time_budget: float | None = None,
    loggers: Sequence[Logger] = (),
    model: nn.Module | None = None,
    trunk: str | os.PathLike[str] | None = None,
) -> Run:
    """Train, validate on images held out of the training set if any are, test once, and save.

    A finished run is returned as it is; with more epochs in an otherwise equal recipe it goes on.
    Started by torchrun or srun, one process a device, all of them train one network: they share
    every batch and give what one device would give, but for rounding. Freed memory is kept for
    the next tensors (`layers.keep_memory`), unless TORCHCAPS_KEEP_MEMORY=0 is in the environment.

    Arguments:
        recipe: what to train, of `make_recipe`.
        out: the run folder, new or of the same recipe.
        root: where the data lies, for data sets that are files. The run remembers it.
        own: training and test images of your own, for a recipe with data "own".
        begin_with: a saved network, or a run, whose weights training begins with, as far as they
            fit. The recipe's `begins_with` is written as the first twelve digits of the SHA-256 of
            its file.
        label: names the run in the progress; None: its network does.
        workers: processes that make batches. With none they are made on the device itself, where
            the images lie too if at least half of its memory stays free. The weights are the same.
        time_budget: seconds, counted from this call. Past them the run saves its state after the
            step it is at and raises `Interrupted`, as it does at SIGTERM; the same call continues
            it.
        loggers: Lightning's; each epoch's row of metrics goes to them too.
        model: a module of your own that returns an `Output`, for a recipe with model "own". It is
            trained in place, from the weights that it has.
        trunk: a file with the weights of the frozen trunk, for a network that has one: see
            `models.take_trunk`. A run that goes on has them.

    >>> run = fit(make_recipe(model="capsnet", data="part-whole"), "my-run")  # doctest: +SKIP
    """
    check_call(recipe, own, workers, time_budget)
    until = None if time_budget is None else time.monotonic() + time_budget
    check_own(recipe, model)
    recipe, begins = beginning(recipe, begin_with)

    def images_of(split: Split) -> Images:
        if own is None:
            return images_for(recipe, split, root=root, begins=begins)
        return recipe.as_shown(own[0 if split == "train" else 1])

    ranks = join()
    run = Run(path_of("out", out))
    run.check_imported()
    recipe = run.settled(recipe)
    if ranks.first_does(lambda: run.is_finished(recipe)):
        if own is not None or model is not None:
            _give_back(run, images_of("train"), None if own is None else images_of("test"), model)
        return run
    root = run.root_or(root)
    keeps_memory = keep_memory()
    images = images_of("train")
    check_classes(images)
    elsewhere = None if recipe.test_data is None else recipe.test_images(root=root)
    if elsewhere is not None:
        check_alike(images, elsewhere)
    training: Images
    training, validation = _parted(recipe, images)
    check_classes(training)
    check_selectable(recipe.select_by, validation)
    check_updates(recipe, training)
    model = initial_model(recipe, training, model)
    made_new = begin(model, begins)
    freeze(model, recipe.freeze, made_new=made_new)
    # A run that goes on has them in its state, one that begins with a network in that.
    begun = begins is not None and not is_without(model, made_new)
    has_weights = begun or run.state_file.is_file()
    frozen = take_frozen(model, trunk, has_weights=has_weights)
    pruner = make_pruner(recipe, model)
    sampled = Sampled(recipe, validation)
    sampled.try_on(model)
    # Only now, so that a recipe that cannot be trained leaves no folder behind.
    digest = images.digest()
    check_unseen(recipe, begins, digest)
    ranks.first_does(lambda: warn_of_groups(recipe, root, own))
    with ExitStack() as held:
        about = {"keeps_memory": keeps_memory, **named_class(model), **frozen}
        if root is not None:
            about["root"] = str(path_of("root", root).resolve())
        ranks.first_does(lambda: _take(run, recipe, digest, held, about))
        early: list[Callback] = []
        stop = None
        # As large as the batches that fitted into memory.
        most = recipe.batch_size
        if recipe.stop_at is not None:
            judged = validation
            if recipe.stop_on == "test":
                judged = images_of("test")
            stop = StopAtAccuracy(recipe, lambda: share_right(model, judged, ranks, most=most))
            early.append(stop)
        if recipe.patience is not None:
            early.append(StopWithoutProgress(recipe.patience, recipe.select_by))
        best = KeepBest(run, recipe.select_by) if recipe.keep == "best" else None
        if best is not None:
            early.append(best)
        if recipe.crop is not None:
            training = anywhere(training, seed_of(recipe.seed, CROP))
        if recipe.augment is not None:
            training = augmented(training, recipe.augment, seed_of(recipe.seed, AUGMENT))
        training_batches, validation_batches = (
            Batches(
                each if workers else held_on(each, ranks.device),
                recipe.batch_size,
                seed=seed,
                workers=workers,
                rank=ranks.rank,
                ranks=ranks.count,
            )
            for each, seed in ((training, recipe.seed), (validation, None))
        )
        pruning = [] if pruner is None else [Prune(pruner, recipe, training, validation, ranks)]
        of_classes = []
        if recipe.validation_share and validation.judged_by == "class":
            of_classes.append(EpochClasses(validation_batches, ranks))
        callbacks = [
            *pruning,
            ShowProgress(label or recipe.model, training_batches, recipe.select_by),
            Measures(validation_batches.images),
            *of_classes,
            *early,
            SaveState(run, until=until, loggers=loggers, sampled=sampled),
        ]
        started = time.perf_counter()
        _train(recipe, run, model, training_batches, validation_batches, ranks, callbacks)
        seconds = time.perf_counter() - started
        # A network that is good enough was asked for, and not one of an epoch before it.
        if stop is not None and stop.seen.get("reached"):
            best = None
        if best is not None:
            take_weights(model, run.best_file)
        if pruner is not None:
            pruner.masks.move(next(model.parameters()).device)
            pruner.at_the_end()
        ranks.first_does(lambda: run.put_network(model, run.model_file))
        test = images_of("test") if elsewhere is None else elsewhere
        model.to(ranks.device)
        result = {
            **judge(model, test, ranks, most=most).numbers(),
            "judged_by": test.judged_by,
            "protocol": recipe.protocol,
            "departures": list(recipe.departures()),
            "test_data": recipe.test_data or recipe.data,
            "test_images": len(test),
            "training_images": len(training),
            "class_names": list(images.class_names),
            "brightness": _brightness(images),
            "digests": {"train": digest, "test": test.digest()},
            "seconds_of_last_stretch": round(seconds, 1),
            **groups_of_result(recipe, images, training, validation, test),
        }
        if best is not None:
            result["best_epoch"] = best.epoch
        if made_new:
            result["made_new"] = list(made_new)
        if stop is not None:
            result["stop"] = {"at": recipe.stop_at, "on": recipe.stop_on, **stop.seen}
        if pruner is not None:
            result["sparsity"] = sparsity(model).numbers()
        ranks.first_does(lambda: run.finish(result))
    return run


def _parted(recipe: Recipe, images: Images) -> tuple[Images, Images]:
    """The images to train on, and those that are looked at after every epoch: held out, or, where
    nothing is, about a thousand of the same."""
    training, held = parted(recipe, images)
    if held is not None:
        return training, held
    seed = seed_of(recipe.seed, HOLD_OUT)
    has_groups = getattr(training, "groups", None) is not None
    if training.judged_by != "class" or not can_be_parted(training) or has_groups:
        # Of a few digits parted off, maybe of one, other pairs would be made, or none. To look at
        # images that are trained on, no group need be kept together.
        return training, some_of(training, min(SAMPLE, len(training)), seed=seed)
    return training, training.hold_out(share=min(SAMPLE / len(training), 0.5), seed=seed)[1]


def _check_has_best(run: Run) -> None:
    """Before epochs are trained whose best network could not be found at the end."""
    if not run.best_file.is_file():
        # None is written before the first epoch was judged.
        if run.metrics():
            raise TorchcapsError(
                f"{run.best_file} is missing, which holds the best network so far; put it back, or "
                f"remove {run.state_file.name} as well, and the run begins anew."
            )
        return
    check_digest(run.best_file)


def _give_back(run: Run, images: Images, test: Images | None, model: nn.Module | None) -> None:
    """A run that is done is that of these images and this network, or it is refused; a network of
    one's own gets its weights."""
    own = None if model is None else initial_model(run.recipe, images, model)
    run.check_began(images.digest(), {} if own is None else named_class(own))
    if test is not None and (now := test.digest()) != (then := run.image_digests()["test"]):
        raise TorchcapsError(
            f"{run.folder} is done, and its accuracy is that of other test images (digest {then}, "
            f"now {now}); what it says of these is evaluate(run.model(), test)."
        )
    if own is not None:
        take_weights(own, run.model_file)


def _take(run: Run, recipe: Recipe, digest: str, held: ExitStack, about: dict[str, Any]) -> None:
    """The folder, for this process alone, with this recipe in it; nothing if it is refused."""
    run.folder.mkdir(parents=True, exist_ok=True)
    held.enter_context(alone(run.folder))
    # Somebody else may have been there since it was looked at.
    run.check(recipe)
    if state_of(run, recipe) is not None and recipe.keep == "best":
        _check_has_best(run)
    run.remove_partial_files()
    run.begin(recipe, digest, **about)


def _brightness(images: Images) -> dict[str, float]:
    """How bright images are on average, and how much that varies, of some from all over the set:
    a picture far from it is nothing the network knows."""
    count = min(len(images), 1000)
    some = torch.linspace(0, len(images) - 1, count).round().long()
    each = torch.cat(
        [images.batch(few).pixels.flatten(1).double().mean(1) for few in some.split(50)]
    )
    return {"mean": float(each.mean()), "std": float(each.std(correction=0))}


def _train(
    recipe: Recipe,
    run: Run,
    model: nn.Module,
    training: Batches,
    validation: Batches,
    ranks: Ranks,
    callbacks: list[Callback],
) -> None:
    if ranks.count > 1:
        # First, for the others look at the means.
        callbacks = [MeanOfAll(training, validation), *callbacks]
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    with warnings.catch_warnings(), torch.random.fork_rng(ranks.generators):
        # Lightning's own, of a torch name it has yet to replace.
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
        # A frozen trunk is meant to be.
        warnings.filterwarnings("ignore", ".*in eval mode at the start of training.*")
        # `MeanOfAll` does.
        warnings.filterwarnings("ignore", ".*It is recommended to use .self.log.*sync_dist=True.*")
        first = FirstStep()
        trainer = _trainer(recipe, ranks, [*callbacks, first])
        module = Training(
            model,
            recipe,
            steps_an_epoch=-(-len(training) // recipe.accumulate),
            judged_by=training.images.judged_by,
        )
        state = state_of(run, recipe)
        try:
            with going_on_from(state, recipe, first), denormals_as_zero():
                trainer.fit(module, training, validation, ckpt_path=state, weights_only=True)
        except SystemExit:
            # Lightning's answer to Ctrl-C.
            if not trainer.interrupted:
                raise
            raise Interrupted(
                f"training was interrupted; the same command continues {run.folder} from where it "
                f"was last saved."
            ) from None


def _trainer(recipe: Recipe, ranks: Ranks, callbacks: list[Callback]) -> lightning.Trainer:
    """Lightning's, without what the callbacks of a run do themselves."""
    return lightning.Trainer(
        **ranks.devices(),
        max_epochs=recipe.epochs,
        accumulate_grad_batches=recipe.accumulate,
        precision=PRECISIONS[recipe.precision],
        logger=False,
        enable_checkpointing=True,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        callbacks=callbacks,
    )
