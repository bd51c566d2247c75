"""Files of one's own that a command imports, because it is told to: never because a run says so."""

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path

from torch import nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.routing.table import import_path
from torchcaps.models.own import CLASSES

# By the name of the module: the path and the SHA-256 of its file.
_IMPORTED: dict[str, dict[str, str]] = {}


def import_file(path: Path) -> None:
    """Run a Python file, which registers routings and networks, as a module of its own name.

    What lies beside it can be imported by it, as when it is run by python.
    """
    name = path.stem
    if path.suffix != ".py" or not name.isidentifier():
        raise TorchcapsError(
            f"--import takes a Python file named like a module, for example my_routing.py, but got "
            f"{short(str(path))}."
        )
    if not path.is_file():
        raise TorchcapsError(f"there is no file {path} to import; is the path right?")
    if name in _IMPORTED and _IMPORTED[name]["path"] == str(path.resolve()):
        return
    if name in sys.modules:
        raise TorchcapsError(
            f"{path} cannot be imported, because there is a module {name!r} already; give the file "
            f"another name."
        )
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where python itself looks first, and classes are found by their module.
    sys.path.append(str(path.resolve().parent))
    sys.modules[name] = module
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    try:
        spec.loader.exec_module(module)
    except TorchcapsError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        where = _line(error, path)
        raise TorchcapsError(
            f"{path} cannot be imported: {type(error).__name__}: {error}{where}; mend the file."
        ) from None
    for kind in vars(module).values():
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__ == name:
            CLASSES[import_path(kind)] = kind
    _IMPORTED[name] = {"path": str(path.resolve()), "sha256": digest}


def imported_files() -> list[dict[str, str]]:
    """Give what was imported so far, for the record of a run."""
    return list(_IMPORTED.values())


def fault_of_own_code(error: Exception) -> str | None:
    """Write the sentence about an error of an imported file; None for a fault of torchcaps."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module in _IMPORTED or module.split(".")[0] == "torchcaps":
            found = module, line
    if found is None or found[0] not in _IMPORTED:
        return None
    module, line = found
    reason = (str(error) or "no more is known").splitlines()[0][:150]
    return (
        f"{_IMPORTED[module]['path']} failed in line {line}: {type(error).__name__}: {reason}; "
        f"mend the file."
    )


def _line(error: Exception, path: Path) -> str:
    """Say in which line of the file it went wrong, where that is known."""
    if isinstance(error, SyntaxError):
        return "" if error.lineno is None else f" (line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    return f" (line {lines[-1]})" if lines else ""
