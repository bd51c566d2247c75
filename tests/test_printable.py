"""What steers a terminal is shown, not done; all else stays as it is."""

import pytest

from torchcaps._printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cat", "cat"),
        ("Käse 猫 👩‍👧", "Käse 猫 👩‍👧"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("cat\x1b[2J", "cat\\x1b[2J"),
        ("a\rb\x00\x7f\x9b", "a\\rb\\x00\\x7f\\x9b"),
        ("turned \u202e round", "turned \\u202e round"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_it_is_shown_and_not_done(text, shown):
    assert printable(text) == shown
    # Once is enough.
    assert printable(shown) == shown


def test_what_may_stay_is_a_choice():
    assert printable("a\nb", keep="") == "a\\nb"
