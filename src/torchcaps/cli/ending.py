"""How a line that trains ends: the result for programs, and what somebody should know at once."""

import json
import sys
from typing import TYPE_CHECKING

from torchcaps._printable import printable

if TYPE_CHECKING:
    from torchcaps.train import Run

__all__ = ["show_result"]


def show_result(run: "Run") -> None:
    """Print the result as JSON; on standard error of which epoch the weights are, where not of the
    last, and whether the network is constant."""
    from torchcaps.analysis.shares import says_always

    result = run.result()
    print(json.dumps({"run": str(run.folder), **result}))
    if run.kept is not None:
        print(printable(f"weights of {run.kept}"), file=sys.stderr)
    if result.get("constant") is not None:
        print(printable(says_always(result["constant"])), file=sys.stderr)
