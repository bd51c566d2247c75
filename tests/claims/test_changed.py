"""The page of verdicts that changed."""

import re
from pathlib import Path

import pytest

from tables import rows_beside
from torchcaps.study import read_records
from torchcaps_claims import find_claim, result_of
from torchcaps_claims.pages import CHANGED, WAS, changed, why_changed
from torchcaps_claims.plan import STATUSES
from torchcaps_claims.starts import bear_out
from torchcaps_claims.verdict import VERDICTS

ROOT = Path(__file__).parents[2]
# What a sceptical reader found, and what each is now.
FOUND_UNJUST = rows_beside(__file__, "cases.toml")["found_unjust"]


@pytest.mark.parametrize("name", FOUND_UNJUST)
def test_what_was_found_unjust_is_otherwise_now(found, name):
    assert found[name].status == FOUND_UNJUST[name]
    assert WAS[name] != FOUND_UNJUST[name]


@pytest.mark.parametrize("name", ["rem-t9-eff-capsnet-acc", "rem-t9-eff-capsnet-q-acc"])
def test_what_was_found_unjust_of_a_record_stays_undecided_by_it(found, name):
    """Longer runs decide both since."""
    short = {"3025f11d67d5": read_records(ROOT / "evidence")["3025f11d67d5"]}
    assert result_of(find_claim(name), short).status == "undecided"
    assert "3025f11d67d5" not in found[name].records


def test_each_row_of_the_first_reading_has_its_verdict_and_its_test(found):
    text = (ROOT / "claims/pages/first-reading.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\S+)` .* \| ([a-z ]+) \| `(\S+)::(\S+)` \|$", text, flags=re.M)
    assert {name for name, *_ in rows} > {*FOUND_UNJUST}
    for name, now, path, test in rows:
        assert found[name].status == now, name
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_the_rules_of_verdicts_say_how_often_they_changed():
    text = (ROOT / "claims/pages/verdicts.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"\[(\w+) changes\]\(#later-changes-of-the-rule\)", text)
    table = text.split("### Later changes of the rule")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?:\d|the same)", table, flags=re.M)
    assert {"thirteen": 13, "fourteen": 14}[said] == len(rows)
    plans = text.split("### Plans that were changed")[1].split("\n### ")[0]
    assert plans.strip().startswith("Six plans were changed")
    assert len(re.findall(r"^\| .* \| `[0-9a-f]{8}` \|", plans, flags=re.M)) == 6


def test_no_number_falls_by_a_choice_of_ours(found):
    """Most are of Tables 1 and 2, whose networks begin as the paper does not say, unless others
    that begin otherwise bear it out."""
    rows = [each for each in found.values() if each.claim.default and not each.claim.states]
    assert len(rows) == 59
    assert sum(each.status == "on our default" for each in rows) == 31
    falls = [each for each in rows if each.status in ("better", "worse")]
    # What repeats another number has the verdict of that.
    first = [found.get(each.claim.repeats, each) for each in falls]
    assert all(bear_out(each.status, each.starts, each.claim.default) for each in first)


def test_the_page_lists_every_change_with_its_reason(found):
    page = changed(found)
    assert set(CHANGED["was"]) <= {*VERDICTS, *STATUSES}
    assert {*CHANGED["why"]} <= WAS.keys()
    # Whatever has a verdict now had one then, or is said to have had none.
    assert {name for name, each in found.items() if each.status not in STATUSES} <= WAS.keys()
    others = [name for name, was in WAS.items() if found[name].status != was]
    assert f"these {len(others)} verdicts" in page
    told, back, named = re.split(r"\n## .*\n", page)
    # Numbers that have one reason stand by name alone.
    of_one = {name for name in others if found[name].status in CHANGED["silent"]}
    assert re.findall(r"^\| `(\S+)` ", told, flags=re.M) == [x for x in others if x not in of_one]
    assert sorted(re.findall(r"`(\S+)`", named)) == sorted(of_one)
    assert all(why_changed(found[name]) for name in others)
    # What is again what it was had another verdict in between.
    assert CHANGED["back"].keys() <= WAS.keys() - {*others}
    for name, (between, why) in CHANGED["back"].items():
        assert between in {*VERDICTS, *STATUSES} - {WAS[name]}
        assert re.search(rf"^\| `{name}` .* \| {between} \| {re.escape(why)} \|$", back, flags=re.M)
