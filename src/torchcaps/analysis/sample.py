"""A sample of images for what needs pairs or quantiles, which no running sum can give.

Images are drawn by the digest of their pixels and a seed: the least digests are the sample, and
their order is its order. Thus neither the order of images nor their batches change the sample; of
equal images one stays, and of those that differ in their rows, as in a label, the least of these.
"""

import hashlib
from heapq import nsmallest

import torch
from torch import Tensor

from torchcaps._checks import check_count, is_whole
from torchcaps.analysis.trace import check_any
from torchcaps.errors import TorchcapsError, short

# Two million pairs, and of a thousand couplings to ten parents 160 MB in float64.
MOST = 2000


class Sample:
    """At most `size` images, each with one row of every tensor."""

    def __init__(self, *, size: int = MOST, seed: int = 0) -> None:
        check_count("sample", size, of="images", least=2)
        if size > MOST:
            raise TorchcapsError(
                f"a sample for pairs has at most {MOST:,} images, whose pairs fit into memory, but "
                f"size is {size:,}."
            )
        if not is_whole(seed) or not -(2**63) <= seed < 2**63:
            raise TorchcapsError(
                f"seed must be a whole number of at most 63 bits, but came as {short(seed)}."
            )
        self.size, self.seed = size, seed
        self._key = seed.to_bytes(8, "big", signed=True)
        self._rows: dict[bytes, tuple[Tensor, ...]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, pixels: Tensor, *columns: Tensor) -> None:
        """Offer images [k, ...] with the rows [k, ...] of each column."""
        kept = [each.detach().cpu() for each in columns]
        for index, image in enumerate(pixels.detach().cpu().contiguous()):
            digest = hashlib.blake2b(_bytes(image), digest_size=16, key=self._key).digest()
            # Clones, because a row of a batch would keep its whole batch in memory.
            row = tuple(each[index].clone() for each in kept)
            there = self._rows.get(digest)
            if there is None or [*map(_bytes, row)] < [*map(_bytes, there)]:
                self._rows[digest] = row
        if len(self._rows) > self.size:
            self._rows = {digest: self._rows[digest] for digest in nsmallest(self.size, self._rows)}

    def columns(self, *, least: int = 1) -> tuple[Tensor, ...]:
        """Return every column of the sample, [images, ...], in the order of the digests."""
        check_any(self._rows)
        if len(self) < least:
            raise TorchcapsError(
                f"at least {least} different images are compared, but the measurement has seen "
                f"{len(self)}; update it with more."
            )
        rows = [self._rows[digest] for digest in sorted(self._rows)]
        return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def _bytes(image: Tensor) -> bytes:
    # NumPy has no bfloat16.
    return image.reshape(-1).view(torch.uint8).numpy().tobytes()
