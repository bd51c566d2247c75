"""The map of the claims: all 947 rows have jobs, or one word why nothing is trained for them."""

import ast
import dataclasses
import math
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch

from error_text import text_of
from on_meta import count
from tables import rows_beside
from torchcaps.data import Batch
from torchcaps.data.registry import data_set
from torchcaps.models import create_model
from torchcaps.train.loss import loss_parts
from torchcaps.types import Output
from torchcaps_claims import claims, find_claim, listed_claims, plan_of
from torchcaps_claims.judges import JUDGES
from torchcaps_claims.looks import looks_of
from torchcaps_claims.narrow import NARROW
from torchcaps_claims.plan import WORDS, Plan
from torchcaps_claims.plans import RULES
from torchcaps_claims.plans.rows import rows_of
from torchcaps_claims.pruned import WAYS
from torchcaps_claims.setups import SETUPS, setups_in
from torchcaps_claims.statistics import STATISTICS

CASES = rows_beside(__file__, "cases.toml")["map"]

ROOT = Path(__file__).parents[2]
PLANS = [plan_of(claim) for claim in claims()]
JOBS = [job for plan in PLANS for job in plan.jobs]

BY_HAND = tomllib.loads(Path(__file__).with_name("rows_by_hand.toml").read_text(encoding="utf-8"))


def test_every_row_has_a_plan():
    assert len(PLANS) == 947
    found = {paper: Counter() for paper in RULES}
    for plan in PLANS:
        found[plan.claim.paper][plan.word or "jobs"] += 1
    assert {paper: dict(counts) for paper, counts in found.items()} == BY_HAND["covered"]


def test_a_plan_is_jobs_or_a_word():
    claim = find_claim("gu2021-t1-capsnet-affnist")
    neither = "gu2021-t1-capsnet-affnist must have jobs, or a word why nothing is trained for it; "
    assert text_of(lambda: Plan(claim)) == f"{neither}it has neither."
    jobs = plan_of(claim).jobs
    assert text_of(lambda: Plan(claim, jobs=jobs, word="cited")) == f"{neither}it has both."
    assert {plan.word for plan in PLANS} == {None, *WORDS}


def in_words(job):
    steps = "".join(f" +{step}" for step in job.after)
    return (
        f"{job.model} {dict(job.options)} {dict(job.fields)} {job.protocol} "
        f"{job.train}>{job.test}:{job.split} {' '.join(job.metrics)} {job.seeds}{steps}"
    )


@pytest.mark.parametrize("name", BY_HAND["by_hand"])
def test_rows_by_hand(name):
    jobs = plan_of(find_claim(name)).jobs
    assert [in_words(jobs[0]), len(jobs)] == BY_HAND["by_hand"][name]


def test_networks_of_em_routing_have_a_course_of_their_own():
    (job,) = plan_of(find_claim("peer2022-t3-mnist-bias-n9")).jobs
    assert job.recipe().learning_rate == 1e-4
    small = job.smaller()
    recipe = small.recipe()
    assert (recipe.epochs, recipe.batch_size, recipe.learning_rate) == (2, 64, 1e-3)
    assert recipe.options["width"] == 32
    assert small.departures == (
        "EM by the costs of Alg. 2, with poses a_j μ_j / ‖μ_j‖ as in the authors' public code; "
        "that has the variance in place of the deviation in its costs, after [gritzman2019]",
        "reduced: 2 epochs, fixed beforehand; batch_size 64, learning_rate 0.001, schedule cosine, "
        "width 32",
    )


def reduced_of(name):
    (job,) = plan_of(find_claim(name)).jobs
    small = job.smaller()
    return small.recipe()


def test_networks_of_rem_are_reduced_as_far_as_they_can_be():
    whole, pruned = (
        reduced_of(f"rem-t1-f-mnist-dr-capsnet-{way}-acc") for way in ("vanilla", "rem")
    )
    assert whole.options == pruned.options == {"width": 16}
    assert (whole.epochs, whole.train_images, whole.batch_size) == (6, 10_000, 64)
    assert (whole.validation_share, whole.patience, whole.keep) == (0.02, None, "best")
    # Steps of an epoch times the sum of 0.99^e: 157 * 5.80 * 4.6e-3 = 422 * 99 * 1e-4.
    ours = sum(157 * pruned.prune_shrink * 0.99**e for e in range(1, 7))
    papers = sum(422 * 1e-4 * 0.99**e for e in range(1, 2000))
    assert ours == pytest.approx(papers, rel=0.01)
    assert (pruned.prune, pruned.keep) == ("lobster", "last")
    # A network without such an option, and a set of 8,100 images.
    gamma = reduced_of("rem-t1-f-mnist-gamma-capsnet-rem-acc")
    assert "width" not in gamma.options
    assert gamma.train_images == 10_000
    (norb,) = plan_of(find_claim("rem-t3-eff-capsnet-rem-elevation-novel-acc")).jobs
    assert "train_images" not in norb.smaller().fields


def test_the_margin_grows_over_all_of_a_reduced_training():
    for job in plan_of(find_claim("tsai2020-q-em-best-at-2")).jobs:
        recipe = job.smaller().recipe()
        assert recipe.batch_size == 128
        assert recipe.spread_steps == recipe.epochs * math.ceil(recipe.train_images / 128)


def test_a_spread_loss_beside_others_comes_to_its_whole_margin():
    """It would stay below a half at the steps that a recipe has by itself."""
    images = {"cifar10": 45_000, "diverse-multi-mnist": 54_000}
    jobs = plan_of(find_claim("tsai2020-q-ce-at-least-as-good")).jobs
    spread = [job.recipe() for job in jobs if dict(job.fields).get("loss") == "spread"]
    assert {recipe.data for recipe in spread} == {*images}
    for recipe in spread:
        updates = math.ceil(images[recipe.data] / recipe.batch_size)
        assert recipe.validation_share == 0.1
        assert recipe.spread_steps == recipe.epochs * updates


def test_epochs_log_what_judges_of_curves_read():
    """Without images held out they would have another name, and no judge would find them."""
    names = [name for name in JUDGES if name.startswith("tsai2020-")]
    jobs = [job for name in names for job in plan_of(find_claim(name)).jobs]
    assert {job.train for job in jobs} >= {"cifar10", "diverse-multi-mnist"}
    assert [job.model for job in jobs if not job.recipe().validation_share] == []


def test_a_wider_network_has_as_many_parameters_as_the_one_it_is_held_against():
    jobs = plan_of(find_claim("gu2021-q-capacity-explains-multimnist")).jobs
    wide = next(job for job in jobs if "types" in job.options)
    sizes = [
        count(model, image=(1, 36, 36), n_classes=10, **options)
        for model, options in (("gu_capsnet", {}), (wide.model, wide.options))
    ]
    assert sizes == [11_361_808, 11_414_488]


def test_where_is_looked():
    assert plan_of(find_claim("mitt2023-t1-layer3-dys")).jobs[0].at == {"layers": [3]}
    assert plan_of(find_claim("mitt2023-t1-layeroutput-capsules-alive")).jobs[0].at == {
        "layers": [5]
    }
    assert plan_of(find_claim("mitt2023-text-dys-below-two")).jobs[0].at == {"layers": [2, 3]}
    assert plan_of(find_claim("rem-t11-f-mnist-q-class3")).jobs[0].at == {"class": 3, "K": 11}
    assert plan_of(find_claim("gu2021-t5-capsnet-shear-y")).jobs[0].at == {"factor": "Shear-Y"}


@cache
def functions_in(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_shows_a_claim_exists():
    shown = {plan.shown_by for plan in PLANS} - {None}
    assert len(shown) > 20
    for name in shown:
        path, _, test = name.partition("::")
        assert test.startswith("test_"), name
        assert test in functions_in(path), name


def test_rows_about_a_quantised_network_count_the_network():
    quantised = [p for p in PLANS if p.claim.kind == "params" and p.claim.id.endswith("-q-params")]
    assert [(plan.word, plan.status) for plan in quantised] == 4 * [("count", "tested")]


def test_what_needs_no_training_is_shown_by_a_test():
    words = ("theory", "definition", "shape", "count", "benchmark")
    assert not [p.claim.id for p in PLANS if p.word in words and p.shown_by is None]


@pytest.mark.parametrize("paper", RULES)
def test_no_row_of_the_files_is_idle(paper):
    known = {claim.id.partition("-")[2] for claim in claims(paper=paper)}
    assert set(rows_of(paper)) <= known


def test_a_statement_that_no_file_has_says_where_to_name_it():
    claim = dataclasses.replace(find_claim("gu2021-q-margin-beats-bce"), id="gu2021-q-new")
    assert text_of(lambda: plan_of(claim)) == (
        "gu2021-q-new is a statement without systems; name them in plans/gu2021.toml, or say there "
        "in one word why nothing is trained for it."
    )


def test_every_statement_names_its_systems():
    """A statement compares, so the systems it names must all be there."""
    for plan in PLANS:
        conditions = plan.claim.conditions
        if not plan.claim.states or plan.word is not None:
            continue
        assert {job.seeds for job in plan.jobs} == {conditions["n_seeds_min"]}, plan.claim.id
        known = {SETUPS[name].protocol for name in setups_in(conditions["protocol"])}
        used = {re.sub("_(dynamic|em|transfer|pruned)$", "", job.protocol) for job in plan.jobs}
        assert used <= {re.sub("_transfer$", "", name) for name in known}, plan.claim.id


def test_every_protocol_of_the_claims_is_known():
    stated = {c.conditions["protocol"] for c in claims() if c.states}
    assert {name for text in stated for name in setups_in(text)} >= {
        "gu-earlystop",
        "gu-full",
        "gu-multimnist",
        "mitt-affnist",
        "peer-depth",
        "rem",
        "tsai-cifar",
    }
    said = text_of(lambda: setups_in("gu-fulll"))
    assert said.startswith("protocol 'gu-fulll' of a claim is unknown; did you mean 'gu-full'?")


def test_every_statistic_and_step_is_known():
    assert {step for job in JOBS for step in job.after} == {*WAYS, NARROW, "quantise"}
    assert {metric for job in JOBS for metric in job.metrics} == STATISTICS.keys()


def test_the_page_counts_what_can_be_run():
    page = (ROOT / "docs" / "not-yet.md").read_text(encoding="utf-8")
    trained = sum(bool(plan.jobs) for plan in PLANS)
    assert f"All {trained} that need a trained network can be run today" in page


def planned():
    """Every job and its smaller form."""
    return (each for job in JOBS for each in (job, job.smaller()))


def networks():
    """Jobs by the name of their network, one of each network, loss and kind of statistics."""
    found = {}
    for job in planned():
        loss = (job.protocol, job.fields.get("loss"), "multi-mnist" in job.train)
        key = (tuple(job.options.items()), job.image, loss, "compactness" in job.metrics)
        found.setdefault(job.model, {}).setdefault(key, job)
    return {model: list(jobs.values()) for model, jobs in sorted(found.items())}


NETWORKS = networks()


@pytest.mark.drawn(6)
@pytest.mark.parametrize("model", NETWORKS)
def test_every_network_can_be_made_and_trained_by_its_loss(model):
    for job in NETWORKS[model]:
        with torch.device("meta"):
            sizes = {"image": job.image, "n_classes": data_set(job.train).n_classes}
            network = create_model(job.model, **sizes, **job.options).eval()
            out = network(torch.empty(2, *job.image))
        assert network.config["name"] == model
        assert {name: network.config[name] for name in job.options} == dict(job.options)
        labels = torch.zeros((2, 2) if "multi-mnist" in job.train else 2, dtype=torch.int64)
        scored = Output(torch.full(out.scores.shape, 0.5), out.scores_are)
        assert loss_parts(job.recipe(), scored, Batch(torch.empty(2, *job.image), labels), 0)
        assert out.classes is not None or "compactness" not in job.metrics
        assert "widths" in network.config or not job.is_narrow


def test_every_job_makes_a_recipe_and_is_looked_at():
    for job in planned():
        recipe = job.recipe(seed=3)
        assert (recipe.model, recipe.data, recipe.seed) == (job.model, job.train, 3)
        for name, value in job.fields.items():
            assert getattr(recipe, name) == value
        assert looks_of(job)


def test_listed_rows_say_where_they_stand(tmp_path):
    """Without records, as the plans say; with those of the repository, some have verdicts."""
    rows = listed_claims(evidence=tmp_path)
    assert [row["id"] for row in rows] == [claim.id for claim in claims()]
    counts = Counter(row["status"] for row in rows)
    assert counts == Counter(plan.status for plan in PLANS)
    assert {row["verdict"] for row in rows} == {None}
    judged = listed_claims(paper="peer2022", status="holds", evidence=ROOT / "evidence")
    assert "peer2022-lemma-1" in {row["id"] for row in judged}
    cited = listed_claims(paper="gu2021", status="cited")
    assert {row["word"] for row in cited} == {"cited"}
    assert len(cited) == 8
    assert text_of(lambda: listed_claims(status="judged")).startswith(
        "no claim has the status 'judged'; "
    )


def test_the_example_of_the_page_runs_as_written(capsys):
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    exec(compile(block, "block", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["91.19 % Table 4", "gu_capsnet {'loss': 'binary'} multi-mnist-100 5"]
    assert said[3] == "32.8 PFLOP, 152 h on two cores"


def test_the_reduced_form_of_gu_stops_nowhere():
    stops, ends = (
        plan_of(find_claim(f"gu2021-{name}-affnist")).jobs[0]
        for name in ("t1-aff-capsnet", "t2-routing-base-test")
    )
    assert stops.key != ends.key
    assert stops.smaller().key == ends.smaller().key
    assert stops.smaller().recipe().stop_at is None


@pytest.mark.parametrize(("name", "is_open"), CASES["levels_that_a_paper_does_not_name_are_told"])
def test_levels_that_a_paper_does_not_name_are_told(name, is_open):
    """[renzulli2025] App. B.3: of Efficient-CapsNet it names those on smallNORB alone."""
    said = plan_of(find_claim(name)).left_open
    says = "the number of levels of this network on these images; the usual one is taken"
    assert said == (says if is_open else None)


def test_viewpoints_and_pruning_of_smallnorb_are_those_of_the_row():
    """Table 6 has familiar and novel viewpoints, of dense and of pruned networks, in rows of their
    own, and so have the tables before it."""
    rows = [each for each in claims(paper="renzulli2025") if each.conditions.get("axis")]
    for claim in rows:
        (job,) = plan_of(claim).jobs
        assert job.test.endswith("-familiar") == ("-familiar" in claim.id), claim.id
        assert job.train == f"smallnorb-{claim.conditions['axis']}"
        if claim.table == 6:
            assert ("prune" in job.after) == ("-pruned-" in claim.id), claim.id
    assert len([each for each in rows if each.table == 6]) == 48
