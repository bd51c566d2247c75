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
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops import fused
from torchcaps.ops.fused.dynamic import of_all_samples, routed
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.ops.gradients import listed, once, shapes_listed, wanted
from torchcaps.ops.routing.dynamic import Detach, check_dynamic
from torchcaps.ops.squash import EPSILON, Squash
from torchcaps.ops.triton.mixing import Found, Mixing, Terms
from torchcaps.ops.triton.runtime import check_available
from torchcaps.ops.triton.votes import Votes, fits, padded
from torchcaps.types import Keep, Routed, VoteMap

__all__ = ["dynamic_routing"]

# Numbers of parents that a program squashes, and of partial sums that it adds at once.
SQUASHED, TOGETHER = 128, 16


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
    return (
        fits(vote_map)
        and vote_map.window is None
        and all(x is None or math.prod(x.shape[:-2]) == 1 for x in (bias, prior))
    )


def _multiplied(pose: Tensor) -> torch.dtype:
    """In what poses and weights are multiplied."""
    kind = pose.device.type
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return pose.dtype


@dataclass
class _Parents:
    """The kernels that make parents of sums, and back."""

    votes: Votes
    bias: Tensor | None
    odd_bias: bool
    squash: str

    def __post_init__(self) -> None:
        # Not before: who has no Triton can import everything else.
        from torchcaps.ops.triton import dynamic_kernels

        self.kernels = dynamic_kernels
        self.bias = None if self.bias is None else self.bias.contiguous()

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
        self._run(
            self.kernels.finish,
            *(partial, constant, self.bias, sums, poses, agreed),
            *(len(partial), share),
            TOGETHER=TOGETHER,
            FIRST=first,
        )

    def agree(self, sums: Tensor) -> Tensor:
        """A of every iteration."""
        agreed = torch.empty_like(sums)
        self._run(self.kernels.agree, sums, self.bias, agreed, len(sums))
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
        self._run(
            self.kernels.unsquash,
            *(of_poses, partial, later, sums, self.bias, of_sum, splits),
            TOGETHER=TOGETHER,
        )

    def _run(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        """Their number, of all samples and of one, is told between the tensors of a kernel and its
        numbers."""
        tensors = [x for x in arguments if x is None or isinstance(x, Tensor)]
        numbers = arguments[len(tensors) :]
        shape = self.votes.shape
        count, size = shape.batch * shape.parents, padded(shape.size)
        rows = max(1, SQUASHED // size)
        self.votes.run(
            kernel,
            -(-count // rows),
            *(*tensors, count, shape.parents, *numbers),
            SIZE=shape.size,
            DP=size,
            ROWS=rows,
            EPSILON=EPSILON,
            SQUASH=self.squash,
            ODD=self.odd_bias,
            **constants,
        )


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
    votes = Votes(pose, weight, vote_bias, coordinates, sharing, kind, multiplied=multiplied)
    mixing, makes = Mixing(votes, prior, leaky), _Parents(votes, bias, odd_bias, squash)
    agreed, found = torch.zeros_like(sums[0]), mixing.found()
    share = 1 / (votes.shape.parents + leaky)
    for t in range(iterations):
        coupling = _recorded(couplings, t - iterations)
        is_uniform = t == 0 and prior is None
        if is_uniform:
            partial = mixing.total()
            if coupling is not None:
                coupling.fill_(share)
        else:
            mixing.normalise(t, agreed, found)
            partial = mixing.mix(t, agreed, found, coupling=coupling)
        makes.finish(
            partial,
            mixing.moved() if is_uniform else None,
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
        votes = Votes(pose, weight, vote_bias, coordinates, sharing, kind, multiplied=multiplied)
        mixing, makes = Mixing(votes, prior, leaky), _Parents(votes, bias, odd_bias, squash)
        of_poses = None if of_poses is None else of_poses.contiguous()
        of_couplings = None if of_couplings is None else of_couplings.contiguous()
        gradients = _gradients(
            mixing, makes, detach, needs, sums.contiguous(), of_poses, of_couplings
        )
    found = (
        None if mine is None or x is None else mine.to(x.dtype).contiguous()
        for mine, x in zip(gradients, inputs, strict=True)
    )
    return listed(list(found), sums)


def _gradients(
    mixing: Mixing,
    makes: _Parents,
    detach: str,
    needs: list[bool],
    sums: Tensor,
    of_poses: Tensor | None,
    of_couplings: Tensor | None,
) -> list[Tensor | None]:
    count, prior = len(sums), mixing.prior
    to_votes, to_bias, to_prior = any(needs[:4]), needs[4], needs[5]
    # Under "votes" earlier iterations have a gradient for what is no vote.
    goes_back = {"none": to_votes or to_bias or to_prior, "votes": to_bias or to_prior}
    agrees = to_votes and detach in ("none", "states")
    to_logits = agrees or (to_prior and detach != "coupling")
    only_last = detach == "votes"
    # The first iteration that the votes or the prior have a gradient of.
    least = count - 1 if only_last and not to_prior else 0
    agreed, of_sums, later = makes.agree(sums), torch.zeros_like(sums), torch.zeros_like(sums[0])
    found = mixing.found(count)
    partial, has_later, uniform, first = None, False, 0.0, count
    for t in reversed(range(count)):
        of_v, of_c = _recorded(of_poses, t - count), _recorded(of_couplings, t - count)
        is_uniform = t == 0 and prior is None
        has_sum = has_later or of_v is not None
        if not has_sum and (of_c is None or is_uniform):
            break
        if has_sum:
            makes.unsquash(of_v, partial, later, sums[t], of_sums[t])
        if is_uniform:
            parents = mixing.votes.shape.parents + mixing.leaky
            uniform = 0.0 if only_last and count > 1 else 1 / parents
            break
        first = max(t, least)
        is_back = t > 0 and goes_back.get(detach, False)
        here: Found = tuple(None if x is None else x[t] for x in found)
        if is_back or t >= least:
            of_sum = of_sums[t] if is_back or to_logits else None
            mixing.normalise(t, agreed[t], here, of_sum, of_c)
        if is_back:
            partial, has_later = mixing.mix(t, agreed[t], here, of_sums[t], of_c), True
    gradients: list[Tensor | None] = [None] * 5
    if to_votes or (to_prior and to_logits):
        recorded = count if of_couplings is None else count - len(of_couplings)
        mixed = count - 1 if only_last else 0
        terms = Terms(first, mixed, recorded, 1, uniform, agrees, to_logits)
        wanted = [*needs[:4], to_prior]
        gradients = mixing.differentiate(terms, agreed, of_sums, of_couplings, found, wanted)
    elif prior is not None and to_prior:
        gradients[4] = torch.zeros_like(prior)
    *of_votes, of_prior = gradients
    of_bias = None
    if makes.bias is not None and to_bias:
        sides = of_sums
        if makes.odd_bias:
            sides = of_sums * (sums * makes.bias).sum(-1, keepdim=True).sign()
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
