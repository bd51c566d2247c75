"""Pictures as text."""

import xml.etree.ElementTree as ET

from torchcaps.study.svg import Dot, Line, draw_dots, draw_lines

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
