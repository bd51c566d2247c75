"""Refuse an argument in one sentence: what was expected, what came, and how to mend it.

Each check takes the name that the caller knows the argument by. `so`, the end of the sentence, is a
likely cause or the mending. On the way of a forward `so` is a constant: made of shapes, it would
cost time and fix sizes in a compiled graph.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral

import torch
from torch import Size, Tensor

from torchcaps.errors import NOTHING, TorchcapsError, nearest, short

DIVERGED = "did training diverge? A smaller learning rate usually mends it"


def check_count(
    name: str,
    value: object,
    *,
    of: str = "",
    least: int = 1,
    most: float = sys.maxsize,
    so: str = "",
) -> None:
    """Refuse what is no whole number, of Python or NumPy, or one outside of this range.

    >>> check_count("copies", 1, of="images")
    """
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_number or not is_between(least, value, most):
        what = f"a whole number of {of}" if of else "a whole number"
        limit = f" to {most:,}" if most < sys.maxsize else ""
        raise _refusal(name, f"{what} from {least}{limit}", f"as {short(value)}", so)


def is_whole(value: object) -> bool:
    """Say whether a value is a whole number of Python, which True is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_number(
    name: str,
    value: object,
    *,
    least: float = 0,
    above: float | None = None,
    most: float = sys.float_info.max,
    below: float | None = None,
    so: str = "",
) -> None:
    """Refuse what is no single number in this range; `above` and `below` are outside of it.

    >>> check_number("dropout", 0.5, least=0, below=1)
    """
    low = least if above is None else above
    high = most if below is None else below
    outside = [edge for edge in (above, below) if edge is not None]
    if is_between(low, value, high) and value not in outside:
        return
    start = f"from {least:g}" if above is None else f"above {above:g}"
    if below is not None:
        expected = f"a number {start} and below {below:g}"
    elif most < sys.float_info.max:
        expected = f"a number {start} to {most:g}"
    else:
        expected = f"a finite number {start}{' up' if above is None else ''}"
    raise _refusal(name, expected, f"as {short(value)}", so)


def is_between(least: float, value: object, most: float) -> bool:
    """Say whether a value is a single number of this size."""
    try:
        return bool(least <= value <= most)  # type: ignore[operator]
    except (TypeError, ValueError, RuntimeError):
        # What has no order, and arrays and tensors of several numbers.
        return False


def check_choice(
    name: str, value: object, choices: Collection[str], *, meant: Mapping[str, str] = NOTHING
) -> None:
    """Refuse a word that is none of the choices; `meant` has choices by names from elsewhere."""
    if value not in choices:
        known = nearest(value if isinstance(value, str) else "", choices, meant=meant)
        raise TorchcapsError(f"{name}={short(value)} is unknown; {known}.")


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False; 0 and 1 are taken for these."""
    if not isinstance(value, int) or value not in (False, True):
        raise _refusal(name, "True or False", f"as {short(value)}")


def check_type(name: str, value: object, kind: type, so: str = "", *, as_a: str = "") -> None:
    """Refuse what is not of this type, which the sentence calls `as_a` or by its own name.

    >>> check_type("couple", len, Callable, "write couple=lambda couplings: …", as_a="a function")
    """
    if not isinstance(value, kind):
        raise _refusal(name, as_a or f"a {kind.__name__}", f"as {_type_of(value)}", so)


def check_shape(
    name: str, value: object, axes: Sequence[int | str], so: str = "", *, of: str = ""
) -> None:
    """Refuse what is no tensor of these axes.

    Arguments:
        name: of the tensor.
        value: what came.
        axes: for each axis its size, or a name where any size will do; a first name with a star,
            "*batch", stands for any number of axes.
        so: the end of the sentence.
        of: "whole numbers" or "floating point", where the dtype matters.

    >>> check_shape("poses", torch.ones(2, 3, 4), ("*batch", "capsule", 4))
    """
    if isinstance(value, Tensor) and _has_axes(value.shape, axes) and _holds(value, of):
        return
    expected = f"{of} " if of else ""
    if not isinstance(value, Tensor):
        expected, came = "a tensor ", f"as {_type_of(value)}"
    else:
        came = f"{f'as {value.dtype} ' if of else ''}with shape {list(value.shape)}"
    raise _refusal(name, f"{expected}[{', '.join(map(str, axes))}]", came, so)


def _has_axes(sizes: Size, axes: Sequence[int | str]) -> bool:
    if isinstance(axes, Size):  # The quick way, in forwards.
        return sizes == axes
    if axes and isinstance(axes[0], str) and axes[0].startswith("*"):
        axes = axes[1:]
        sizes = sizes[len(sizes) - len(axes) :] if len(sizes) > len(axes) else sizes
    return len(sizes) == len(axes) and all(
        isinstance(axis, str) or axis == size for axis, size in zip(axes, sizes, strict=True)
    )


def _holds(value: Tensor, of: str) -> bool:
    if of == "whole numbers":
        return not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    return of != "floating point" or value.is_floating_point()


def check_floating(name: str, tensor: Tensor, so: str = "") -> None:
    """Refuse a tensor of whole numbers or booleans."""
    if not tensor.is_floating_point():
        raise _refusal(name, "floating point", f"as {tensor.dtype}", so)


def check_finite(name: str, values: Tensor, so: str = DIVERGED) -> None:
    """Refuse values that are NaN or infinite. It looks at values, so it is for no forward."""
    if not bool(values.isfinite().all()):
        raise TorchcapsError(
            _ended(f"{name} must be finite, but came with NaN or infinite values", so)
        )


def _type_of(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def _refusal(name: str, expected: str, came: str, so: str = "") -> TorchcapsError:
    return TorchcapsError(_ended(f"{name} must be {expected}, but came {came}", so))


def _ended(sentence: str, so: str) -> str:
    whole = f"{sentence}; {so}" if so else sentence
    return whole if whole.endswith("?") else f"{whole}."
