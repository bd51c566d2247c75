"""What claims measure, by the names that the papers and our analysis use, and who measures it."""

from typing import Literal, NamedTuple

from torchcaps_claims.texts import read_texts


class Statistic(NamedTuple):
    """One number of a trained network, a line of statistics.toml."""

    says: str
    command: Literal["eval", "dissect", "estimate", "train", "study"]
    measured_as: str | None = None


# Shares of one that the papers print in percent in some places.
RATES = ("car", "cdr")

STATISTICS: dict[str, Statistic] = {
    name: Statistic(**fields) for name, fields in read_texts("statistics").items()
}
