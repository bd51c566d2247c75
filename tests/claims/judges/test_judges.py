"""The table of all judges."""

import pytest

from made_records import diverged, of_job, record
from torchcaps_claims import claims, find_claim, judges, plan_of
from torchcaps_claims.judges import JUDGES, judge_statement
from torchcaps_claims.result import result_of

# Of reduced networks, which are narrower, they say nothing.
AS_WIDE_AS_THE_PAPER = {"rem-q-negligible-loss"}


def test_every_judge_is_of_a_statement_without_a_test():
    known = {claim.id: claim for claim in claims() if claim.states}
    assert set(JUDGES) <= set(known)
    assert [name for name in JUDGES if plan_of(known[name]).shown_by is not None] == []


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", JUDGES)
def test_nothing_is_judged_without_records(name):
    assert judge_statement(find_claim(name), []) is None


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("is_reduced", [False, True])
def test_what_its_plan_runs_is_what_a_judge_asks_for(name, is_reduced):
    # A judge that asks for an option, a statistic or images that no job has would wait for ever.
    jobs = plan_of(find_claim(name)).jobs
    if is_reduced:
        records = [of_job(job.smaller(), reduced="less") for job in jobs]
    else:
        records = [of_job(job) for job in jobs]
    if is_reduced and name in AS_WIDE_AS_THE_PAPER:
        assert judge_statement(find_claim(name), records) is None
        return
    assert judge_statement(find_claim(name), records) is not None
    # Those of several widths that may not be compared would keep it waiting too. No plan has the
    # recipe of a narrow network, so its record counts by the claim that it names.
    named = {
        str(k): record.model_copy(update={"claims": (name,)}) if job.is_narrow else record
        for k, (job, record) in enumerate(zip(jobs, records, strict=True))
    }
    found = result_of(find_claim(name), named)
    assert found.verdict is not None
    assert found.records


def test_every_statement_that_is_run_has_a_judge():
    asked = {each.id for each in claims() if each.kind == "qualitative" and plan_of(each).jobs}
    assert asked <= {*JUDGES}


def test_a_statement_without_a_judge_has_no_verdict(monkeypatch):
    name = "mitt2023-q-mhsa-no-vanishing"
    others = {known: judge for known, judge in JUDGES.items() if known != name}
    monkeypatch.setattr(judges, "JUDGES", others)
    records = [of_job(job) for job in plan_of(find_claim(name)).jobs]
    assert judge_statement(find_claim(name), records) is None


@pytest.mark.parametrize("is_reduced", [False, True])
@pytest.mark.parametrize(("dyr", "expected"), [(0.12, "holds"), (0.42, "fails")])
def test_a_seed_that_diverged_keeps_a_statement_open(dyr, expected, is_reduced):
    values = {f"dyr.{k}@affnist/test": [dyr + n / 100 for n in range(8)] for k in (2, 3)}
    values["accuracy"] = [98.0] * 8
    how = {"fields": {"stop_at": 0.992}.items(), "reduced": "less"} if is_reduced else {}
    net = record("mitterreiter_5x16", "expanded-mnist", values=values, **how)
    claim = find_claim("mitt2023-q-routing-almost-static")
    assert judge_statement(claim, [net]).word == expected
    # Six are more than its row asks for, and perhaps the better ones.
    found = judge_statement(claim, [diverged(net, 2, 5)])
    assert found.word == "undecided"
    assert found.ours.n == 6
    assert found.open_because == "2 seeds diverged, and the mean is over the others"
    # Those of a network that the statement is not about do no harm.
    other = record("mitterreiter_5x16", "expanded-mnist", values=values, routing="uniform")
    assert judge_statement(claim, [net, diverged(other, 2)]).word == expected


def test_networks_that_are_compared_on_a_set_at_a_time_have_a_width_a_set():
    # Those of pairs of digits keep their width in the reduced form, and those of single digits not.
    claim = find_claim("gu2021-q-no-single-convnet")
    records = [of_job(job.smaller(), reduced="less") for job in plan_of(claim).jobs]
    found = result_of(claim, dict(zip(map(str, range(len(records))), records, strict=True)))
    assert found.verdict is not None
    assert {record.recipe["options"].get("width") for record in found.records.values()} == {
        64,
        None,
    }
