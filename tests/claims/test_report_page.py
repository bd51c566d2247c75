"""The page of all claims: what it shows, what it escapes, where its dots lie."""

import re

import pytest

from torchcaps_claims.report_page import ClaimRow, Overview, Strip, render_claims

ROW = ClaimRow(
    paper="peer2022",
    where="Table 1",
    id="peer2022-x",
    says="a <b>bold</b> system",
    published="accuracy 50 %",
    ours="40 [30, 50], n = 3",
    status="undecided",
    group="undecided",
    protocol="the paper's",
    records={"a": "../evidence/a.json"},
    strip=Strip(50.0, 10.0, 40.0, 30.0, 50.0),
)


def page(*rows):
    overview = [Overview("peer2022", "Limitation", {"stands": 0, "undecided": 1}, {"undecided": 1})]
    return render_claims(
        rows, title="A & B", overview=overview, provenance={"torch": "2", "x": None}
    )


def test_places_are_shares_of_what_is_shown():
    # The axis goes from 30 to 60, and 8 % of that further on either side.
    places = ROW.strip.places()
    assert places["low"] == pytest.approx(100 * 0.08 / 1.16, abs=0.01)
    assert places["to"] == pytest.approx(100 * 1.08 / 1.16, abs=0.01)
    assert places["mean"] == pytest.approx(100 * (10 + 2.4) / 34.8, abs=0.01)
    assert places["from"] == places["mean"]


def test_numbers_without_an_interval_or_a_tolerance():
    exact = Strip(0.0, 0.0, 0.0, None, None).places()
    assert set(exact.values()) == {6.9}
    low = Strip(1.0, 0.5, 3.0, None, None).places()["low"]
    assert low == pytest.approx(100 * (2.5 + 0.2) / 2.9, abs=0.01)


def test_the_page_is_whole_and_asks_for_nothing():
    text = page(ROW, ROW._replace(status="not run", group="open", records={}, ours="", strip=None))
    assert "a &lt;b&gt;bold&lt;/b&gt; system" in text
    assert "<title>A &amp; B" in text
    assert text.count("<svg") == 1
    # How many of a paper's claims rest on reduced runs.
    assert text.count('<small class="note">(1)</small>') == 1
    assert text.count('href="../evidence/a.json"') == 1
    assert not re.findall(r'(?:src|href)="https?:', text)
    assert "<dt>x</dt>" not in text
    assert re.findall(r"<option>([^<]+)</option>", text) == [
        "peer2022",
        "stands",
        "undecided",
        "not run",
        "undecided",
    ]
