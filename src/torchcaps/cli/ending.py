"""How a line that trains ends: the result for programs, and what somebody should know at once."""

import json
import sys
from typing import TYPE_CHECKING

from torchcaps._printable import printable

if TYPE_CHECKING:
    from torchcaps.train import Run


def show_result(run: "Run") -> None:
    """Print the result as JSON; on standard error of which epoch the weights are, where not of the
    last, and whether the network is constant."""
    from torchcaps.analysis.shares import says_always

    print(json.dumps({"run": str(run.folder), **run.result()}))
    if run.kept is not None:
        print(printable(f"weights of {run.kept}"), file=sys.stderr)
    if run.constant is not None:
        print(printable(says_always(run.constant)), file=sys.stderr)
