"""How a study is run: where its files lie, on which machines, how many cells at once."""

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from torchcaps._checks import check_count
from torchcaps.errors import TorchcapsError, nearest

PLACES = ("here", "ray", "slurm")


@dataclass(frozen=True)
class Settings:
    """How a study is run.

    `root` is the folder of data sets that are files, `jobs` how many cells run at once, `device`
    "auto", "cpu" or "cuda", and `until` the time (`time.time()`) at which all states are saved.
    `on` is "here" for processes of this machine, "ray" or "ray:HOST:PORT" for a Ray cluster,
    "slurm" or "slurm:NAME=VALUE,…" for Slurm jobs. `imports` are files of one's own that every
    worker imports, and `together` how many cells each worker trains at once.
    """

    folder: Path
    evidence: Path
    root: Path | None = None
    jobs: int = 1
    device: str = "auto"
    until: float | None = None
    on: str = "here"
    imports: tuple[Path, ...] = ()
    together: int = 1

    @property
    def place(self) -> str:
        return self.on.partition(":")[0]

    @property
    def place_options(self) -> str:
        return self.on.partition(":")[2]

    def for_elsewhere(self) -> "Settings":
        """Make the paths independent of where this process was started."""
        root = None if self.root is None else _absolute(self.root)
        imports = tuple(map(_absolute, self.imports))
        return replace(self, folder=_absolute(self.folder), root=root, imports=imports)


def _absolute(path: Path) -> Path:
    """Make a path absolute; links are kept, since another machine may have others."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def check(settings: Settings) -> None:
    """Refuse settings that cannot work, before anything is started, and make both folders."""
    check_count("--jobs", settings.jobs, of="processes")
    check_count("--together", settings.together, of="networks")
    if settings.device not in ("auto", "cpu", "cuda"):
        raise TorchcapsError(
            f"--device must be auto, cpu or cuda, but is {settings.device!r}; of several GPUs the "
            f"environment variable CUDA_VISIBLE_DEVICES chooses."
        )
    if settings.place not in PLACES:
        raise TorchcapsError(
            f"--on must be here, ray, ray:HOST:PORT, slurm or slurm:NAME=VALUE,…, but is "
            f"{settings.on!r}; {nearest(settings.place, PLACES)}."
        )
    if settings.place == "here" and settings.place_options:
        raise TorchcapsError(f"--on here takes no options, but came as {settings.on!r}.")
    is_missing = settings.device == "cuda" and not torch.cuda.is_available()
    if settings.place == "here" and is_missing:
        raise TorchcapsError(
            "--device cuda needs a GPU that torch sees, and there is none; leave it out, and the "
            "processor is taken."
        )
    for option, folder in (("--out", settings.folder), ("--evidence", settings.evidence)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise TorchcapsError(
                f"{option} must name a folder to write in, but in {folder} that fails "
                f"({error.strerror}); name another one."
            ) from None
