"""Each routing has a page with the same questions, and a picture of the same votes."""

import pytest

from pages import DOCS, script_at

PAGES = DOCS / "routing"
pictures = script_at(PAGES / "pictures.py")
ROUTED = dict(pictures.routed())


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_answers_every_question(page):
    text = page.read_text(encoding="utf-8")
    for question in ("What", "Why", "When not", "Cost", "Where it failed"):
        assert text.count(f"**{question}.**") == 1, question
    # What is learned has no picture before it has learned.
    assert (f"]({page.stem}.svg)" in text) == (page.stem in ROUTED) == (page.stem != "learned")


@pytest.mark.parametrize("name", ROUTED)
def test_the_picture_is_that_of_the_routing_as_it_is(name):
    drawn = (PAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.picture(ROUTED[name])
