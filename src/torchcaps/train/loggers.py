"""TensorBoard beside metrics.jsonl. Any other logger of Lightning goes to `fit(loggers=)`."""

import os

from lightning.pytorch.loggers import Logger, TensorBoardLogger

from torchcaps.errors import TorchcapsError


def tensorboard(folder: str | os.PathLike[str]) -> Logger:
    """A logger that writes into `folder`/tensorboard."""
    try:
        return TensorBoardLogger(
            os.fspath(folder), name="", version="tensorboard", default_hp_metric=False
        )
    except ModuleNotFoundError:
        raise TorchcapsError(
            "writing for TensorBoard needs the package tensorboard: pip install tensorboard."
        ) from None
