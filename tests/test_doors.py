"""The Python on the pages about networks, and what is done with them, runs as written."""

import pytest

from pages import DOCS, blocks_of
from registries import as_before

PAGES = (
    "own-networks.md",
    "layers.md",
    "interoperability.md",
    "fine-tuning.md",
    "pruning.md",
    "traces.md",
    "logging.md",
)
# On a page where others are sketches, or look at runs that were trained for long.
ALONE = {"pruning.md": "tc.train.fit("}
# Packages that the extra `tools` brings, which the default tier has not.
TOOLS = ("captum", "torchinfo")
BLOCKS = [
    pytest.param(
        block,
        id=f"{page.removesuffix('.md')}-{number}",
        marks=[pytest.mark.slow] if any(tool in block for tool in TOOLS) else [],
    )
    for page in PAGES
    for number, block in enumerate(blocks_of(DOCS / page))
    if ALONE.get(page, "") in block
]


def test_every_page_has_a_block_that_runs():
    ids = [block.id for block in BLOCKS]
    for page in PAGES:
        name = page.removesuffix(".md")
        assert any(each.rpartition("-")[0] == name for each in ids), page


# Lightning's advice to load images in other processes, and of a torch name it has yet to replace.
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs_as_written(block, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with as_before():
        exec(compile(block, "block", "exec"), {"__name__": "__main__"})
