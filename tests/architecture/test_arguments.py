"""`help(f)` is enough: it explains each argument of a public function or layer, with an example."""

import ast
import doctest
import importlib
import inspect
import re
import typing
from pathlib import Path
from types import UnionType

import pytest
import torch
from torch import nn

import torchcaps as tc
from architecture.test_public_api import packages
from registries import as_before

# What stands in examples for something of the reader's own.
YOURS = set(Path(__file__).with_name("yours.txt").read_text(encoding="utf-8").split())
YOUR_FILES = ("my-run", "runs")
ENTRY = re.compile(r"    (\w+(?:, \w+)*): \S")


def documented():
    """Every public function, and every class of layers that its user makes."""
    found = {}
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            is_layer = inspect.isclass(value) and issubclass(value, nn.Module)
            if (is_layer and value.__init__ is not nn.Module.__init__) or inspect.isfunction(value):
                found[f"{value.__module__}.{name}"] = value
    return found


CALLS = documented()
# Their examples plan whole papers or measure a network.
SLOW = ("published_sizes", "listed_claims", "estimate", "assert_routing_contract", "find_claim")
EXAMPLES = [
    pytest.param(name, marks=pytest.mark.slow if name.endswith(SLOW) else ()) for name in CALLS
]


def entries(call):
    """What the docstring says of each argument."""
    _, _, rest = (inspect.getdoc(call) or "").partition("Arguments:\n")
    said, names = {}, ()
    for line in rest.splitlines():
        if entry := ENTRY.match(line):
            names = entry[1].split(", ")
            said |= dict.fromkeys(names, "")
        elif not line.startswith("        "):
            break
        for name in names:
            said[name] += " " + line.strip()
    return said


def words_of(annotation):
    """The words that an argument chooses between."""
    kind = typing.get_origin(annotation)
    if kind is typing.Literal:
        return [word for word in typing.get_args(annotation) if isinstance(word, str)]
    if kind in (typing.Union, UnionType):
        return [word for each in typing.get_args(annotation) for word in words_of(each)]
    return []


def test_the_functions_that_users_call_are_looked_at():
    assert len(CALLS) > 180
    expected = {
        "create_model",
        "dynamic_routing",
        "DenseCapsules",
        "fit",
        "draw_parse_tree",
        "load",
    }
    assert expected <= {name.rpartition(".")[2] for name in CALLS}


def test_every_argument_is_explained():
    taken = {name: sorted(inspect.signature(call).parameters) for name, call in CALLS.items()}
    assert {name: sorted(entries(call)) for name, call in CALLS.items()} == taken


def test_every_choice_is_named():
    unsaid = [
        f"{name}: {each.name} may be {word!r}"
        for name, call in CALLS.items()
        for each in inspect.signature(call).parameters.values()
        for word in words_of(each.annotation)
        if word not in entries(call)[each.name]
    ]
    assert unsaid == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_written(name, monkeypatch, tmp_path):
    call = CALLS[name]
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(call) or "")
    assert examples or not inspect.signature(call).parameters, "the docstring has no example"
    known = {"torch": torch, "nn": nn, "tc": tc, "Path": Path}
    for package in packages()[1:]:
        module = importlib.import_module(package)
        known |= {each: getattr(module, each) for each in module.__all__}
    known |= {call.__name__: call}
    monkeypatch.chdir(tmp_path)
    with as_before(), torch.random.fork_rng():
        torch.manual_seed(0)
        runs = True
        for example in examples:
            runs = runs and not _is_yours(example, known)
            if runs and not example.options.get(doctest.SKIP):
                _run(example, known)
            else:
                _bind(example, known)


def _is_yours(example, known):
    """Whether it uses something that stands for the reader's own."""
    nodes = list(ast.walk(ast.parse(example.source)))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    if any(isinstance(text, str) and text.startswith(YOUR_FILES) for text in texts):
        return True
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return bool({name.id for name in names} & YOURS - made - set(known))


def _bind(example, known):
    """What is not run at least calls what is public as it may be called."""
    for node in ast.walk(ast.parse(example.source)):
        if not isinstance(node, ast.Call):
            continue
        call = _public(node.func, known)
        spread = any(isinstance(each, ast.Starred) for each in node.args)
        if call is None or spread or any(each.arg is None for each in node.keywords):
            continue
        try:
            inspect.signature(call).bind(*node.args, **{each.arg: each for each in node.keywords})
        except TypeError as error:
            raise AssertionError(f"{ast.unparse(node)}: {error}") from None


def _public(node, known):
    """The function or class that an expression such as tc.load names; None for anything else."""
    if isinstance(node, ast.Attribute):
        owner = _public(node.value, known)
        value = getattr(owner, node.attr, None) if inspect.ismodule(owner) else None
    else:
        value = known.get(node.id) if isinstance(node, ast.Name) else None
    ours = getattr(value, "__module__", getattr(value, "__name__", "")) or ""
    return value if ours.partition(".")[0] == "torchcaps" else None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("tc.load(path)", None),
        ("tc.load(path, nosuch=1)", "tc.load(path, nosuch=1): got an unexpected keyword"),
        ("print(load(*paths), yours(1, 2))", None),
        ("yours(load())", "load(): missing a required argument: 'path'"),
        ("tc.layers.DenseCapsules(8)", "tc.layers.DenseCapsules(8): too many positional"),
    ],
)
def test_what_is_not_run_is_bound(source, said):
    known = {"tc": tc, "load": tc.load}
    example = doctest.Example(source, "")
    if said is None:
        _bind(example, known)
        return
    with pytest.raises(AssertionError) as error:
        _bind(example, known)
    assert str(error.value).startswith(said)


def _run(example, known):
    if not example.want:
        exec(example.source, known)
        return
    assert repr(eval(example.source, known)) == example.want.rstrip("\n")
