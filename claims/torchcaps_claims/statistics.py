"""What claims measure, by the names that the papers and our analysis use, and who measures it."""

import tomllib
from pathlib import Path
from typing import Literal, NamedTuple


class Statistic(NamedTuple):
    """One number of a trained network, a line of statistics.toml."""

    says: str
    command: Literal["eval", "dissect", "estimate", "train", "study"]
    measured_as: str | None = None


# Shares of one that the papers print in percent in some places.
RATES = ("car", "cdr")

STATISTICS: dict[str, Statistic] = {
    name: Statistic(**fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    ).items()
}
