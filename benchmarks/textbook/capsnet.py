"""CapsNet [sabour2017] for images of any size, with the decoder or without.

`detach` holds the votes constant in all but the last iteration, as the code of [renzulli2025].
"""

import torch
from torch import Tensor, nn

# A torchcaps network calls its tensors by the names on the left.
NAMES = {
    "backbone.0.": "conv.",
    "primary.projection.": "primary.",
    "layers.classes.weight": "weight",
    "decoder.layers.": "decoder.",
}


class CapsNet(nn.Module):
    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        iterations: int = 3,
        detach: bool = False,
        decoder: bool = True,
    ):
        super().__init__()
        channels, height, width = image
        self.image, self.n_classes = image, n_classes
        self.iterations, self.detach = iterations, detach
        self.conv = nn.Conv2d(channels, 256, 9)
        self.primary = nn.Conv2d(256, 256, 9, stride=2)
        n_in = ((height - 15) // 2) * ((width - 15) // 2) * 32
        self.weight = nn.Parameter(torch.randn(n_in, n_classes, 16, 8) * 0.1)
        self.decoder = None
        if decoder:
            self.decoder = nn.Sequential(
                nn.Linear(16 * n_classes, 512),
                nn.ReLU(),
                nn.Linear(512, 1024),
                nn.ReLU(),
                nn.Linear(1024, channels * height * width),
                nn.Sigmoid(),
            )

    def forward(self, image: Tensor, target: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Lengths [b, k] and the drawing of the target, or of the longest class."""
        maps = self.primary(torch.relu(self.conv(image)))
        batch, _, height, width = maps.shape
        poses = maps.view(batch, 32, 8, height, width).permute(0, 3, 4, 1, 2)
        children = squash(poses.reshape(batch, -1, 8))
        votes = torch.einsum("bid,ijod->bijo", children, self.weight)
        classes = dynamic_routing(votes, self.iterations, self.detach)
        lengths = classes.norm(dim=-1)
        if self.decoder is None:
            return lengths, None
        shown = lengths.argmax(dim=-1) if target is None else target
        mask = nn.functional.one_hot(shown, self.n_classes).to(classes.dtype)
        drawn = self.decoder((classes * mask.unsqueeze(-1)).flatten(1))
        return lengths, drawn.view(batch, *self.image)


def dynamic_routing(votes: Tensor, iterations: int, detach: bool) -> Tensor:
    """Parents [b, j, o] of votes [b, i, j, o]."""
    b = votes.new_zeros(votes.shape[:-1])
    for t in range(iterations):
        last = t == iterations - 1
        seen = votes.detach() if detach and not last else votes
        c = b.softmax(dim=-1)
        v = squash(torch.einsum("bij,bijo->bjo", c, seen))
        if not last:
            b = b + torch.einsum("bijo,bjo->bij", seen, v)
    return v


def squash(s: Tensor) -> Tensor:
    square = s.pow(2).sum(dim=-1, keepdim=True)
    return square / (1 + square) * s / torch.sqrt(square + 1e-8)
