"""SNIP: pruning before training, by how much the loss would miss a weight [lee2019] Eqs. 6 and 7.

    s_w = |w ∂L/∂w|, on one or several batches at the initial weights

The weights with the lowest s_w in the whole network are pruned, once. [lee2019] divides s by its
sum, which changes no order.

Departures: none.
Ambiguities: [lee2019] does not say whether batches hold every class equally often; here they are
drawn like those of training.
"""

from typing import final

from torch import nn

from torchcaps.prune.pruner import Gradients, Pruner, Scope


@final
class Snip(Pruner):
    """Prunes to `to` before the first step, where the loss misses weights least.

    Arguments:
        model: the network.
        to: the share of all weights that is zero afterwards.
        scope: whether layers are pruned together, or each to the same share.
    """

    def __init__(self, model: nn.Module, *, to: float, scope: Scope = "network"):
        super().__init__(model, scope=scope)
        self.check(to)
        self.to = to

    def before_training(self, gradients: Gradients) -> None:
        found = gradients()
        weights = self.masks.weights.items()
        self.prune(
            {name: (weight.detach() * found[name]).abs() for name, weight in weights}, self.to
        )
