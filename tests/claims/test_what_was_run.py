"""What the records of this repository amount to, so that no later change loses it unseen."""

from collections import Counter
from pathlib import Path

from torchcaps.study import read_records
from torchcaps.study.intervals import mean_interval
from torchcaps_claims.claim import PAPERS, find_claim
from torchcaps_claims.headcount import is_decided
from torchcaps_claims.verdict import LEAST_SEEDS

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"
# One network on one data set may supply so many rows and no more.
MOST_ROWS_OF_A_SYSTEM = 20


def system(paper, record):
    return paper, record.recipe["model"], record.recipe["data"]


def test_at_least_fifteen_systems_of_all_five_papers_were_trained():
    """Paper, network and data set, three seeds or more each; pruned or not it is one."""
    systems = set()
    for record in read_records(EVIDENCE).values():
        n_seeds = sum(seed.failed is None for seed in record.seeds)
        if "model" in record.recipe and n_seeds >= LEAST_SEEDS:
            systems |= {system(find_claim(name).paper, record) for name in record.claims}
    assert len(systems) >= 15
    assert {paper for paper, *_ in systems} == set(PAPERS)


def trained_numbers(found):
    """Printed numbers beside which a trained network of ours stands."""
    return [e for e in found.values() if e.records and not e.claim.states and e.plan.jobs]


def capped(numbers):
    """As many, where a system with more than twenty counts as twenty."""
    rows = Counter(
        system(each.claim.paper, record) for each in numbers for record in each.records.values()
    )
    return sum(min(MOST_ROWS_OF_A_SYSTEM, count) for count in rows.values())


SIDES = ("holds", "fails", "leans yes", "leans no")


def decided_statements(found):
    """Those that need training."""
    return [
        e
        for e in found.values()
        if e.claim.states and e.plan.jobs and e.status in ("holds", "fails")
    ]


def said():
    """The page, with one space between words."""
    page = ROOT / "claims" / "pages" / "what-was-run.md"
    return " ".join(page.read_text(encoding="utf-8").split())


def test_the_page_says_how_long_networks_took():
    took = {
        (seed.seed, seed.wall_seconds): record
        for record in read_records(EVIDENCE).values()
        for seed in record.seeds
        if "model" in record.recipe
    }
    # Two at once on two cores.
    on_cores = sum(s for (_, s), record in took.items() if "NVIDIA" not in record.device) / 7200
    assert f"Some {on_cores:.0f} hours of two cores" in said()
    long = Counter(r.recipe["model"] for (_, seconds), r in took.items() if seconds > 1800)
    five, dr = long["mitterreiter_5x16"], long["rem_dr"]
    counts = f"{long.total()} networks took longer than 30 minutes each: {five} of the five layers"
    assert f"{counts} of [mitterreiter2023], up to 172; {dr} of DR-CapsNet" in said()
    assert max(seconds for _, seconds in took) // 60 == 172


def test_at_least_eighty_printed_numbers_have_one_of_ours(found):
    """Compared or not."""
    assert capped(trained_numbers(found)) >= 80


def test_the_page_counts_what_is_decided(found):
    numbers = trained_numbers(found)
    decided = [each for each in numbers if is_decided(each)]
    of_tables = [
        each
        for each in decided
        if each.claim.paper == "mitterreiter2023" and each.claim.table in (1, 2)
    ]
    assert (
        f"Records stand beside {len(numbers)} printed numbers and decide {len(decided)} of them, "
        f"{len(of_tables)} of which are of Tables 1 and 2 of [mitterreiter2023]."
    ) in said()
    # A number that says what a sentence says is counted there.
    assert not [each for each in decided if each.claim.repeats is not None]
    assert f"there are {capped(numbers)}." in said()
    n_statements = len(decided_statements(found))
    assert f"Of the statements that need training, {n_statements} are decided." in said()


def test_statements_are_decided_or_lean_by_as_many_seeds_as_their_rows_ask_for(found):
    decided = [e for e in found.values() if e.claim.states and e.plan.jobs and e.status in SIDES]
    few = [
        each.claim.id
        for each in decided
        if min(each.verdict.pooled or (each.verdict.ours.n,)) < each.claim.conditions["n_seeds_min"]
    ]
    assert not few
    assert decided


def test_the_page_counts_what_tests_decide_and_names_what_they_leave_open(found):
    shown = [each for each in found.values() if each.is_untrained]
    left_open = [each.claim.id for each in shown if each.status == "undecided"]
    n_decided = len(shown) - len(left_open)
    assert (
        f"there are {len(shown)} such rows. Tests decide {n_decided} of them, and leave open: "
        f"{', '.join(f'`{name}`' for name in left_open)}."
    ) in said()


def test_the_page_counts_the_records_whose_code_is_not_here():
    """Whether a commit is here a copy without history cannot tell; who names these two it can."""
    of_commit = {"d792c84d54f7": [], "faa2420aa36b": []}
    for record in read_records(EVIDENCE).values():
        for name in set(record.commit.split(", ")) & of_commit.keys():
            of_commit[name].append(record.study)
    of_scale, of_trees = of_commit.values()
    assert of_scale == []
    assert set(of_trees) == {"renzulli2025/pruned_trees"}
    assert f"{len(of_trees)} in `evidence/renzulli2025/pruned_trees`" in said()


def test_what_is_said_of_the_networks_at_the_stop_and_of_the_five_below_it():
    """Dynamics of moved digits, as claims/pages/what-was-run.md has them."""
    (stopped,) = read_records(EVIDENCE, study="at-the-stop").values()
    five = max(
        read_records(EVIDENCE, study="mitterreiter2023/table1").values(), key=lambda r: r.measured
    )

    def dynamics(record, name):
        return [record.values(f"{name}.{k}@affnist-style/test") for k in range(1, 5)]

    def listed(layers):
        *others, last = (f"{mean_interval(layer).mean:.2f}" for layer in layers)
        return f"{', '.join(others)} and {last}"

    def with_ends(values):
        mean, low, high, n = mean_interval(values)
        assert n == 5
        return f"{mean:.2f} [{low:.2f}, {high:.2f}]"

    assert (
        f"their dyr is {listed(dynamics(stopped, 'dyr'))} from below, where the five have "
        f"{listed(dynamics(five, 'dyr'))}, and no capsule is dead. Their dys of the second "
        f"routing is {with_ends(dynamics(stopped, 'dys')[1])}, where that of the five is "
        f"{with_ends(dynamics(five, 'dys')[1])}"
    ) in said()
