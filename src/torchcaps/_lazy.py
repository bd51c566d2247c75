"""Rooms that load a name when it is first used (PEP 562), and rooms that load all they have.

What a room shows is what its `__init__` imports out of its modules, each name under the same name,
which type checkers take for public: `from torchcaps.room.module import name as name`. Such a name
may be a module itself: `from torchcaps import room as room`.
"""

import importlib
import re
import sys
from types import ModuleType
from typing import Any

SHOWN = re.compile(r"^ *from (\S+) import (\w+) as \2$", re.MULTILINE)


class LazyRoom(ModuleType):
    """A package whose names lie in its modules; `_homes` says in which."""

    _homes: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home = self._homes[name]
        if home == self.__name__:
            found: Any = importlib.import_module(f"{home}.{name}")
        else:
            found = getattr(importlib.import_module(home), name)
        vars(self)[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        # Whoever imports the module fit.py would put it in the place of the function fit.
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)


def lazily(room: str) -> None:
    """Have a package load, when it is first used, each name that it imports for type checkers."""
    package = sys.modules[room]
    vars(package)["_homes"] = publish(room)
    package.__class__ = LazyRoom


def publish(room: str) -> dict[str, str]:
    """Make public what a package imports out of its modules; say where each name lies."""
    package = sys.modules[room]
    # Read as text, by the loader that every imported package has: ast and inspect take longer to
    # import than all else that torchcaps begins with.
    source = package.__loader__.get_data(package.__file__).decode()  # type: ignore[union-attr]
    homes = {
        name: home for home, name in SHOWN.findall(source) if f"{home}.".startswith(f"{room}.")
    }
    vars(package)["__all__"] = sorted(homes)
    return homes


def load_modules(room: str) -> None:
    """Load every module of a package: each enters by name what it defines."""
    from pkgutil import iter_modules

    for each in iter_modules(importlib.import_module(room).__path__):
        importlib.import_module(f"{room}.{each.name}")
