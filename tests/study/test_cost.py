"""Counted steps: the file beside the code, and what is counted when it lacks a network."""

import json

import pytest

from torchcaps.study.cost import Step, hours_of, step_of
from torchcaps.train import make_recipe
from torchcaps_claims import claims, plan_of
from torchcaps_claims.cost import STEPS_FILE

COUNTS = json.loads(STEPS_FILE.read_text(encoding="utf-8"))


def planned():
    jobs = [job for claim in claims() for job in plan_of(claim).jobs]
    forms = [form for job in jobs for form in (job, job.smaller())]
    return {step.name: step for form in forms if (step := step_of(form.recipe()))}


def test_every_planned_network_is_counted_once_for_all():
    # Else run `python benchmarks/steps.py --missing`.
    assert set(COUNTS) == set(planned())


@pytest.mark.parametrize(
    "model",
    [
        "peer_sign_dynamic",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("convnet_avg", "mhsa_stack")),
    ],
)
def test_counts_are_those_of_an_estimate(model):
    # Else run `python benchmarks/steps.py`.
    name = next(name for name in COUNTS if name.startswith(f"{model} ("))
    assert COUNTS[name] == planned()[name].flops()


@pytest.mark.slow
def test_every_count_is_that_of_an_estimate():
    steps = planned()
    assert {name: steps[name].flops() for name in COUNTS} == COUNTS


def test_the_name_of_a_step():
    recipe = make_recipe(
        model="peer_deep_em", data="mnist", options={"n_layers": 8, "bias": False}, batch_size=64
    )
    # An option that the network has by itself is not told.
    assert step_of(recipe).name == "peer_deep_em n_layers=8 (1x28x28 into 10, 64 at once)"


def test_a_network_that_nobody_planned_is_counted_when_asked_for():
    recipe = make_recipe(model="convnet_avg", data="mnist", options={"kernel": 3}, batch_size=7)
    assert step_of(recipe).name not in COUNTS
    step = Step("convnet_avg", (1, 28, 28), 10, 7, (("kernel", 3),))
    assert step_of(recipe) == step
    assert step.flops() > 0
    assert hours_of(recipe) > 0
