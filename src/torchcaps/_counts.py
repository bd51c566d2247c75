"""How many: a number that a function was given."""

from numbers import Integral

from torchcaps.errors import TorchcapsError, short

__all__ = ["check_count"]


def check_count(name: str, value: object, *, of: str) -> None:
    """It must be a whole number from 1.

    >>> check_count("copies", 1, of="images")
    """
    if not isinstance(value, Integral) or value < 1:
        raise TorchcapsError(
            f"{name} must be a whole number of {of} from 1, but came as {short(value)}."
        )
