"""`torchcaps compare`: runs side by side."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps._printable import printable
from torchcaps.cli.arguments import AsJson, Baseline, Imports
from torchcaps.cli.listed import command

if TYPE_CHECKING:
    from torchcaps.study import Comparison


@command(50)
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold some.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw the means with their intervals: .svg, .pdf or .png.")
    ] = None,
    statistic: Annotated[str, typer.Option(help="What is drawn.")] = "accuracy",
    baseline: Baseline = None,
    own_code: Imports = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs that differ in anything, over the seeds of each.

    Prints a line for each recipe: what tells it from the others, the mean of the accuracy on the
    test images over its seeds with the 95 % t-interval, and what training took. Below them, by how
    much each lies above the baseline on the same test images, seed by seed.
    """
    from torchcaps import study

    if plot is not None:
        from torchcaps.viz import check_figure_file

        check_figure_file(plot)
    show(study.compare(runs).against(baseline), plot=plot, statistic=statistic, as_json=as_json)


def show(
    found: "Comparison",
    *,
    plot: Path | None,
    statistic: str = "accuracy",
    as_json: bool = False,
    failed: Mapping[str, str] | None = None,
) -> None:
    """Print a comparison, in JSON with why runs failed, and draw it where a file is named."""
    found.check_statistic(statistic)
    more = {} if failed is None else {"failed": dict(failed)}
    print(json.dumps(found.numbers() | more) if as_json else printable(found.text()))
    if plot is not None:
        from torchcaps.viz import write_figure

        write_figure(found.figure(statistic), plot)
        print(printable(f"drawn in {plot}"), file=sys.stderr)
