"""Dynamic routing whose α is fixed, or learned from a start: what soft-routing.toml varies."""

import torch

import torchcaps as tc


class Soft(tc.layers.DynamicRouting):
    """Dynamic routing; `alpha` is "1", which stays, or "from 1", where learning starts."""

    def __init__(
        self, *, prior="zero", bias=False, squash="hinton", detach="none", alpha: str = "1"
    ):
        super().__init__(prior=prior, bias=bias, squash=squash, detach=detach, agreement="learned")
        start = float(alpha.removeprefix("from "))
        factor = torch.tensor(start)
        self.agreement = torch.nn.Parameter(factor, requires_grad=alpha.startswith("from "))


tc.register_routing("soft", Soft)
