"""Multi-head self-attention between capsules, against which routing is compared in cost.

[mitterreiter2023] §5, Table 3

    q_j = W_q u_j    k_i = W_k u_i    v_i = W_v u_i          cut into heads of d / heads
    a_ij = softmax_i(⟨q_j, k_i⟩ / √(d / heads))              for each head
    p_j  = W_o Σ_i a_ij v_i                                  the heads side by side

Routing by agreement splits a child among the parents: a row of couplings sums to one. Attention
composes a parent of children: a column does. It has 4 d² weights where n capsules that vote for n
parents have n² d², and it builds no tree.

Departures: none.
Ambiguities: the paper names the mechanism alone. Ours has no biases, no residual path and no
squash, so lengths may exceed one; the coupling that is recorded is the mean over heads.
"""

from typing import final

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers.capsule_layer import check_children, check_sizes
from torchcaps.ops.checks import check_dtypes, check_keep, widen, without_autocast
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.routing.couple import replaced
from torchcaps.types import Capsules, Couple, Keep, Routed, Step


@final
class AttentionCapsules(nn.Module):
    """`n` parents of `d` components from as many children of the same size.

    Arguments:
        n: how many children there are, and as many parents.
        d: components of a pose; a multiple of `heads`.
        heads: how many attentions share the components.

    >>> layer = AttentionCapsules(n=16, d=8, heads=2)
    >>> layer(Capsules(torch.rand(2, 16, 8))).parents.pose.shape
    torch.Size([2, 16, 8])
    """

    # The axis over which the couplings of a trace sum to one.
    normalised_over = "children"
    # What a network asks of every layer: no grid, no window, no matrix between child and parent.
    child_grid = parent_grid = window = weight = None

    def __init__(self, *, n: int, d: int, heads: int = 1):
        super().__init__()
        check_sizes("AttentionCapsules", n=n, d=d, heads=heads)
        if d % heads:
            raise TorchcapsError(
                f"AttentionCapsules cuts the {d} components of a pose into equal heads, but got "
                f"heads={heads}; choose a divisor of {d}."
            )
        self.n_in = self.n_out = n
        self.d_in = self.d_out = d
        self.heads = heads
        self.query = nn.Parameter(torch.empty(d, d))
        self.key = nn.Parameter(torch.empty(d, d))
        self.value = nn.Parameter(torch.empty(d, d))
        self.output = nn.Parameter(torch.empty(d, d))
        for weight in self.parameters():
            nn.init.xavier_uniform_(weight)

    def forward(
        self, children: Capsules, *, keep: Keep = "none", couple: Couple | None = None
    ) -> Routed:
        """Attend. `couple` is a function on the mean attention of the heads, [*b, i, j]; what it
        returns is then the attention of every head."""
        check_children(children, self.n_in, self.d_in)
        check_keep(keep)
        u = children.pose
        check_dtypes(u, self.query)
        q, k, v = (self._heads(u @ weight.T) for weight in (self.query, self.key, self.value))
        dtype = q.dtype
        # In half precision scores would overflow long before parents do.
        with without_autocast(q):
            scores = widen(q) @ widen(k).transpose(-1, -2) / (self.d_in / self.heads) ** 0.5
            attention = scores.softmax(-1)  # [*b, head, j, i]
            coupling = attention.mean(-3).transpose(-1, -2)  # [*b, i, j]
            made = replaced(couple, coupling)
            if made is not None:
                coupling, attention = made, made.transpose(-1, -2).unsqueeze(-3)
            mixed = (attention @ widen(v)).transpose(-2, -3).flatten(-2).to(dtype)  # [*b, j, d]
        parents = capsules(mixed @ self.output.T)
        if keep == "none":
            return Routed(parents)
        return Routed(parents, (Step(children, coupling.to(dtype), parents),))

    def _heads(self, pose: Tensor) -> Tensor:
        """Give [*b, n, d] as [*b, head, n, d / heads]."""
        return torch.unflatten(pose, -1, (self.heads, -1)).transpose(-2, -3)

    def extra_repr(self) -> str:
        return f"n={self.n_in}, d={self.d_in}, heads={self.heads}"
