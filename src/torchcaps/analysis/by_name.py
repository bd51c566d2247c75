"""Measurements that ask for nothing but images and what a network returns for them, by name."""

from collections.abc import Callable, Sequence

from torchcaps.analysis.activity import MeasureActivity
from torchcaps.analysis.antipodal import MeasureAntipodal
from torchcaps.analysis.calibration import MeasureCalibration
from torchcaps.analysis.distribution import MeasureCouplings
from torchcaps.analysis.dynamics import MeasureDynamics
from torchcaps.analysis.in_degree import MeasureInDegree
from torchcaps.analysis.inequality import MeasureInequality
from torchcaps.analysis.keys import MeasureKeys
from torchcaps.analysis.measure import Measurement
from torchcaps.analysis.polarisation import MeasurePolarisation
from torchcaps.analysis.tree_distance import MeasureTreeDistance
from torchcaps.analysis.zero_votes import MeasureZeroVotes
from torchcaps.types import Keep

TRACE_MEASUREMENTS: dict[str, Callable[[], Measurement]] = {
    "activity": MeasureActivity,
    "antipodal": MeasureAntipodal,
    "calibration": MeasureCalibration,
    "couplings": MeasureCouplings,
    "dynamics": MeasureDynamics,
    "in-degree": MeasureInDegree,
    "inequality": MeasureInequality,
    "keys": MeasureKeys,
    "polarisation": MeasurePolarisation,
    "tree-distance": MeasureTreeDistance,
    "zero-votes": MeasureZeroVotes,
}


def keep_for(names: Sequence[str]) -> Keep:
    """Say what a network has to keep for these measurements."""
    return "steps" if {"polarisation", "fixed-point"} & {*names} else "last"
