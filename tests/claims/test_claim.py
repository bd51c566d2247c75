"""The published claims as Python sees them."""

import json
from dataclasses import FrozenInstanceError

import pytest

from error_text import text_of
from tables import rows_beside
from torchcaps_claims import claim as module
from torchcaps_claims import claims, claims_of_table, find_claim
from torchcaps_claims.claim import claims_about

CASES = rows_beside(__file__, "cases.toml")["claim"]


def test_a_row_is_what_its_file_says():
    path = module.PLACES[1] / "gu2021.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    for claim, row in zip(claims(paper="gu2021"), rows, strict=True):
        found = vars(claim)
        assert {name: found[name] for name in row} == row
        assert all(found[name] is None for name in found.keys() - row.keys())


def test_the_number_of_a_table_is_found():
    claim = find_claim("gu2021-t1-capsnet-affnist")
    assert (claim.value, claim.unit, claim.table, claim.states) == (79, "%", 1, False)
    assert find_claim("gu2021-q-margin-beats-bce").states
    assert find_claim("gu2021-q-margin-beats-bce").table is None


def test_kinds_are_chosen():
    accuracies = claims(paper="peer2022", kind="accuracy")
    assert [claim.value for claim in accuracies][:2] == [49.61, 99.7]
    assert len(accuracies) == 40
    assert len(claims(kind="theorem")) == 28


def test_a_table_has_its_cells():
    assert [claim.value for claim in claims_of_table("peer2022", 1)] == [49.61, 99.7, 49.42, 99.81]


def test_claims_are_found_by_their_paper_or_their_id():
    assert claims_about("peer2022") == claims(paper="peer2022")
    assert claims_about("gu2021-t1-capsnet-affnist") == (find_claim("gu2021-t1-capsnet-affnist"),)


@pytest.mark.parametrize(
    ("what", "middle"), CASES["an_unknown_paper_or_claim_is_told_the_papers_or_the_nearest"]
)
def test_an_unknown_paper_or_claim_is_told_the_papers_or_the_nearest(what, middle):
    said = text_of(lambda: claims_about(what))
    assert said.startswith(f"no paper and no claim is called {what!r}; {middle}")
    assert said.endswith("a study of your own is a file whose name ends in .toml.")


def test_a_claim_cannot_be_changed():
    claim = find_claim("gu2021-t1-capsnet-affnist")
    with pytest.raises(FrozenInstanceError):
        claim.value = 80.0
    with pytest.raises(TypeError):
        claim.conditions["runs"] = 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: claims(paper="gu"),
            "paper 'gu' has no claims; did you mean 'gu2021'? known: gu2021, mitterreiter2023, "
            "peer2022, renzulli2025, tsai2020. A new paper is a new file in claims/.",
        ),
        (
            lambda: claims(kind="accuracies"),
            "no claim is of the kind 'accuracies'; did you mean 'accuracy'? known: accuracy, "
            "entropy, metric, params, qualitative, sparsity, theorem.",
        ),
    ],
)
def test_errors_say_what_to_mend(call, message):
    assert text_of(call) == message


def test_an_unknown_id_is_told_its_nearest():
    said = text_of(lambda: find_claim("gu2021-t1-capsnet-affnst"))
    assert said.startswith("no claim has the id 'gu2021-t1-capsnet-affnst'; did you mean")
    assert "gu2021-t1-capsnet-affnist" in said


def test_missing_and_broken_files(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "PLACES", (tmp_path,))
    module._read.cache_clear()
    try:
        assert text_of(lambda: claims(paper="gu2021")) == (
            f"the claims of gu2021 are not there: no gu2021.json in {tmp_path}; was the package "
            f"copied without its data? Install torchcaps again."
        )
        (tmp_path / "gu2021.json").write_text('[{"id": 1, "conditions": {}}]')
        assert "does not hold claims (TypeError" in text_of(lambda: claims(paper="gu2021"))
    finally:
        module._read.cache_clear()
