"""The sizes of the data sets that have a name; no file is read for them."""

from typing import NamedTuple

from torchcaps.errors import TorchcapsError, nearest

__all__ = ["SETS", "DataSet", "data_set"]


class DataSet(NamedTuple):
    """Images as networks take them, and how many there are to train on."""

    image: tuple[int, int, int]
    n_classes: int
    n_train: int
    has_files: bool = True


GREY, WIDE, OVERLAID, COLOUR = (1, 28, 28), (1, 40, 40), (1, 36, 36), (3, 32, 32)
FAMILIAR = DataSet((2, 96, 96), 5, 8_100)

SETS: dict[str, DataSet] = {
    "affnist": DataSet(WIDE, 10, 1_600_000),
    "affnist-style": DataSet(WIDE, 10, 60_000),
    "cifar10": DataSet(COLOUR, 10, 50_000),
    "cifar100": DataSet(COLOUR, 100, 50_000),
    "diverse-multi-mnist": DataSet(OVERLAID, 10, 60_000),
    # 25,000 labelled pictures less the fifth that is tested on; [renzulli2025] stretches them.
    "dogs-vs-cats": DataSet((3, 128, 128), 2, 20_000),
    "expanded-mnist": DataSet(WIDE, 10, 60_000),
    "fashion-mnist": DataSet(GREY, 10, 60_000),
    "imagenette": DataSet((3, 128, 128), 10, 9_469),
    "mnist": DataSet(GREY, 10, 60_000),
    "multi-mnist": DataSet(OVERLAID, 10, 60_000),
    "multi-mnist-10": DataSet(OVERLAID, 10, 600_000),
    "multi-mnist-100": DataSet(OVERLAID, 10, 6_000_000),
    "multi-mnist-1000": DataSet(OVERLAID, 10, 60_000_000),
    "part-whole": DataSet((1, 32, 32), 10, 10_000, has_files=False),
    "sign": DataSet((1, 1, 1), 2, 20_000, has_files=False),
    "smallnorb-azimuth": FAMILIAR,
    "smallnorb-azimuth-familiar": FAMILIAR,
    "smallnorb-elevation": FAMILIAR,
    "smallnorb-elevation-familiar": FAMILIAR,
    "svhn": DataSet(COLOUR, 10, 73_257),
    "tiny-imagenet": DataSet((3, 64, 64), 200, 100_000),
    "toy-2d": DataSet((2, 1, 1), 3, 10_000, has_files=False),
}


def data_set(name: str) -> DataSet:
    """The sizes of a data set."""
    if name not in SETS:
        raise TorchcapsError(f"the studies know no data {name!r}; {nearest(str(name), SETS)}.")
    return SETS[name]
