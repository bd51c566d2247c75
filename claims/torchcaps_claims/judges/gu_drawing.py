"""Statements of [gu2021] §3.3 about what decoders see and draw."""

from torchcaps_claims.claim import Claim
from torchcaps_claims.judges.evidence import Evidence, Values
from torchcaps_claims.judges.rules import Cell, each, left_open, minus
from torchcaps_claims.judges.table import judge
from torchcaps_claims.verdict import StatementVerdict

CAPSNET, CR, R = "gu_capsnet", "gu_convnet_cr", "gu_convnet_r"
ALL = 100.0  # percent


@judge("gu2021-q-cr-separates-classes")
def _separates_classes(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """By the silhouette, and every point nearest to the centroid of its class; contradicted where
    that fails in most seeds."""

    def of(name: str, model: str) -> Values:
        return evidence.values(name, model, data="toy-2d", kernel=1)

    nearest = of("nearest_centroid", CR)
    found = each(claim, [Cell(minus(of("silhouette", CR), of("silhouette", R)))])
    if found is None or not nearest:
        return None
    missed = sum(value < ALL for value in nearest.values())
    if len(nearest) >= claim.conditions["n_seeds_min"] and missed > len(nearest) / 2:
        # Shown as what is missing, in points: no share is greater than all.
        missing = Cell({seed: ALL - value for seed, value in nearest.items()})
        return StatementVerdict("fails", missing.interval(), "within", 0.0)
    if missed and found.word == "holds":
        return left_open(found, "some vectors lie nearer to another class")
    return found


@judge("gu2021-q-perturbation-range")
def _perturbation_range(claim: Claim, evidence: Evidence) -> StatementVerdict | None:
    """How many times as far the drawing changes, seed by seed."""
    ours, theirs = (evidence.values("change.0.2", model, data="mnist") for model in (CAPSNET, R))
    ratio = {seed: ours[seed] / theirs[seed] for seed in ours if theirs.get(seed)}
    return each(claim, [Cell(ratio, "greater", claim.conditions["threshold"])], one_sided=False)
