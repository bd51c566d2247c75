"""From numbers to matplotlib figures. Needs the extra [study]."""

from torchcaps.viz.activity import draw_activity
from torchcaps.viz.couplings import draw_mean_couplings
from torchcaps.viz.palette import to_svg
from torchcaps.viz.parse_tree import draw_parse_tree
from torchcaps.viz.prediction import Shown, draw_predictions

__all__ = [
    "Shown",
    "draw_activity",
    "draw_mean_couplings",
    "draw_parse_tree",
    "draw_predictions",
    "to_svg",
]
