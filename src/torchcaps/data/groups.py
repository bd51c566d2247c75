"""Which images belong together: those of one patient, of one place, of one film."""

from collections.abc import Mapping, Sequence

from torchcaps.errors import TorchcapsError, short

__all__ = ["named_groups"]


def named_groups(name: str, groups: object, count: int) -> tuple[str, ...]:
    """The groups of `count` images as text; refuse an image without one."""
    # Arrays, tensors and columns of a table.
    groups = groups.tolist() if hasattr(groups, "tolist") else groups
    if isinstance(groups, str | Mapping) or not isinstance(groups, Sequence):
        raise TorchcapsError(
            f"{name}: groups must be a list of names, one an image, but came as {short(groups)}."
        )
    if len(groups) != count:
        raise TorchcapsError(
            f"{name}: groups must name a group for each of {count} images, but came with "
            f"{len(groups)}."
        )
    for at, group in enumerate(groups):
        # What tables have where nobody wrote anything: None, nothing, or a NaN.
        if group is None or group != group or not str(group):
            raise TorchcapsError(
                f"{name}: image {at} has no group ({short(group)}); name the group of every image, "
                f"one of its own where an image belongs to no other."
            )
    # Numbers are names, too.
    return tuple(map(str, groups))
