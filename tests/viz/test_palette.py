"""Colours in grey, and the way from a figure to a file, in a folder that others may write to."""

import os

import pytest

from torchcaps.viz.palette import LENGTHS, WARMTH, new_figure, write_figure


@pytest.mark.parametrize("colours", [LENGTHS, WARMTH], ids=["lengths", "warmth"])
def test_more_is_darker_or_lighter_throughout_in_grey(colours):
    grey = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b, _ in map(colours, range(colours.N))]
    assert grey in (sorted(grey), sorted(grey, reverse=True))
    assert abs(grey[0] - grey[-1]) > 0.25


@pytest.mark.parametrize("name", ["tree.svg", "tree.png"])
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_a_planted_link_is_not_written_through(tmp_path, name, kind):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for partial in (f".{name}.partial", f".{name}.{os.getpid()}.partial"):
        if kind == "link":
            (tmp_path / partial).symlink_to(victim)
        elif kind == "hard link":
            (tmp_path / partial).hardlink_to(victim)
        else:
            os.mkfifo(tmp_path / partial)
    write_figure(new_figure(1.0), tmp_path / name)
    assert victim.read_text() == "precious"
    assert (tmp_path / name).stat().st_nlink == 1
    assert (tmp_path / name).is_file()
    assert not (tmp_path / name).is_symlink()


def test_a_pdf_is_the_same_bytes_each_time_and_its_letters_can_be_searched_for(tmp_path):
    figure = new_figure(1.0)
    figure.text(0.1, 0.1, "cat")
    # A path may be text.
    for path in (tmp_path / "a.pdf", f"{tmp_path}/b.pdf"):
        write_figure(figure, path)
    content = (tmp_path / "a.pdf").read_bytes()
    assert content == (tmp_path / "b.pdf").read_bytes()
    # Type 42 is TrueType, which journals ask for; matplotlib's own choice is type 3.
    assert (b"/CIDFontType2" in content, b"/Type3" in content) == (True, False)
