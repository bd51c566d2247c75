"""Train a recipe into a run folder; the same call continues a stopped run."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from torchcaps._digests import check_digest
from torchcaps._paths import path_of
from torchcaps.data import Images, augmented
from torchcaps.data.some import anywhere
from torchcaps.errors import Interrupted, TorchcapsError, is_out_of_memory
from torchcaps.layers import keep_memory
from torchcaps.models.own import OWN, as_network
from torchcaps.prune import sparsity
from torchcaps.train.batches import Batches, held_on
from torchcaps.train.callbacks import SaveState, ShowProgress
from torchcaps.train.compiled import refused
from torchcaps.train.denormals import denormals_as_zero
from torchcaps.train.epoch_classes import EpochClasses
from torchcaps.train.first_weights import with_digest_of_start
from torchcaps.train.folder.alone import alone
from torchcaps.train.folder.run import Run
from torchcaps.train.folder.state import state_of
from torchcaps.train.grouped import groups_of_result
from torchcaps.train.images import Source
from torchcaps.train.judging import judge, share_right
from torchcaps.train.loggers import Logger
from torchcaps.train.loop import Loop, Watcher
from torchcaps.train.measures import Measures
from torchcaps.train.own_code import imported_files
from torchcaps.train.prepare import Call, Prepared, check_call, prepare
from torchcaps.train.pruning import Prune
from torchcaps.train.ranks import Ranks, join
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import AUGMENT, CROP, seed_of
from torchcaps.train.start import (
    check_own,
    initial_model,
    named_class,
    take_weights,
)
from torchcaps.train.stopping import KeepBest, StopAtAccuracy, StopWithoutProgress
from torchcaps.train.told import Told
from torchcaps.train.weighing import weighed


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
    compiled: bool = False,
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
        compiled: whether torch.compile makes one graph of network, loss and accuracy first, which
            takes up to a minute and pays in runs of several. Results differ by rounding, so it is
            written into environment.json. On a processor it needs a C++ compiler.

    >>> run = fit(make_recipe(model="capsnet", data="part-whole"), "my-run")  # doctest: +SKIP
    """
    with ExitStack() as held:
        given = (recipe, out, root, own, begin_with, label, workers, time_budget, loggers, model)
        going = begin(Call(*given, trunk, compiled), held, Told())
        if isinstance(going, Run):
            return going
        with going.told, apart(going.ranks):
            for _ in going.steps():
                pass
        return going.end()


def begin(call: Call, held: ExitStack, told: Told, *, beside: bool = False) -> "Going | Run":
    """Claim the folder while `held` is open, with all that training needs; a finished run is
    returned as it is.

    `told` is asked after each step whether to stop; `beside` says whether other runs train in this
    process at the same time.
    """
    check_call(call)
    own, model = call.own, call.model
    until = None if call.time_budget is None else time.monotonic() + call.time_budget
    check_own(call.recipe, model)
    recipe, begins = with_digest_of_start(call.recipe, call.begin_with)
    ranks = join()
    if call.compiled and ranks.count > 1:
        raise refused(f"{ranks.count} processes train one network")
    run = Run(path_of("out", call.out))
    run.check_imported()
    recipe = run.settled(recipe)
    is_finished = ranks.first_does(lambda: run.is_finished(recipe))
    if is_finished and own is None and model is None:
        return run
    source = Source(recipe, run.root_or(call.root), own, begins)
    if is_finished:
        _give_back(run, source, model)
        return run
    keeps_memory = keep_memory()
    prepared = prepare(run, source, ranks, call, keeps_memory=keeps_memory)
    state = ranks.first_does(lambda: _claim_folder(run, recipe, prepared, held))
    going = Going(run, source, ranks, prepared, state, told, beside)
    going.watch(call, until)
    return going


@contextmanager
def apart(ranks: Ranks) -> Iterator[None]:
    """Leave the random numbers of a program, and how it takes denormals, as they were."""
    with torch.random.fork_rng(ranks.generators), denormals_as_zero():
        yield


@dataclass
class Going:
    """A run in training: `watch` prepares it, `steps` trains it, and `end` writes the result."""

    run: Run
    source: Source
    ranks: Ranks
    prepared: Prepared
    state: Path | None
    told: Told
    beside: bool
    seconds: float = 0.0

    def watch(self, call: Call, until: float | None) -> None:
        """Lay out the batches, and say who watches the steps."""
        recipe, ranks, prepared = self.source.recipe, self.ranks, self.prepared
        self.compiles = call.compiled
        validation, pruner = prepared.validation, prepared.pruner
        # Where the recipe stops at an accuracy, and where it keeps the best epoch.
        self.stop = None
        if recipe.stop_at is not None:
            judged = self.source.test if recipe.stop_on == "test" else validation
            self.stop = StopAtAccuracy(
                recipe, lambda: share_right(prepared.model, judged, ranks, most=recipe.batch_size)
            )
        self.best = KeepBest(self.run, recipe.select_by) if recipe.keep == "best" else None
        training = prepared.training
        # They are drawn anew in every epoch.
        if recipe.crop is not None:
            training = anywhere(training, seed_of(recipe.seed, CROP))
        if recipe.augment is not None:
            training = augmented(training, recipe.augment, seed_of(recipe.seed, AUGMENT))
        self.batches = tuple(
            _batches(each, recipe, ranks, seed=seed, workers=call.workers)
            for each, seed in ((training, recipe.seed), (validation, None))
        )
        patience, label = recipe.patience, call.label or recipe.model
        watchers: list[Watcher | None] = [
            None if pruner is None else Prune(pruner, training),
            ShowProgress(label, self.batches[0], recipe.select_by, beside=self.beside),
            Measures(self.batches[1].images),
            EpochClasses(ranks)
            if recipe.validation_share and validation.judged_by == "class"
            else None,
            self.stop,
            None if patience is None else StopWithoutProgress(patience, recipe.select_by),
            self.best,
            SaveState(
                self.run,
                until=until,
                loggers=call.loggers,
                sampled=prepared.sampled,
                told=self.told,
            ),
        ]
        self.watchers = [each for each in watchers if each is not None]

    def steps(self) -> Iterator[None]:
        """Train it, or go on from its state, to the weights that the recipe keeps."""
        model, pruner = self.prepared.model, self.prepared.pruner
        started = time.perf_counter()
        whole = as_network(model.to(self.ranks.device))
        with self.ranks.together(whole) as network:
            loop = Loop(
                self.source.recipe,
                whole,
                *self.batches,
                watchers=self.watchers,
                pruner=pruner,
                ranks=self.ranks,
                network=network,
                beside=self.beside,
            )
            if self.compiles:
                loop.update.compile_loss()
            with _explained(self.state, loop, self.run.folder):
                yield from loop.train(self.state)
        self.seconds = time.perf_counter() - started
        # The recipe asked for the network that reached the accuracy, not for the best before it.
        if self.stop is not None and self.stop.seen.get("reached"):
            self.best = None
        if self.best is not None:
            take_weights(model, self.run.best_file)
        if pruner is not None:
            pruner.masks.move(next(model.parameters()).device)
            pruner.at_the_end()

    def end(self) -> Run:
        """Save the network, test it once, and write the result."""
        run, source, ranks, prepared = self.run, self.source, self.ranks, self.prepared
        recipe, model = source.recipe, prepared.model
        images, training = prepared.images, prepared.training
        ranks.first_does(lambda: run.put_network(model, run.model_file))
        test = source.test if prepared.elsewhere is None else prepared.elsewhere
        model.to(ranks.device)
        result = {
            # No larger than the batches of training, which fitted into memory.
            **judge(model, test, ranks, most=recipe.batch_size).numbers(),
            "judged_by": test.judged_by,
            "protocol": recipe.protocol,
            "departures": list(recipe.departures()),
            "test_data": recipe.test_data or recipe.data,
            "test_images": len(test),
            "training_images": len(training),
            "class_names": list(images.class_names),
            "brightness": _brightness(images),
            "digests": {"train": prepared.digest, "test": test.digest()},
            "seconds_of_last_stretch": round(self.seconds, 1),
            **groups_of_result(recipe, images, training, prepared.validation, test),
        }
        if (weights := weighed(recipe, training).class_weights) is not None:
            result["class_weights"] = dict(zip(training.class_names, weights, strict=True))
        if self.best is not None:
            result["best_epoch"] = self.best.epoch
        if prepared.made_new:
            result["made_new"] = list(prepared.made_new)
        if self.stop is not None:
            seen = self.stop.seen
            result["stop"] = {"at": recipe.stop_at, "on": recipe.stop_on, **seen}
        if prepared.pruner is not None:
            result["sparsity"] = sparsity(model).numbers()
        ranks.first_does(lambda: run.finish(result))
        return run


def _batches(
    images: Images, recipe: Recipe, ranks: Ranks, *, seed: int | None, workers: int
) -> Batches:
    """Make this rank's batches, of images that lie where it trains if they fit there."""
    held = images if workers else held_on(images, ranks.device)
    return Batches(
        held,
        recipe.batch_size,
        seed=seed,
        workers=workers,
        rank=ranks.rank,
        ranks=ranks.count,
        device=None if held is images else ranks.device,
        sampling=recipe.sampling,
    )


def _check_has_best(run: Run) -> None:
    """Refuse, before epochs are trained, a best network that could not be found at the end."""
    if not run.best_file.is_file():
        # None is written before the first epoch was judged.
        if run.metrics():
            raise TorchcapsError(
                f"{run.best_file} is missing, which holds the best network so far; put it back, or "
                f"remove {run.state_file.name} as well, and the run begins anew."
            )
        return
    check_digest(run.best_file)


def _give_back(run: Run, source: Source, model: nn.Module | None) -> None:
    """Give back a run that is done with these images and this network, or refuse it."""
    images = source.of("train")
    own = None if model is None else initial_model(source.recipe, images, model)
    run.check_began(images.digest(), {} if own is None else named_class(own))
    test = None if source.own is None else source.test
    if test is not None and (now := test.digest()) != (then := run.image_digests()["test"]):
        raise TorchcapsError(
            f"{run.folder} is done, and its accuracy is that of other test images (digest {then}, "
            f"now {now}); what it says of these is evaluate(run.model(), test)."
        )
    if own is not None:
        take_weights(own, run.model_file)


def _claim_folder(run: Run, recipe: Recipe, prepared: Prepared, held: ExitStack) -> Path | None:
    """Claim the folder for this recipe, or write nothing; return the state to go on from."""
    run.folder.mkdir(parents=True, exist_ok=True)
    held.enter_context(alone(run.folder))
    # Somebody else may have been there since it was looked at.
    run.check(recipe)
    state = state_of(run, recipe)
    if state is not None and recipe.keep == "best":
        _check_has_best(run)
    run.remove_partial_files()
    run.begin(recipe, prepared.digest, **prepared.about)
    return state


def _brightness(images: Images) -> dict[str, float]:
    """Measure mean brightness and its spread: a picture far outside is unlike all that was seen."""
    count = min(len(images), 1000)
    some = torch.linspace(0, len(images) - 1, count).round().long()
    each = torch.cat(
        [images.batch(few).pixels.flatten(1).double().mean(1) for few in some.split(50)]
    )
    return {"mean": float(each.mean()), "std": float(each.std(correction=0))}


@contextmanager
def _explained(state: Path | None, loop: Loop, folder: Path) -> Iterator[None]:
    """Turn Ctrl-C, and an error of the state before the first step, into a sentence."""
    recipe = loop.recipe
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"training was interrupted; the same command continues {folder} from where it was last "
            f"saved."
        ) from None
    except TorchcapsError:
        raise
    except Exception as error:
        if state is None or loop.has_trained or is_out_of_memory(error):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
        if str(error).startswith("Error(s) in loading state_dict"):
            raise TorchcapsError(
                f"the state in {state.parent} is of a network of other sizes ({reason}); make "
                f"yours as it was, or choose another folder."
            ) from None
        # Code of one's own has errors of its own.
        if recipe.model == OWN or recipe.data == OWN or imported_files():
            raise
        raise TorchcapsError(
            f"{state} cannot be gone on from ({reason[:200]}); is it damaged, or of other "
            f"versions? Put back a whole copy, or remove it, and the run begins anew."
        ) from error
