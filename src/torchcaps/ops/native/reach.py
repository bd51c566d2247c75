"""Which votes native kernels reach, whatever the routing."""

import torch

from torchcaps.ops.fused.tiles import vote_dtype
from torchcaps.ops.native.build import available
from torchcaps.types import VoteMap

__all__ = ["reaches"]


def reaches(vote_map: VoteMap) -> bool:
    """Whether votes are made on a processor, of no more digits than float32 has, and there is a
    native library."""
    return (
        vote_map.children.pose.device.type == "cpu"
        and vote_dtype(vote_map) in (torch.float32, torch.float16, torch.bfloat16)
        and available()
    )
