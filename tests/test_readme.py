"""The Python of README and CONTRIBUTING runs as written, on fewer images."""

import re

import pytest

from pages import ROOT, blocks_of
from torchcaps.data import by_name, part_whole
from torchcaps.testing import RoutingContractError
from torchcaps_claims import claims, plan_of

BLOCKS = blocks_of(ROOT / "README.md") + blocks_of(ROOT / "CONTRIBUTING.md")


def test_the_readme_goes_from_an_image_to_a_tree_in_fifteen_lines():
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 15
    assert "draw_parse_tree" in BLOCKS[0]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_runs_as_written(block, monkeypatch, tmp_path):
    def few(split, root):
        return part_whole(split, 128)

    monkeypatch.setitem(by_name.SOURCES, "part-whole", few)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {})
    assert ("tree.svg" in block) == (tmp_path / "tree.svg").is_file()


def test_the_example_of_a_routing_needs_its_promotion():
    (block,) = blocks_of(ROOT / "CONTRIBUTING.md")
    careless = block.replace("votes.to(torch.promote_types(votes.dtype, torch.float32))", "votes")
    assert careless != block
    with pytest.raises(RoutingContractError, match=r"^half_precision: expected finite values"):
        exec(compile(careless, "block", "exec"), {})


def test_the_readme_fits_on_two_screens_and_installs_first():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert text.index("pip install .") < text.index("```python")
    for author in ("Tsai", "Gu", "Peer", "Mitterreiter", "Renzulli"):
        assert author in text[: text.index("## Install")]


def test_every_page_that_the_readme_names_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = re.findall(r"\]\(([^)#:]+)\)", text)
    assert len(pages) > 20
    assert [page for page in pages if not (ROOT / page).exists()] == []


def test_the_table_of_a_paper_trains_as_many_seeds_as_the_readme_says():
    line = "torchcaps study run peer2022 1 "
    (said,) = re.findall(
        rf"{line}.*# a table of a paper, (\w+) seeds", (ROOT / "README.md").read_text("utf-8")
    )
    table = [claim for claim in claims(paper="peer2022") if claim.where.startswith("Table 1")]
    planned = {job.seeds for claim in table for job in plan_of(claim).jobs}
    assert planned == {{"five": 5, "ten": 10}[said]}
