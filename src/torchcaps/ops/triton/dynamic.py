"""Dynamic routing from a vote map by Triton kernels: votes live in the registers of a GPU.

The algorithm, its papers and its options are those of `ops.dynamic_routing`; the equations of both
passes are those of `ops.fused.dynamic_routing`, and so is what is kept for the backward pass.

Departures: votes of half precision are products of half precision summed in float32 and not rounded
themselves; gradients of votes are rounded to half precision before they are multiplied with poses
and weights, as they are where votes are stored. float32 is multiplied in full precision, unless
torch.set_float32_matmul_precision allows TensorFloat-32. float64 goes the fused way, as do windows,
priors and biases that differ between samples, and poses so large that the weights of one pair have
more than 8192 numbers.
Ambiguities: none.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.dynamic import of_all_samples, routed
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.routing.dynamic import Detach, check_dynamic
from torchcaps.ops.squash import EPSILON, Squash
from torchcaps.ops.triton.runtime import check_available, interpreted, launch
from torchcaps.types import Keep, Routed, VoteMap

__all__ = ["dynamic_routing"]

# Numbers of parents that a program has at once, and of weights; a product has sixteen of every axis
# at least.
TILE, WEIGHTS, LEAST = 4096, 8192, 16
# So many programs keep a large GPU busy; with fewer children each would only load its parents.
PROGRAMS, CHILDREN = 512, 4
# Numbers of parents that a program squashes, and of partial sums that it adds at once.
SQUASHED, TOGETHER = 128, 16
# Warps of a program. With fewer, differentiation does not fit into registers.
WARPS = 8


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
    """Route the votes of a vote map to parents [*b, j, d], with the values and gradients of
    `ops.dynamic_routing` of the materialised votes."""
    votes = vote_like(vote_map)
    check_dynamic(votes, iterations, bias, prior, squash, detach, keep)
    check_available(votes.device)
    if not _takes(vote_map, votes, bias, prior):
        return fused.dynamic_routing(
            vote_map,
            iterations=iterations,
            bias=bias,
            prior=prior,
            odd_bias=odd_bias,
            leaky=leaky,
            squash=squash,
            detach=detach,
            keep=keep,
        )
    n_in, n_out, size = votes.shape[-3:]
    pose, (vote_bias, coordinates) = vote_map.children.pose, (vote_map.bias, vote_map.coordinates)
    _, poses, couplings = _forward(
        pose.reshape(-1, *pose.shape[-2:]),
        vote_map.weight,
        of_all_samples(vote_bias, n_out, size),
        of_all_samples(coordinates, n_in, size),
        of_all_samples(bias, n_out, size),
        of_all_samples(prior, n_in, n_out),
        vote_map.sharing,
        vote_map.pose,
        _multiplied(pose),
        iterations,
        odd_bias,
        leaky,
        squash,
        detach,
        keep,
    )
    return routed(votes, poses, couplings, keep)


def _takes(vote_map: VoteMap, votes: Tensor, bias: Tensor | None, prior: Tensor | None) -> bool:
    *_, columns, inner = vote_map.weight.shape
    return (
        votes.device.type != "meta"
        and votes.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and vote_map.window is None
        and _padded(columns) * _padded(inner) <= WEIGHTS
        and all(x is None or math.prod(x.shape[:-2]) == 1 for x in (bias, prior))
    )


def _padded(size: int) -> int:
    """To a power of two."""
    return 1 << max(0, size - 1).bit_length()


def _multiplied(pose: Tensor) -> torch.dtype:
    """In what poses and weights are multiplied."""
    kind = pose.device.type
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return pose.dtype


class _Shape(NamedTuple):
    """The sizes of a call; a matrix pose has some rows, all of which meet the same weights."""

    batch: int
    children: int
    parents: int
    types: int
    rows: int
    columns: int
    inner: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


def _shape(pose: Tensor, weight: Tensor, sharing: str, kind: str) -> _Shape:
    batch, children, d_in = pose.shape
    types = 1 if sharing == "all" else len(weight)
    parents, *sizes = weight.shape[-3:]
    columns, inner = reversed(sizes) if kind == "matrix" else sizes
    rows = d_in // inner if kind == "matrix" else 1
    return _Shape(batch, children, parents, types, rows, columns, inner)


class _Blocks(NamedTuple):
    """A tile: samples and parents, and the padded sizes of a pose."""

    lanes: int
    rows: int
    parents: int
    columns: int
    inner: int


def _blocks(shape: _Shape) -> _Blocks:
    rows, columns = _padded(shape.rows), _padded(shape.columns)
    inner = max(LEAST, _padded(shape.inner))
    lanes = max(1, LEAST // rows)
    least = max(1, LEAST // columns)
    most = min(TILE // (lanes * rows), WEIGHTS // inner) // columns
    parents = max(least, min(most, _padded(shape.parents)))
    return _Blocks(lanes, rows, parents, columns, inner)


def _shared_out(children: int, tiles: int, least: int) -> tuple[int, int]:
    """Into how many splits children are parted where there are so many tiles, and of what size."""
    splits = max(1, min(-(-PROGRAMS // max(1, tiles)), children // least))
    size = -(-children // splits)
    return -(-children // size), size


# M, Z and H of the kernels.
Found = tuple[Tensor | None, ...]


class _Terms(NamedTuple):
    """Of which iterations votes and prior have a gradient."""

    first: int
    first_mixed: int  # from here on γ reaches the votes
    first_recorded: int  # from here on couplings have a gradient of their own
    uniform: float  # the couplings of the first iteration, or none
    agrees: bool
    to_logits: bool


@dataclass
class _Kernels:
    """The kernels with the arguments that all calls for one vote map share."""

    pose: Tensor
    weight: Tensor
    vote_bias: Tensor | None
    coordinates: Tensor | None
    bias: Tensor | None
    prior: Tensor | None
    sharing: str
    kind: str
    multiplied: torch.dtype
    odd_bias: bool
    leaky: bool
    squash: str

    def __post_init__(self) -> None:
        # Not before: who has no Triton can import everything else.
        from triton import language

        from torchcaps.ops.triton import dynamic_kernels

        self.kernels, self.language = dynamic_kernels, language
        self.shape = shape = _shape(self.pose, self.weight, self.sharing, self.kind)
        self.blocks = _blocks(shape)
        self.tiles = -(-shape.parents // self.blocks.parents)
        self.lanes = -(-shape.batch // self.blocks.lanes)
        self.is_whole = self.tiles == 1
        self.pose, self.weight = self.pose.contiguous(), self.weight.contiguous()
        self.vote_bias, self.coordinates, self.bias, self.prior = (
            None if x is None else x.contiguous()
            for x in (self.vote_bias, self.coordinates, self.bias, self.prior)
        )

    def empty(self, *sizes: int) -> Tensor:
        return torch.empty(sizes, dtype=torch.float32, device=self.pose.device)

    def parents(self, *lead: int) -> Tensor:
        """[*lead, b, j, d]"""
        return self.empty(*lead, self.shape.batch, self.shape.parents, self.shape.size)

    def found(self, *lead: int) -> Found:
        """Places for M, Z and H, [*lead, b, i]; none where every tile has all parents."""
        if self.is_whole:
            return None, None, None
        most, total, mean = self.empty(3, *lead, self.shape.batch, self.shape.children)
        return most, total, mean

    def total(self) -> Tensor:
        """Partial sums of Σ_i W_ij u_i; children that share weights are summed first."""
        types, pose, multiplied = self.shape.types, self.pose, self.multiplied
        if types < self.shape.children:
            pose = pose.unflatten(1, (-1, types)).sum(1, dtype=torch.float32)
            multiplied = torch.float32
        splits, size = _shared_out(types, self.lanes * self.tiles, CHILDREN)
        partial = self.parents(splits)
        self._run(
            "mix",
            splits * self.tiles * self.lanes,
            *(pose, self.weight, *(None,) * 9, partial, None),
            *self._sizes(children=types),
            *(size, 0),
            **self._constants(multiplied),
            WHOLE=True,
            UNIFORM=True,
        )
        return partial

    def moved(self) -> Tensor | None:
        """What vote bias and coordinates add to Σ_i û_ij, [j, d]."""
        moved = None
        if self.vote_bias is not None:
            moved = self.shape.children * self.vote_bias
        if self.coordinates is not None:
            places = self.coordinates.sum(0).expand(self.shape.parents, -1).contiguous()
            moved = places if moved is None else moved + places
        return moved

    def normalise(
        self,
        t: int,
        agreed: Tensor,
        found: Found,
        of_sum: Tensor | None = None,
        of_coupling: Tensor | None = None,
    ) -> None:
        """M, Z and with γ also H of an iteration."""
        if self.is_whole:
            return
        splits, size = _shared_out(self.shape.children, self.lanes, 1)
        self._run(
            "normalise",
            splits * self.lanes,
            *(*self._made_of(), agreed, of_sum, of_coupling, *found),
            *(*self._sizes(), size, t),
            **self._constants(),
        )

    def mix(
        self,
        t: int,
        agreed: Tensor,
        found: Found,
        of_sum: Tensor | None = None,
        of_coupling: Tensor | None = None,
        coupling: Tensor | None = None,
    ) -> Tensor:
        """Partial sums of Σ_i c_ij û_ij; with γ of Σ_i ∂b_ij û_ij."""
        splits, size = _shared_out(self.shape.children, self.lanes * self.tiles, CHILDREN)
        partial = self.parents(splits)
        self._run(
            "mix",
            splits * self.tiles * self.lanes,
            *(*self._made_of(), agreed, of_sum, of_coupling, *found, partial, coupling),
            *(*self._sizes(), size, t),
            **self._constants(),
            WHOLE=self.is_whole,
            UNIFORM=False,
        )
        return partial

    def finish(
        self,
        partial: Tensor,
        constant: Tensor | None,
        sums: Tensor,
        poses: Tensor | None,
        agreed: Tensor,
        share: float,
        first: bool,
    ) -> None:
        """s, v, and A of the next iteration."""
        self._squash(
            "finish",
            *(partial, constant, self.bias, sums, poses, agreed),
            *(len(partial), share),
            TOGETHER=TOGETHER,
            FIRST=first,
        )

    def agree(self, sums: Tensor) -> Tensor:
        """A of every iteration."""
        agreed = torch.empty_like(sums)
        self._squash("agree", sums, self.bias, agreed, len(sums))
        return agreed

    def unsquash(
        self,
        of_poses: Tensor | None,
        partial: Tensor | None,
        later: Tensor,
        sums: Tensor,
        of_sum: Tensor,
    ) -> None:
        """γ of an iteration; `later` gains the partial sums."""
        splits = 0 if partial is None else len(partial)
        self._squash(
            "unsquash",
            *(of_poses, partial, later, sums, self.bias, of_sum, splits),
            TOGETHER=TOGETHER,
        )

    def differentiate(
        self,
        terms: _Terms,
        agreed: Tensor,
        of_sums: Tensor,
        of_couplings: Tensor | None,
        found: Found,
        needs: list[bool],
    ) -> list[Tensor | None]:
        """Gradients of pose, weight, vote bias, coordinates and prior."""
        shape = self.shape
        splits, size = _shared_out(shape.children // shape.types, shape.types, 1)
        weight = self.weight.shape
        sizes = (
            tuple(self.pose.shape),
            (splits, *weight),
            (splits * shape.types, shape.parents, shape.size),
            (shape.children, shape.size),
        )
        gradients = [
            self.empty(*size) if need else None for size, need in zip(sizes, needs, strict=False)
        ]
        # Of a term that does not go through couplings nothing is written.
        of_prior = torch.zeros_like(self.prior) if self.prior is not None and needs[4] else None
        for tile in range(self.tiles):
            self._run(
                "differentiate",
                splits * shape.types,
                *(*self._made_of(), agreed, of_sums, of_couplings, *found),
                *(*gradients, of_prior if terms.to_logits else None),
                *(*self._sizes(), size, tile * self.blocks.parents),
                *(terms.first, len(agreed), terms.first_mixed, terms.first_recorded, terms.uniform),
                **self._constants(),
                WHOLE=self.is_whole,
                UNIFORM=terms.uniform != 0,
                ASKS=terms.first < len(agreed),
                TO_LOGITS=terms.to_logits,
                AGREES=terms.agrees,
                ADDS=tile > 0,
            )
        _, of_weight, of_vote_bias, _ = gradients
        if of_weight is not None:
            gradients[1] = of_weight.sum(0) if splits > 1 else of_weight.view(weight)
        if of_vote_bias is not None:
            gradients[2] = of_vote_bias.sum(0)
        return [*gradients, of_prior]

    def _made_of(self) -> tuple[Tensor | None, ...]:
        return self.pose, self.weight, self.vote_bias, self.coordinates, self.prior

    def _sizes(self, children: int | None = None) -> tuple[int, ...]:
        shape = self.shape
        return shape.batch, children or shape.children, shape.parents, shape.types

    def _squash(self, name: str, *arguments: Any, **constants: Any) -> None:
        """A kernel of parents alone: they and their number are told between its tensors and its
        numbers."""
        tensors = [x for x in arguments if x is None or isinstance(x, Tensor)]
        numbers = arguments[len(tensors) :]
        count, size = self.shape.batch * self.shape.parents, _padded(self.shape.size)
        rows = max(1, SQUASHED // size)
        self._run(
            name,
            -(-count // rows),
            *(*tensors, count, self.shape.parents, *numbers),
            SIZE=self.shape.size,
            DP=size,
            ROWS=rows,
            EPSILON=EPSILON,
            SQUASH=self.squash,
            ODD=self.odd_bias,
            **constants,
        )

    def _run(self, name: str, programs: int, *arguments: Any, **constants: Any) -> None:
        launch(getattr(self.kernels, name), programs, self.pose, *arguments, **constants)

    def _constants(self, multiplied: torch.dtype | None = None) -> dict[str, Any]:
        shape, blocks, language = self.shape, self.blocks, self.language
        by_column, by_inner = (1, shape.columns) if self.kind == "matrix" else (shape.inner, 1)
        rounded = {
            torch.float32: language.float32,
            torch.float16: language.float16,
            torch.bfloat16: language.bfloat16,
        }[multiplied or self.multiplied]
        is_exact = torch.get_float32_matmul_precision() == "highest"
        return {
            "ROWS": shape.rows,
            "COLUMNS": shape.columns,
            "INNER": shape.inner,
            "BB": blocks.lanes,
            "RP": blocks.rows,
            "BJ": blocks.parents,
            "CP": blocks.columns,
            "KP": blocks.inner,
            "BY_COLUMN": by_column,
            "BY_INNER": by_inner,
            "ROUND": rounded,
            # The interpreter would multiply the bits of bfloat16 as if they were whole numbers.
            "DOT": language.float32 if interpreted() else rounded,
            "PRECISION": "ieee" if is_exact else "tf32",
            "LEAKY": self.leaky,
            "num_warps": WARPS,
        }


def _forward_kernel(
    pose: Tensor,
    weight: Tensor,
    vote_bias: Tensor | None,
    coordinates: Tensor | None,
    bias: Tensor | None,
    prior: Tensor | None,
    sharing: str,
    kind: str,
    multiplied: torch.dtype,
    iterations: int,
    odd_bias: bool,
    leaky: bool,
    squash: str,
    detach: str,
    keep: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """s of every iteration; v and c of the iterations kept (of v always the last), [t, b, …]."""
    sums, poses, couplings = _outputs(pose, weight, kind, iterations, keep)
    if not len(pose):
        return sums, poses, couplings
    kernels = _Kernels(
        *(pose, weight, vote_bias, coordinates, bias, prior, sharing, kind, multiplied),
        *(odd_bias, leaky, squash),
    )
    agreed, found = torch.zeros_like(sums[0]), kernels.found()
    share = 1 / (kernels.shape.parents + leaky)
    for t in range(iterations):
        coupling = _recorded(couplings, t - iterations)
        is_uniform = t == 0 and prior is None
        if is_uniform:
            partial = kernels.total()
            if coupling is not None:
                coupling.fill_(share)
        else:
            kernels.normalise(t, agreed, found)
            partial = kernels.mix(t, agreed, found, coupling=coupling)
        kernels.finish(
            partial,
            kernels.moved() if is_uniform else None,
            sums[t],
            _recorded(poses, t - iterations),
            agreed,
            share if is_uniform else 1.0,
            first=t == 0,
        )
    return sums, poses, couplings


def _outputs(
    pose: Tensor, weight: Tensor, kind: str, iterations: int, keep: str
) -> tuple[Tensor, Tensor, Tensor]:
    batch, n_in, d_in = pose.shape
    n_out, size = weight.shape[-3], d_in if kind == "matrix" else weight.shape[-2]
    steps = {"none": 0, "last": 1, "steps": iterations}[keep]
    return (
        pose.new_empty((iterations, batch, n_out, size), dtype=torch.float32),
        pose.new_empty((max(1, steps), batch, n_out, size), dtype=torch.float32),
        pose.new_empty((steps, batch, n_in, n_out), dtype=torch.float32),
    )


def _recorded(kept: Tensor | None, t: int) -> Tensor | None:
    """Of what was kept of iteration t, counted from the end."""
    return kept[t] if kept is not None and -t <= len(kept) else None


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
    multiplied: torch.dtype,
    odd_bias: bool,
    leaky: bool,
    squash: str,
    detach: str,
    needs: list[bool],
) -> list[Tensor]:
    """Gradients of the six tensors, empty where there is no need."""
    inputs = (pose, weight, vote_bias, coordinates, bias, prior)
    if not len(pose):
        gradients = [
            None if x is None or not need else torch.zeros_like(x)
            for x, need in zip(inputs, needs, strict=True)
        ]
    else:
        kernels = _Kernels(*inputs, sharing, kind, multiplied, odd_bias, leaky, squash)
        of_poses = None if of_poses is None else of_poses.contiguous()
        of_couplings = None if of_couplings is None else of_couplings.contiguous()
        gradients = _gradients(kernels, detach, needs, sums.contiguous(), of_poses, of_couplings)
    found = (
        None if mine is None or x is None else mine.to(x.dtype).contiguous()
        for mine, x in zip(gradients, inputs, strict=True)
    )
    return listed(list(found), sums)


def _gradients(
    kernels: _Kernels,
    detach: str,
    needs: list[bool],
    sums: Tensor,
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
) -> list[Tensor | None]:
    count, prior = len(sums), kernels.prior
    to_votes, to_bias, to_prior = any(needs[:4]), needs[4], needs[5]
    # Under "votes" earlier iterations have a gradient for what is no vote.
    goes_back = {"none": to_votes or to_bias or to_prior, "votes": to_bias or to_prior}
    agrees = to_votes and detach in ("none", "states")
    to_logits = agrees or (to_prior and detach != "coupling")
    only_last = detach == "votes"
    # The first iteration that the votes or the prior have a gradient of.
    least = count - 1 if only_last and not to_prior else 0
    agreed, of_sums, later = kernels.agree(sums), torch.zeros_like(sums), torch.zeros_like(sums[0])
    found = kernels.found(count)
    partial, has_later, uniform, first = None, False, 0.0, count
    for t in reversed(range(count)):
        of_v, of_c = _recorded(of_poses, t - count), _recorded(of_couplings, t - count)
        is_uniform = t == 0 and prior is None
        has_sum = has_later or of_v is not None
        if not has_sum and (of_c is None or is_uniform):
            break
        if has_sum:
            kernels.unsquash(of_v, partial, later, sums[t], of_sums[t])
        if is_uniform:
            uniform = (
                0.0 if only_last and count > 1 else 1 / (kernels.shape.parents + kernels.leaky)
            )
            break
        first = max(t, least)
        is_back = t > 0 and goes_back.get(detach, False)
        here: Found = tuple(None if x is None else x[t] for x in found)
        if is_back or t >= least:
            of_sum = of_sums[t] if is_back or to_logits else None
            kernels.normalise(t, agreed[t], here, of_sum, of_c)
        if is_back:
            partial, has_later = kernels.mix(t, agreed[t], here, of_sums[t], of_c), True
    gradients: list[Tensor | None] = [None] * 5
    if to_votes or (to_prior and to_logits):
        recorded = count if of_couplings is None else count - len(of_couplings)
        mixed = count - 1 if only_last else 0
        terms = _Terms(first, mixed, recorded, uniform, agrees, to_logits)
        wanted = [*needs[:4], to_prior]
        gradients = kernels.differentiate(terms, agreed, of_sums, of_couplings, found, wanted)
    elif prior is not None and to_prior:
        gradients[4] = torch.zeros_like(prior)
    *of_votes, of_prior = gradients
    of_bias = None
    if kernels.bias is not None and to_bias:
        sides = of_sums
        if kernels.odd_bias:
            sides = of_sums * (sums * kernels.bias).sum(-1, keepdim=True).sign()
        of_bias = sides.sum((0, 1))
    return [*of_votes, of_bias, of_prior]


_forward = torch.library.custom_op(
    "torchcaps::triton_dynamic_routing", _forward_kernel, mutates_args=()
)
_backward = torch.library.custom_op(
    "torchcaps::triton_dynamic_routing_backward", _backward_kernel, mutates_args=()
)


@_forward.register_fake
def _forward_shapes(pose: Tensor, weight: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    *_, kind, _, iterations, _, _, _, _, keep = arguments
    return _outputs(pose, weight, kind, iterations, keep)


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
    sharing, kind, multiplied, _, odd_bias, leaky, squash, detach, _ = ctx.options
    needs = list(ctx.needs_input_grad[:6])
    options = (sharing, kind, multiplied, odd_bias, leaky, squash, detach)
    gradients = _backward(*of_kept, *ctx.saved_tensors, *options, needs)
    return wanted(ctx, gradients, needs)


_forward.register_autograd(_differentiate, setup_context=_keep_for_backward)
once(_backward, "Triton dynamic routing", "dynamic_routing")
