"""Generated pages: those that are committed are what the records give, to the byte."""

import dataclasses
import math
import re
from pathlib import Path
from statistics import fmean
from urllib.parse import unquote

import pytest

from error_text import text_of
from made_records import record
from torchcaps.study import Seed, read_records, write_record
from torchcaps.train.protocols import PROTOCOLS
from torchcaps_claims import find_claim, result_of, results
from torchcaps_claims.judges.mitterreiter import STATED
from torchcaps_claims.pages import (
    BEGIN,
    END,
    JUDGED_OTHERWISE,
    REMARKS,
    decided,
    ours,
    overview,
    page,
    protocol,
    says,
    write_pages,
)
from torchcaps_claims.plans.peer import SIGN_OPEN
from torchcaps_claims.questions import write_questions

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"


@pytest.fixture(scope="module")
def found():
    return results(EVIDENCE)


def test_what_is_committed_is_what_the_records_give(tmp_path):
    """`make tables` writes them again."""
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text())
    # Beside the pages, as seen from which links are written.
    (tmp_path / "evidence").symlink_to(EVIDENCE)
    for path in write_pages(tmp_path / "evidence", tmp_path / "docs" / "claims", readme):
        committed = ROOT / path.relative_to(tmp_path)
        assert path.read_bytes() == committed.read_bytes(), f"{committed} is old: make tables"


def test_no_record_is_a_draft():
    drafts = read_records(EVIDENCE, drafts=True).keys() - read_records(EVIDENCE).keys()
    assert not drafts


def test_rows_that_a_test_shows_are_judged(found):
    shown = [each for each in found if each.plan.shown_by is not None]
    late = [each.claim.id for each in shown if each.verdict is None]
    assert len(shown) >= 170
    assert not late, f"{late} have a test, and no record of it yet: make claims"


def cells_of(line):
    """How many claims, stand, stand by training, fall, fall by training, are open: as printed."""
    return [cell.strip() for cell in line.split("|")[2:-1]]


def line_of(paper, found):
    """Its line of the overview, and that of all."""
    lines = overview([each for each in found if each.claim.paper == paper]).splitlines()
    (line,) = (line for line in lines if f"[{paper}]" in line)
    assert cells_of(lines[-1]) == cells_of(line)
    return cells_of(line)


def test_the_overview_has_ten_lines_at_most(found):
    lines = overview(found).splitlines()
    assert len(lines) <= 10
    assert len({line.count("|") for line in lines}) == 1
    claims, stand, _, fall, _, *others = (int(cell.split()[0]) for cell in cells_of(lines[-1]))
    assert claims == stand + fall + sum(others) == 947


def test_the_overview_says_how_much_rests_on_trained_networks(found):
    """Most of what stands does not: a count of parameters is no trained network. All that stands of
    [tsai2020] is counts and tests."""
    stand = [each for each in found if each.status in ("holds", "reproduced")]
    fall = [each for each in found if each.status in ("fails", "better", "worse")]
    cells = cells_of(overview(found).splitlines()[-1])
    for rows, (together, by_training) in ((stand, cells[1:3]), (fall, cells[3:5])):
        assert together == str(len(rows))
        assert by_training.split()[0] == str(sum(bool(each.plan.jobs) for each in rows))
    assert sum(not each.plan.jobs for each in stand) > 100
    assert line_of("tsai2020", found)[1:5] == ["109", "0", "0", "0"]


def test_what_rests_on_reduced_runs_stands_in_brackets(found):
    own = [each for each in found if each.claim.paper == "peer2022"]
    falls = [each for each in own if each.status in ("better", "worse", "fails")]
    trained = [each for each in falls if each.plan.jobs]
    reduced = [each for each in trained if each.is_reduced]
    assert 0 < len(reduced) < len(trained)
    assert line_of("peer2022", found)[3:5] == [str(len(falls)), f"{len(trained)} ({len(reduced)})"]


def test_sentences_that_are_decided_have_a_page_of_their_own(found):
    """A reader asks which sentences stand; a table of counts does not say."""
    by_training, by_tests = decided(found).split("\n## ")[1:]
    rows = [each for each in found if each.claim.kind in ("qualitative", "theorem")]
    rows = [each for each in rows if each.status in ("holds", "fails")]
    assert len([line for line in by_training.splitlines() if "](" in line]) >= 20
    for each in rows:
        said = (each.claim.statement or "").replace("|", "/").replace("\n", " ")
        row = f"| **{each.status}** | {said} | [{each.claim.paper}]({each.claim.paper}.md) |"
        assert row in (by_training if each.plan.jobs else by_tests)
    # Open ones are on the pages of the papers.
    (still_open,) = (x for x in found if x.claim.id == "mitt2023-q-rba-causes-deaths")
    assert still_open.claim.statement not in decided(found)


def test_a_page_shows_every_verdict_with_its_record(found):
    of_paper = [each for each in found if each.claim.paper == "peer2022"]
    text = page("peer2022", of_paper)
    for each in of_paper:
        if each.verdict is not None:
            (row,) = (line for line in text.splitlines() if f"`{each.claim.id}`" in line)
            assert f"**{each.status}**" in row
            assert each.records
            for name, record in each.records.items():
                assert f"/{name}.json)" in row
                assert (EVIDENCE / record.study / f"{name}.json").is_file()
    # Every row of a table has as many cells as its head.
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].startswith("|"):
            assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("rem-t1-f-mnist-dr-capsnet-vanilla-acc", "DR-CapsNet, F-MNIST, seeds 5, no decoder, "),
        (
            "rem-t6-dr-capsnet-elevation-dense-familiar-acc",
            "DR-CapsNet, smallNORB, axis elevation, not q",
        ),
        ("mitt2023-t1-layer1-dyr", "CapsNet 16/16/16/16/10, dim 8, AffNIST, capsule layers 5, "),
    ],
)
def test_conditions_are_told_in_words(claim, words):
    assert says(find_claim(claim)).startswith(words)


def test_seeds_that_failed_are_told_and_do_not_make_a_record_fuller(found):
    (row,) = (each for each in found if each.claim.id == "peer2022-t1-rba-nobias")
    ((name, whole),) = row.records.items()
    seeds = [
        Seed(seed=each.seed, wall_seconds=0, failed="the loss became nan") if k < 7 else each
        for k, each in enumerate(whole.seeds)
    ]
    cut = whole.model_copy(update={"seeds": tuple(seeds)})
    assert ours(result_of(row.claim, {name: cut})).endswith(", n = 3, and 7 failed")
    fewer = whole.model_copy(update={"seeds": whole.seeds[:4]})
    assert [*result_of(row.claim, {"a": cut, "b": fewer}).records] == ["b"]
    assert "failed" not in ours(row)


def test_what_a_paper_leaves_open_stands_beside_the_protocol(found):
    """The sign set is trained as the paper says, by a network that it only draws."""
    by_id = {each.claim.id: each for each in found}
    said = protocol(by_id["peer2022-q-sign-learnable-with-bias"])
    assert said.startswith("the paper's; departs: EM as in Alg. 2 of the paper")
    assert said.endswith(
        "; the paper leaves open: Fig. 1 (architecture) is not in the text; " + SIGN_OPEN
    )
    assert "leaves open" not in protocol(by_id["peer2022-q-symmetry-causes-depth-failure"])


def test_what_a_protocol_does_otherwise_is_told_once_whether_a_record_names_it_or_not(found):
    """Records of studies of one's own did not."""
    stops = PROTOCOLS["mitterreiter"].departs["stop_at"]
    rows = [
        each
        for each in found
        if any(record.recipe.get("stop_at") == 0.992 for record in each.records.values())
    ]
    assert rows
    for each in rows:
        names_none = {
            name: record.model_copy(update={"departures": ()})
            for name, record in each.records.items()
        }
        bare = dataclasses.replace(each, records=names_none)
        assert [protocol(x).count(stops) for x in (each, bare)] == [1, 1]
    assert not any("where the protocol" in protocol(each) for each in found)


def test_what_a_reader_should_know_stands_beside_the_protocol(found):
    by_id = {each.claim.id: each for each in found}
    assert by_id.keys() >= REMARKS.keys()
    for name, remark in REMARKS.items():
        if by_id[name].records:
            assert protocol(by_id[name]).endswith(f"; mind: {remark}")
    assert "mind:" not in protocol(by_id["peer2022-t1-rba-nobias"])


def test_what_is_judged_otherwise_than_its_row_says_stands_among_the_departures(found):
    by_id = {each.claim.id: each for each in found}
    assert by_id.keys() >= JUDGED_OTHERWISE.keys()
    for name, departure in JUDGED_OTHERWISE.items():
        before, _, after = protocol(by_id[name]).partition(f"; departs: {departure}")
        assert before.startswith(("the paper's", "reduced: ", "left open: "))
        assert after.startswith(("; departs: ", "; the paper leaves open: ", "; mind: "))
    # The row asks for every other part at most 0.6, whichever images it is found on.
    name = "mitt2023-q-no-dedicated-entity"
    assert "for every other part at most 0.6" in by_id[name].claim.conditions["statistic"]
    assert "among images alike in the first part" in JUDGED_OTHERWISE[name]


def test_the_correlations_without_their_mean_are_those_of_the_record_that_the_remark_names():
    remark = REMARKS["mitt2023-q-primecaps-not-invariant"]
    (digest,) = re.findall(r"record ([0-9a-f]{12})", remark)
    record = read_records(EVIDENCE)[digest]
    said = [
        f"{fmean(record.values(f'pearson.{each}.1@affnist-style/test')):.2f} at {each}"
        for each in STATED
    ]
    assert ", ".join(said) in remark
    # The row judges what the paper computes of the same record.
    assert all(record.values(f"corr.{each}.1@affnist-style/test") for each in STATED)


def test_the_accuracy_of_networks_that_still_draw_is_that_of_the_record_and_of_the_paper():
    remark = REMARKS["rem-q-still-equivariant"]
    (digest,) = re.findall(r"record ([0-9a-f]{12})", remark)
    right = read_records(EVIDENCE)[digest].values("accuracy")
    assert f"on {min(right):.1f} to {max(right):.1f} % of MNIST" in remark
    assert f"the paper prints {find_claim('rem-t9-dr-capsnet-rem-acc').value} %" in remark


def test_what_is_said_of_the_seed_whose_primary_capsules_were_not_counted_at_0_2():
    """Lengths are one at most, so of mean length m no more than (1 - m) / 0.8 lie below 0.2."""
    remark = REMARKS["mitt2023-q-primecaps-always-active"]
    counted, all_five = (read_records(EVIDENCE)[x] for x in re.findall(r"d ([0-9a-f]{12})", remark))
    assert counted.values("car_twice.1@affnist-style/test") == [1.0] * 4
    (left,) = {x.seed for x in all_five.seeds} - {x.seed for x in counted.seeds}
    mean = all_five.values("cnm.1@affnist-style/test")[left]
    least = math.floor(1000 * (1 - (1 - mean) / 0.8)) / 10
    assert f"of seed {left} were not kept, and by its mean length at least {least} % were" in remark


def test_a_test_that_leaves_a_claim_open_is_said_to(found):
    by_id = {each.claim.id: each for each in found}
    assert by_id["tsai2020-q-cost-grows"].status == "undecided"
    assert ours(by_id["tsai2020-q-cost-grows"]) == "left open by a test"


def test_what_cannot_be_tested_says_in_a_word_why(found):
    """A choice of the paper is no result, and other people's code is not ours to run."""
    never = [each for each in found if each.status == "not testable"]
    assert {each.plan.word for each in never} == {"setting", "survey", "unspecified"}
    for each in never:
        lines = page(each.claim.paper, [each]).splitlines()
        assert f"| {each.claim.where} | 1 | not testable: {each.plan.word} |" in lines
    text = page("gu2021", [each for each in found if each.claim.paper == "gu2021"])
    assert "| Sec. 2 / 3.1 | 8 | not testable: setting |" in text


def test_a_file_without_markers_is_refused(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"{END}\n{BEGIN}\n")
    evidence = tmp_path / "evidence"
    write_record(record("peer_sign_em", "sign", values={"keys": [3.0]}), evidence)
    said = text_of(lambda: write_pages(evidence, tmp_path / "docs", readme))
    assert said.startswith(f"{readme} must hold the lines")
    assert not (tmp_path / "docs").exists()
    assert readme.read_text() == f"{END}\n{BEGIN}\n"


def test_a_readme_that_is_no_text_is_refused(tmp_path):
    """Found by make fuzz."""
    readme = tmp_path / "README.md"
    readme.write_bytes(b"\xad not UTF-8")
    evidence = tmp_path / "evidence"
    write_record(record("peer_sign_em", "sign", values={"keys": [3.0]}), evidence)
    said = text_of(lambda: write_pages(evidence, tmp_path / "docs", readme))
    assert said.startswith(f"{readme} must hold the lines")
    assert not (tmp_path / "docs").exists()


def test_links_lead_to_where_the_records_and_the_pages_are(tmp_path):
    """They led to ../../evidence and docs/claims, whatever --evidence, --out and --readme said."""
    readme = tmp_path / "home" / "README.md"
    readme.parent.mkdir()
    readme.write_text(f"{BEGIN}\n{END}\n")
    evidence, out = tmp_path / "my records", tmp_path / "site" / "a" / "b"
    values = {f"cdr.{k}@affnist/test": [0.1 * k, 0.1, 0.2] for k in range(1, 6)}
    claim = "mitt2023-q-dead-increase-with-depth"
    write_record(
        record("mitterreiter_5x16", "expanded-mnist", values=values, claim=claim), evidence
    )
    pages = write_pages(evidence, out, readme)
    questions = write_questions(evidence, tmp_path / "other")
    found = []
    for path in (*pages, *questions):
        for link in re.findall(r"\]\(([^)]+\.json)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / unquote(link)).is_file(), f"{path}: {link}"
            found.append(path.parent.name)
    assert {*found} == {"b", "other"}
    papers = re.findall(r"\]\(([^)]+\.md)\)", readme.read_text())
    of_papers = [path for path in pages[:-1] if path.name != "decided.md"]
    assert [(readme.parent / unquote(each)).resolve() for each in papers] == of_papers
