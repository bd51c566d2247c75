"""Which votes native kernels reach, whatever the routing."""

import torch
from torch import Tensor

from torchcaps.ops.checks import may_look
from torchcaps.ops.fused.tiles import counts_of, vote_dtype
from torchcaps.ops.native.build import available
from torchcaps.types import VoteMap

# Of a sum of votes s: of longer ones the native gradients of EM routing, differences of products
# with them, are less exact than those of PyTorch.
LARGEST_SUM = 1e12


def reaches(vote_map: VoteMap) -> bool:
    """Say whether votes are made on a processor, of no more digits than float32 has, there is a
    native library, and nothing in it overflows. The last is looked at where values may be."""
    return (
        vote_map.children.pose.device.type == "cpu"
        # What is no tensor is refused by the form that every routing has.
        and all(x is None or isinstance(x, Tensor) for x in (vote_map.bias, vote_map.coordinates))
        and vote_dtype(vote_map) in (torch.float32, torch.float16, torch.bfloat16)
        and available()
        # What is no batch of capsules is refused by the form that every routing has.
        and vote_map.children.pose.ndim >= 2
        and (not _may_look(vote_map) or _largest_sum(vote_map) <= LARGEST_SUM)
    )


def _may_look(vote_map: VoteMap) -> bool:
    made_of = vote_map.children.pose, vote_map.weight, vote_map.bias, vote_map.coordinates
    return all(x is None or may_look(x) for x in made_of)


def _largest_sum(vote_map: VoteMap) -> float:
    """Bound the sums of votes: none is longer; NaN where a number is."""
    terms = vote_map.weight.shape[-1]
    vote = terms * _largest(vote_map.children.pose) * _largest(vote_map.weight)
    vote += _largest(vote_map.bias) + _largest(vote_map.coordinates)
    return counts_of(vote_map).children * vote


def _largest(x: Tensor | None) -> float:
    """Give the largest absolute value; 0 of nothing."""
    if x is None or not x.numel():
        return 0.0
    # By NumPy, which starts no threads: those of PyTorch hang in a forked process.
    numbers = x.detach().float().resolve_neg().numpy()
    return max(-float(numbers.min()), float(numbers.max()))
