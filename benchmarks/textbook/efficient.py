"""Efficient-CapsNet [mazzia2021] with its decoder: 16 capsules from one depthwise convolution,
self-attention over all pairs of votes, summed before they are multiplied.
"""

import torch
from torch import Tensor, nn

# A torchcaps network calls its tensors by the names on the left.
NAMES = {
    "primary.projection.": "primary.",
    "layers.classes.weight": "weight",
    "layers.classes.routing.prior": "bias",
    "decoder.layers.": "decoder.",
}


class EfficientCapsNet(nn.Module):
    def __init__(self, *, image: tuple[int, int, int], n_classes: int):
        super().__init__()
        channels, height, width = image
        self.image, self.n_classes = image, n_classes
        self.backbone = nn.Sequential(
            nn.Conv2d(channels, 32, 5),
            nn.ReLU(),
            nn.BatchNorm2d(32),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.BatchNorm2d(64),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.BatchNorm2d(64),
            nn.Conv2d(64, 128, 3, stride=2),
            nn.ReLU(),
            nn.BatchNorm2d(128),
        )
        sides = [(side - 8 - 3) // 2 + 1 for side in (height, width)]
        self.primary = nn.Conv2d(128, 128, sides, groups=128)
        self.weight = nn.Parameter(torch.randn(16, n_classes, 16, 8) * 0.04)
        self.bias = nn.Parameter(torch.zeros(16, n_classes))
        self.decoder = nn.Sequential(
            nn.Linear(16 * n_classes, 512),
            nn.ReLU(),
            nn.Linear(512, 1024),
            nn.ReLU(),
            nn.Linear(1024, channels * height * width),
            nn.Sigmoid(),
        )

    def forward(self, image: Tensor, target: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Lengths [b, k] and the drawing of the target, or of the longest class."""
        children = squash(self.primary(self.backbone(image)).view(len(image), 16, 8))
        votes = torch.einsum("bid,ijod->bijo", children, self.weight)
        agreement = torch.einsum("bijo,bjo->bij", votes, votes.sum(dim=1))
        c = (agreement / 16**0.5).softmax(dim=-1) + self.bias
        classes = squash((c.unsqueeze(-1) * votes).sum(dim=1))
        lengths = classes.norm(dim=-1)
        shown = lengths.argmax(dim=-1) if target is None else target
        mask = nn.functional.one_hot(shown, self.n_classes).to(classes.dtype)
        drawn = self.decoder((classes * mask.unsqueeze(-1)).flatten(1))
        return lengths, drawn.view(len(image), *self.image)


def squash(s: Tensor) -> Tensor:
    norm = torch.sqrt(s.pow(2).sum(dim=-1, keepdim=True) + 1e-8)
    return -torch.expm1(-norm) * s / norm
