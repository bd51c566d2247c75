"""Make a notebook of each tutorial: python docs/notebooks.py

A notebook is the page cut into cells, behind one that installs torchcaps where it is missing.
"""

from pathlib import Path

import jupytext
import nbformat

TUTORIALS = Path(__file__).parent / "tutorials"
INSTALL = """# Where torchcaps is missing: %pip install "PATH/TO/CLONE[study]"
import torchcaps as tc

print(tc.__version__)"""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(page: Path) -> str:
    """Text of the notebook, the same whenever it is made."""
    found = jupytext.reads(page.read_text(encoding="utf-8"), fmt="md")
    cells = [nbformat.v4.new_code_cell(INSTALL), *found.cells]
    for number, cell in enumerate(cells):
        cell["id"], cell["metadata"] = f"cell-{number}", {}
    made = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
    return nbformat.writes(made) + "\n"


def pages() -> list[Path]:
    return sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "README")


if __name__ == "__main__":
    for page in pages():
        page.with_suffix(".ipynb").write_text(notebook(page), encoding="utf-8")
