"""The page of all claims in Chromium, on a desk and on a telephone: it fits, filters and counts."""

from collections import Counter
from pathlib import Path

import pytest

from torchcaps_claims import listed_claims
from torchcaps_claims.claim import PAPERS
from torchcaps_claims.pages import FALLS, NEVER, STANDS
from torchcaps_claims.report import write_claims_report

pytestmark = pytest.mark.browser

EVIDENCE = Path(__file__).parents[2] / "evidence"
HEADS = ("stands", "falls", "undecided", "open", "never")
SHOWN = "[...document.querySelectorAll('.claims > li')].filter(e => e.offsetHeight > 0)"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return write_claims_report(tmp_path_factory.mktemp("page") / "claims.html", evidence=EVIDENCE)


@pytest.fixture(scope="module")
def ledger():
    """What `torchcaps study claims` lists; a claim without a verdict is open, tested or not."""
    return [
        {**row, "status": "not run" if row["status"] == "tested" else row["status"]}
        for row in listed_claims(evidence=EVIDENCE)
    ]


@pytest.fixture(params=[1280, 390], ids=["desk", "telephone"])
def page(request, browser, page_file):
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(page_file.as_uri(), wait_until="load")
    yield page
    assert said == []
    page.close()


def head_of(row):
    """What a status of the ledger comes to."""
    groups = {**dict.fromkeys(STANDS, "stands"), **dict.fromkeys(FALLS, "falls")}
    groups |= dict.fromkeys((*NEVER, "by definition"), "never")
    groups |= dict.fromkeys(("undecided", "leans yes", "leans no", "on our default"), "undecided")
    groups |= dict.fromkeys(("not run", "not run at size"), "open")
    return groups[row["status"]]


def fits(page):
    """Whether nothing is to be scrolled sideways, and no row is wider than the list."""
    return page.evaluate(
        "document.documentElement.scrollWidth <= window.innerWidth && "
        f"{SHOWN}.every(e => e.scrollWidth <= e.clientWidth)"
    )


def test_nothing_scrolls_sideways_whatever_is_chosen(page):
    assert fits(page)
    page.select_option("#group", "")
    assert page.evaluate(f"{SHOWN}.length") == 947
    assert fits(page)
    page.fill("#words", "not comparable")
    assert page.evaluate(f"{SHOWN}.length") > 0
    assert fits(page)


def test_counts_are_those_of_the_ledger(page, ledger):
    rows = page.evaluate(
        "[...document.querySelectorAll('thead tr, tbody tr')].map("
        "r => [...r.children].map(c => c.firstChild.textContent.trim()))"
    )
    heads, *found = [[cell.split()[0] for cell in row] for row in rows]
    assert tuple(heads) == ("paper", *HEADS)
    *found, (*_, stand, fall, _undecided, _open, _never) = found
    # Of all that stands most is counted, and no network was trained for it.
    assert 0 < int(fall) < int(stand) < int(found[-1][1])
    for paper, row in zip((*PAPERS, "all"), found, strict=True):
        counts = Counter(head_of(each) for each in ledger if paper in (each["paper"], "all"))
        assert row == [paper, *(str(counts[head]) for head in HEADS)]


@pytest.mark.parametrize("paper", ["", "gu2021", "renzulli2025"])
def test_filters_show_what_the_ledger_has(page, ledger, paper):
    own = [row for row in ledger if paper in ("", row["paper"])]
    page.select_option("#paper", paper)

    def shows(rows):
        ids = page.evaluate(f"{SHOWN}.map(e => e.querySelector('code').textContent)")
        # What is decided comes first, and of that what falls.
        order = ("falls", "stands", "undecided", "open", "never")
        in_order = sorted(rows, key=lambda row: order.index(head_of(row)))
        assert ids == [row["id"] for row in in_order]
        assert page.inner_text("#count") == f"{len(rows)} of {len(ledger)} claims"

    shows([row for row in own if head_of(row) not in ("open", "never")])
    for head in HEADS:
        page.select_option("#group", head)
        shows([row for row in own if head_of(row) == head])
    page.select_option("#group", "")
    page.select_option("#status", "fails")
    shows([row for row in own if row["status"] == "fails"])
    page.select_option("#status", "")
    page.fill("#words", "TABLE 1")
    # Table 1, and Tables 10 to 14 with it, as the words stand in a row.
    ids = page.evaluate(f"{SHOWN}.map(e => e.querySelector('code').textContent)")
    in_table = [row["id"] for row in own if row["where"].startswith("Table 1")]
    assert set(in_table) <= set(ids)
    assert len(ids) < len(own)
