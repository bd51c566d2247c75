"""Verdicts that rest on a default of ours, beside made records of other choices."""

import tomllib
from dataclasses import replace

import pytest

from made_records import record
from tables import rows_beside, worked_out
from torchcaps_claims import find_claim, result_of
from torchcaps_claims.pages import page, protocol
from torchcaps_claims.starts import FIRST_WEIGHTS, ITERATIONS, VARIED
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
    study = next((of.study for of in VARIED if of.option in options), "a/b")
    return made.model_copy(update={"study": study, "claims": (NUMBER, STATEMENT)})


def found(claim, ours, *others, routed=(), default=FIRST_WEIGHTS.default):
    """With a network of our choices, and others: what a scale, and a number of iterations, gives,
    and how often it is right."""
    starts = [
        net(numbers, right=right, seeds=3, **{of.option: choice})
        for of, of_it in zip(VARIED, (others, routed), strict=True)
        for choice, (numbers, right) in zip(of.choices, of_it, strict=False)
    ]
    records = dict(zip("abcdefgh", (net(ours), *starts), strict=False))
    return result_of(replace(find_claim(claim), default=default), records)


def dyr(value):
    return {"dyr.3": value}


NEVER = (dyr(0.0), 11.3)
ALIKE = [NEVER, NEVER, (dyr(0.1), 96.0), (dyr(0.2), 96.0)]


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


ROW = find_claim(NUMBER).default


@pytest.mark.parametrize(
    ("ours", "others", "routed", "status"), CASES["each_default_of_a_row_is_varied"]
)
def test_each_default_of_a_row_is_varied(ours, others, routed, status):
    assert f"{FIRST_WEIGHTS.default}; nor {ITERATIONS.default}" == ROW
    others, routed = (worked_out(each, globals()) for each in (others, routed))
    each = found(NUMBER, dyr(ours), *others, routed=routed, default=ROW)
    assert each.status == status


def test_of_a_default_that_no_study_varies_the_others_say_nothing():
    row = f"{ROW}; nor up to what length it is dead: ours is 0.05"
    given = {"routed": [(dyr(0.1), 96.0)] * 3, "default": row}
    assert found(NUMBER, dyr(0.1), *ALIKE, **given).status == "on our default"
    # What contradicts leaves it open all the same.
    assert found(NUMBER, dyr(0.3), *ALIKE, **given).status == "undecided"


def test_what_contradicts_is_named():
    each = found(NUMBER, dyr(0.1), NEVER, NEVER, (dyr(0.1), 96.0), (dyr(0.3), 96.0))
    assert "from N(0, 1) it comes out as worse, from N(0, 0.5²) as reproduced" in protocol(each)
    assert each.verdict.text().endswith("from N(0, 0.5²) as reproduced")


def test_what_contradicts_by_iterations_is_named():
    routed = [(dyr(0.1), 96.0), (dyr(0.1), 96.0), (dyr(0.3), 96.0)]
    each = found(NUMBER, dyr(0.1), *ALIKE, routed=routed, default=ROW)
    said = "with 3 iterations it comes out as worse, with 5 iterations as reproduced"
    assert f"it depends on how many iterations route, which the paper does not say: {said}" in (
        protocol(each)
    )
    text = page("mitterreiter2023", [each])
    assert "reproduced, 0.3 [" in text.split("## With other iterations")[1]
    assert "[5](../../../evidence/other-iterations/h.json)" in text


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


@pytest.mark.parametrize("of", VARIED, ids=lambda of: of.study)
def test_choices_are_those_of_the_study(of):
    text = (HERE.parents[1] / "studies" / f"{of.study}.toml").read_text()
    assert f"{of.option} = {list(of.choices)}" in text
    # Every row that it speaks of names the default.
    spoken_of = tomllib.loads(text)["claims"]
    assert all(of.default in find_claim(name).default for name in spoken_of)
