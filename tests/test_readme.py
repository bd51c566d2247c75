"""The README's Python runs as written, on fewer images."""

import re
from pathlib import Path

import pytest

from torchcaps.data import PartWholeSpec, part_whole, sources

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)


def test_the_readme_goes_from_an_image_to_a_tree_in_fifteen_lines():
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 15
    assert "draw_parse_tree" in BLOCKS[0]


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_runs_as_written(block, monkeypatch, tmp_path):
    def few(split, root):
        return part_whole(split, 128, spec=PartWholeSpec(size=24))

    monkeypatch.setitem(sources.SOURCES, "part-whole", few)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert ("tree.svg" in block) == (tmp_path / "tree.svg").is_file()
