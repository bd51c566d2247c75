"""Tutorials run from top to bottom as they stand, as pages and as notebooks."""

import re

import pytest

import torchcaps as tc
from pages import DOCS, blocks_of, script_at
from registries import as_before

# By hand: 128 images · 1,152 children · 10 parents · 16 numbers · 4 bytes are 90 MiB.
PRINTED = {"out-of-memory": "votes of layers.classes: 90 MiB, stored: False\n"}
PAGES = sorted(path for path in (DOCS / "tutorials").glob("*.md") if path.stem != "README")


def test_there_are_six_and_each_is_listed():
    listed = re.findall(r"\]\((\S+)\.md\)", (DOCS / "tutorials/README.md").read_text("utf-8"))
    assert sorted(listed) == [page.stem for page in PAGES]
    assert len(PAGES) == 6


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != "parse-tree"], ids=lambda page: page.stem
)
def test_a_tutorial_runs(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(page)
    assert len(blocks) >= 3
    names = {"__name__": "__main__"}
    with as_before():
        for block in blocks:
            exec(compile(block, str(page), "exec"), names)
    assert PRINTED.get(page.stem, "") in capsys.readouterr().out


def test_what_the_tree_tutorial_says_is_what_it_prints(monkeypatch, tmp_path, capsys):
    """Its sentences are about numbers of networks that come with the package."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in blocks_of(DOCS / "tutorials/parse-tree.md"):
        exec(compile(block, "parse-tree", "exec"), names)
    assert all(
        layer.dyr < 0.15 for layer in names["tc"].analysis.routing_dynamics(names["trace"]).layers
    )
    printed = capsys.readouterr().out
    edges = dict(re.findall(r"(routed|even) edges: (\S+)", printed))
    of_all = dict(re.findall(r"(routed|even) if all parts led to the object: (\S+)", printed))
    assert float(edges["even"]) == 0
    assert 0.5 < float(edges["routed"]) < float(of_all["routed"])
    fall = {row.by: row for row in names["use"].couplings}
    assert fall["mean"].fall == pytest.approx(0.05)
    assert fall["mean"].interval[0] > 0
    assert fall["same class"].fall == 0
    assert fall["other"].fall > 0.8


@pytest.mark.slow
def test_over_all_test_images_the_network_uses_its_tree_a_little():
    network = tc.create_model("mitterreiter_5x16", pretrained="part-whole")
    every = tc.data.load("part-whole", split="test").batch(slice(None))
    use = tc.analysis.causal_use(
        network, every.pixels, every.labels, layers=["all layers"], batch_size=200
    )
    found = {
        row.by: [100 * row.fall, *(100 * end for end in row.interval)] for row in use.couplings
    }
    assert found["mean"] == pytest.approx([4.4, 3.3, 5.5], abs=0.05)
    assert found["uniform"] == pytest.approx([5.5, 4.2, 6.8], abs=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_notebook_is_the_page_and_runs(page, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebooks = script_at(DOCS / "notebooks.py")
    text = page.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert text == notebooks.notebook(page), "python docs/notebooks.py makes it anew"
    made = nbformat.reads(text, as_version=4)
    nbclient.NotebookClient(made, timeout=300, cwd=str(tmp_path)).execute()
