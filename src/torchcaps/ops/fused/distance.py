"""Distance routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers, its options and its ambiguities are those of `ops.distance_routing`. With
φ_ij, what shortens a vote, n_ij = v_j − û_ij of the parents of the last iteration and one rate f a
sample, or one for all,

    d_ij = sqrt(‖n_ij‖² + ε),   f = −2 ln(p (J − 1) / (1 − p)) / d_o,   c_ij = softmax_j(f d_ij)
    s_j  = Σ_i c_ij û_ij,       S_j = ∂s_j/∂f = Σ_i c_ij (d_ij − Σ_k c_ik d_ik) û_ij

in two passes: d_o is known when all distances are. Backwards one is enough, as S tells beforehand
what f is owed; κ_ij, the gradient of c_ij where it was recorded, costs another. With γ_j, that of
s_j,

    h_ij  = ⟨û_ij, γ_j⟩ + κ_ij,              β_ij = c_ij (h_ij − Σ_k c_ik h_ik)
    ∂f    = Σ_j ⟨γ_j, S_j⟩ + Σ_ij κ_ij c_ij (d_ij − Σ_k c_ik d_ik),     ∂d_o = −∂f f / d_o
    q_ij  = (f β_ij + mean share of ∂d_o) / d_ij
    ∂û_ij = c_ij γ_j − q_ij n_ij,            ∂v_j = Σ_i q_ij n_ij   of the iteration before

and through φ = a / ‖w‖ of a vote w that is longer than its child a,

    ∂w_ij = φ (∂û_ij − ⟨∂û_ij, w_ij⟩ w_ij / ‖w_ij‖²),   ∂a_i = Σ_j ⟨∂û_ij, w_ij⟩ / ‖w_ij‖

Departures: half precision votes are not rounded before they are routed, as a vote tensor is; they
are made in float32, and only parents and couplings are rounded.
Ambiguities: none.

Kept are the children, the weights, and s and S of every iteration, parents only; while it runs, the
forward pass holds φ and d, two numbers a child and parent. No gradient of the gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.ops.checks import (
    check_broadcast,
    check_choice,
    check_iterations,
    check_keep,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.fused.agreement import along
from torchcaps.ops.fused.dynamic import (
    biased,
    by_lane,
    outputs,
    recorded,
    routed,
    squash_gradient,
)
from torchcaps.ops.fused.em import of_tile, write_tile
from torchcaps.ops.fused.tiles import Lanes, Tile, TiledVotes, VoteGradients, vote_like, vote_map_of
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.routing.distance import DetachVotes, Scale, _check_distances, _log_odds
from torchcaps.ops.squash import EPSILON, Squash
from torchcaps.ops.squash import squash as g
from torchcaps.types import Keep, Routed, VoteMap

__all__ = ["distance_routing"]


def distance_routing(
    vote_map: VoteMap,
    *,
    iterations: int = 3,
    scale: Scale | Tensor = "sample",
    bias: Tensor | None = None,
    p: float = 0.9,
    squash: Squash = "hinton",
    detach: DetachVotes = "none",
    keep: Keep = "none",
) -> Routed:
    """Route the votes of a vote map, whose children are as long as their activations, to parents
    [*b, j, d], or [*b, p, j, d] through a window, with the values and gradients of
    `ops.distance_routing` of the materialised votes.

    >>> from torchcaps import Capsules
    >>> children = Capsules(torch.ones(1152, 8), torch.ones(1152))
    >>> routed = distance_routing(VoteMap(children, torch.ones(1152, 10, 16, 8)))
    >>> routed.parents.pose.shape, routed.scale.shape
    (torch.Size([10, 16]), torch.Size([2]))
    """
    votes = vote_like(vote_map)
    found = checked(vote_map, votes, iterations, scale, bias, p, squash, detach, keep)
    activation, log_odds = found
    given = scale if isinstance(scale, Tensor) else None
    vote_bias, coordinates, window = vote_map.bias, vote_map.coordinates, vote_map.window
    *lead, n_in, n_out, size = votes.shape
    n_batch, n_windows = (math.prod(lead[:-1]), lead[-1]) if window else (math.prod(lead), 1)
    # Of one number: `votes` stands for more than there is memory.
    wide = widen(votes.new_empty(())).dtype
    length = activation.to(wide).expand(*lead, n_in).reshape(n_batch, n_windows, n_in)
    _, _, means, poses, couplings = _forward(
        vote_map.children.pose,
        vote_map.weight,
        None if vote_bias is None else vote_bias.to(wide).expand(n_out, size),
        None if coordinates is None else coordinates.to(wide).expand(n_in, size),
        length.permute(2, 1, 0).unsqueeze(1),  # [i, 1, p, b]
        None if bias is None else by_lane(bias.to(wide), votes[..., 0, :, :], window),
        None if given is None else given.to(wide),
        vote_map.sharing,
        vote_map.pose,
        [] if window is None else [*window.child_grid, *window.kernel, *window.stride],
        wide,
        iterations,
        log_odds,
        scale == "sample" if given is None else False,
        # What the rate f is owed; nobody asks in a prediction.
        torch.is_grad_enabled() and (given is None or given.requires_grad),
        squash,
        detach,
        keep,
    )
    if means.ndim > 1:
        means = means.reshape(iterations - 1, *lead).movedim(0, -1)
    return routed(votes, poses, couplings, keep)._replace(scale=means if iterations > 1 else None)


def checked(
    vote_map: VoteMap,
    votes: Tensor,
    iterations: int,
    scale: Scale | Tensor,
    bias: Tensor | None,
    p: float,
    squash: Squash,
    detach: DetachVotes,
    keep: Keep,
) -> tuple[Tensor, float]:
    """What every form of distance routing asks of its arguments; lengths of children as a window
    sees them, and the log odds that p stands for."""
    check_votes(votes)
    check_iterations(iterations)
    if isinstance(scale, Tensor):
        _check_distances(scale, iterations - 1)
    else:
        check_choice("scale", scale, get_args(Scale))
    check_choice("detach", detach, get_args(DetachVotes))
    check_keep(keep)
    activation, window = vote_map.children.activation, vote_map.window
    if activation is None:
        raise TorchcapsError(
            "distance routing keeps votes as short as their children, but the children came "
            "without lengths; give them, for example Capsules(pose, pose.norm(dim=-1))."
        )
    if window is not None:
        activation = window.of(activation.unsqueeze(-1)).squeeze(-1)
    check_broadcast("activation", activation, votes.shape[:-2], "[*batch, child]")
    check_broadcast("bias", bias, (*votes.shape[:-3], *votes.shape[-2:]), "[*batch, parent, pose]")
    log_odds = _log_odds(p, votes.shape[-2])
    check_choice("squash", squash, get_args(Squash))
    return activation, log_odds


def _forward_kernel(
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    length: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    iterations: int,
    log_odds: float,
    by_sample: bool,
    with_slopes: bool,
    squash: str,
    detach: str,
    keep: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """s of every iteration and S of those after the first [t, b, p, j, d], d_o [t, b, p] or [t], v
    and c of the iterations kept (of v always the last)."""
    vote_map = vote_map_of(pose, weight, vote_bias, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        many, counts = (votes.n_batch, votes.n_windows), (votes.n_in, votes.n_out, votes.d_out)
        outputs = _made(votes.children, many, counts, iterations, by_sample, with_slopes, keep)
        sums, slopes, means, poses, couplings = outputs
        shape = (votes.n_in, votes.n_out, votes.n_windows, votes.n_batch)
        factors = sums.new_empty(shape)
        distances = sums.new_empty(shape if iterations > 1 else (0,))
        v = rate = None
        for t in range(iterations):
            if v is not None:
                total = _measure(votes, v, factors, distances)
                if scale is not None:
                    means[t - 1] = scale[t - 1]
                elif by_sample:
                    means[t - 1] = total.t() / (votes.n_in * votes.n_out)
                else:
                    means[t - 1] = total.sum() / distances.numel()
                rate = _rate(means[t - 1], log_odds).expand(shape[3], shape[2]).t()
            record = t - iterations + len(couplings)
            kept = couplings[record].transpose(0, 1) if record >= 0 else None
            slope = slopes[t - 1].transpose(0, 1) if t and with_slopes else None
            s = sums[t].transpose(0, 1)  # [p, b, j, d]
            for lanes in votes.lanes():
                if rate is None:
                    s[lanes] = votes.from_lanes(_begin(votes, lanes, length, factors, kept), lanes)
                    continue
                mixed = _mix(votes, lanes, rate, factors, distances, slope, kept)
                s[lanes] = votes.from_lanes(mixed, lanes)
            v = g(biased(s, bias, False), cast(Squash, squash))
            record = t - iterations + len(poses)
            if record >= 0:
                poses[record] = v.transpose(0, 1)
    return outputs


def _made(
    like: Tensor,
    lanes: tuple[int, int],
    counts: tuple[int, int, int],
    iterations: int,
    by_sample: bool,
    with_slopes: bool,
    keep: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What the forward pass fills."""
    sums, poses, couplings = outputs(like, lanes, counts, iterations, keep)
    slopes = like.new_empty((iterations - 1 if with_slopes else 0, *sums.shape[1:]))
    means = like.new_empty((iterations - 1, *(lanes if by_sample else ())))
    return sums, slopes, means, poses, couplings


def _rate(mean: Tensor, log_odds: float) -> Tensor:
    return log_odds / (mean / 2 - mean)


def _lengths(part: Tensor, limit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which votes [t, j, d, p, b] are longer than `limit`, their norms (1 for others), and φ."""
    norm = _along_itself(part).sqrt_()
    # Below the smallest normal number 1/norm overflows, and a vote is short enough.
    longer = norm > limit.clamp(min=torch.finfo(norm.dtype).tiny)
    norm = torch.where(longer, norm, 1)
    return longer, norm, torch.where(longer, limit / norm, 1)


def _along_itself(part: Tensor) -> Tensor:
    return (part * part).sum(2)


def _between(part: Tensor, factor: Tensor, v: Tensor) -> Tensor:
    """n_ij = v_j − φ_ij w_ij, in new memory."""
    return torch.addcmul(v.unsqueeze(-2), part, factor.unsqueeze(2), value=-1)


def _begin(
    votes: TiledVotes, lanes: Lanes, length: Tensor, factors: Tensor, kept: Tensor | None
) -> Tensor:
    """Σ_i û_ij / J as [j, d, b]; φ is kept."""
    s = votes.parents(lanes)
    for tile in votes.tiles(lanes):
        part = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
        _, _, factor = _lengths(part, of_tile(votes, length, tile))
        write_tile(votes, factors, tile, factor)
        s += part.mul_(factor.unsqueeze(2)).sum((0, 3))
    if kept is not None:
        kept[lanes].fill_(1 / votes.n_out)
    return s / votes.n_out


def _measure(votes: TiledVotes, v: Tensor, factors: Tensor, distances: Tensor) -> Tensor:
    """Distances to parents [p, b, j, d] into `distances`, and their sums [p, b]."""
    total = v.new_empty(v.shape[:2])
    for lanes in votes.lanes():
        mine, found = votes.to_lanes(v[lanes]), v.new_zeros(votes.count(lanes))
        for tile in votes.tiles(lanes):
            part = votes.votes(tile, votes.seen(tile))
            gap = part.mul_(of_tile(votes, factors, tile).unsqueeze(2)).sub_(mine.unsqueeze(-2))
            d = gap.square_().sum(2).add_(EPSILON).sqrt_()
            found += d.sum((0, 1, 2))
            write_tile(votes, distances, tile, d)
        total[lanes] = found.view(total[lanes].shape)
    return total


def _mix(
    votes: TiledVotes,
    lanes: Lanes,
    rate: Tensor,
    factors: Tensor,
    distances: Tensor,
    slope: Tensor | None,
    kept: Tensor | None,
) -> Tensor:
    """Σ_i c_ij û_ij as [j, d, b]; S and c are kept."""
    s, f = votes.parents(lanes), rate[lanes].flatten()
    more = torch.zeros_like(s)
    for tile in votes.tiles(lanes):
        part = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
        d = of_tile(votes, distances, tile)
        c = (d * f).softmax(1)
        if kept is not None:
            votes.of_couplings(kept, tile).copy_(votes.by_lane(c, lanes))
        share = c * of_tile(votes, factors, tile)
        if slope is not None:
            more += (part * (share * _from_mean(c, d)).unsqueeze(2)).sum((0, 3))
        s += part.mul_(share.unsqueeze(2)).sum((0, 3))
    if slope is not None:
        slope[lanes] = votes.from_lanes(more, lanes)
    return s


def _from_mean(c: Tensor, x: Tensor) -> Tensor:
    """x_ij − Σ_k c_ik x_ik"""
    return x - (c * x).sum(1, keepdim=True)


def _backward_kernel(
    of_means: Tensor | None,
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
    sums: Tensor,
    slopes: Tensor,
    means: Tensor,
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    length: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    log_odds: float,
    squash: str,
    detach: str,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the seven tensors, empty where there is no need."""
    vote_map = vote_map_of(pose, weight, vote_bias, coordinates, sharing, kind, window)
    with without_autocast(pose):
        votes = TiledVotes(vote_map, dtype)
        found = VoteGradients(votes, *needs[:4])
        new = votes.children.new_zeros
        routing = _Backward(
            votes=votes,
            found=found,
            length=length,
            bias=bias,
            scale=scale,
            of_length=new(length.shape) if needs[4] else None,
            of_bias=None if bias is None or not needs[5] else new(bias.shape),
            of_scale=None if scale is None or not needs[6] else new(scale.shape),
            log_odds=log_odds,
            squash=squash,
            detach=detach,
        )
        routing.run(sums, slopes, means, of_means, of_poses, of_couplings)
        gradients = [
            *found.of(vote_map),
            routing.of_length,
            routing.of_bias,
            routing.of_scale,
        ]
    return listed(gradients, votes.children)


@dataclass
class _Backward:
    """All iterations, from the last to the first; parents are [p, b, j, d]."""

    votes: TiledVotes
    found: VoteGradients
    length: Tensor
    bias: Tensor | None
    scale: Tensor | None
    of_length: Tensor | None
    of_bias: Tensor | None
    of_scale: Tensor | None
    log_odds: float
    squash: str
    detach: str

    def run(
        self,
        sums: Tensor,
        slopes: Tensor,
        means: Tensor,
        of_means: Tensor | None,
        of_poses: Tensor | None,
        of_couplings: Tensor | None,
    ) -> None:
        count = len(sums)
        wants_votes = self.found.any or self.of_length is not None
        every = wants_votes and self.detach == "none"
        goes_back = every or self.of_bias is not None or self.of_scale is not None
        later: Tensor | None = None
        for t in reversed(range(count)):
            is_last = t == count - 1
            s = sums[t].transpose(0, 1)
            of_v = recorded(of_poses, t - count)
            of_v = torch.zeros_like(s) if of_v is None else of_v
            of_v = of_v if later is None else of_v + later
            of_s = squash_gradient(biased(s, self.bias, False), of_v, self.squash)
            if self.of_bias is not None:
                self.of_bias += of_s.sum_to_size(self.of_bias.shape)
            mixes = wants_votes if is_last else every
            if t == 0:
                if mixes:
                    for lanes in self.votes.lanes():
                        self._first(lanes, of_s)
            elif mixes or goes_back:
                of_c = recorded(of_couplings, t - count)
                before = sums[t - 1].transpose(0, 1)
                v = g(biased(before, self.bias, False), cast(Squash, self.squash))
                mean = means[t - 1]
                f = _rate(mean, self.log_odds)
                rate = f.expand(s.shape[1], s.shape[0]).t()
                share = torch.zeros_like(rate)
                if goes_back and len(slopes):
                    of_f = (of_s * slopes[t - 1].transpose(0, 1)).sum((-2, -1))
                    if of_c is not None:
                        of_f += self._of_rate(v, rate, of_c)
                    of_mean = -of_f.t().sum_to_size(mean.shape) * f / mean
                    if of_means is not None:
                        of_mean = of_mean + of_means[t - 1]
                    if self.of_scale is not None:
                        self.of_scale[t - 1] = of_mean
                    elif self.scale is None:
                        distances = s.shape[:2].numel() // max(1, mean.numel())
                        distances *= self.votes.n_in * self.votes.n_out
                        share = (of_mean / distances).expand(rate.t().shape).t()
                later = torch.empty_like(v) if goes_back else None
                for lanes in self.votes.lanes():
                    self._iteration(lanes, v, rate, share, of_s, of_c, later, mixes, every)

    def _first(self, lanes: Lanes, of_sum: Tensor) -> None:
        """Equal couplings."""
        votes = self.votes
        of_votes = (votes.to_lanes(of_sum[lanes]) / votes.n_out).unsqueeze(-2)
        for tile in votes.tiles(lanes):
            seen = votes.seen(tile)
            part = votes.votes(tile, seen)  # [t, j, d, p, b]
            found = _lengths(part, of_tile(votes, self.length, tile))
            self._add(tile, seen, part, of_votes.expand(part.shape), *found)

    def _iteration(
        self,
        lanes: Lanes,
        parents: Tensor,
        rate: Tensor,
        of_mean: Tensor,
        of_sum: Tensor,
        of_c: Tensor | None,
        of_parents: Tensor | None,
        mixes: bool,
        measures: bool,
    ) -> None:
        """Into `of_parents` the gradient of those before, where it is wanted; those of votes and
        lengths are kept, as far as votes mix and as far as they are measured."""
        votes = self.votes
        v, of_s = votes.to_lanes(parents[lanes]), votes.to_lanes(of_sum[lanes])
        f, even = rate[lanes].flatten(), of_mean[lanes].flatten()
        of_v = votes.parents(lanes)
        for tile in votes.tiles(lanes):
            seen = votes.seen(tile)
            part = votes.votes(tile, seen)  # [t, j, d, p, b]
            longer, norm, factor = _lengths(part, of_tile(votes, self.length, tile))
            gap = _between(part, factor, v)
            d = _along_itself(gap).add_(EPSILON).sqrt_()
            c = (d * f).softmax(1)
            if of_parents is not None:
                h = along(part, of_s).mul_(factor)
                if of_c is not None:
                    h += votes.of_couplings(of_c, tile).flatten(-2)
                q = (c * _from_mean(c, h)).mul_(f).add_(even).div_(d)
                gap.mul_(q.unsqueeze(2))
                of_v += gap.sum((0, 3))
            if mixes:
                if measures:
                    of_votes = gap.neg_().addcmul_(c.unsqueeze(2), of_s.unsqueeze(-2))
                else:
                    of_votes = torch.mul(c.unsqueeze(2), of_s.unsqueeze(-2), out=gap)
                self._add(tile, seen, part, of_votes, longer, norm, factor)
        if of_parents is not None:
            of_parents[lanes] = votes.from_lanes(of_v, lanes)

    def _add(
        self,
        tile: Tile,
        seen: Tensor,
        part: Tensor,
        of_votes: Tensor,
        longer: Tensor,
        norm: Tensor,
        factor: Tensor,
    ) -> None:
        """The gradient of shortened votes [t, j, d, p, b], to that of votes and of lengths."""
        # ⟨∂û_ij, w_ij⟩ / ‖w_ij‖
        inward = (of_votes * part).sum(2).div_(norm).mul_(longer)
        if self.of_length is not None:
            mine = self.votes.of_couplings(self.of_length.permute(2, 3, 0, 1), tile)
            mine += self.votes.by_lane(inward.sum(1, keepdim=True), tile.lanes)
        if self.found.any:
            # The votes have served; their memory takes their gradient.
            part.mul_(inward.div_(norm).neg_().unsqueeze(2)).add_(of_votes)
            self.found.add(tile, seen, part.mul_(factor.unsqueeze(2)))

    def _of_rate(self, parents: Tensor, rate: Tensor, of_c: Tensor) -> Tensor:
        """Σ_ij κ_ij c_ij (d_ij − Σ_k c_ik d_ik), [p, b]."""
        votes, total = self.votes, torch.empty_like(rate)
        for lanes in votes.lanes():
            v, f = votes.to_lanes(parents[lanes]), rate[lanes].flatten()
            found = torch.zeros_like(f)
            for tile in votes.tiles(lanes):
                part = votes.votes(tile, votes.seen(tile))
                _, _, factor = _lengths(part, of_tile(votes, self.length, tile))
                d = _along_itself(_between(part, factor, v)).add_(EPSILON).sqrt_()
                c = (d * f).softmax(1)
                kappa = votes.of_couplings(of_c, tile).flatten(-2)
                found += (kappa * c * _from_mean(c, d)).sum((0, 1, 2))
            total[lanes] = found.view(total[lanes].shape)
        return total


_forward = torch.library.custom_op("torchcaps::distance_routing", _forward_kernel, mutates_args=())
_backward = torch.library.custom_op(
    "torchcaps::distance_routing_backward", _backward_kernel, mutates_args=()
)


@_forward.register_fake
def _forward_shapes(pose: Tensor, weight: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    *_, sharing, kind, window, dtype, iterations, _, by_sample, slopes, _, _, keep = arguments
    vote_map = vote_map_of(pose, weight, None, None, sharing, kind, window)
    *lead, n_in, n_out, size = vote_like(vote_map).shape
    lanes = (math.prod(lead), 1) if not window else (math.prod(lead[:-1]), lead[-1])
    return _made(pose.to(dtype), lanes, (n_in, n_out, size), iterations, by_sample, slopes, keep)


@_backward.register_fake
def _backward_shapes(*arguments: Any) -> list[Tensor]:
    return shapes_listed(arguments[6:13], arguments[-1], arguments[3])


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[:3], *inputs[:7])
    ctx.options = inputs[7:]


def _differentiate(ctx: Any, *of_outputs: Tensor | None) -> tuple[Any, ...]:
    sharing, kind, window, dtype, _, log_odds, _, _, squash, detach, _ = ctx.options
    needs = list(ctx.needs_input_grad[:7])
    gradients = _backward(
        *of_outputs[2:],
        *ctx.saved_tensors,
        sharing,
        kind,
        window,
        dtype,
        log_odds,
        squash,
        detach,
        needs,
    )
    return wanted(ctx, gradients, needs)


_forward.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "fused distance routing", "distance_routing")
