"""What a second and a third reader would not sign, and what it is now."""

import re
from pathlib import Path

import pytest

from torchcaps_claims import results
from torchcaps_claims.headcount import FALLS, STANDS, is_counted
from torchcaps_claims.pages import mind

ROOT = Path(__file__).parents[2]
# Those beside them, which the same rule mends, below.
NOW = {
    "gu2021-q-dr-harms-affine": "undecided",
    "gu2021-q-margin-slightly-harms": "undecided",
    "mitt2023-q-dead-increase-with-depth": "undecided",
    "mitt2023-q-parse-trees-not-dynamic": "undecided",
    "mitt2023-t1-layer2-capsules-alive": "on our default",
    "peer2022-t1-em-nobias": "by definition",
    "rem-q-epoch1-uniform": "undecided",
    "rem-q-negligible-loss": "undecided",
    "rem-q-snip-worse": "undecided",
    "mitt2023-q-mhsa-no-vanishing": "undecided",
    "mitt2023-q-rba-causes-deaths": "undecided",
    "mitt2023-t1-layer3-dys": "on our default",
    "peer2022-t1-rba-nobias": "by definition",
    "peer2022-t1-rba-bias": "on our default",
    "peer2022-q-sign-not-learnable": "by definition",
    "peer2022-q-sign-learnable-with-bias": "leans no",
    "gu2021-q-groups-no-effect": "not run",
    "rem-q-entropy-starts-low": "undecided",
    "rem-q-fewer-capsules-in-tree": "undecided",
    "rem-q-sparser-couplings": "undecided",
}
# What stays must be told beside it.
TOLD = {
    "gu2021-q-capsnet-beats-convnet-fc": "98.6 and ConvNet-FC to 98.2 %",
    "gu2021-q-perturbation-range": "the 16 units of R",
    "mitt2023-q-last-layer-more-dynamic": "by dyr the difference is −0.025",
    "mitt2023-q-parse-trees-not-dynamic": "0.314 [0.294, 0.333]",
    "mitt2023-t2-layer2-cas": "from what length a capsule is active: ours is 0.1",
    "mitt2023-t2-layer4-car": "from what length a capsule is active: ours is 0.1",
    "mitt2023-text-dead-layer4": "up to what length it is dead: ours is 0.05",
    "rem-q-entropy-lower-everywhere": "rem_dr is 16 wide and not 256",
    "peer2022-q-depth-rba-nobias": "weights start from N(0, 0.1²)",
    "rem-q-any-pruning": "with 128 channels magnitude raises entropy",
}
UNCOUNTED = (
    "mitt2023-t1-layer1-capsules-alive",
    "mitt2023-t2-layer1-cdr",
    "mitt2023-t2-layer1-cds",
    "mitt2023-t2-layer5-cds",
    "peer2022-t1-em-nobias",
)


@pytest.fixture(scope="module")
def found():
    return {each.claim.id: each for each in results(ROOT / "evidence")}


def test_what_was_not_signed_is_mended(found):
    # Other first weights may bear out, or contradict, what is on our default.
    fixed = [name for name in NOW if not found[name].starts]
    assert {name: found[name].status for name in fixed} == {name: NOW[name] for name in fixed}
    for name, words in TOLD.items():
        assert words in mind(found[name]), name
    assert not [name for name in UNCOUNTED if is_counted(found[name])]


def test_a_number_has_the_verdict_of_the_one_that_it_repeats(found):
    for each in found.values():
        first = found.get(each.claim.repeats)
        if first is not None and not first.claim.states and first.verdict is not None:
            assert each.status == first.status, each.claim.id


def read_in(page):
    """The claims of a reading, the verdict at it, and whether it was signed."""
    text = (ROOT / f"claims/pages/{page}-reading.md").read_text()
    return re.findall(r"^\| `(\S+)` \| ([^|]+) \| (yes|no: \w+)", text, flags=re.M)


def test_each_reading_has_forty_claims_of_ours(found):
    readings = {page: read_in(page) for page in ("second", "third")}
    names = {page: {name for name, *_ in rows} for page, rows in readings.items()}
    assert {page: len(each) for page, each in names.items()} == {"second": 40, "third": 40}
    assert names["second"] | names["third"] <= set(found)
    signed = {page: [word for *_, word in rows].count("yes") for page, rows in readings.items()}
    assert signed == {"second": 23, "third": 28}
    # The third read again what the second had not signed, and nothing else.
    again = {name for name, _, word in readings["second"] if word != "yes"}
    assert names["second"] & names["third"] <= again


def test_the_page_counts_what_is_signed(found):
    """Sentences, and numbers, that training decides or makes lean, by paper, and those signed."""
    yes = {
        n
        for page in ("second", "third")
        for n, was, w in read_in(page)
        if w == "yes" and found[n].status == was.strip()
    }
    trained = [
        each
        for each in found.values()
        if is_counted(each) and not each.is_untrained and each.status in STANDS + FALLS
    ]
    table = {}
    for each in trained:
        row = table.setdefault(each.claim.paper, [0, 0, 0, 0])
        kind = 0 if each.claim.states else 2
        row[kind] += 1
        row[kind + 1] += each.claim.id in yes
    text = (ROOT / "claims/pages/third-reading.md").read_text()
    told = re.findall(
        r"^\| (?:\[(\w+)\]|(all)) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, flags=re.M
    )
    *papers, last = [(paper, [*map(int, numbers)]) for paper, _, *numbers in told]
    assert {paper: row for paper, row in papers if any(row)} == table
    assert last == ("", [sum(column) for column in zip(*table.values(), strict=True)])


VERDICTS = "reproduced|better|worse|fails|undecided|leans yes|leans no"


def test_prose_says_of_no_claim_another_verdict_than_records_do(found):
    """Where a sentence names a claim and says that it is undecided, that is its verdict."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "claims/pages/findings").glob("*.md")]
    for path in pages:
        words = rf"`([a-z0-9]+-[a-z0-9-]+)`(?: is| stays|,)? ({VERDICTS})\b"
        for name, said in re.findall(words, path.read_text()):
            if name in found:
                assert found[name].status == said, f"{path.name}: {name}"
