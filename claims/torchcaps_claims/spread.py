"""How sharply a network routes: the spread of what agreement adds to its logits.

α, the factor on agreement, does not say it: votes twice as long with a quarter of α route alike.
With b_ij = prior_ij + α Σ_t ⟨û_ij, v_j⟩ and c = softmax_j(b), of every child of every image
    agreement_spread = std_j(log c_ij in the last iteration − log c_ij in the first)
    prior_spread     = std_j(log c_ij in the first)
over the J parents, in units of a logit: what a softmax takes from all parents alike moves no
deviation. A layer has the mean over children and images.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.data import Images
from torchcaps.types import Output

BATCH = 100
# Below it a coupling has no logit in float32.
LEAST = torch.finfo(torch.float32).tiny


@torch.no_grad()
def spread_of(network: Callable[[Tensor], Output], images: Images) -> dict[str, float]:
    """Both of each layer that is routed twice or more, by its place from below."""
    sums: dict[str, float] = {}
    for part in torch.arange(len(images)).split(BATCH):
        for place, layer in enumerate(network(images.batch(part).pixels).trace, 1):
            each = [step.coupling.double().clamp_min(LEAST).log() for step in layer.routed.steps]
            if len(each) < 2:
                continue
            for name, logit in (("agreement", each[-1] - each[0]), ("prior", each[0])):
                spread = logit.std(-1, correction=0).flatten(1).mean(1).sum().item()
                key = f"{name}_spread.{place}"
                sums[key] = sums.get(key, 0.0) + spread
    return {key: total / len(images) for key, total in sums.items()}
