"""JSON objects that a run wrote, or a sentence about the file that is damaged."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchcaps._digests import check_digest
from torchcaps._json import is_finite, parsed, read_lines, read_text
from torchcaps.errors import TorchcapsError, short


def read_objects(
    path: Path,
    *,
    needs: tuple[str, ...] = (),
    numbers: tuple[str, ...] = (),
    words: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Read JSON objects with these keys, some of them of numbers or of text; one, or one a line."""
    check_digest(path)
    found: list[dict[str, Any]] = []
    try:
        # One after another: a row that is wrong is told before memory is taken for the next.
        for piece in [read_text(path)] if path.suffix == ".json" else read_lines(path):
            each = parsed(piece)
            if not isinstance(each, dict):
                raise ValueError(f"a JSON object belongs where {short(each)} is")
            if lacking := [key for key in (*needs, *numbers, *words) if key not in each]:
                raise ValueError(f"{lacking[0]!r} is missing")
            if wrong := [key for key in numbers if not is_finite(each[key])]:
                raise ValueError(f"{wrong[0]!r} is no number")
            if wrong := [key for key in words if not isinstance(each[key], str)]:
                raise ValueError(f"{wrong[0]!r} is no text")
            found.append(each)
    except ValueError as error:
        raise damaged(path, str(error)) from None
    return found


def check_seen(path: Path, result: Mapping[str, Any]) -> None:
    """Refuse a result that does not describe its images as a run does."""
    names, light = result.get("class_names"), result.get("brightness")
    digests = result.get("digests", {})
    if names is not None and not (
        isinstance(names, list) and all(isinstance(each, str) for each in names)
    ):
        raise damaged(path, "'class_names' is no list of names")
    if light is not None and not (
        isinstance(light, dict) and all(is_finite(light.get(key)) for key in ("mean", "std"))
    ):
        raise damaged(path, "'brightness' has no mean and std")
    if not (isinstance(digests, dict) and all(isinstance(one, str) for one in digests.values())):
        raise damaged(path, "'digests' do not name the images")
    groups = result.get("groups", {"parted": ""})
    if not (isinstance(groups, dict) and isinstance(groups.get("parted"), str)):
        raise damaged(path, "'groups' does not tell how images are parted")
    if not is_finite(result.get("training_images", 0)):
        raise damaged(path, "'training_images' is no number")


def damaged(path: Path, why: str) -> TorchcapsError:
    """Say what is said of a file that is there, but is not as a run wrote it."""
    return TorchcapsError(
        f"{path} cannot be read ({why}); was it edited, or its copy cut short? Remove it, and the "
        f"run makes it anew."
    )
