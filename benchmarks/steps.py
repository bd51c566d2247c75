"""Count the FLOPs of a training step of every network that the claims need, into their steps.json.

    python benchmarks/steps.py            # some minutes: a second a network
    python benchmarks/steps.py --missing  # only those that the file lacks

`torchcaps study status --by cost` reads them. They change with the networks and with the formulas
of `torchcaps estimate`; tests/study/test_cost.py says when the file is out of date.
"""

import argparse
import json

from torchcaps._paths import write_whole
from torchcaps.study.cost import step_of
from torchcaps_claims import claims, plan_of
from torchcaps_claims.cost import STEPS_FILE


def planned_steps():
    """Every step that a job has, in its full and its smaller form, by its name."""
    jobs = [job for claim in claims() for job in plan_of(claim).jobs]
    forms = [form for job in jobs for form in (job, job.smaller())]
    steps = {step.name: step for form in forms if (step := step_of(form.recipe()))}
    return dict(sorted(steps.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--missing", action="store_true", help="only those that the file lacks")
    given = parser.parse_args()
    steps = planned_steps()
    known = {}
    if given.missing:
        known = json.loads(STEPS_FILE.read_text(encoding="utf-8"))
    counts = {name: known.get(name) or step.flops() for name, step in steps.items()}
    write_whole(STEPS_FILE, json.dumps(counts, indent=0) + "\n")
    print(f"{len(counts)} steps in {STEPS_FILE}")


if __name__ == "__main__":
    main()
