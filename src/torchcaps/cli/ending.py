"""How a command ends: what it found as JSON or as text, and of training what to know at once."""

import json
import sys
from typing import TYPE_CHECKING, Any, Protocol

from torchcaps._printable import printable

if TYPE_CHECKING:
    from torchcaps.train import Run


class Found(Protocol):
    """What a command found."""

    def numbers(self) -> dict[str, Any]: ...
    def text(self) -> str: ...


def show_found(found: Found, as_json: bool) -> None:
    """Print what a command found: one JSON object, or text."""
    print(json.dumps(found.numbers()) if as_json else printable(found.text()))


def show_result(run: "Run") -> None:
    """Print the result as JSON, without the measures of each class, of which there may be hundreds;
    on standard error of which epoch the weights are, and whether the network is constant."""
    from torchcaps.analysis.shares import says_always

    found = {"run": str(run.folder), **run.result()}
    if "measures" in found:
        found["measures"] = {k: v for k, v in found["measures"].items() if k != "classes"}
    print(json.dumps(found))
    if run.kept is not None:
        print(printable(f"weights of {run.kept}"), file=sys.stderr)
    if run.constant is not None:
        print(printable(says_always(run.constant)), file=sys.stderr)
