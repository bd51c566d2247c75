"""From numbers to matplotlib figures. Needs the extra [study]."""

from torchcaps._extras import needing

with needing("matplotlib", room="viz", extra="study"):
    from torchcaps.viz.activity import draw_activity
    from torchcaps.viz.backtracked import draw_backtracked
    from torchcaps.viz.couplings import draw_mean_couplings
    from torchcaps.viz.curves import draw_curves, draw_invariance, draw_training
    from torchcaps.viz.dictionary import TreeImages, draw_dictionary
    from torchcaps.viz.grids import draw_grids
    from torchcaps.viz.intervals import draw_causal_use, draw_intervals
    from torchcaps.viz.keys import draw_couplings_histogram, draw_keys
    from torchcaps.viz.palette import check_figure_file, to_svg, write_figure
    from torchcaps.viz.parse_tree import draw_parse_tree
    from torchcaps.viz.perturbations import draw_perturbations
    from torchcaps.viz.prediction import Shown, draw_predictions
    from torchcaps.viz.pruning import draw_levels, draw_pruning, draw_saliency
    from torchcaps.viz.samples import draw_samples

__all__ = [
    "Shown",
    "TreeImages",
    "check_figure_file",
    "draw_activity",
    "draw_backtracked",
    "draw_causal_use",
    "draw_couplings_histogram",
    "draw_curves",
    "draw_dictionary",
    "draw_grids",
    "draw_intervals",
    "draw_invariance",
    "draw_keys",
    "draw_levels",
    "draw_mean_couplings",
    "draw_parse_tree",
    "draw_perturbations",
    "draw_predictions",
    "draw_pruning",
    "draw_saliency",
    "draw_samples",
    "draw_training",
    "to_svg",
    "write_figure",
]
