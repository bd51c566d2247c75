"""What a routing alone offers is known to its op and its module, and to the forms that compute with
it: whoever adds an option has no other file to touch. Its twin imports nothing of torchcaps."""

import ast
import inspect
from collections import Counter
from pathlib import Path

import pytest

from torchcaps import layers, ops
from torchcaps.ops.by_name import PLAIN

SRC = Path(ops.__file__).parents[1]
ROOMS = [path for room in ("ops", "layers") for path in sorted((SRC / room).glob("**/*.py"))]
OPTIONS = {name: set(inspect.signature(PLAIN[name]).parameters) for name in layers.ROUTINGS}
SHARED = {name for name, n in Counter(x for own in OPTIONS.values() for x in own).items() if n > 1}
# Words that mean something else elsewhere, as of a query, a product or a kernel; and tensors that
# come with the votes.
COMMON = {"norm", "start", "agreement", "normalise", "prior", "child_id", "poses", "weight"}
OWN = [(name, x) for name, every in OPTIONS.items() for x in sorted(every - SHARED - COMMON)]
# A kernel has to know what it computes with, and the loop that three routings share is one of them.
FORMS = ("ops/fused/{}.py", "ops/native/{}.py")
LOOP = {f"ops/fused/{name}.py" for name in ("loop", "rules", "mixing")}
# Of EM routing, for children that several windows see.
LOOP |= {"ops/routing/shared_children.py"}


def names_in(source):
    """Arguments, attributes, fields and texts; neither local variables nor comments."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.keyword):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Constant):
            found.add(node.value)
    return found


@pytest.fixture(scope="module")
def named():
    return {path.relative_to(SRC).as_posix(): names_in(path.read_text("utf-8")) for path in ROOMS}


@pytest.mark.parametrize(("routing", "option"), OWN)
def test_nobody_else_names_an_option(routing, option, named):
    own = {f"ops/routing/{routing}.py", f"layers/routing/{routing}.py"}
    forms = {form.format(routing) for form in FORMS} | LOOP
    found = {file for file, names in named.items() if option in names}
    assert found & own
    assert found <= own | forms, sorted(found - own - forms)


@pytest.mark.parametrize("option", ["variance_floor", "lambda_schedule", "compete", "p"])
def test_what_no_kernel_computes_with_is_known_to_no_form(option, named):
    (routing,) = (name for name, every in OPTIONS.items() if option in every)
    found = {file for file, names in named.items() if option in names and "/routing/" not in file}
    assert not found, f"an option of {routing} routing is named by {found}"
