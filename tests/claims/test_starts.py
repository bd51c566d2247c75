"""Verdicts that rest on our first weights, beside made records of other first weights."""

from dataclasses import replace

import pytest

from made_records import record
from tables import rows_beside, worked_out
from torchcaps_claims import find_claim, result_of
from torchcaps_claims.pages import page, protocol
from torchcaps_claims.starts import DEATHS, FIRST_WEIGHTS, SCALES, STUDY
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


# Dead capsules of the five layers.
NONE_DEAD, SOME_DEAD, ONE_CLASS = (
    {f"cds.{k}": n for k, n in enumerate(counts, 1)}
    for counts in ((0, 0, 0, 0, 0), (0, 0, 0, 4, 0), (0, 0, 0, 4, 1))
)
ALIVE = "mitt2023-q-output-layer-no-dead"


def where_some_die(numbers, *others, right=98.0):
    """From N(0, 1) no capsule dies; what networks of the study on deaths have, and other scales."""

    def of(study, numbers, right, name=ALIVE, **options):
        values = {f"{key}@affnist-style/test": [float(n)] * 5 for key, n in numbers.items()}
        made = record(
            NET,
            "expanded-mnist",
            values={**values, "accuracy": [right] * 5},
            fields=STOPS,
            reduced="x",
            **options,
        )
        return made.model_copy(update={"study": study, "claims": (name,)})

    scales = [of(STUDY, each, 98.0, weight_std=s) for s, each in zip(SCALES, others, strict=False)]
    records = [of("a/b", NONE_DEAD, 99.3), of(DEATHS, numbers, right, weight_std=0.2), *scales]
    return result_of(find_claim(ALIVE), dict(zip("abcdef", records, strict=False)))


def test_a_sentence_on_deaths_is_judged_where_capsules_die():
    """That it leans is for its accuracy, which is below the paper's."""
    each = where_some_die(SOME_DEAD)
    assert each.status == "leans yes"
    assert [*each.records] == ["b"]
    assert where_some_die(ONE_CLASS).status == "leans no"


def test_a_sentence_on_deaths_stays_open_where_none_die_or_nothing_is_learned():
    assert where_some_die(NONE_DEAD).status == "undecided"
    dull = where_some_die(SOME_DEAD, right=94.0)
    assert dull.status == "undecided"
    assert [*dull.records] == ["a"]


def test_a_sentence_on_deaths_is_open_where_another_scale_contradicts_it():
    each = where_some_die(SOME_DEAD, NONE_DEAD, SOME_DEAD, ONE_CLASS, NONE_DEAD)
    assert each.status == "undecided"
    assert each.verdict.open_because == "from N(0, 0.3²) it comes out as fails"
    assert (
        where_some_die(SOME_DEAD, NONE_DEAD, SOME_DEAD, SOME_DEAD, NONE_DEAD).status != "undecided"
    )
