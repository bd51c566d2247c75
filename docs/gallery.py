"""The pictures of docs/gallery.md, drawn by the lines of Python that stand above them."""

import re
from pathlib import Path

from matplotlib.figure import Figure

from torchcaps.viz import write_figure

PAGE = Path(__file__).with_name("gallery.md")
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


def figures(text):
    """The figure of each block, in their order; None of one that draws nothing. Each goes on with
    the names of those above it."""
    names = {}
    for block in BLOCK.findall(text):
        names.pop("figure", None)
        exec(compile(block, str(PAGE), "exec"), names)
        figure = names.get("figure")
        yield figure if isinstance(figure, Figure) else None


def with_pictures(text, folder):
    """The page, each picture below its lines; the files of the pictures lie in `folder`."""
    folder.mkdir(exist_ok=True)
    drawn = enumerate(figures(text))

    def shown(match):
        number, figure = next(drawn)
        if figure is None:
            return match[0]
        write_figure(figure, folder / f"{number}.svg")
        return f"{match[0]}\n![What these lines draw.]({folder.name}/{number}.svg)\n"

    return BLOCK.sub(shown, text)
