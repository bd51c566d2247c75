"""--measure: names of measurements, repeated or with commas between them."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from torchcaps.errors import TorchcapsError


def measurement_names(given: Sequence[str] | None) -> list[str]:
    """The names that --measure was given, each of them on its own."""
    return [name.strip() for words in given or () for name in words.split(",")]


class MeasureCommand(TyperCommand):
    """A command with --measure; where names stand apart by spaces, it says how they are written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # They are taken out of the list one by one.
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        # Typer keeps the class of this error to itself.
        except Exception as error:
            left_over = "unexpected extra argument" in str(getattr(error, "message", ""))
            if left_over and any(word.partition("=")[0] == "--measure" for word in words):
                said = str(getattr(error, "message", "")).rstrip(".")
                raise TorchcapsError(
                    f"{said[0].lower()}{said[1:]}; repeat --measure or write commas: "
                    f"--measure dynamics,activity."
                ) from None
            raise
