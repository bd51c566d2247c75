"""The site of `make docs`: every public name on one page, prose that markup leaves as it is."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from pages import ROOT, script_at

FROZEN = json.loads((ROOT / "tests" / "architecture" / "public_api.json").read_text())

reference = script_at(ROOT / "docs" / "reference.py")


def test_every_public_name_is_explained_on_one_page_and_named_on_its_own():
    texts = {module: reference.page_text(module) for module in reference.modules()}
    assert sorted(texts) == sorted(FROZEN)
    explained = Counter()
    for text in texts.values():
        explained.update(re.findall(r"^\.\. auto(?:function|class|data):: (\S+)$", text, re.M))
    assert set(explained.values()) == {1}
    for module, names in FROZEN.items():
        rooms = {name for name in names if f"torchcaps.{name}" in FROZEN}
        for name in set(names) - rooms:
            homes = [full for full in explained if full == f"{module}.{name}"]
            elsewhere = re.findall(rf":py:obj:`{name} <(\S+)>`", texts[module])
            assert len(homes + elsewhere) == 1
            assert (homes + elsewhere)[0] in explained
        for name in rooms:
            assert f"<torchcaps.{name}>`" in texts[module]


@pytest.mark.parametrize(
    ("module", "first"),
    [("torchcaps", ["create_model"]), ("torchcaps.layers", ["CapsuleHead", "DenseCapsules"])],
)
def test_a_page_begins_with_what_readers_come_for(module, first):
    text = reference.page_text(module)
    explained = re.findall(r"^\.\. auto(?:function|class):: \S+\.(\w+)$", text, re.M)
    assert explained[: len(first)] == first


def test_a_name_of_two_modules_is_explained_where_it_is_shortest():
    assert reference.homes()["torchcaps.models", "create_model"] == "torchcaps"
    assert reference.homes()["torchcaps.types", "Capsules"] == "torchcaps"
    assert reference.homes()["torchcaps.data", "load"] == "torchcaps.data"
    assert reference.homes()["torchcaps.models", "load"] == "torchcaps"


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("votes [*b, i, j], s_j, a_ and _b", r"votes [\*b, i, j], s_j, a\_ and \_b"),
        ("|x| is `keep`", r"\|x\| is ``keep``\ "),
        ("`create_model`", ":py:obj:`create_model <torchcaps.create_model>`\\ "),
        ("`tc.data.load`", ":py:obj:`tc.data.load <torchcaps.data.load>`\\ "),
        ("`load`", "``load``\\ "),  # which of the two?
        ("`measure`", "``measure``\\ "),
        ("`ops.routing.em`", ":doc:`ops.routing.em </docs/routing/em>`"),
    ],
)
def test_prose_stays_prose(text, markup):
    assert reference.prose(text) == markup


def test_every_form_of_a_docstring_becomes_markup():
    text = """First line
goes on.

    a = b * c

1. one
   and more
2. two

Arguments:
    n: how many, and
        how large.
    a, b: both.

>>> 1 + 1
2"""
    assert reference.as_markup(text) == [
        *("", "First line", "goes on."),
        *("", "::", "", "    a = b * c"),
        *("", "", "1. one", "   and more", "2. two"),
        *("", ":param n: how many, and how large.", ":param a, b: both."),
        *("", ">>> 1 + 1", "2"),
        "",
    ]


def test_lines_of_fields_become_a_list_only_where_they_are_fields():
    assert reference.as_markup("side: of it.", {"side"}) == ["", ":param side: of it.", ""]
    assert reference.as_markup("torchcaps: a library.") == ["", "torchcaps: a library.", ""]


def test_columns_stay_columns():
    text = "call   is made\nshape  is right\nkeep   is kept"
    assert reference.as_markup(text)[1:3] == ["::", ""]


def test_comments_explain_constants_and_fields():
    assert reference.comment_above("torchcaps.types.Keep").startswith("What to record")
    from torchcaps import Capsules

    assert reference.fields_of(Capsules) == {"pose": "[*b, i, d]", "activation": "[*b, i]"}


def test_intervals_of_shares_end_where_shares_do():
    """A t-interval of three accuracies reached 134 %."""
    beyond, columns = [], []
    for page in (*ROOT.glob("docs/**/*.md"), *ROOT.glob("claims/pages/**/*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            cells = line.split("|")
            columns = columns if len(cells) == len(columns) else cells
            shares = [x for x, head in zip(cells, columns, strict=True) if "accuracy, %" in head]
            ends = re.findall(r"% \[[^]]*, ([\d.]+)%?\]", line)
            ends += re.findall(r"\[[^]]*, ([\d.]+)\]", "|".join(shares))
            beyond += [f"{page.name}: {line}" for end in ends if float(end) > 100]
    assert not beyond


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    command = (sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs")
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), ".", str(tmp_path / "site")],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path.stem: path for path in (tmp_path / "site").rglob("*.html")}
    assert {"index", "README", "measures", *FROZEN} <= set(pages)
    ops = pages["torchcaps.ops"].read_text(encoding="utf-8")
    assert 'id="torchcaps.ops.dynamic_routing"' in ops
    assert "problematic" not in ops
