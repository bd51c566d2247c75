"""The sign set of [peer2022] §5.2: is a number negative? Without biases a capsule network is odd,
so on a symmetric set it is right exactly half of the times.

Departures:
1. Pixels of other sets lie in [0, 1]; these are the numbers themselves, in [-1, 1], as images of
   one pixel: that is what `peer_sign_dynamic` and `peer_sign_em` take. Brought to [0, 1], no
   number would be the opposite of another, and the question would be gone.
Ambiguities:
1. How the 20,000 numbers are distributed. "grid": ±k/10,000 for k from 1 to 10,000. "between": the
   numbers ±(k - 1/2)/10,000 between those, to test on. "uniform": drawn evenly from [-1, 1).
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from torch import Tensor

from torchcaps._checks import check_choice
from torchcaps.data.batch import Batch, JudgedBy
from torchcaps.data.draws import uniform
from torchcaps.data.image_set import hold_out
from torchcaps.data.items import Items
from torchcaps.data.registry import made_set
from torchcaps.errors import TorchcapsError

Distribution = Literal["grid", "between", "uniform"]


@dataclass(frozen=True)
class SignSet(Items):
    """Numbers as images of one pixel, labelled 0 where negative and 1 elsewhere."""

    numbers: Tensor  # float32 [n]

    name = "sign"
    class_names = ("negative", "positive")
    image_shape = (1, 1, 1)

    @property
    def judged_by(self) -> JudgedBy:
        return "class"

    def __len__(self) -> int:
        return len(self.numbers)

    def batch(self, index: Tensor | slice, epoch: int = 0) -> Batch:
        """Return some numbers, the same in every epoch."""
        chosen = self.numbers[index]
        return Batch(chosen.view(-1, 1, 1, 1), (chosen >= 0).long())

    def hold_out(self, *, share: float = 0.1, seed: int = 0) -> tuple[Self, Self]:
        """Part off a share: a number lies where its opposite does, so both parts stay symmetric."""
        sizes, size_of = self.numbers.abs().unique(return_inverse=True)
        _, held = hold_out(len(sizes), share=share, seed=seed)
        is_held = torch.zeros(len(sizes), dtype=torch.bool, device=self.numbers.device)
        is_held[held.to(is_held.device)] = True
        chosen = is_held[size_of]
        return (
            replace(self, numbers=self.numbers[~chosen]),
            replace(self, numbers=self.numbers[chosen]),
        )

    def to(self, device: torch.device | str) -> Self:
        return replace(self, numbers=self.numbers.to(device))

    def digest(self) -> str:
        return hashlib.sha256(self.numbers.cpu().numpy().tobytes()).hexdigest()[:12]


def sign_set(distribution: Distribution = "grid", *, n: int = 20_000, seed: int = 0) -> SignSet:
    """Make `n` numbers in [-1, 1] with their signs.

    Arguments:
        distribution: where the numbers lie: on a "grid", "between" its points, or "uniform" at
            random.
        n: how many there are.
        seed: of the numbers drawn, where distribution is "uniform".

    >>> len(sign_set(n=100))
    100
    """
    check_choice("distribution", distribution, get_args(Distribution))
    if n < 2 or n % 2:
        raise TorchcapsError(
            f"n={n} numbers cannot be half negative and half positive; n must be even, from 2 on."
        )
    if distribution == "uniform":
        return SignSet(uniform(seed, torch.arange(n), 0, 1)[:, 0] * 2 - 1)
    above = torch.arange(1, n // 2 + 1, dtype=torch.float64)
    if distribution == "between":
        above -= 0.5
    above = (above / (n // 2)).float()
    return SignSet(torch.cat([-above.flip(0), above]))


@made_set("sign", ((1, 1, 1), 2, 20_000))
def _by_name(split: Literal["train", "test"]) -> SignSet:
    return sign_set("grid" if split == "train" else "between")
