"""How a study is run: where its files lie, how many cells at once."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from torchcaps._checks import check_count
from torchcaps.errors import TorchcapsError


@dataclass(frozen=True)
class Settings:
    """How a study is run.

    `root` is the folder of data sets that are files, `jobs` how many cells run at once, `device`
    "auto", "cpu" or "cuda", and `until` the time (`time.time()`) at which all states are saved.
    `imports` are files of one's own that every worker imports, and `together` how many cells each
    worker trains at once.
    """

    folder: Path
    evidence: Path
    root: Path | None = None
    jobs: int = 1
    device: str = "auto"
    until: float | None = None
    imports: tuple[Path, ...] = ()
    together: int = 1


def check(settings: Settings) -> None:
    """Refuse settings that cannot work, before anything is started."""
    check_count("--jobs", settings.jobs, of="processes")
    check_count("--together", settings.together, of="networks")
    if settings.device not in ("auto", "cpu", "cuda"):
        raise TorchcapsError(
            f"--device must be auto, cpu or cuda, but is {settings.device!r}; of several GPUs the "
            f"environment variable CUDA_VISIBLE_DEVICES chooses."
        )
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise TorchcapsError(
            "--device cuda needs a GPU that torch sees, and there is none; leave it out, and the "
            "processor is taken."
        )


def check_folders(settings: Settings) -> None:
    """Make both folders, and refuse those in which nothing can be written, before anything is
    trained."""
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
