"""What a type checker and an editor know of the library: basedpyright on the Python of README, and
on lines of our own."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import torchcaps as tc
from torchcaps.models import MODELS, CapsuleNetwork
from torchcaps.models.create import Capsuled, Other
from torchcaps.train.recipe import RecipeFields

ROOT = Path(__file__).parents[2]

LINES = tomllib.loads(Path(__file__).with_name("typed.toml").read_text(encoding="utf-8"))
BEGIN = """from pathlib import Path
import torch
import torchcaps as tc
x, net, i = torch.rand(1, 1, 28, 28), torch.nn.Identity(), (3, 9, 9)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, list[dict]]:
    """What basedpyright says of every file, in the mode that Pylance and pyright begin with."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is in the extra dev, which is not installed")
    folder = tmp_path_factory.mktemp("typed")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for k, block in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.S)):
        (folder / f"readme_{k}.py").write_text(block)
    (folder / "lines.py").write_text(BEGIN + "".join(f"{line}\n" for line in LINES))
    config = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    line = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    found = subprocess.run([*line, "-p", str(folder)], capture_output=True, text=True, check=False)
    said: dict[str, list[dict]] = {path.name: [] for path in folder.glob("*.py")}
    for each in json.loads(found.stdout)["generalDiagnostics"]:
        said[Path(each["file"]).name].append(each)
    return said


@pytest.mark.slow
def test_the_python_of_readme_has_no_fault(told):
    assert any(name.startswith("readme") for name in told)
    assert {name: said for name, said in told.items() if name != "lines.py" and said} == {}


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_type_checker_knows_what_comes_out_and_flags_what_is_wrong(told, line):
    at = BEGIN.count("\n") + list(LINES).index(line)
    said = [each for each in told["lines.py"] if each["range"]["start"]["line"] == at]
    words = " ".join(f"{each['message']} {each.get('rule', '')}" for each in said)
    assert LINES[line] in words


@pytest.mark.parametrize(("names", "has_capsules"), [(Capsuled, True), (Other, False)])
def test_names_that_an_editor_completes_are_those_of_the_registry(names, has_capsules):
    expected = {
        name
        for name, preset in MODELS.items()
        if not preset.is_own
        and issubclass(preset._signature.return_annotation, CapsuleNetwork) == has_capsules
    }
    assert set(typing.get_args(names)) == expected


def taken(kind):
    """What `make_recipe` takes for a field: lists where a recipe holds tuples."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return taken(arguments[0])
    if origin is tuple:
        return Sequence[taken(arguments[0])]
    if origin is dict:
        return Mapping[arguments]
    if origin in (types.UnionType, typing.Union):
        return typing.Union[tuple(map(taken, arguments))]  # noqa: UP007
    return kind


def test_the_fields_that_a_type_checker_knows_are_those_of_a_recipe():
    fields = {name: taken(field.annotation) for name, field in tc.train.Recipe.model_fields.items()}
    del fields["protocol"]
    assert typing.get_type_hints(RecipeFields) == fields


def test_a_room_shows_what_is_public():
    for room in (tc.train, tc.tasks):
        assert dir(room) == sorted(room.__all__)


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "src" / "torchcaps" / "py.typed").is_file()
