"""The network of a run as it stands, finished or not."""

import os

from torch import nn

from torchcaps._paths import path_of
from torchcaps.data import Images
from torchcaps.data.registry import Root
from torchcaps.errors import TorchcapsError
from torchcaps.models.files.saving import load_network
from torchcaps.models.own import OWN, as_network, own_module
from torchcaps.tasks.trained import Own, Trained, open_trained, to_accelerator
from torchcaps.train.folder.run import Run
from torchcaps.train.folder.state import read_state
from torchcaps.train.images import images_of
from torchcaps.train.start import initial_model


def open_latest(
    path: str | os.PathLike[str], *, root: Root | None = None, model: Own = None
) -> Trained:
    """Open a network as `open_trained` does, and a stopped run with the weights of its last state.

    root: where the data of the run lies, if not where it lay when the run began.
    """
    path = path_of("path", path)
    run = Run(path)
    if not path.is_dir() or run.is_done or not run.recipe_file.is_file():
        return open_trained(path, model=model)
    if not run.state_file.is_file():
        raise TorchcapsError(
            f"{path} was stopped before it saved its first state, so it has no trained weights; "
            f"repeat the command that began it, which saves a state after every epoch."
        )
    network, _, stage = latest_network(run, root, model)
    return Trained(to_accelerator(network), path, run, stage)


def latest_network(run: Run, root: Root | None, own: Own) -> tuple[nn.Module, Images, str]:
    """Load the last weights of a run, its training images, and their time: "after epoch 2 of 3"."""
    run.check_imported()
    recipe = run.recipe
    training = images_of(recipe, "train", root=run.root_or(root))
    if run.is_done:
        return load_network(run.model_file, model=own), training, "after training"
    if recipe.model == OWN:
        own = own_module(run.about(), own)
    model = initial_model(recipe, training, own if isinstance(own, nn.Module) else None)
    if not run.state_file.is_file():
        return model, training, "before training"
    state = read_state(run.state_file, needs=("state_dict", "epoch"), device="cpu")
    try:
        weights = state["state_dict"]
        prefix = "model."
        # As training called it.
        as_network(model).load_state_dict(
            {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        )
        # At the end of an epoch, and within one that is cut short or long.
        progress = state.get("loops", {}).get("fit_loop", {}).get("epoch_loop.batch_progress", {})
        word = "after" if progress.get("is_last_batch", True) else "within"
        stage = f"{word} epoch {state['epoch'] + 1} of {recipe.epochs}"
    except (AttributeError, RuntimeError, TypeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:100]
        raise TorchcapsError(
            f"{run.state_file} cannot be read ({reason}); it is damaged: remove it, and the run "
            f"begins anew."
        ) from None
    return model, training, stage
