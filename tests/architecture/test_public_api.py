"""Public names are frozen in public_api.json: one that goes, or comes, is a decision.

To freeze the present ones: python tests/architecture/test_public_api.py
"""

import importlib
import inspect
import json
import pkgutil
import tomllib
from pathlib import Path

import pytest

import torchcaps as tc

FROZEN = Path(__file__).with_name("public_api.json")
PROMISED = tomllib.loads(Path(__file__).with_name("promised.toml").read_text(encoding="utf-8"))
AGAIN = "if this is meant, run `python tests/architecture/test_public_api.py` and commit the file"


def packages():
    """torchcaps, its packages, and its modules of one file; an underscore makes one private."""
    inside = [each.name for each in pkgutil.iter_modules(tc.__path__)]
    return ["torchcaps", *(f"torchcaps.{name}" for name in inside if not name.startswith("_"))]


def names():
    return {name: sorted(importlib.import_module(name).__all__) for name in packages()}


def frozen():
    return json.loads(FROZEN.read_text())


def test_no_package_came_or_went():
    assert sorted(frozen()) == sorted(packages()), AGAIN


@pytest.mark.parametrize("package", packages())
def test_no_name_came_or_went(package):
    found = sorted(importlib.import_module(package).__all__)
    kept = set(frozen().get(package, ()))
    lost, new = kept - set(found), set(found) - kept
    assert not lost, f"{package} lost {sorted(lost)}: users import them; {AGAIN}"
    assert not new, f"{package} now has {sorted(new)}; {AGAIN}"


@pytest.mark.parametrize("package", packages())
def test_every_name_exists_once(package):
    module = importlib.import_module(package)
    assert all(hasattr(module, name) for name in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    assert set(module.__all__) <= set(dir(module))


def named(path):
    """What is promised under a dotted name."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("package", PROMISED["names"])
def test_promised_names_are_public(package):
    assert set(PROMISED["names"][package]) <= set(importlib.import_module(package).__all__)


@pytest.mark.parametrize("call", PROMISED["arguments"])
def test_arguments_are_as_promised(call):
    """None goes, moves or has another default; one that comes is by name and has a default."""
    bare = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(named(call)).parameters.values()
    ]
    promise = PROMISED["arguments"][call]
    promised = promise.split(", ")
    new = [
        each
        for each in bare
        if str(each) not in promised
        and each.kind is each.KEYWORD_ONLY
        and each.default is not each.empty
        and not any(word.startswith(f"{each.name}=") for word in promised)
    ]
    assert str(inspect.Signature([each for each in bare if each not in new])) == f"({promise})"


@pytest.mark.parametrize("kind", PROMISED["fields"])
def test_fields_of_the_data_model(kind):
    assert list(named(kind)._fields) == PROMISED["fields"][kind]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'torchcaps' has no attribute 'routing'"):
        _ = tc.routing


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(names(), indent=2) + "\n")
