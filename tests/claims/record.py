"""Run every test that shows a claim, and write a record of it for each paper.

    python tests/claims/record.py             # as `make claims` does
    python tests/claims/record.py tsai2020    # of one paper

A record holds one number by the id of each claim: what was counted; or what the test found, 1 where
it shows the claim, -1 where it refutes it, 0 where it leaves it open. A test that fails or is
skipped ends it, and nothing is written; so TORCHCAPS_DATA must name the folder that holds MNIST.
"""

import hashlib
import platform
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from torchcaps.study import make_record, read_records, write_record
from torchcaps.train.folder.environment import environment
from torchcaps_claims import claims, plan_of
from torchcaps_claims.claim import PAPERS

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"
IDS = {claim.id for claim in claims()}


class Outcomes:
    """What pytest says of every test: whether it passed, and the number that it gave."""

    # By which pytest knows this plugin.
    __name__ = "Outcomes"

    def __init__(self):
        self.numbers = defaultdict(dict)
        self.skipped = []

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            self.skipped.append(report.nodeid)
        if report.when == "call" and report.passed:
            name, _, parameter = report.nodeid.partition("[")
            ours = dict(report.user_properties).get("ours", 1.0)
            self.numbers[name][parameter.removesuffix("]")] = ours

    def of(self, claim, test):
        """The number of a claim: of its own case where a test has one, else of the whole test."""
        numbers = self.numbers[test]
        if not numbers:
            sys.exit(
                f"{test} shows {claim.id}, but did not run; is it marked gpu? Nothing was written."
            )
        if claim.id not in numbers and (others := sorted(IDS & set(numbers))):
            sys.exit(
                f"{test} has a case for each claim, such as {others[0]}, but none for {claim.id}; "
                f"was a case renamed? Nothing was written."
            )
        return numbers.get(claim.id, min(numbers.values()))


def shown(paper):
    """The claims of a paper that tests show, with their tests."""
    plans = [plan_of(claim) for claim in claims(paper=paper)]
    return {plan.claim: plan.shown_by for plan in plans if plan.shown_by is not None}


def digest(tests):
    """Of the files that hold the tests."""
    found = hashlib.sha256()
    for path in sorted({test.partition("::")[0] for test in tests}):
        found.update((ROOT / path).read_bytes())
    return found.hexdigest()[:12]


def record_of(paper, outcomes, seconds):
    about, tests = environment(), shown(paper)
    names = sorted(set(tests.values()))
    values = {claim.id: float(outcomes.of(claim, test)) for claim, test in tests.items()}
    commit = about["commit"] or ""
    return make_record(
        study=f"{paper}/tests",
        claims=tuple(values),
        recipe={"tests": names},
        recipe_hash=hashlib.sha256("\n".join(names).encode()).hexdigest()[:12],
        data={"tests": digest(names)},
        seeds=({"seed": 0, "values": values, "wall_seconds": seconds},),
        commit=commit.removesuffix("+changes") or None,
        dirty="+changes" in commit,
        versions={name: about[name] for name in ("torchcaps", "torch", "python")},
        device=f"{platform.system()} {platform.machine()}",
        command=f"python tests/claims/record.py {paper}" if sys.argv[1:] else "make claims",
        made=datetime.now(UTC),
    )


def main():
    outcomes, began = Outcomes(), time.monotonic()
    papers = sys.argv[1:] or PAPERS
    if not set(papers) <= set(PAPERS):
        sys.exit(f"papers are {', '.join(PAPERS)}, but {' '.join(papers)} was asked for.")
    tests = sorted({test for paper in papers for test in shown(paper).values()})
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not gpu", *tests], [outcomes])
    if code:
        sys.exit(int(code))
    if outcomes.skipped:
        sys.exit(
            f"{len(outcomes.skipped)} tests were skipped, the first is {outcomes.skipped[0]}; does "
            f"TORCHCAPS_DATA name a folder that holds MNIST/raw? Nothing was written."
        )
    seconds = round(time.monotonic() - began, 1)
    for paper in papers:
        if shown(paper):
            write(record_of(paper, outcomes, seconds))


def write(record):
    """Write a record in place of the one that stands; not where the same tests gave the same."""
    for name, old in read_records(EVIDENCE, study=record.study, drafts=True).items():
        if old.is_draft and not record.is_draft:
            continue
        same = (old.seeds[0].values, old.data) == (record.seeds[0].values, record.data)
        if same and old.is_draft == record.is_draft:
            return
        if set(old.claims) == set(record.claims):
            record = record.model_copy(update={"supersedes": name})
    print(write_record(record, EVIDENCE))


if __name__ == "__main__":
    main()
