"""No source file is longer than 400 lines and no function than 50, without a written why.

Lines of a docstring do not count for a function: they are to be as many as its arguments need.
Functions of C++ are found by their braces.
"""

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "torchcaps"
MOST_OF_FILE, MOST_OF_FUNCTION = 400, 50

TILES = "one pass over tiles; its steps share a dozen tensors, which functions would hand around"
LANES = "one loop whose steps share tiles in scratch memory, which functions would hand around"
BACKWARDS = "the order of the passes backwards, with what each leaves to the next"

LONG_FILES = {
    "ops/fused/tiles.py": "every view of votes that a tile can be made from, dense and windowed",
    "ops/native/distance.cpp": "one library: forward and backward share how lanes are laid out",
    "ops/native/dynamic.cpp": "one library: forward and backward share how lanes are laid out",
    "ops/native/lanes.hpp": "the vector type and every operation on it, for three kinds of CPU",
}

LONG_FUNCTIONS = {
    "cli/train.py:train": "its arguments are the options of the command, each with its help",
    "models/inverted_capsnet.py:tsai_inverted": "its arguments are the options of the network",
    "ops/fused/em.py:route": "the loop of all backends, whose steps it defines beside it",
    "ops/native/distance.cpp:gradients": LANES,
    "ops/native/dynamic.cpp:backward": BACKWARDS,
    "ops/native/dynamic.cpp:routed": LANES,
    "ops/native/em.cpp:fit": LANES,
    "ops/native/em.cpp:fit_back": LANES,
    "ops/native/windows.hpp:gradients": LANES,
    "ops/routing/em.py:em_routing": "the algorithm from first to last line, as printed",
    "train/fit.py:fit": "a run from its first check to its result, in the order of events",
}


# Comments, texts and what the preprocessor reads: braces in them open nothing.
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|^\s*\#(?:[^\n]*\\\n)*[^\n]*""",
    re.DOTALL | re.MULTILINE,
)
CALLED = re.compile(r"\b(?!__)(\w+)\s*\(")


def cpp_functions(text):
    """Each with its lines, from that of its name to its last brace. A function is an outermost
    block with an argument list before it; blocks of classes and namespaces have none."""
    code = NO_CODE.sub(lambda part: "\n" * part[0].count("\n"), text)
    head, blocks = 0, []
    for mark in re.finditer("[{};]", code):
        if mark[0] == "{":
            # What is open already is a function: its blocks are its own.
            blocks.append(None if any(blocks) else CALLED.search(code, head, mark.start()))
        elif mark[0] == "}":
            name = blocks.pop()
            if name:
                yield name[1], code.count("\n", name.start(), mark.start()) + 1
        head = mark.end()


def lines_of_functions(path):
    if path.suffix != ".py":
        yield from cpp_functions(path.read_text(encoding="utf-8"))
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield node.name, lines


def sources():
    return sorted(p for p in SOURCES.rglob("*") if p.suffix in (".py", ".cpp", ".hpp"))


def long_files():
    for path in sources():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MOST_OF_FILE:
            yield path.relative_to(SOURCES).as_posix()


def long_functions():
    for path in sources():
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


SAMPLE = """
#define OPEN {
namespace {
struct Worker : Thread<Job> {
  int count{};
  template <class End>
  __attribute__((always_inline)) void turn(End end) const {
    const auto last = [&](int i) {
      return i;  // a brace { in a comment
    };
    for (int i = 0; i < 3; ++i) { end("}", '{', i); }
  }
  Worker() : count(3) {}
};
}  // namespace
extern "C" {
int size() {
  return sizeof(Worker);
}
}
"""


def test_functions_of_cpp_are_found_by_their_braces():
    assert list(cpp_functions(SAMPLE)) == [("turn", 6), ("Worker", 1), ("size", 3)]
