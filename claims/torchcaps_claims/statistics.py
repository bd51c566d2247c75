"""What claims measure, by the names that the papers and our analysis use, and who measures it."""

from typing import Literal, NamedTuple

# What a run measures of itself stands in its result.json.
# Some are read off by `torchcaps study run` alone.
Command = Literal["eval", "dissect", "estimate", "train", "study"]


class Statistic(NamedTuple):
    """One number of a trained network."""

    says: str
    command: Command


# What `torchcaps eval --measure` calls what a statistic is read off.
MEASURED_AS = {
    "activation_correlation": "invariance",
    "antipodal_share": "antipodal",
    "compactness": "compactness",
    "confidence": "calibration",
    "class_separation": "separation",
    "coupling_inequality": "inequality",
    "coupling_levels": "inequality",
    "entropy": "keys",
    "entity_selectivity": "selectivity",
    "keys": "keys",
    "parse_tree_distance": "tree-distance",
    "perturbation_range": "perturbation",
    "polarisation": "polarisation",
    "zero_blocks": "zero-votes",
}

# Shares of one that the papers print in percent in some places.
RATES = ("car", "cdr")

STATISTICS: dict[str, Statistic] = {
    # Of answers
    "accuracy": Statistic("share of images that are right, in percent", "eval"),
    "confidence": Statistic("mean probability of the likeliest class", "eval"),
    # Of couplings
    "dyr": Statistic("routing dynamics, rate", "dissect"),
    "dys": Statistic("routing dynamics, sum", "dissect"),
    "coupling_std": Statistic("standard deviation of a coupling over images", "dissect"),
    "coupling_levels": Statistic("share of couplings on the quantiser's level of 1/J", "eval"),
    "coupling_inequality": Statistic(
        "share of couplings below 1/(2J), and their Gini coefficient", "eval"
    ),
    "polarisation": Statistic("1 - H(c_i)/log J, mean over children and images", "eval"),
    "entropy": Statistic("entropy of the dictionary of quantised couplings, in bits", "eval"),
    "keys": Statistic("distinct keys of the dictionary, a class", "eval"),
    "tree_size": Statistic(
        "capsules with an in-degree of one or more on the backtracked tree", "study"
    ),
    "parse_tree_distance": Statistic("weighted distance between the trees of two images", "eval"),
    "focus": Statistic("share of saliency on the object, where it is known", "study"),
    "saliency": Statistic(
        "distance of saliency maps from those of the same seed without pruning", "study"
    ),
    # Of capsules
    "capsules_alive": Statistic("capsules of a layer that are not dead", "dissect"),
    "cnm": Statistic("mean norm", "dissect"),
    "cns": Statistic("sum of norms", "dissect"),
    "car": Statistic("rate of active capsules", "dissect"),
    "car_twice": Statistic("rate of capsules active at twice the usual length, 0.2", "study"),
    "cas": Statistic("active capsules", "dissect"),
    "cdr": Statistic("rate of dead capsules", "dissect"),
    "cds": Statistic("dead capsules", "dissect"),
    "revivals": Statistic("dead capsules that live at the end of a later epoch", "train"),
    "activation_correlation": Statistic(
        "norms on original and transformed images, correlated", "eval"
    ),
    "entity_selectivity": Statistic("share of living capsules dedicated to one part", "eval"),
    "compactness": Statistic("semantic compactness score, in nats", "eval"),
    "perturbation_range": Statistic(
        "change of the drawing for a change of one pose component", "eval"
    ),
    "drawn_components": Statistic(
        "share of pose components that draw something, by a decoder on the frozen network", "study"
    ),
    "class_separation": Statistic(
        "silhouette by class, and nearest centroids, of what the decoder sees", "eval"
    ),
    "antipodal_share": Statistic(
        "share of image pairs whose layer inputs are near opposites", "eval"
    ),
    "antipodal_share_at_start": Statistic("the same before training", "train"),
    "fixed_point_distance": Statistic(
        "relative change of poses from one iteration to the next, up to the fiftieth", "study"
    ),
    # Of weights and gradients
    "parameters": Statistic("trained numbers of the network", "estimate"),
    "nonzero_parameters": Statistic("trained numbers that are not zero, in millions", "train"),
    "sparsity": Statistic("share of weights that are zero, in percent", "train"),
    "zero_blocks": Statistic(
        "shares of matrices and of votes that are zero in every entry", "eval"
    ),
    "gradient_norms": Statistic("gradient norms of capsules and of their weights", "train"),
    "gradient_cancellation": Statistic(
        "cosine and cancellation of the gradients of opposites of different labels", "study"
    ),
    "gradient_cancellation_at_start": Statistic("the same before training", "study"),
    # Of training curves
    "onset": Statistic("first step with training accuracy 10 points above chance", "train"),
    "time_to": Statistic("steps to the first validation accuracy above a level", "train"),
    "area": Statistic("mean of the accuracy curve over all steps", "train"),
    "jitter": Statistic("mean |second difference| of the validation accuracy per epoch", "train"),
}
