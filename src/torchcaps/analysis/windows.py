"""Which capsule lies in which slot, so that couplings through windows name their children."""

from collections.abc import Mapping

import torch
from torch import Tensor

from torchcaps.analysis.trace import check_trace
from torchcaps.types import Trace


def child_of(trace: Trace) -> Mapping[str, Tensor]:
    """The capsule that each slot of the couplings of a layer is, by the name of the layer.

    Of a layer with windows int64 [p, i]: the child in slot i of window p, so that
    `lengths(layer.children)[:, child_of(trace)[layer.name]]` lies beside couplings [k, p, i, j].
    Of a dense layer [i], the children in their order.

    Arguments:
        trace: what `model(images, keep="last").trace` holds.

    >>> child_of(out.trace)["classes"].shape
    """
    check_trace(trace)
    found = {}
    for layer in trace:
        device = layer.children.pose.device
        if layer.window is None:
            found[layer.name] = torch.arange(layer.children.pose.shape[-2], device=device)
        else:
            found[layer.name] = layer.window.child_id(device)
    return found
