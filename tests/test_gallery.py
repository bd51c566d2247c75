"""The gallery: each picture is drawn by the lines beside it, and all public drawings are there."""

import re

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from pages import DOCS, script_at
from torchcaps import viz

gallery = script_at(DOCS / "gallery.py")
TEXT = gallery.PAGE.read_text(encoding="utf-8")


def test_every_drawing_is_in_the_gallery_and_takes_about_ten_lines():
    drawings = {name for name in viz.__all__ if name.startswith("draw_")}
    assert set(re.findall(r"viz\.(draw_\w+)\(", TEXT)) == drawings
    assert all(len(block.splitlines()) <= 12 for block in gallery.BLOCK.findall(TEXT))


def test_a_picture_stands_below_the_lines_that_draw_it(tmp_path):
    text = "A\n\n```python\nn = 3\n```\n\nB\n\n```python\nfrom matplotlib.figure import Figure\n\n"
    text += "figure = Figure(figsize=(n, 1))\n```\n\nC\n"
    page = gallery.with_pictures(text, tmp_path / "drawn")
    assert page.replace("\n![What these lines draw.](drawn/1.svg)\n", "") == text
    assert page.index("B") < page.index("drawn/1.svg") < page.index("C")
    assert [file.name for file in (tmp_path / "drawn").iterdir()] == ["1.svg"]


@pytest.mark.slow
def test_every_picture_is_drawn_whole_and_the_same_again():
    first, *drawn = gallery.figures(TEXT)
    assert first is None
    again = list(gallery.figures(TEXT))[1:]
    for one, other in zip(drawn, again, strict=True):
        assert viz.to_svg(one) == viz.to_svg(other)
    assert len(drawn) == 24
    for figure in drawn:
        canvas = FigureCanvasAgg(figure)
        with matplotlib.rc_context({"text.parse_math": False}):
            canvas.draw()
        said = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
        for text in filter(Text.get_text, said):
            seen = text.get_window_extent(canvas.get_renderer())
            assert -1 <= seen.x0 <= seen.x1 <= figure.bbox.width + 1, text
