"""Pictures as text."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from torchcaps_claims.svg import Dot, Line, draw_dots, draw_lines

SVG = "{http://www.w3.org/2000/svg}"


def places(picture):
    return [float(dot.get("cx")) for dot in ET.fromstring(picture).iter(f"{SVG}circle")]


def test_dots_lie_on_their_axis():
    # The axis is from 290 to 560.
    found = draw_dots(
        [Dot("a < b", 0.0), Dot("b", 5.0, 4.0, 6.0), Dot("c", 10.0)], label="x", low=0, high=10
    )
    assert places(found) == [290.0, 425.0, 560.0]
    assert "a &lt; b" in found
    assert 'x1="398.0" y1="52.0" x2="452.0"' in found


def test_what_lies_outside_is_drawn_at_the_edge():
    assert places(draw_dots([Dot("a", 99.0)], label="x", low=0, high=10)) == [560.0]


def test_lines_reach_from_end_to_end():
    found = draw_lines([Line("a", [(1, 2.0), (3, 4.0)])], x_label="x", y_label="y")
    # From 60 to 470, and from 220 up to 16.
    assert 'points="60.0,220.0 470.0,16.0"' in found


# Wider than what a browser calls sans-serif on most machines.
FONT = FontProperties(family="DejaVu Sans", size=12)
QUESTIONS = Path(__file__).parents[2] / "claims" / "pages" / "questions"
LONG = draw_dots(
    [Dot("entropy of pruned networks less that of whole ones, 10,000", 0.5, note="undecided")],
    label="x",
    low=0,
    high=1,
)


@pytest.mark.parametrize(
    "picture",
    [LONG, *(path.read_text(encoding="utf-8") for path in sorted(QUESTIONS.glob("*.svg")))],
)
def test_every_word_lies_in_the_picture(picture):
    """Labels were cut at the left, where accuracy is told from entropy."""
    root = ET.fromstring(picture)
    *_, wide, _ = map(float, root.get("viewBox").split())
    assert list(root.iter(f"{SVG}text"))
    for text in root.iter(f"{SVG}text"):
        width, *_ = text_to_path.get_text_width_height_descent(text.text or "", FONT, False)
        before = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor")] * width
        left = float(text.get("x")) - before
        assert left >= 0, text.text
        assert left + width <= wide, text.text


def test_the_axis_is_as_long_beside_long_labels():
    (line, *_) = ET.fromstring(LONG).iter(f"{SVG}line")
    assert float(line.get("x2")) - float(line.get("x1")) == 270
