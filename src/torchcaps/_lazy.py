"""Rooms that load a name when it is first used (PEP 562), and rooms that load all they have.

What a room shows is what its `__init__` imports out of its modules, each name under the same name,
which type checkers take for public: `from torchcaps.room.module import name as name`.
"""

import ast
import importlib
import inspect
import sys
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


class LazyRoom(ModuleType):
    """A package whose names lie in its modules; `_homes` says in which."""

    _homes: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = vars(self)[name] = getattr(importlib.import_module(self._homes[name]), name)
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
    homes = {
        alias.name: str(node.module)
        for node in ast.walk(ast.parse(inspect.getsource(package)))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{room}.")
        for alias in node.names
    }
    vars(package)["__all__"] = sorted(homes)
    return homes


def load_modules(room: str) -> None:
    """Load every module of a package: each enters by name what it defines."""
    for each in iter_modules(importlib.import_module(room).__path__):
        importlib.import_module(f"{room}.{each.name}")
