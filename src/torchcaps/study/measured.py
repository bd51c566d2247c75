"""What was measured of a run, look by look: NAME.values.json beside its folder NAME."""

from pathlib import Path
from typing import Any

from torchcaps._json import is_finite, read_json
from torchcaps.errors import TorchcapsError, short

__all__ = ["read_values", "values_file"]


def values_file(run: Path) -> Path:
    """Where the values of a run folder lie."""
    return run.with_name(f"{run.name}.values.json")


def read_values(path: Path) -> dict[str, Any]:
    """The commit that measured last, and `looks`: numbers by name, by the name of their look; `by`
    has the commit of each look, and `images` the digest of what it saw where the run has none.

    A cell that came to no result says why in `failed` or `stopped`.
    """
    if not path.exists():
        return {"commit": None, "looks": {}}
    try:
        values = read_json(path)
        _check(values)
    except ValueError as error:
        raise TorchcapsError(
            f"{path} cannot be read ({error}); was it edited? Remove it, and the cell is measured "
            f"again."
        ) from None
    return dict(values)


def _check(values: Any) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"a JSON object belongs where {short(values)} is")
    for name in ("commit", "looks"):
        if name not in values:
            raise ValueError(f"{name!r} is missing")
    for name in ("commit", "failed", "stopped"):
        if not isinstance(values.get(name), str | None):
            raise ValueError(f"{name!r} is no text")
    by = values.get("by", {})
    if not isinstance(by, dict) or not all(isinstance(x, str | None) for x in by.values()):
        raise ValueError("its 'by' is no commits by look")
    images = values.get("images", {})
    if not isinstance(images, dict) or not all(isinstance(x, str) for x in images.values()):
        raise ValueError("its 'images' is no digests by look")
    looks = values["looks"]
    if not isinstance(looks, dict) or not all(map(_are_numbers, looks.values())):
        raise ValueError("its looks are no numbers by name")


def _are_numbers(look: object) -> bool:
    return isinstance(look, dict) and all(map(is_finite, look.values()))
