"""Tables, papers and claims as studies."""

from dataclasses import replace

import pytest

from error_text import text_of
from torchcaps.study.same import plain
from torchcaps.train.protocols import PROTOCOLS
from torchcaps_claims import claims_of_table, find_claim, of_claims, plan_of, study_of


def test_a_table_is_a_study():
    study = study_of("peer2022", 1, seeds=10)
    assert (study.name, len(study.systems), study.waiting) == ("peer2022/table1", 4, ())
    first = study.systems[0]
    assert first.claims == ("peer2022-t1-rba-nobias",)
    assert (first.seeds, first.reduced, first.departures) == (tuple(range(10)), None, ())
    assert first.label == (
        "peer_sign_dynamic as_code=True bias=none loss=margin lambda_=1.0 learning_rate=0.005 "
        "on sign"
    )
    (job,) = plan_of(find_claim(first.claims[0])).jobs
    # bias="none" is what the network has by itself.
    assert job.recipe().options == {"as_code": True, "bias": "none"}
    assert first.recipe == job.recipe().model_copy(update={"options": {"as_code": True}})


def test_seeds_come_in_turn():
    """A study that is stopped has whole comparisons."""
    cells = study_of("peer2022", 1).cells()
    assert [cell.recipe.seed for cell in cells] == [seed for seed in range(5) for _ in range(4)]


def test_rows_share_their_network():
    study = study_of("mitterreiter2023", 2, reduced=True)
    (system,) = study.systems
    assert len(system.claims) == len(claims_of_table("mitterreiter2023", 2)) == 30
    assert system.seeds == tuple(range(10))
    assert [look.name for look in system.looks] == ["layers@affnist-style/test"]
    (job,) = plan_of(find_claim(system.claims[0])).jobs
    assert system.recipe == plain(job.smaller().recipe())
    assert system.reduced == job.reduced.says
    assert "generated images in place of affNIST's own test set" in system.reduced
    assert not any("reduced" in each for each in system.departures)


def test_two_tables_of_one_network_have_one_cell():
    cells = [study_of("mitterreiter2023", table).cells()[0].name for table in (1, 2)]
    assert cells[0] == cells[1]


def test_two_protocols_that_fill_in_the_same_fields_train_nothing_twice(monkeypatch):
    claim, real = find_claim("peer2022-t1-em-nobias"), of_claims.plan_of
    plan = real(claim)
    jobs = [replace(job, protocol="namesake", departures=("of it",)) for job in plan.jobs]
    protocols = {**PROTOCOLS, "namesake": PROTOCOLS[plan.jobs[0].protocol]}
    for where in ("torchcaps.train.recipe", "torchcaps_claims.job"):
        monkeypatch.setattr(f"{where}.PROTOCOLS", protocols)
    both = [*plan.jobs, *jobs]
    monkeypatch.setattr(of_claims, "plan_of", lambda _: replace(plan, jobs=tuple(both)))
    study = of_claims.study_of_claims([claim], "both")
    (system,) = study.systems
    monkeypatch.setattr(of_claims, "plan_of", real)
    (alone,) = of_claims.study_of_claims([claim], "alone").systems
    # Runs that are there keep their names.
    assert [cell.name for cell in study.cells()] == [cell.name for cell in alone.cells()]
    assert system.departures == (*alone.departures, "of it")


def test_a_network_that_is_reduced_in_two_ways_is_one_cell_with_the_looks_of_both():
    study = study_of("gu2021", reduced=True)
    looks = {}
    for cell in (cell for system in study.systems for cell in system.cells()):
        looks.setdefault(cell.name, set()).update(cell.looks)
    cells = study.cells()
    assert len(cells) < sum(len(system.seeds) for system in study.systems)
    assert {cell.name: set(cell.looks) for cell in cells} == looks
    assert len(cells) == len(looks)


def test_a_default_that_is_written_out_trains_nothing_twice():
    table, statement = study_of("peer2022", 1), study_of("peer2022-q-sign-learnable-with-bias")
    names = {cell.name for cell in table.cells()}
    assert {cell.name for cell in statement.cells()} < names


def test_a_statement_is_a_study():
    study = study_of("peer2022-q-sign-not-learnable")
    assert study.name == "peer2022/peer2022-q-sign-not-learnable"
    assert [system.recipe.model for system in study.systems] == [
        "peer_sign_dynamic",
        "peer_sign_em",
    ]


@pytest.mark.parametrize(
    ("call", "begin"),
    [
        (lambda: study_of("peer2023", 1), "Table 1 is of no paper that is known: 'peer2023'; did"),
        (lambda: study_of("nothing"), "no paper and no claim is called 'nothing'; papers are"),
        (lambda: study_of("peer2022", 1, seeds=0), "a study needs at least one seed, but seeds is"),
        # Found by make fuzz with seed 57: more than a range can count.
        (lambda: study_of("peer2022", 1, seeds=2**63), "a study takes at most 10,000 seeds, but"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, begin):
    assert text_of(call).startswith(begin)
