"""No source file is longer than 400 lines and no function than 50, without a written why.

Lines of a docstring do not count for a function: they are to be as many as its arguments need.
"""

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "torchcaps"
MOST_OF_FILE, MOST_OF_FUNCTION = 400, 50

TILES = "one pass over tiles; its steps share a dozen tensors, which functions would hand around"
KERNEL = "a kernel is one function to its compiler, and its loops share what registers hold"

LONG_FILES = {
    "ops/fused/tiles.py": "every view of votes that a tile can be made from, dense and windowed",
    "ops/native/distance.cpp": "one library: forward and backward share how lanes are laid out",
    "ops/native/dynamic.cpp": "one library: forward and backward share how lanes are laid out",
    "ops/native/lanes.hpp": "the vector type and every operation on it, for three kinds of CPU",
    "ops/triton/mixing_kernels.py": "one operator: forward, its softmax and its backward pass",
}

LONG_FUNCTIONS = {
    "cli/train.py:train": "its arguments are the options of the command, each with its help",
    "models/inverted_capsnet.py:tsai_inverted": "its arguments are the options of the network",
    "ops/fused/em.py:route": "the loop of all backends, whose steps it defines beside it",
    "ops/routing/em.py:em_routing": "the algorithm from first to last line, as printed",
    "ops/triton/em_kernels.py:moments": KERNEL,
    "ops/triton/em_kernels.py:slopes": KERNEL,
    "ops/triton/mixing_kernels.py:differentiate": KERNEL,
    "ops/triton/mixing_kernels.py:mix": KERNEL,
    "ops/triton/mixing_kernels.py:normalise": KERNEL,
    "train/fit.py:fit": "a run from its first check to its result, in the order of events",
}


def lines_of_functions(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield node.name, lines


def long_files():
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix in (".py", ".cpp", ".hpp"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > MOST_OF_FILE:
                yield path.relative_to(SOURCES).as_posix()


def long_functions():
    for path in sorted(SOURCES.rglob("*.py")):
        for name, lines in lines_of_functions(path):
            if lines > MOST_OF_FUNCTION:
                yield f"{path.relative_to(SOURCES).as_posix()}:{name}"


@pytest.mark.parametrize(
    ("find", "reasons"),
    [(long_files, LONG_FILES), (long_functions, LONG_FUNCTIONS)],
    ids=["files", "functions"],
)
def test_what_is_long_says_why(find, reasons):
    without_a_reason = sorted(set(find()) - set(reasons))
    assert without_a_reason == [], "split it, or write down in this test why it is long"


@pytest.mark.parametrize(
    ("find", "reasons"),
    [(long_files, LONG_FILES), (long_functions, LONG_FUNCTIONS)],
    ids=["files", "functions"],
)
def test_what_was_shortened_loses_its_reason(find, reasons):
    assert sorted(set(reasons) - set(find())) == [], "it is short now, or gone: remove its reason"
