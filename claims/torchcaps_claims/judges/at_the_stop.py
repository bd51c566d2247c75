"""Which seeds a statement takes of networks that a paper trains until an accuracy is reached."""

from collections.abc import Callable

from torchcaps.study.record import Record
from torchcaps_claims.claim import Claim
from torchcaps_claims.comparable import POINTS
from torchcaps_claims.judges.evidence import Evidence
from torchcaps_claims.judges.rules import left_open
from torchcaps_claims.verdict import StatementVerdict

__all__ = ["Judge", "near_the_stop"]

Judge = Callable[[Claim, Evidence], StatementVerdict | None]


def near_the_stop(judge: Judge) -> Judge:
    """The same of seeds that came near the accuracy at which the paper stops, in the records that
    it reads. Where they are too few all are shown, and decide nothing."""

    def judged(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
        near = [_of_near_seeds(record) for record in evidence.records]
        found = judge(claim, evidence.narrowed_to(near))
        least: int = claim.conditions["n_seeds_min"]
        is_few = any(
            left.measured < min(least, record.measured)
            for record, left in zip(evidence.records, near, strict=True)
            if any(left is each for each in evidence.read)
        )
        if found is not None and not is_few:
            return found
        whole = judge(claim, evidence)
        stops = [float(each) for r in evidence.records if (each := r.recipe.get("stop_at"))]
        if whole is None or whole.open_because is not None or not stops:
            return whole
        stop = f"{POINTS:g} points of the {100 * min(stops):g} % at which the paper stops"
        return left_open(whole, f"too few seeds come within {stop}")

    return judged


def _of_near_seeds(record: Record) -> Record:
    stop = record.recipe.get("stop_at")
    if record.reduced is None or stop is None:
        return record
    least = 100 * stop - POINTS
    # Those that diverged stay, to be counted as such.
    near = (each.failed or each.values.get("accuracy", 0.0) >= least for each in record.seeds)
    seeds = tuple(seed for seed, stays in zip(record.seeds, near, strict=True) if stays)
    return record.model_copy(update={"seeds": seeds})
