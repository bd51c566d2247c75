"""How tests call the command line, and what it must leave behind when it fails."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torchcaps.data import ImageSet, PartWholeSpec, part_whole

COMMAND = Path(sys.executable).with_name("torchcaps")
TRAIN = ["--model", "mitterreiter_5x16", "--data", "tiny", "--epochs", "1"]
TRAIN += ["--batch-size", "20", "--seed", "5"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Done]


@cache
def tiny(split: str, root: object) -> ImageSet:
    return part_whole(split, {"train": 40, "test": 12}[split], spec=PartWholeSpec(size=24))


def assert_one_sentence(done: Done, words: str) -> None:
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("torchcaps: ")
    assert done.err.count("\n") == 1
    assert words in done.err
