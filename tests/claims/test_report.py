"""The page of all claims: what is on it, what it escapes, where its dots lie."""

import hashlib
import re
from base64 import b64encode
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from error_text import text_of
from made_records import made
from tables import rows_beside
from torchcaps.study import read_records
from torchcaps.study.intervals import Interval
from torchcaps_claims import find_claim, plan_of, report, result_of
from torchcaps_claims.report import GROUPS, group_of, places, render_claims, write_claims_report

CASES = rows_beside(__file__, "cases.toml")["report"]

EVIDENCE = Path(__file__).parents[2] / "evidence"
# The axis goes from 30 to 60, and 8 % of that further on either side.
AT = places(50.0, 10.0, Interval(40.0, 30.0, 50.0, 3))
ROW = {
    "paper": "peer2022",
    "where": "Table 1",
    "id": "peer2022-x",
    "says": "a <b>bold</b> system",
    "published": "accuracy 50 %",
    "ours": "40 [30, 50], n = 3",
    "status": "undecided",
    "group": "undecided",
    "protocol": "the paper's",
    "records": {"a": "../evidence/a.json"},
    "at": AT,
}
OPEN = {"status": "not run", "group": "open", "records": {}, "ours": "", "at": None}


@pytest.mark.parametrize(("claim", "group"), CASES["what_a_status_comes_to"])
def test_what_a_status_comes_to(claim, group):
    records = read_records(EVIDENCE, study="mitterreiter2023/tests")
    records |= read_records(EVIDENCE, study="peer2022/tests")
    assert group_of(result_of(find_claim(claim), records)) == group
    assert group in GROUPS


@pytest.mark.parametrize("name", ["evidence", "my #1? evidence 50%"])
def test_every_claim_is_on_the_page(tmp_path, name):
    (tmp_path / name).symlink_to(EVIDENCE, target_is_directory=True)
    path = write_claims_report(tmp_path / "out" / "claims.html", evidence=tmp_path / name)
    text = path.read_text(encoding="utf-8")
    assert text.count('<li class="') == 947
    link = text.split('<a href="', 1)[1].split('"', 1)[0]
    # A browser runs the page's own script and nothing else.
    script = text.split("<script>")[1].split("</script>")[0]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
    policy += "img-src data:; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text
    address = urlsplit(link)
    assert (address.query, address.fragment) == ("", "")
    assert (path.parent / unquote(address.path)).is_file()


@pytest.mark.parametrize("out", ["", ".", "claims"])
def test_a_folder_in_the_place_of_the_page_is_told(tmp_path, monkeypatch, out):
    """Found by make fuzz."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claims").mkdir()
    said = text_of(lambda: write_claims_report(out, evidence=EVIDENCE))
    assert said.endswith("is a folder; name a file in it, ending in .html.")


def test_places_are_shares_of_what_is_shown():
    assert AT["low"] == pytest.approx(100 * 0.08 / 1.16, abs=0.01)
    assert AT["to"] == pytest.approx(100 * 1.08 / 1.16, abs=0.01)
    assert AT["mean"] == pytest.approx(100 * (10 + 2.4) / 34.8, abs=0.01)
    assert AT["from"] == AT["mean"]


def test_numbers_without_an_interval_or_a_tolerance():
    assert {*places(0.0, 0.0, Interval(0.0, None, None, 1)).values()} == {6.9}
    low = places(1.0, 0.5, Interval(3.0, None, None, 1))["low"]
    assert low == pytest.approx(100 * (2.5 + 0.2) / 2.9, abs=0.01)


def test_a_picture_ends_where_its_scale_does():
    """Seeds of 98, 24 and 98 % have a t-interval from -33 to 180 %."""
    claim = find_claim("peer2022-t2-mnist-nobias-n4")
    (job,) = plan_of(claim).jobs
    record = made(job.recipe(), [{"accuracy": x} for x in (98.0, 24.0, 98.0)], claim=claim.id)
    each = result_of(claim, {"a": record})
    assert each.verdict.ours.high > 170
    shown = report._row(each, "evidence")
    verdict = each.verdict
    assert shown["at"] == places(
        claim.value, verdict.tolerance, Interval(verdict.ours.mean, 0.0, 100.0, 3)
    )


def test_the_page_is_whole_and_asks_for_nothing():
    counts = dict.fromkeys(GROUPS, 0)
    overview = {"paper": "peer2022", "title": "Limitation", "counts": counts}
    text = render_claims(
        [ROW, ROW | OPEN],
        title="A & B",
        overview=[overview | {"reduced": {"undecided": 1}}],
        provenance={"torch": "2", "x": None},
    )
    assert "a &lt;b&gt;bold&lt;/b&gt; system" in text
    assert "<title>A &amp; B" in text
    assert text.count("<svg") == 1
    # How many of a paper's claims rest on reduced runs.
    assert text.count('<small class="note">(1)</small>') == 1
    assert text.count('href="../evidence/a.json"') == 1
    assert not re.findall(r'(?:src|href)="https?:', text)
    assert "<dt>x</dt>" not in text
    options = ["peer2022", *GROUPS, "not run", "undecided"]
    assert re.findall(r"<option>([^<]+)</option>", text) == options
