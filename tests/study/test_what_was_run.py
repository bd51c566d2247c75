"""What the records of this repository amount to, so that no later change loses it unseen."""

from collections import Counter
from pathlib import Path

import pytest

from torchcaps.study import read_records, results
from torchcaps.study.claim import PAPERS, find_claim
from torchcaps.study.verdict import LEAST_SEEDS

EVIDENCE = Path(__file__).parents[2] / "evidence"
# One network on one data set may supply so many rows and no more.
MOST_ROWS_OF_A_SYSTEM = 20


@pytest.fixture(scope="module")
def found():
    return results(EVIDENCE)


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


def test_at_least_eighty_printed_numbers_have_one_of_ours(found):
    """Compared or not; a system with more than twenty counts as twenty."""
    rows = Counter(
        system(each.claim.paper, record)
        for each in found
        if not each.claim.states and each.plan.jobs
        for record in each.records.values()
    )
    assert sum(min(MOST_ROWS_OF_A_SYSTEM, count) for count in rows.values()) >= 80


def test_at_least_twenty_statements_that_need_training_are_decided(found):
    """By as many seeds as their rows ask for."""
    decided = [
        each
        for each in found
        if each.claim.states and each.plan.jobs and each.status in ("holds", "fails")
    ]
    few = [
        each.claim.id
        for each in decided
        if min(each.verdict.pooled or (each.verdict.ours.n,)) < each.claim.conditions["n_seeds_min"]
    ]
    assert not few
    assert len(decided) >= 20
