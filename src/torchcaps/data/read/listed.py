"""Which pictures a folder holds, of which classes and groups, and which of them are the test.

None of them is opened.
"""

import warnings
from pathlib import Path
from typing import NamedTuple

from torchcaps._checks import check_choice, check_number
from torchcaps.data.folds import check_fold, fold_numbers
from torchcaps.data.groups import check_folders_apart, groups_of_files
from torchcaps.data.parting import Files, drawn
from torchcaps.errors import TorchcapsError, nearest

SPLITS = ("train", "val", "test")
TEST_SHARE = 0.2
# Pillow knows many more formats; some of them start other programs to be read.
FORMATS = {
    **{".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP"},
    **{".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM"},
}
# Pictures as well, which nobody may miss unawares.
UNREAD = (".avif", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jxl", ".pbm", ".tga")


class Listed(NamedTuple):
    """The pictures of a split, of which none was opened."""

    class_names: tuple[str, ...]
    files: tuple[str, ...]
    labels: list[int]
    groups: tuple[str, ...] | None
    # Those of all splits.
    whole: list[Path]


def listed(
    root: Path,
    split: str,
    *,
    test_share: float = TEST_SHARE,
    seed: int = 0,
    groups: str | None = None,
    fold: tuple[int, int] | None = None,
) -> Listed:
    """List what `image_folder` reads, by name."""
    check_number("test_share", test_share, above=0, below=1)
    class_names, files, whole, is_drawn = _files(root, split if fold is None else "train")
    is_drawn = is_drawn or fold is not None
    name, group_of = root.resolve().name, None
    if groups is not None:
        group_of = groups_of_files(root, [_below(root, path) for path in whole], groups)
        check_folders_apart(name, {} if is_drawn else group_of)
    if is_drawn:
        paths = [_below(root, path) for path, _ in files]
        of_files = None if group_of is None else [group_of[path] for path in paths]
        if fold is None:
            is_test = drawn(name, class_names, files, of_files, test_share, seed)
        else:
            check_fold(fold)
            # Of a fold 0 the training pictures are all.
            number, count = fold
            labels = [label for _, label in files]
            is_test = fold_numbers(name, of_files, labels, class_names, count, seed) == number - 1
        chosen = zip(files, is_test, strict=True)
        files = [file for file, tested in chosen if tested == (split == "test")]
    names = tuple(_below(root, path) for path, _ in files)
    named = None if group_of is None else tuple(group_of[each] for each in names)
    return Listed(class_names, names, [label for _, label in files], named, whole)


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _files(root: Path, split: str) -> tuple[tuple[str, ...], Files, list[Path], bool]:
    """List the classes, and every picture of the split with its class; or, where no folder says
    what is the test, all of them, of which it must be drawn. And the pictures of all splits."""
    check_choice("split", split, SPLITS)
    if not root.is_dir():
        raise TorchcapsError(
            f"there is no folder {root}; point to the one that holds a folder of pictures for each "
            f"class."
        )
    home, parts = root.resolve(), _splits(root)
    part = parts.get(split, parts.get("val") if split == "test" else None) if parts else root
    if part is None:
        raise TorchcapsError(
            f"{root} has the folders {', '.join(sorted(parts))} but no {split}; add it, or "
            f"take the folders of classes out of train for a share of each."
        )
    if not parts and split == "val":
        raise TorchcapsError(
            f"{root} has no folder val to read; make folders train and val in it, or hold out "
            f"some of the training images: images.hold_out()."
        )
    class_names = _classes(parts.get("train", root), home)
    for name in (path.name for path in _folders(part, home)):
        if name not in class_names:
            raise TorchcapsError(
                f"{part} has a class {name!r}, which {parts['train']} lacks; "
                f"{nearest(name, class_names)}."
            )
    files: Files = []
    whole: list[Path] = []
    for each in parts.values() or [root]:
        folders = _folders(each, home)
        if not folders:
            raise TorchcapsError(
                f"{each} holds no folder of a class, and of a picture without a class nothing can "
                f"be learnt or judged; sort its pictures into folders of classes, or take it away."
            )
        for folder in folders:
            found = _pictures(folder, home)
            whole += found
            if each == part:
                files += [(path, class_names.index(folder.name)) for path in found]
    return class_names, files, whole, not parts


def _splits(root: Path) -> dict[str, Path]:
    """Find the folders of splits; none where root holds the folders of classes."""
    home = root.resolve()
    parts = {path.name: path for path in _folders(root, home)}
    are_splits = "train" in parts and set(parts) <= set(SPLITS) and _folders(parts["train"], home)
    return parts if are_splits else {}


def _folders(folder: Path, home: Path) -> list[Path]:
    return [path for path in inside(folder, home) if path.is_dir()]


def _classes(folder: Path, home: Path) -> tuple[str, ...]:
    names = tuple(path.name for path in _folders(folder, home))
    if len(names) < 2:
        present = f"only one, {names[0]!r}" if names else "none"
        raise TorchcapsError(
            f"{folder} should hold a folder of pictures for each of two or more classes, but holds "
            f"{present}; point to the folder above the classes."
        )
    return names


def _pictures(folder: Path, home: Path) -> list[Path]:
    found = [path for path in inside(folder, home) if path.suffix.lower() in FORMATS]
    if not found:
        is_split = any(
            path.suffix.lower() in FORMATS
            for inner in _folders(folder, home)
            for path in inside(inner, home)
        )
        others = sum(path.suffix.lower() in UNREAD for path in inside(folder, home))
        raise TorchcapsError(
            f"{folder} holds no pictures ({' '.join(FORMATS)}); "
            + (
                "its folders do: a split is called train, val or test, and out of the folders of "
                "patients pictures are moved up, with the patient in their names: p01_3.png."
                if is_split
                else f"it holds {others} of formats that are not read: save them as .png."
                if others
                else "fill it, or take it away."
            )
        )
    return found


def tell_left_out(root: Path, whole: list[Path]) -> None:
    """Warn of pictures that lie with these and are not among them."""
    classes = sorted({path.parent for path in whole})
    beside = [path for each in classes for path in sorted(each.iterdir())]
    within = [inner for each in beside if each.is_dir() for inner in sorted(each.iterdir())]
    hidden = [path for home in {each.parent for each in classes} for path in home.glob(".*/*")]
    either = (*FORMATS, *UNREAD)
    for found, kinds, why in (
        (beside, UNREAD, "are of formats that are not read; save them as .png"),
        (within, either, "lie in a folder inside that of their class; move them up into it"),
        (sorted(hidden), either, "lie in a hidden folder; if it is a class, name it without a dot"),
    ):
        left_out = [path for path in found if path.suffix.lower() in kinds]
        if left_out := [path for path in left_out if not path.name.startswith(".")]:
            warnings.warn(
                f"left out of {root}: {len(left_out)} pictures ({left_out[0]} is the first), "
                f"which {why}, or take them away.",
                stacklevel=3,
            )


def inside(folder: Path, home: Path) -> list[Path]:
    """List what lies in a folder and is not hidden, by name; no link may lead out of home."""
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in found:
        if path.is_symlink() and not _stays(path, home):
            raise TorchcapsError(
                f"{path} is a link that leaves {home} or goes round in a ring; copy what it points "
                f"to, or take it away."
            )
    return found


def _stays(link: Path, home: Path) -> bool:
    try:
        return link.resolve().is_relative_to(home)
    except (OSError, RuntimeError):
        # A ring: what is raised depends on the version of Python.
        return False
