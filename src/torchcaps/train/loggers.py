"""TensorBoard beside metrics.jsonl. Any other logger of Lightning goes to `fit(loggers=)`."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from torchcaps.errors import TorchcapsError


class Logger(Protocol):
    """What `fit` calls of Lightning's loggers; one's own needs no more."""

    def log_hyperparams(self, params: dict[str, Any]) -> None: ...

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None: ...

    def save(self) -> None: ...

    def finalize(self, status: str) -> None: ...


def tensorboard(folder: str | os.PathLike[str]) -> Logger:
    """Give a logger that writes into `folder`/tensorboard."""
    from lightning.pytorch.loggers import TensorBoardLogger

    try:
        return TensorBoardLogger(
            os.fspath(folder), name="", version="tensorboard", default_hp_metric=False
        )
    except ModuleNotFoundError:
        raise TorchcapsError(
            "writing for TensorBoard needs the package tensorboard: pip install tensorboard."
        ) from None
