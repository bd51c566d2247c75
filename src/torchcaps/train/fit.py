"""Train a recipe into a run folder; the same call continues a stopped run."""

import json
import logging
import os
import pickle
import time
import warnings
from pathlib import Path

import lightning
import torch
from torch import nn

from torchcaps.data import ImageSet, load
from torchcaps.errors import Interrupted, TorchcapsError
from torchcaps.models import create_model, save
from torchcaps.train.batches import loader
from torchcaps.train.callbacks import SaveState, ShowProgress
from torchcaps.train.module import Training
from torchcaps.train.recipe import Recipe
from torchcaps.train.run import Run, write_whole
from torchcaps.train.seeds import HOLD_OUT, WEIGHTS, seed_of

__all__ = ["accuracy", "fit"]


def fit(
    recipe: Recipe,
    out: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    label: str | None = None,
) -> Run:
    """Train, validate on images held out of the training set, test once, and save.

    `root` is where the data lies, for data sets that are files; `label` names the run in the
    progress. A finished run is returned as it is.
    """
    run = Run(Path(out))
    run.check(recipe)
    if run.is_done:
        return run
    images = load(recipe.data, split="train", root=root)
    training, validation = images.hold_out(
        share=recipe.validation_share, seed=seed_of(recipe.seed, HOLD_OUT)
    )
    model = initial_model(recipe, images)
    # Only now, so that a recipe that cannot be trained leaves no folder behind.
    run.begin(recipe, images.digest())
    started = time.perf_counter()
    _train(recipe, run, model, training, validation, label or recipe.model)
    seconds = time.perf_counter() - started
    save(model, run.model_file)
    test = load(recipe.data, split="test", root=root)
    result = {
        "test_accuracy": accuracy(model, test),
        "test_images": len(test),
        "training_images": len(training),
        "digests": {"train": images.digest(), "test": test.digest()},
        "seconds_of_last_stretch": round(seconds, 1),
    }
    write_whole(run.result_file, json.dumps(result, indent=2))
    return run


def initial_model(recipe: Recipe, images: ImageSet) -> nn.Module:
    """The network before training: a function of the recipe alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(recipe.seed, WEIGHTS))
        return create_model(
            recipe.model,
            image=images.image_shape,
            n_classes=len(images.class_names),
            **recipe.options,
        )


@torch.no_grad()
def accuracy(model: nn.Module, images: ImageSet, *, batch_size: int = 256) -> float:
    """Share of images whose highest score is their label."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    model.eval()
    right = 0
    for pixels, labels, _ in loader(images, batch_size):
        scores = model(pixels.to(device)).scores
        right += int((scores.argmax(-1).cpu() == labels).sum())
    return right / len(images)


def _state_of(run: Run) -> Path | None:
    """The file to go on from, known to be readable."""
    if not run.state_file.is_file():
        return None
    try:
        torch.load(run.state_file, weights_only=True, map_location="meta")
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:100]
        raise TorchcapsError(
            f"{run.state_file} cannot be read ({reason}); it is damaged: remove it, and the run "
            f"begins anew."
        ) from None
    return run.state_file


def _train(
    recipe: Recipe, run: Run, model: nn.Module, training: ImageSet, validation: ImageSet, label: str
) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    with warnings.catch_warnings(), torch.random.fork_rng():
        # Images are in memory: workers would only copy them.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        # Lightning's own, of a torch name it has yet to replace.
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
        trainer = lightning.Trainer(
            max_epochs=recipe.epochs,
            accelerator="auto",
            devices=1,
            logger=False,
            enable_checkpointing=True,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            callbacks=[
                ShowProgress(label, len(training), recipe.batch_size),
                SaveState(run),
            ],
        )
        state = _state_of(run)
        try:
            trainer.fit(
                Training(model, recipe),
                loader(training, recipe.batch_size, seed=recipe.seed, shuffle=True),
                loader(validation, recipe.batch_size),
                ckpt_path=state,
                weights_only=True,
            )
        except SystemExit:
            # Lightning's answer to Ctrl-C.
            if not trainer.interrupted:
                raise
            raise Interrupted(
                f"training was interrupted; the same command continues {run.folder} after its last "
                f"whole epoch."
            ) from None
