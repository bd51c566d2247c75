"""Networks as narrow as the living part of others, once records have these."""

import dataclasses

import pytest

from made_records import diverged, made
from torchcaps.study import read_records, write_record
from torchcaps_claims import find_claim, plan_of, study_of
from torchcaps_claims.narrow import WAITS_FOR, narrowed

CLAIM = "mitt2023-q-deaths-explain-uniform-gain"
WAITING = [(CLAIM, (WAITS_FOR,))]


def of(evidence=None, **options):
    return study_of(CLAIM, reduced=True, evidence=evidence, **options)


def on_cifar(study, **options):
    """Its systems of 4 components with these options, by their widths."""
    chosen = {"d_pose": 4, "routing": None, **options}
    return {
        each.recipe.options.get("widths"): each
        for each in study.systems
        if each.recipe.data == "cifar10"
        and all(each.recipe.options.get(name) == value for name, value in chosen.items())
    }


def systems(study):
    return on_cifar(study, routing="uniform")


@pytest.fixture
def evidence(tmp_path):
    """Records of the routed network with 8, 8, 8 capsules of 4 components on CIFAR-10: of how many
    each seed has dead."""

    def write(*dead, **changes):
        routed = on_cifar(of())["8,8,8"]
        names = [f"dead_capsules/{x}" for x in ("primary", "hidden_2", "hidden_3", "classes")]
        rows = [(dict(zip(names, map(float, each), strict=True)),) for each in dead]
        record = made(
            routed.recipe,
            [{"accuracy": 50.0}] * len(dead),
            claim=CLAIM,
            reduced=routed.reduced,
            curves=rows,
        )
        write_record(record.model_copy(update=changes), tmp_path)
        return tmp_path

    return write


def test_without_records_they_wait(tmp_path):
    for study in (of(), of(tmp_path / "nothing")):
        # Twelve architectures on two sets, routed and not.
        assert len(study.systems) == 48
        assert list(study.waiting) == WAITING


def test_each_seed_is_as_narrow_as_its_own_twin(evidence):
    study = of(evidence((0, 1, 8, 0), (0, 2, 8, 0), (0, 1, 8, 0)))
    found = systems(study)
    assert (found["8,7,1"].seeds, found["8,6,1"].seeds) == ((0, 2), (1,))
    assert len(study.systems) == 50
    uniform = found["8,8,8"]
    fields = uniform.recipe.model_dump() | {"options": found["8,7,1"].recipe.options}
    assert found["8,7,1"].recipe.model_dump() == fields
    assert found["8,7,1"].label == f"{uniform.label}, narrowed to 8,7,1"
    assert (found["8,7,1"].claims, found["8,7,1"].reduced) == ((CLAIM,), uniform.reduced)
    # Those of the other architectures have no record yet.
    assert list(study.waiting) == WAITING


def test_where_nothing_died_it_is_the_twin_without_routing(evidence):
    study = of(evidence((0, 0, 0, 3), (0, 0, 0, 3), (0, 0, 1, 3)))
    assert len(study.systems) == 49
    assert systems(study)["8,8,8"].seeds == (0, 1, 2)
    assert systems(study)["8,8,7"].seeds == (2,)


def test_nothing_waits_for_a_twin_of_a_network_that_diverged(evidence):
    record = read_records(evidence((0, 1, 8, 0), (0, 2, 8, 0), (0, 1, 8, 0)))
    uniform = dataclasses.replace(systems(of())["8,8,8"], seeds=(0, 1, 2))
    lost = [diverged(each, 1) for each in record.values()]
    found, waiting = narrowed([uniform], lost)
    assert ([each.seeds for each in found], waiting) == ([(0, 2)], [])
    # A seed that was not trained yet is to come.
    _, waiting = narrowed([dataclasses.replace(uniform, seeds=(0, 1, 2, 3))], lost)
    assert waiting == WAITING


def test_fewer_seeds_are_those_that_were_asked_for(evidence):
    study = of(evidence((0, 1, 8, 0), (0, 2, 8, 0), (0, 1, 8, 0)), seeds=1)
    assert systems(study)["8,7,1"].seeds == (0,)
    assert "8,6,1" not in systems(study)


@pytest.mark.parametrize("changes", [{"reduced": "two epochs"}, {"reduced": None}])
def test_of_another_protocol_it_is_another_network(evidence, changes):
    assert len(of(evidence((0, 1, 8, 0), **changes)).systems) == 48


def test_a_draft_counts_where_nothing_else_does(evidence):
    folder = evidence((0, 1, 1, 0), (0, 1, 1, 0), dirty=True)
    assert systems(of(folder))["8,7,7"].seeds == (0, 1)
    evidence((0, 2, 2, 0))
    assert systems(of(folder)).keys() == systems(of()).keys() | {"8,6,6"}


def test_two_architectures_that_live_on_as_one_network_share_it(evidence):
    """Seeds of both are trained, whichever has more of them."""
    folder = evidence((0, 1, 1, 0), (0, 2, 2, 0))
    wide = on_cifar(of())["16,16,16"]
    names = [f"dead_capsules/{x}" for x in ("primary", "hidden_2", "hidden_3")]
    rows = [(dict.fromkeys(names, 0.0),), (dict(zip(names, (8.0, 9.0, 9.0), strict=True)),)]
    values = [{"accuracy": 50.0}] * 2
    record = made(wide.recipe, values, claim=CLAIM, reduced=wide.reduced, curves=rows)
    write_record(record, folder)
    assert systems(of(folder))["8,7,7"].seeds == (0, 1)


def test_the_plan_says_what_it_does_not_know_yet():
    plan = plan_of(find_claim(CLAIM))
    narrow = [job for job in plan.jobs if job.is_narrow]
    twins = [dataclasses.replace(job, after=()) for job in narrow]
    assert len(narrow) == len(plan.jobs) / 3 == 24
    assert all(twin in plan.jobs for twin in twins)
    assert {job.key for job in narrow}.isdisjoint(twin.key for twin in twins)
    assert "--option widths=ALIVE" in narrow[0].commands()[0]
