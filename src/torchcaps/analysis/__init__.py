"""From a trace to labelled numbers. Nothing here knows what a model is."""

from torchcaps._lazy import load_modules
from torchcaps.analysis.activity import (
    Activity,
    LayerActivity,
    MeasureActivity,
    Thresholds,
    capsule_activity,
)
from torchcaps.analysis.antipodal import (
    Antipodal,
    LayerAntipodal,
    MeasureAntipodal,
    opposite_pairs,
    pair_cosines,
)
from torchcaps.analysis.backtrack import backtracked, tree_pixels, tree_size
from torchcaps.analysis.calibration import Calibration, MeasureCalibration, Reliability, reliability
from torchcaps.analysis.causal import (
    CapsuleUse,
    CausalUse,
    CouplingUse,
    MeasureCausalUse,
    causal_use,
    paired_fall,
    silence,
)
from torchcaps.analysis.choose_levels import ChosenLevels, choose_levels
from torchcaps.analysis.compactness import (
    Compactness,
    FactorCompactness,
    MeasureCompactness,
    compactness,
)
from torchcaps.analysis.curves import area, jitter, onset, time_to
from torchcaps.analysis.distribution import (
    CouplingHistogram,
    Couplings,
    MeasureCouplings,
    coupling_counts,
)
from torchcaps.analysis.dynamics import (
    LayerDynamics,
    MeasureDynamics,
    RoutingDynamics,
    routing_dynamics,
)
from torchcaps.analysis.fidelity import Fidelity, MeasureFidelity, class_paths
from torchcaps.analysis.fixed_point import FixedPoint, FixedPointStep, MeasureFixedPoint
from torchcaps.analysis.in_degree import InDegree, LayerInDegree, MeasureInDegree, in_degree
from torchcaps.analysis.inequality import Inequality, LayerInequality, MeasureInequality, gini
from torchcaps.analysis.invariance import Invariance, LayerInvariance, MeasureInvariance
from torchcaps.analysis.keys import ClassKeys, Keys, MeasureKeys, key_entropy
from torchcaps.analysis.mean_trace import mean_trace
from torchcaps.analysis.measure import Measurement, measure
from torchcaps.analysis.perturbation import ComponentChange, MeasurePerturbation, Perturbation
from torchcaps.analysis.polarisation import (
    MeasurePolarisation,
    Polarisation,
    StepPolarisation,
    polarisation,
)
from torchcaps.analysis.quantise import quantise
from torchcaps.analysis.robustness import ChangedAccuracy, MeasureRobustness, Robustness
from torchcaps.analysis.saliency import focus, saliency, saliency_distance
from torchcaps.analysis.selectivity import (
    LayerSelectivity,
    MeasureSelectivity,
    Selectivity,
    detection_auc,
)
from torchcaps.analysis.separation import MeasureSeparation, Separation, silhouette
from torchcaps.analysis.starvation import (
    Cancellation,
    GradientCancellation,
    GradientNorms,
    LayerGradients,
    gradient_cancellation,
    gradient_norms,
)
from torchcaps.analysis.trace import capsule_layers, child_of, join, lengths
from torchcaps.analysis.tree_distance import (
    LayerTreeDistance,
    MeasureTreeDistance,
    TreeDistance,
    tree_distance,
)
from torchcaps.analysis.zero_votes import LayerZeroVotes, MeasureZeroVotes, ZeroVotes, zero_blocks

__all__ = [
    "Activity",
    "Antipodal",
    "Calibration",
    "Cancellation",
    "CapsuleUse",
    "CausalUse",
    "ChangedAccuracy",
    "ChosenLevels",
    "ClassKeys",
    "Compactness",
    "ComponentChange",
    "CouplingHistogram",
    "CouplingUse",
    "Couplings",
    "FactorCompactness",
    "Fidelity",
    "FixedPoint",
    "FixedPointStep",
    "GradientCancellation",
    "GradientNorms",
    "InDegree",
    "Inequality",
    "Invariance",
    "Keys",
    "LayerActivity",
    "LayerAntipodal",
    "LayerDynamics",
    "LayerGradients",
    "LayerInDegree",
    "LayerInequality",
    "LayerInvariance",
    "LayerSelectivity",
    "LayerTreeDistance",
    "LayerZeroVotes",
    "MeasureActivity",
    "MeasureAntipodal",
    "MeasureCalibration",
    "MeasureCausalUse",
    "MeasureCompactness",
    "MeasureCouplings",
    "MeasureDynamics",
    "MeasureFidelity",
    "MeasureFixedPoint",
    "MeasureInDegree",
    "MeasureInequality",
    "MeasureInvariance",
    "MeasureKeys",
    "MeasurePerturbation",
    "MeasurePolarisation",
    "MeasureRobustness",
    "MeasureSelectivity",
    "MeasureSeparation",
    "MeasureTreeDistance",
    "MeasureZeroVotes",
    "Measurement",
    "Perturbation",
    "Polarisation",
    "Reliability",
    "Robustness",
    "RoutingDynamics",
    "Selectivity",
    "Separation",
    "StepPolarisation",
    "Thresholds",
    "TreeDistance",
    "ZeroVotes",
    "area",
    "backtracked",
    "capsule_activity",
    "capsule_layers",
    "causal_use",
    "child_of",
    "choose_levels",
    "class_paths",
    "compactness",
    "coupling_counts",
    "detection_auc",
    "focus",
    "gini",
    "gradient_cancellation",
    "gradient_norms",
    "in_degree",
    "jitter",
    "join",
    "key_entropy",
    "lengths",
    "mean_trace",
    "measure",
    "onset",
    "opposite_pairs",
    "pair_cosines",
    "paired_fall",
    "polarisation",
    "quantise",
    "reliability",
    "routing_dynamics",
    "saliency",
    "saliency_distance",
    "silence",
    "silhouette",
    "time_to",
    "tree_distance",
    "tree_pixels",
    "tree_size",
    "zero_blocks",
]

# A measurement by name need not be public to be known.
load_modules(__name__)
