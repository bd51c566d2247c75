"""What a second reader would not sign, and what it is now."""

import re
from pathlib import Path

import pytest

from torchcaps_claims import results
from torchcaps_claims.headcount import is_counted
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


def test_the_page_of_the_reading_has_forty_claims_of_ours(found):
    text = (ROOT / "claims/pages/second-reading.md").read_text()
    names = re.findall(r"^\| `(\S+)` \|", text, flags=re.M)
    assert len(names) == len(set(names)) == 40
    assert set(names) <= set(found)
    signed = re.findall(r"^\| `\S+` \| [^|]+ \| (yes|no: \w+)", text, flags=re.M)
    assert [sum(each.startswith(word) for each in signed) for word in ("yes", "no")] == [23, 17]


VERDICTS = "reproduced|better|worse|fails|undecided|leans yes|leans no"


def test_prose_says_of_no_claim_another_verdict_than_records_do(found):
    """Where a sentence names a claim and says that it is undecided, that is its verdict."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "claims/pages/findings").glob("*.md")]
    for path in pages:
        words = rf"`([a-z0-9]+-[a-z0-9-]+)`(?: is| stays|,)? ({VERDICTS})\b"
        for name, said in re.findall(words, path.read_text()):
            if name in found:
                assert found[name].status == said, f"{path.name}: {name}"
