"""Tables as the commands that run them."""

import dataclasses
import json

import pytest

from error_text import text_of
from torchcaps.study.cost import RATE
from torchcaps.tasks import estimate
from torchcaps_claims import Cost, cost_of, plan_of, table
from torchcaps_claims.claim import claims, find_claim
from torchcaps_claims.tables import judged_by


def test_the_cost_of_a_job_on_paper():
    # 60,000 digits in batches of 256 are 235 steps, times 50 epochs and 5 seeds.
    (job,) = plan_of(find_claim("peer2022-t2-mnist-nobias-n2")).jobs
    step = estimate("peer_deep_dynamic", n_layers=2, bias="none", batch_size=256).flops_step
    assert cost_of(job) == Cost(58_750 * step, 58_750 * step / RATE / 3600)


def test_a_network_of_nothing_still_takes_its_steps():
    # 20,000 numbers in batches of 256: 79 steps, 50 epochs, 5 seeds, 5 ms each.
    (job,) = plan_of(find_claim("peer2022-t1-rba-bias")).jobs
    assert cost_of(job).hours == pytest.approx(19_750 * 0.005 / 3600)


def test_a_job_on_some_images_costs_their_steps():
    # 20,000 digits in batches of 256 are 79 steps in place of 235.
    (job,) = plan_of(find_claim("peer2022-t2-mnist-nobias-n2")).jobs
    some = dataclasses.replace(job, fields={**job.fields, "train_images": 20_000})
    assert cost_of(some).flops * 235 == cost_of(job).flops * 79


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(29_460 * 10**12, 136.6), "29.5 PFLOP, 137 h on two cores"),
        (Cost(10**12, 0.5, True), "at most 1.0 TFLOP, 30 min on two cores"),
        (Cost(10**9, 12.34), "1.0 GFLOP, 12.3 h on two cores"),
        (Cost(10**9, 0.001), "1.0 GFLOP, 3.6 s on two cores"),
    ],
)
def test_costs_in_words(cost, text):
    assert cost.text() == text


def test_a_table_trains_every_network_once():
    found = table("peer2022", 1)
    assert len(found.rows) == len(found.trainings()) == 4
    numbers = json.loads(json.dumps(found.numbers()))
    assert numbers["trainings"] == 4
    costs = [row["jobs"][0]["cost"]["flops"] for row in numbers["rows"]]
    assert numbers["cost"]["flops"] == sum(costs)
    assert [len(row["jobs"][0]["commands"]) for row in numbers["rows"]] == [5, 5, 5, 5]
    assert found.text().splitlines()[-1].startswith("# 4 rows, 4 networks, 20 runs with all seeds:")


def test_a_network_of_several_rows_is_trained_for_all_seeds_that_one_asks_for():
    found = table("peer2022-t1-rba-nobias")
    ((claim, plan),) = found.rows
    fewer = dataclasses.replace(
        plan, jobs=tuple(dataclasses.replace(job, seeds=3) for job in plan.jobs)
    )
    both = dataclasses.replace(found, rows=((claim, plan), (claim, fewer)))
    assert [job.seeds for job in plan.jobs] == [5]
    assert both.cost() == found.cost()
    assert both.text().splitlines()[-1].startswith("# 2 rows, 1 networks, 5 runs with all seeds:")


def test_the_smaller_form_costs_less():
    # 20,000 digits in batches of 64 are 313 steps, times 3 epochs and 5 seeds.
    (job,) = plan_of(find_claim("peer2022-t2-mnist-nobias-n2")).jobs
    narrow = {"n_layers": 2, "bias": "none", "width": 32}
    step = estimate("peer_deep_dynamic", **narrow, batch_size=64).flops_step
    assert cost_of(job.smaller()).flops == 4_695 * step < cost_of(job).flops / 100


def test_rows_that_are_not_trained_name_what_shows_them():
    text = table("tsai2020", 4).text()
    assert "# shape: the size of a map or a layer, on untrained networks" in text
    assert "python -m pytest tests/claims/test_sizes.py::test_a_published_size" in text
    assert text.endswith("# 5 rows, nothing to train.")


def test_a_row_is_a_whole_recipe():
    """Claim, verdict's test, commands with protocol, statistic, seeds, costs, departures."""
    claim = find_claim("rem-t1-f-mnist-dr-capsnet-rem-entropy")
    lines = table(claim.id, reduced=True, gpu_rate=2e12).text().splitlines()
    assert lines[0].startswith(f"{claim.id}  ")
    assert lines[1].startswith(
        f"    # judged by the mean over seeds with its 95 % t-interval, within {claim.value} ±"
    )
    assert lines[2].startswith("    torchcaps train --protocol rem_pruned --model rem_dr ")
    assert lines[4] == (
        "    # reads entropy (entropy of the dictionary of quantised couplings, in bits), of "
        "fashion-mnist/test, couplings on 11 levels"
    )
    (job,) = plan_of(claim).jobs
    flops = cost_of(job.smaller()).flops
    assert lines[5].startswith(f"    # 5 seeds, 0 to 4: {flops / 1e12:.1f} TFLOP, ")
    assert lines[5].endswith(f" on two cores, at least {flops / 2e12:.0f} s on one GPU")
    assert lines[6].startswith("    # departure 1: reduced: 6 epochs, fixed beforehand; train_im")
    assert lines[8].startswith("    # departure 3: epochs: 6, where the protocol rem_pruned has ")
    assert lines[-1].endswith(" at 60 GFLOP a second, and 2 TFLOP a second on the GPU.")


def test_a_statement_says_what_it_is_judged_by():
    lines = table("peer2022-q-sign-not-learnable").text().splitlines()
    assert lines[1].startswith("    # the paper leaves open: λ of the margin loss (1)")
    assert lines[2] == "    # judged by training accuracy: equal to 50.0; 5 seeds or more"
    assert lines[-1].startswith("# 1 row, 2 networks, 10 runs with all seeds: ")


def test_a_width_that_nobody_knows_yet_is_named():
    """It costs at most as much as the wide one."""
    found = table("mitt2023-q-deaths-explain-uniform-gain", reduced=True)
    jobs = [job for _, plan in found.rows for job in found.jobs(plan) if job.is_narrow]
    wide = dataclasses.replace(jobs[0], after=())
    assert cost_of(jobs[0]) == dataclasses.replace(cost_of(wide), is_most=True)
    lines = found.text().splitlines()
    (first, *_) = [k for k, line in enumerate(lines) if "widths=ALIVE" in line]
    # Below the commands of training and of two looks.
    assert lines[first + 3] == (
        "    # ALIVE: as many capsules a layer as the routed twin of the same seed has alive at "
        "its end"
    )
    assert lines[first + 5].startswith("    # 3 seeds, 0 to 2: at most ")
    assert lines[-1].startswith("# 1 row, 72 networks, 216 runs with all seeds: at most ")


def test_every_claim_that_needs_training_is_judged_by_something():
    for claim in claims():
        assert not plan_of(claim).jobs or judged_by(claim)


def test_without_a_rate_no_hours_of_a_gpu_are_told():
    found = table("peer2022", 1)
    assert "GPU" not in found.text()
    assert found.numbers()["cost"]["hours_on_one_gpu"] is None
    numbers = table("peer2022", 1, gpu_rate=1e9).numbers()["cost"]
    assert numbers["hours_on_one_gpu"] == pytest.approx(numbers["flops"] / 1e9 / 3600)


def test_a_gpu_that_makes_nothing_is_a_sentence():
    assert text_of(lambda: table("peer2022", 1, gpu_rate=0)) == (
        "a GPU makes more than 0 FLOPs a second, but came with 0."
    )
