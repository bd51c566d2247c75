"""Verdicts that rest on our first weights, beside made records of other first weights."""

from dataclasses import replace

import pytest

from made_records import record
from tables import rows_beside, worked_out
from torchcaps_claims import find_claim, result_of
from torchcaps_claims.pages import page, protocol
from torchcaps_claims.starts import FIRST_WEIGHTS, SCALES, STUDY
from torchcaps_claims.texts import HERE

CASES = rows_beside(__file__, "cases.toml")["starts"]

NUMBER, STATEMENT = "mitt2023-t1-layer3-dyr", "mitt2023-q-cas-declines"  # 0.30 is printed
NET, NOISE = "mitterreiter_5x16", (-0.001, 0.0, 0.001, 0.0005, -0.0005)
STOPS = {"stop_at": 0.992}.items()
FALLING = {f"cas.{k}": 16.0 - k for k in range(1, 5)}
RISING = {f"cas.{k}": 10.0 + k for k in range(1, 5)}
FLAT = dict.fromkeys(FALLING, 8.0)


def net(numbers, *, right=99.3, seeds=5, **options):
    values = {
        f"{name}@affnist-style/test": [mean + NOISE[seed] for seed in range(seeds)]
        for name, mean in numbers.items()
    }
    values["accuracy"] = [right] * seeds
    made = record(NET, "expanded-mnist", values=values, fields=STOPS, reduced="x", **options)
    study, about = (STUDY, (NUMBER, STATEMENT)) if options else ("a/b", (NUMBER, STATEMENT))
    return made.model_copy(update={"study": study, "claims": about})


def found(claim, ours, *others, default=FIRST_WEIGHTS):
    """With a network from N(0, 1), and others: what a scale gives, and how often it is right."""
    starts = [
        net(numbers, right=right, seeds=3, weight_std=scale)
        for scale, (numbers, right) in zip(SCALES, others, strict=False)
    ]
    records = dict(zip("abcde", (net(ours), *starts), strict=False))
    return result_of(replace(find_claim(claim), default=default), records)


def dyr(value):
    return {"dyr.3": value}


NEVER = (dyr(0.0), 11.3)


@pytest.mark.parametrize(("others", "status"), CASES["a_number_by_the_rule_of_its_study"])
def test_a_number_by_the_rule_of_its_study(others, status):
    others = worked_out(others, globals())
    each = found(NUMBER, dyr(0.1), *others)
    assert each.status == status
    assert [*each.records] == ["a"]
    assert len(each.starts) == len(others)


@pytest.mark.parametrize(
    ("ours", "others", "status"), CASES["a_statement_by_the_rule_of_its_study"]
)
def test_a_statement_by_the_rule_of_its_study(ours, others, status):
    """Three seeds a scale decide, where its row asks for five."""
    ours = worked_out(ours, globals())
    others = worked_out(others, globals())
    each = found(STATEMENT, ours, *((numbers, 96.0) for numbers in others))
    assert each.status == status


@pytest.mark.parametrize(("others", "status"), CASES["what_our_default_alone_reproduces_is_open"])
def test_what_our_default_alone_reproduces_is_open(others, status):
    others = worked_out(others, globals())
    assert found(NUMBER, dyr(0.3), *others).status == status


def test_of_a_row_with_another_default_too_the_study_says_nothing():
    row = find_claim(NUMBER).default
    assert row == f"{FIRST_WEIGHTS}; nor how many iterations route: ours are 3"
    others = [NEVER, NEVER, (dyr(0.1), 96.0), (dyr(0.2), 96.0)]
    assert found(NUMBER, dyr(0.1), *others, default=row).status == "on our default"
    # What contradicts leaves it open all the same.
    assert found(NUMBER, dyr(0.3), *others, default=row).status == "undecided"


def test_what_contradicts_is_named():
    each = found(NUMBER, dyr(0.1), NEVER, NEVER, (dyr(0.1), 96.0), (dyr(0.3), 96.0))
    assert "from N(0, 1) it comes out as worse, from N(0, 0.5²) as reproduced" in protocol(each)
    assert each.verdict.text().endswith("from N(0, 0.5²) as reproduced")


def test_the_page_says_what_every_scale_gives():
    each = found(NUMBER, dyr(0.1), NEVER, NEVER, (dyr(0.1), 96.0))
    text = page("mitterreiter2023", [each])
    cells = "does not learn (11.3 %) | does not learn (11.3 %) | worse, 0.1 [0.09752, 0.1025]"
    assert f"| {NUMBER} | dyr 0.3 ± 0.02 ratio | **on our default** | 0.1 " in text
    assert f"{cells} | not run |" in text
    assert "[0.2](../../../evidence/initial-scales/c.json), " in text
    assert "; from N(0, 0.1²): does not learn (11.3 %); from N(0, 0.2²): " in protocol(each)
    # Without a record of the study nothing is said of it.
    assert "From other first weights" not in page("mitterreiter2023", [found(NUMBER, dyr(0.1))])


def test_records_of_the_study_are_no_verdict_by_themselves():
    start = net(dyr(0.1), weight_std=0.3)
    assert result_of(find_claim(NUMBER), {"a": start}).verdict is None


def test_the_scales_are_those_of_the_study():
    path = HERE.parents[1] / "studies" / f"{STUDY}.toml"
    assert f"weight_std = {list(SCALES)}" in path.read_text()
