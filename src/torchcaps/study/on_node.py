"""What runs on a machine of a Ray cluster. Ray starts one of these for each worker of the pool."""

import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torchcaps import __version__
from torchcaps.study.disk import Files, is_seen, pack, unpack
from torchcaps.study.ledger import Ledger
from torchcaps.study.settings import Settings
from torchcaps.study.system import Cell
from torchcaps.study.work import finish
from torchcaps.study.workers import serve
from torchcaps.train.own_code import import_file

__all__ = ["About", "OnNode"]


class About(NamedTuple):
    """What a pool must know of a worker before it gives it cells."""

    version: str
    process: int
    machine: str
    # Ray's name of the machine.
    node: str
    sees_folder: bool


class OnNode:
    """A worker in a process that Ray started.

    Where its machine sees the folder of all cells, it takes cells by itself, as workers of one
    machine do. Elsewhere the pool sends them one by one, and gets their files back.
    """

    def __init__(self, settings: Settings, number: int, command: Sequence[str], n_gpus: int):
        self.settings, self.number = settings, number
        # Runs write down which command began them.
        sys.argv = list(command)
        if not n_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def about(self, sign: str) -> About:
        """Who this is, and whether it sees the folder that was signed."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        sees = is_seen(self.settings.folder, sign)
        return About(__version__, os.getpid(), platform.node(), node, sees)

    def serve(self, cells: Sequence[Cell]) -> bool:
        """Take cells until none is left."""
        return serve(cells, self.settings, self.number)

    def finish(self, cell: Cell, files: Files) -> tuple[dict[str, bytes], Exception | None]:
        """Go on with a cell from its files; all of them as they are then, and how it failed."""
        with tempfile.TemporaryDirectory(prefix="torchcaps-") as folder:
            ledger = Ledger(Path(folder))
            unpack(files, ledger.folder, cell.name)
            failed = None
            try:
                for file in self.settings.imports:
                    import_file(file)
                finish(cell, ledger, root=self.settings.root, until=self.settings.until)
            except Exception as error:
                failed = error
            return pack(ledger.folder, cell.name), failed
