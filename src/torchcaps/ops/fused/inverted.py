"""Inverted routing from a vote map: the votes are made tile by tile, in both passes, never stored.

The algorithm, its papers, its options and its ambiguities are those of `ops.inverted_routing`.

first iteration    s_j = Σ_i v_ij / J: one convolution through windows, one product without
later iterations   r_ij = softmax_j(scale ⟨p_j, v_ij⟩),   s_j = Σ_i r_ij v_ij

so between iterations only parents live. Backwards, from γ_j, the gradient of s_j, and κ_ij, the
gradient of r_ij where it was recorded,

    h_ij  = ⟨v_ij, γ_j⟩ + κ_ij,           b_ij = scale r_ij (h_ij − Σ_k r_ik h_ik)
    ∂v_ij = r_ij γ_j + b_ij p_j,          ∂p_j = Σ_i b_ij v_ij

Departures:
1. No activations (ablation C): they need the spread of votes around their mean.
2. Half precision, also that of autocast, is widened before votes are made, and only parents and
   couplings are rounded; a vote tensor is rounded itself.
Ambiguities: none.

Kept are the children, the weights and the parents of every iteration. No gradient of the gradient.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from torchcaps.ops.checks import (
    check_broadcast,
    check_iterations,
    check_keep,
    check_number,
    check_votes,
    widen,
    without_autocast,
)
from torchcaps.ops.fused.tiles import TiledVotes, VoteGradients, vote_like, vote_map_of
from torchcaps.ops.gradients import once, shapes_listed, wanted
from torchcaps.ops.routing.inverted import NORM_GUARD, _check_norm
from torchcaps.types import Capsules, Keep, Routed, Step, VoteMap, Window

__all__ = ["inverted_routing", "inverted_step"]

# (parents, pose, weight, bias, coordinates, sharing, kind, window, dtype, scale, kept) to sums and
# couplings, as `_sums_kernel` has them.
Sums = Callable[..., tuple[Tensor, Tensor]]
# Copies of children for one convolution; larger ones cost page faults.
CHUNK_BYTES = 8 << 20
# What to call instead of the sums, of which `attention_by_sums` makes another routing.
ITS_PLAIN = "inverted_routing or ops.self_attention_routing"


def inverted_step(vote_map: VoteMap, parents: Tensor | None, **options: Any) -> Step:
    """One iteration from the present parent poses [*b, j, d], or [*b, p, j, d] through a window;
    `None` is the first one. Options are `norm`, `scale` and `keep`; with keep="none" the coupling
    of the step is an empty tensor.
    """
    return step(_sums, vote_map, parents, **options)


def inverted_routing(vote_map: VoteMap, **options: Any) -> Routed:
    """Route the votes of a vote map to parents [*b, j, d], or [*b, p, j, d] through a window, with
    the options, values and gradients of `ops.inverted_routing` of the materialised votes.

    >>> vote_map = VoteMap(Capsules(torch.ones(1152, 8)), torch.ones(1152, 10, 16, 8))
    >>> inverted_routing(vote_map).parents.pose.shape
    torch.Size([10, 16])
    """
    return route(_sums, vote_map, **options)


def step(
    sums: Sums,
    vote_map: VoteMap,
    parents: Tensor | None,
    *,
    norm: tuple[Tensor, Tensor] | None = None,
    scale: float = 1.0,
    keep: Keep = "none",
) -> Step:
    """One iteration whose sums over children are made by `sums`."""
    votes = _checked(vote_map, norm, scale, keep)
    poses = (*votes.shape[:-3], *votes.shape[-2:])
    check_broadcast("parents", parents, poses, "[*batch, parent, pose]")
    found = _step(sums, vote_map, votes, parents, norm, scale, keep != "none")
    return _rounded(found, votes.dtype)


def route(
    sums: Sums,
    vote_map: VoteMap,
    *,
    iterations: int = 2,
    norm: tuple[Tensor, Tensor] | None = None,
    scale: float = 1.0,
    start: Tensor | None = None,
    keep: Keep = "none",
) -> Routed:
    """All iterations."""
    check_iterations(iterations)
    votes = _checked(vote_map, norm, scale, keep)
    poses = (*votes.shape[:-3], *votes.shape[-2:])
    check_broadcast("start", start, poses, "[*batch, parent, pose]")
    parents, steps = start, []
    for t in range(1, iterations + 1):
        kept = keep == "steps" or (keep == "last" and t == iterations)
        step = _step(sums, vote_map, votes, parents, norm, scale, kept)
        parents = step.parents.pose
        if kept:
            steps.append(_rounded(step, votes.dtype))
    return Routed(_rounded(step, votes.dtype).parents, tuple(steps))


def _checked(
    vote_map: VoteMap, norm: tuple[Tensor, Tensor] | None, scale: float, keep: str
) -> Tensor:
    """A tensor like the votes would be."""
    votes = vote_like(vote_map)
    check_votes(votes)
    check_keep(keep)
    check_number("scale", scale)
    _check_norm(norm, votes.shape[-1])
    return votes


def _step(
    sums: Sums,
    vote_map: VoteMap,
    votes: Tensor,
    parents: Tensor | None,
    norm: tuple[Tensor, Tensor] | None,
    scale: float,
    kept: bool,
) -> Step:
    """One iteration of checked arguments, not rounded."""
    *lead, n_in, n_out, d = votes.shape
    # Of one number: `votes` stands for more than there is memory.
    dtype, window = widen(votes.new_empty(())).dtype, vote_map.window
    by_lane = (math.prod(lead[:-1]), lead[-1]) if window else (math.prod(lead), 1)
    bias, coordinates = vote_map.bias, vote_map.coordinates
    with without_autocast(votes):
        if parents is not None:
            parents = parents.to(dtype).expand(*lead, n_out, d).reshape(*by_lane, n_out, d)
        s, r = sums(
            parents,
            vote_map.children.pose,
            vote_map.weight,
            None if bias is None else bias.to(dtype).expand(n_out, d),
            None if coordinates is None else coordinates.to(dtype).expand(n_in, d),
            vote_map.sharing,
            vote_map.pose,
            [] if window is None else [*window.child_grid, *window.kernel, *window.stride],
            dtype,
            scale,
            kept and parents is not None,
        )
        p = s.view(*lead, n_out, d)
        if parents is None:
            p, r = p / n_out, r.new_full((*lead, n_in, n_out) if kept else (0,), 1 / n_out)
        elif kept:
            r = r.view(*lead, n_in, n_out)
        if norm is not None:
            weight, norm_bias = (x.to(dtype).expand(d) for x in norm)
            p = layer_norm(p, (d,), weight, norm_bias, NORM_GUARD)
    return Step(None, r, Capsules(p))


def _rounded(step: Step, dtype: torch.dtype) -> Step:
    return Step(None, step.coupling.to(dtype), Capsules(step.parents.pose.to(dtype)))


def _sums_kernel(
    parents: Tensor | None,
    pose: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    scale: float,
    kept: bool,
) -> tuple[Tensor, Tensor]:
    """Σ_i r_ij v_ij [b, p, j, d] of such parents and, if kept, r [b, p, i, j]; without parents r is
    1."""
    vote_map = vote_map_of(pose, weight, bias, coordinates, sharing, kind, window)
    with without_autocast(pose):
        if parents is None and vote_map.window is not None:
            return _Convolution(vote_map, vote_map.window, dtype).sums(), pose.new_empty(0)
        votes = TiledVotes(vote_map, dtype)
        lead = (votes.n_batch, votes.n_windows)
        sums = votes.children.new_empty(*lead, votes.n_out, votes.d_out)
        couplings = sums.new_empty((*lead, votes.n_in, votes.n_out) if kept else (0,))
        for lanes in votes.lanes():
            if parents is None:
                s = votes.total(lanes)
            else:
                p, s = votes.to_lanes(parents.transpose(0, 1)[lanes]), votes.parents(lanes)
                for tile in votes.tiles(lanes):
                    v = votes.votes(tile, votes.seen(tile))  # [t, j, d, p, b]
                    r = _coupling(v, p, scale)
                    if kept:
                        part = votes.of_couplings(couplings.transpose(0, 1), tile)
                        part.copy_(votes.by_lane(r, lanes))
                    _add_weighted(s, r, v)
            sums.transpose(0, 1)[lanes] = votes.from_lanes(s, lanes)
    return sums, couplings


def _backward_kernel(
    of_sums: Tensor | None,
    of_couplings: Tensor | None,
    parents: Tensor | None,
    pose: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    coordinates: Tensor | None,
    sharing: str,
    kind: str,
    window: Sequence[int],
    dtype: torch.dtype,
    scale: float,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients of the five tensors, empty where there is no need."""
    vote_map = vote_map_of(pose, weight, bias, coordinates, sharing, kind, window)
    of_parents = None
    with without_autocast(pose):
        if parents is None and vote_map.window is not None:
            assert of_sums is not None
            convolution = _Convolution(vote_map, vote_map.window, dtype)
            found = convolution.gradients(of_sums, *needs[1:])
        else:
            votes = TiledVotes(vote_map, dtype)
            sums = VoteGradients(votes, *needs[1:])
            if of_sums is None:
                lead = (votes.n_batch, votes.n_windows)
                of_sums = votes.children.new_zeros(*lead, votes.n_out, votes.d_out)
            if parents is not None:
                of_parents = torch.empty_like(parents)
            _add_gradients(votes, sums, of_sums, of_couplings, parents, of_parents, scale)
            found = sums.of(vote_map)
    return [pose.new_empty(0) if x is None else x for x in (of_parents, *found)]


def _add_gradients(
    votes: TiledVotes,
    found: VoteGradients,
    of_sums: Tensor,
    of_couplings: Tensor | None,
    parents: Tensor | None,
    of_parents: Tensor | None,
    scale: float,
) -> None:
    """Those of votes to `found`, those of parents into `of_parents`."""
    for lanes in votes.lanes():
        of_s = votes.to_lanes(of_sums.transpose(0, 1)[lanes])
        if parents is None or of_parents is None:
            found.add_to_total(lanes, of_s)
            continue
        p, of_p = votes.to_lanes(parents.transpose(0, 1)[lanes]), votes.parents(lanes)
        for tile in votes.tiles(lanes):
            seen = votes.seen(tile)
            v = votes.votes(tile, seen)
            r, h = _coupling(v, p, scale), _along(v, of_s)
            if of_couplings is not None:
                h += votes.of_couplings(of_couplings.transpose(0, 1), tile).flatten(-2)
            of_logits = (r * (h - (r * h).sum(1, keepdim=True))).mul_(scale)
            _add_weighted(of_p, of_logits, v)
            if found.any:
                of_v = torch.mul(r.unsqueeze(2), of_s.unsqueeze(-2), out=v)
                found.add(tile, seen, of_v.addcmul_(of_logits.unsqueeze(2), p.unsqueeze(-2)))
        of_parents.transpose(0, 1)[lanes] = votes.from_lanes(of_p, lanes)


def _along(v: Tensor, parents: Tensor) -> Tensor:
    """⟨v_ij, p_j⟩ as [t, j, p, b]; parents are [j, d, b]."""
    return (v * parents.unsqueeze(-2)).sum(2)


def _coupling(v: Tensor, parents: Tensor, scale: float) -> Tensor:
    return _along(v, parents).mul_(scale).softmax(1)


def _add_weighted(sums: Tensor, share: Tensor, v: Tensor) -> None:
    """Σ_i share_ij v_ij to sums [j, d, b]."""
    if v.shape[0] == v.shape[3] == 1:  # One child: in one pass, not three.
        sums.addcmul_(share[0], v[0, :, :, 0])
    else:
        sums += (v * share.unsqueeze(2)).sum((0, 3))


class _Convolution:
    """Σ_i v_ij through windows. A pose is a matrix of `rows` that meet the same weights, a vector
    one of one row, so this is a convolution from (type, k) to (j, c) channels with (b, row) as its
    batch."""

    def __init__(self, vote_map: VoteMap, window: Window, dtype: torch.dtype):
        self.vote_map, self.window, self.dtype = vote_map, window, dtype
        self.is_matrix = vote_map.pose == "matrix"
        pose, weight = vote_map.children.pose, vote_map.weight.to(dtype)
        weight = weight.unsqueeze(0) if vote_map.sharing == "all" else weight
        weight = weight.transpose(-1, -2) if self.is_matrix else weight
        self.kinds, self.n_out, self.columns, self.k = weight.shape
        self.rows = self.k if self.is_matrix else 1
        *lead, _, _ = pose.shape
        self.images = pose.reshape(math.prod(lead), *window.child_grid, self.rows, self.k)
        self.slots = math.prod(window.kernel) * window.child_grid[2]
        # Slots are ordered (row, column, type), whichever of them share weights.
        weight = weight.repeat(self.slots // self.kinds, 1, 1, 1)
        weight = torch.unflatten(weight, 0, (*window.kernel, -1)).permute(3, 4, 2, 5, 0, 1)
        filters = weight.flatten(2, 3).flatten(0, 1)  # [(j, c), (type, k), kh, kw]
        # Not `contiguous`, which leaves any stride to axes of size one, and convolutions may not.
        self.filters = filters.clone(memory_format=torch.channels_last)

    def sums(self) -> Tensor:
        """[b, p, j, d]"""
        grid = (*self.window.positions, self.n_out, self.rows, self.columns)
        sums = self.filters.new_empty(len(self.images), *grid)
        for part in self._parts():
            maps = torch.conv2d(self._maps(part), self.filters, stride=self.window.stride)
            sums[part] = self._grid(maps, self.n_out)
        sums = sums.flatten(-2).flatten(1, 2)
        if self.vote_map.bias is not None:
            sums += self.slots * self.vote_map.bias
        if self.vote_map.coordinates is not None:
            sums += self.vote_map.coordinates.sum(0)
        return sums

    def gradients(
        self, of_sums: Tensor, pose: bool, weight: bool, bias: bool, coordinates: bool
    ) -> list[Tensor | None]:
        """Of pose, weight, bias and coordinates, from those of sums [b, p, j, d]."""
        of_images = torch.empty_like(self.images) if pose else None
        of_filters = torch.zeros_like(self.filters) if weight else None
        grid = torch.unflatten(of_sums, -1, (self.rows, self.columns))
        grid = torch.unflatten(grid, 1, self.window.positions)  # [b, h, w, j, row, c]
        for part in self._parts() if pose or weight else ():
            of_maps, of_part, _ = torch.ops.aten.convolution_backward(
                _channels(grid[part]),
                self._maps(part),
                self.filters,
                None,
                self.window.stride,
                (0, 0),
                (1, 1),
                False,
                (0, 0),
                1,
                (pose, weight, False),
            )
            if of_images is not None:
                of_images[part] = self._grid(of_maps, self.window.child_grid[2])
            if of_filters is not None:
                of_filters += of_part
        return [
            None if of_images is None else of_images.view(self.vote_map.children.pose.shape),
            None if of_filters is None else self._of_weight(of_filters),
            self.slots * of_sums.sum((0, 1)) if bias else None,
            of_sums.sum((0, 1, 2)).repeat(self.slots, 1) if coordinates else None,
        ]

    def _parts(self) -> Iterator[slice]:
        """Some images at a time."""
        step = max(1, CHUNK_BYTES // (self.images.shape[1:].numel() * self.dtype.itemsize))
        for start in range(0, len(self.images), step):
            yield slice(start, min(start + step, len(self.images)))

    def _maps(self, part: slice) -> Tensor:
        return _channels(self.images[part].to(self.dtype))

    def _grid(self, maps: Tensor, n: int) -> Tensor:
        """Maps [(b, row), (n, c), h, w] as poses [b, h, w, n, row, c]."""
        grid = torch.unflatten(torch.unflatten(maps, 1, (n, -1)), 0, (-1, self.rows))
        return grid.permute(0, 4, 5, 2, 1, 3)

    def _of_weight(self, of_filters: Tensor) -> Tensor:
        types = (self.window.child_grid[2], self.k)
        grid = torch.unflatten(torch.unflatten(of_filters, 1, types), 0, (self.n_out, self.columns))
        slots = grid.permute(4, 5, 2, 0, 1, 3).flatten(0, 2)  # [slot, j, c, k]
        weight = torch.unflatten(slots, 0, (-1, self.kinds)).sum(0)
        weight = weight.transpose(-1, -2) if self.is_matrix else weight
        theirs = self.vote_map.weight
        return weight.reshape(theirs.shape).to(theirs.dtype)


def _channels(grid: Tensor) -> Tensor:
    """Poses [b, h, w, n, row, c] as maps [(b, row), (n, c), h, w], channels last."""
    return grid.permute(0, 4, 1, 2, 3, 5).flatten(4).flatten(0, 1).permute(0, 3, 1, 2)


_sums = torch.library.custom_op("torchcaps::inverted_sums", _sums_kernel, mutates_args=())
_backward = torch.library.custom_op(
    "torchcaps::inverted_sums_backward", _backward_kernel, mutates_args=()
)


@_sums.register_fake
def _sums_shapes(
    parents: Tensor | None, pose: Tensor, weight: Tensor, *arguments: Any
) -> tuple[Tensor, Tensor]:
    *_, sharing, kind, window, dtype, _, kept = arguments
    *lead, n_in, n_out, d = vote_like(
        vote_map_of(pose, weight, None, None, sharing, kind, window)
    ).shape
    lead = [math.prod(lead[:-1]), lead[-1]] if window else [math.prod(lead), 1]
    couplings = (*lead, n_in, n_out) if kept else (0,)
    return pose.new_empty((*lead, n_out, d), dtype=dtype), pose.new_empty(couplings, dtype=dtype)


@_backward.register_fake
def _backward_shapes(
    of_sums: Tensor | None, of_couplings: Tensor | None, *arguments: Any
) -> list[Tensor]:
    return shapes_listed(arguments[:5], arguments[-1], arguments[1])


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _differentiate(
    ctx: Any, of_sums: Tensor | None, of_couplings: Tensor | None
) -> tuple[Tensor | None, ...]:
    *options, _ = ctx.options
    needs = list(ctx.needs_input_grad[:5])
    gradients = _backward(of_sums, of_couplings, *ctx.saved_tensors, *options, needs)
    return wanted(ctx, gradients, needs)


_sums.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "fused inverted or self-attention routing", ITS_PLAIN)
