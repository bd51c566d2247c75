"""Dynamic routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers and its options are those of `ops.dynamic_routing`. With A_t = Σ_{τ<t} v_τ

    c_ij = softmax_j(prior_ij + ⟨û_ij, A_tj⟩)
    s_j  = Σ_i c_ij û_ij,     v_j = g(s_j + bias_j)

so between iterations only parents live. Without a prior the first iteration is one product,
Σ_i û_ij / J. Backwards, from γ_j, the gradient of s_j, and κ_ij, the gradient of c_ij where it was
recorded,

    ∂b_ij  = c_ij (h_ij − Σ_k c_ik h_ik)     h_ij = ⟨û_ij, γ_j⟩ + κ_ij
    ∂û_ij  = c_ij γ_j + ∂b_ij A_tj           ∂A_tj = Σ_i ∂b_ij û_ij

and ∂v_τ gains every later ∂A_t. Each `detach` leaves some of these terms out.

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.

A tile is made, or where children are smaller than votes only its dot products and sums are
(`ops.fused.agreement`). Kept are the children, the weights and s of every iteration, parents only.
No gradient of the gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from torchcaps.ops.checks import (
    widen,
    without_autocast,
)
from torchcaps.ops.fused.agreement import AgreementTile, agreement_tile, tiled
from torchcaps.ops.fused.tiles import Lanes, Tile, TiledVotes, VoteGradients, vote_like, vote_map_of
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.routing.common import capsules
from torchcaps.ops.routing.dynamic import Detach, check_dynamic
from torchcaps.ops.squash import EPSILON, Squash
from torchcaps.ops.squash import squash as g
from torchcaps.types import Keep, Routed, Step, VoteMap, Window

__all__ = ["dynamic_routing", "route"]


def dynamic_routing(
    vote_map: VoteMap,
    *,
    iterations: int = 3,
    bias: Tensor | None = None,
    prior: Tensor | None = None,
    odd_bias: bool = False,
    leaky: bool = False,
    squash: Squash = "hinton",
    detach: Detach = "none",
    keep: Keep = "none",
) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the values and gradients of `ops.dynamic_routing` of the materialised votes.

    >>> children = Capsules(torch.ones(1152, 8))
    >>> vote_map = VoteMap(children, torch.ones(1152, 10, 16, 8))
    >>> dynamic_routing(vote_map).parents.pose.shape
    torch.Size([10, 16])
    """
    votes = vote_like(vote_map)
    check_dynamic(votes, iterations, bias, prior, squash, detach, keep)
    share = 1 / (votes.shape[-2] + leaky)
    return route(
        vote_map,
        votes,
        bias=bias,
        prior=prior,
        share=share,
        iterations=iterations,
        odd_bias=odd_bias,
        leaky=leaky,
        squash=squash,
        detach=detach,
        keep=keep,
    )


def route(
    vote_map: VoteMap,
    votes: Tensor,
    *,
    bias: Tensor | None,
    share: float,
    squash: Squash,
    keep: Keep,
    prior: Tensor | None = None,
    iterations: int = 1,
    odd_bias: bool = False,
    leaky: bool = False,
    detach: Detach = "none",
) -> Routed:
    """Checked arguments routed; `votes` tells shape and dtype, `share` the first couplings."""
    n_in, n_out, size = votes.shape[-3:]
    # Parameters follow the precision of the votes, as in the plain op.
    wide = widen(votes.new_empty(())).dtype
    vote_bias, coordinates, window = vote_map.bias, vote_map.coordinates, vote_map.window
    _, poses, couplings = _forward(
        vote_map.children.pose,
        vote_map.weight,
        None if vote_bias is None else vote_bias.to(wide).expand(n_out, size),
        None if coordinates is None else coordinates.to(wide).expand(n_in, size),
        None if bias is None else by_lane(bias.to(wide), votes[..., 0, :, :], window),
        None if prior is None else by_lane(prior.to(wide), votes[..., 0], window),
        vote_map.sharing,
        vote_map.pose,
        [] if window is None else [*window.child_grid, *window.kernel, *window.stride],
        wide,
        iterations,
        share,
        odd_bias,
        leaky,
        squash,
        detach,
        keep,
    )
    return routed(votes, poses, couplings, keep)


def routed(votes: Tensor, poses: Tensor, couplings: Tensor, keep: Keep) -> Routed:
    """Parents and steps in shape and precision of the votes, from those of the iterations kept."""
    *lead, n_in, n_out, size = votes.shape
    poses = poses.reshape(len(poses), *lead, n_out, size).to(votes.dtype)
    couplings = couplings.reshape(len(couplings), *lead, n_in, n_out).to(votes.dtype)
    kept = () if keep == "none" else zip(couplings.unbind(), poses.unbind(), strict=True)
    steps = tuple(Step(None, coupling, capsules(pose)) for coupling, pose in kept)
    return Routed(capsules(poses[-1]), steps)


def of_all_samples(value: Tensor | None, *shape: int) -> Tensor | None:
    """A parameter of all samples in float32, with a number for every place."""
    if value is None:
        return None
    return value.float().reshape(value.shape[-2:]).expand(shape)


def by_lane(value: Tensor, like: Tensor, window: Window | None) -> Tensor:
    """A parameter that broadcasts to [*b, p, x, y], as [p or 1, b or 1, x, y]."""
    own = like.shape[-2:]
    value = value.expand(*value.shape[:-2], *own)
    if math.prod(value.shape[:-2]) == 1:
        return value.reshape(1, 1, *own)
    lead = (*like.shape[:-2], 1) if window is None else like.shape[:-2]
    value = value.expand(*like.shape).reshape(math.prod(lead[:-1]), lead[-1], *own)
    return value.transpose(0, 1)


def _forward_kernel(
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    bias: Tensor | None,
    prior: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    iterations: int,
    share: float,
    odd_bias: bool,
    leaky: bool,
    squash: str,
    detach: str,
    keep: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """s of every iteration, v and c of those kept (of v always the last), [t, b, p, …]."""
    vote_map = vote_map_of(pose, weight, vote_bias, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = tiled(vote_map, dtype)
        counts = (votes.n_in, votes.n_out, votes.d_out)
        sums, poses, couplings = outputs(
            votes.children, (votes.n_batch, votes.n_windows), counts, iterations, keep
        )
        for lanes in votes.lanes():
            agreed = None
            for t in range(iterations):
                record = t - iterations + len(couplings)
                kept = couplings[record].transpose(0, 1) if record >= 0 else None
                if agreed is None and prior is None:
                    s = votes.total(lanes) * share
                    if kept is not None:
                        kept[lanes].fill_(share)
                else:
                    s = _mix(votes, lanes, agreed, prior, leaky, kept)
                s = votes.from_lanes(s, lanes)  # [p, b, j, d]
                sums[t].transpose(0, 1)[lanes] = s
                v = g(
                    biased(s, None if bias is None else lanes.of(bias), odd_bias),
                    cast(Squash, squash),
                )
                record = t - iterations + len(poses)
                if record >= 0:
                    poses[record].transpose(0, 1)[lanes] = v
                v = votes.to_lanes(v)
                agreed = v if agreed is None else agreed + v
    return sums, poses, couplings


def outputs(
    like: Tensor, lanes: tuple[int, int], counts: tuple[int, int, int], iterations: int, keep: str
) -> tuple[Tensor, Tensor, Tensor]:
    n_in, n_out, size = counts
    kept = {"none": 0, "last": 1, "steps": iterations}[keep]
    return (
        like.new_empty(iterations, *lanes, n_out, size),
        like.new_empty(max(1, kept), *lanes, n_out, size),
        like.new_empty(kept, *lanes, n_in, n_out),
    )


def _mix(
    votes: TiledVotes,
    lanes: Lanes,
    agreed: Tensor | None,
    prior: Tensor | None,
    leaky: bool,
    kept: Tensor | None,
) -> Tensor:
    """Σ_i c_ij û_ij as [j, d, b]."""
    s = votes.parents(lanes)
    for tile in votes.tiles(lanes):
        part = agreement_tile(votes, tile)
        c = _couplings(votes, tile, part, agreed, prior, leaky)
        if kept is not None:
            votes.of_couplings(kept, tile).copy_(votes.by_lane(c, lanes))
        s += part.mixed(c)
    return s


def _couplings(
    votes: TiledVotes,
    tile: Tile,
    part: AgreementTile,
    agreed: Tensor | None,
    prior: Tensor | None,
    leaky: bool,
) -> Tensor:
    """c of a tile of votes, [t, j, p, b]."""
    if agreed is not None:
        logits = part.along(agreed)
    else:
        logits = votes.children.new_zeros(votes.couplings_shape(tile))
    if prior is not None:
        logits = votes.by_lane(logits, tile.lanes) + votes.of_couplings(prior, tile)
        logits = logits.flatten(-2)
    if not leaky:
        return logits.softmax(1)
    nobody = logits.new_zeros(logits[:, :1].shape)
    return torch.cat([logits, nobody], 1).softmax(1)[:, :-1]


def biased(s: Tensor, bias: Tensor | None, odd: bool) -> Tensor:
    """s with the bias, or with the one of bias and −bias that lies on its side."""
    if bias is None:
        return s
    return s + ((s * bias).sum(-1, keepdim=True).sign() * bias if odd else bias)


def squash_gradient(s: Tensor, gradient: Tensor, kind: str) -> Tensor:
    """g(s) = f(‖s‖²) s, so the gradient γ of v becomes f γ + 2 f′ ⟨s, γ⟩ s."""
    if kind == "none":
        return gradient
    square = (s * s).sum(-1, keepdim=True)
    norm = torch.sqrt(square + EPSILON)
    if kind == "hinton":
        f = square / (1 + square) / norm
        slope = (1 / (1 + square) ** 2 - f / (2 * norm)) / norm
    else:
        f = -torch.expm1(-norm) / norm
        slope = (torch.exp(-norm) - f) / (2 * norm**2)
    return f * gradient + 2 * slope * (s * gradient).sum(-1, keepdim=True) * s


def _backward_kernel(
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    bias: Tensor | None,
    prior: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    share: float,
    odd_bias: bool,
    leaky: bool,
    squash: str,
    detach: str,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the six tensors, empty where there is no need."""
    vote_map = vote_map_of(pose, weight, vote_bias, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = tiled(vote_map, dtype)
        found = VoteGradients(votes, *needs[:4])
        routing = _Backward(
            votes=votes,
            found=found,
            bias=bias,
            prior=prior,
            of_bias=None if bias is None or not needs[4] else votes.children.new_zeros(bias.shape),
            of_prior=None
            if prior is None or not needs[5]
            else votes.children.new_zeros(prior.shape),
            share=share,
            odd_bias=odd_bias,
            leaky=leaky,
            squash=squash,
            detach=detach,
        )
        for lanes in votes.lanes():
            routing.run(lanes, sums, of_poses, of_couplings)
        gradients = [*found.of(vote_map), routing.of_bias, routing.of_prior]
    return listed(gradients, votes.children)


@dataclass
class _Backward:
    """All iterations of some lanes, from the last to the first."""

    votes: TiledVotes
    found: VoteGradients
    bias: Tensor | None
    prior: Tensor | None
    of_bias: Tensor | None
    of_prior: Tensor | None
    share: float
    odd_bias: bool
    leaky: bool
    squash: str
    detach: str

    def run(
        self, lanes: Lanes, sums: Tensor, of_poses: Tensor | None, of_couplings: Tensor | None
    ) -> None:
        count = len(sums)
        agreed = self._agreed(lanes, sums)
        # What later iterations send to v of this one and of every earlier one.
        later: Tensor | None = None
        for t in reversed(range(count)):
            of_v = recorded(of_poses, t - count)
            of_c = recorded(of_couplings, t - count)
            of_v = None if of_v is None else of_v[lanes]
            if later is not None:
                back = self.votes.from_lanes(later, lanes)
                of_v = back if of_v is None else of_v + back
            of_s = (
                None if of_v is None else self._of_sum(lanes, sums[t].transpose(0, 1)[lanes], of_v)
            )
            if of_s is None and of_c is None:
                continue
            is_last = t == count - 1
            if t == 0 and self.prior is None:
                if of_s is not None and (is_last or self.detach != "votes"):
                    self.found.add_to_total(lanes, of_s * self.share)
                continue
            more = self._iteration(lanes, agreed[t], of_s, of_c, is_last)
            if more is not None:
                later = more if later is None else later + more

    def _agreed(self, lanes: Lanes, sums: Tensor) -> list[Tensor | None]:
        """A of every iteration, [j, d, b]; none in the first."""
        bias = None if self.bias is None else lanes.of(self.bias)
        agreed: list[Tensor | None] = [None]
        total = self.votes.parents(lanes)
        for each in sums[:-1]:
            s = each.transpose(0, 1)[lanes]
            v = g(biased(s, bias, self.odd_bias), cast(Squash, self.squash))
            total = total + self.votes.to_lanes(v)
            agreed.append(total)
        return agreed

    def _of_sum(self, lanes: Lanes, s: Tensor, of_v: Tensor) -> Tensor:
        """The gradient of s from that of v, [j, d, b]; that of the bias is kept."""
        bias = None if self.bias is None else lanes.of(self.bias)
        of_s = squash_gradient(biased(s, bias, self.odd_bias), of_v, self.squash)
        if self.of_bias is not None:
            of_side = of_s
            if self.odd_bias and bias is not None:
                of_side = of_s * (s * bias).sum(-1, keepdim=True).sign()
            mine = lanes.of(self.of_bias)
            mine += of_side.sum_to_size(mine.shape)
        return self.votes.to_lanes(of_s)

    def _iteration(
        self,
        lanes: Lanes,
        agreed: Tensor | None,
        of_s: Tensor | None,
        of_c: Tensor | None,
        is_last: bool,
    ) -> Tensor | None:
        """The gradient of A, where there is one; those of votes and prior are kept."""
        votes, found, detach = self.votes, self.found, self.detach
        wants_votes = found.any
        wants_before = self.of_bias is not None or self.of_prior is not None
        mixes = of_s if wants_votes and (is_last or detach != "votes") else None
        agrees = agreed if wants_votes and detach in ("none", "states") else None
        # Under "votes" earlier iterations have a gradient for what is no vote.
        wanted = {"none": wants_votes or wants_before, "votes": wants_before}
        goes_back = agreed is not None and wanted.get(detach, False)
        of_logits = goes_back or agrees is not None
        of_logits = of_logits or (self.of_prior is not None and detach != "coupling")
        if mixes is None and not of_logits:
            return None
        of_agreed = votes.parents(lanes) if goes_back else None
        for tile in votes.tiles(lanes):
            part = agreement_tile(votes, tile)
            c = _couplings(votes, tile, part, agreed, self.prior, self.leaky)
            of_b = self._of_logits(tile, part, c, of_s, of_c) if of_logits else c
            if of_agreed is not None:
                of_agreed += part.mixed(of_b)
            pairs = ((c, mixes), (of_b, agrees))
            terms = [(amount, x) for amount, x in pairs if x is not None]
            if terms:
                part.add(found, terms)
        return of_agreed

    def _of_logits(
        self, tile: Tile, part: AgreementTile, c: Tensor, of_s: Tensor | None, of_c: Tensor | None
    ) -> Tensor:
        """The gradient of b, [t, j, p, b]; that of the prior is kept."""
        votes = self.votes
        of_b = torch.zeros_like(c) if of_s is None else part.along(of_s)
        if of_c is not None:
            of_b += votes.of_couplings(of_c, tile).flatten(-2)
        of_b = c * (of_b - (c * of_b).sum(1, keepdim=True))
        if self.of_prior is not None:
            mine = votes.of_couplings(self.of_prior, tile)
            mine += votes.by_lane(of_b, tile.lanes).sum_to_size(mine.shape)
        return of_b


def recorded(gradients: Tensor | None, t: int) -> Tensor | None:
    """Of what was kept of iteration t, counted from the end, [p, b, …]."""
    kept = gradients is not None and -t <= len(gradients)
    return gradients[t].transpose(0, 1) if gradients is not None and kept else None


_forward = torch.library.custom_op("torchcaps::dynamic_routing", _forward_kernel, mutates_args=())
_backward = torch.library.custom_op(
    "torchcaps::dynamic_routing_backward", _backward_kernel, mutates_args=()
)


@_forward.register_fake
def _forward_shapes(pose: Tensor, weight: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    *_, sharing, kind, window, dtype, iterations, _, _, _, _, _, keep = arguments
    vote_map = vote_map_of(pose, weight, None, None, sharing, kind, window)
    *lead, n_in, n_out, size = vote_like(vote_map).shape
    lanes = (math.prod(lead), 1) if not window else (math.prod(lead[:-1]), lead[-1])
    return outputs(pose.to(dtype), lanes, (n_in, n_out, size), iterations, keep)


@_backward.register_fake
def _backward_shapes(
    of_poses: Tensor | None, of_couplings: Tensor | None, sums: Tensor, *arguments: Any
) -> list[Tensor]:
    return shapes_listed(arguments[:6], arguments[-1], sums)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0], *inputs[:6])
    ctx.options = inputs[6:]


def _differentiate(ctx: Any, _: None, *of_kept: Tensor | None) -> tuple[Any, ...]:
    sums, *tensors = ctx.saved_tensors
    sharing, kind, window, dtype, _, share, odd_bias, leaky, squash, detach, _ = ctx.options
    needs = list(ctx.needs_input_grad[:6])
    gradients = _backward(
        *of_kept,
        sums,
        *tensors,
        sharing,
        kind,
        window,
        dtype,
        share,
        odd_bias,
        leaky,
        squash,
        detach,
        needs,
    )
    return wanted(ctx, gradients, needs)


_forward.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "fused dynamic routing", "dynamic_routing")
