"""From numbers to matplotlib figures. Needs the extra [study]."""

from torchcaps._extras import needing
from torchcaps._lazy import publish

with needing("matplotlib", room="viz", extra="study"):
    from torchcaps.viz.activity import draw_activity as draw_activity
    from torchcaps.viz.backtracked import draw_backtracked as draw_backtracked
    from torchcaps.viz.couplings import draw_mean_couplings as draw_mean_couplings
    from torchcaps.viz.curves import draw_curves as draw_curves
    from torchcaps.viz.curves import draw_invariance as draw_invariance
    from torchcaps.viz.curves import draw_training as draw_training
    from torchcaps.viz.dictionary import TreeImages as TreeImages
    from torchcaps.viz.dictionary import draw_dictionary as draw_dictionary
    from torchcaps.viz.grids import draw_grids as draw_grids
    from torchcaps.viz.intervals import draw_causal_use as draw_causal_use
    from torchcaps.viz.intervals import draw_intervals as draw_intervals
    from torchcaps.viz.keys import draw_couplings_histogram as draw_couplings_histogram
    from torchcaps.viz.keys import draw_keys as draw_keys
    from torchcaps.viz.palette import check_figure_file as check_figure_file
    from torchcaps.viz.palette import to_svg as to_svg
    from torchcaps.viz.palette import write_figure as write_figure
    from torchcaps.viz.parse_tree import draw_parse_tree as draw_parse_tree
    from torchcaps.viz.perturbations import draw_perturbations as draw_perturbations
    from torchcaps.viz.prediction import Shown as Shown
    from torchcaps.viz.prediction import draw_predictions as draw_predictions
    from torchcaps.viz.pruning import draw_levels as draw_levels
    from torchcaps.viz.pruning import draw_pruning as draw_pruning
    from torchcaps.viz.pruning import draw_saliency as draw_saliency
    from torchcaps.viz.samples import draw_samples as draw_samples

publish(__name__)
