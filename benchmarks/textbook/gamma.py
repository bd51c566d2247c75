"""γ-CapsNet [peer2018] without its decoder: CapsNet's trunk, two layers routed by distance.

Votes are constant in all but the last iteration, as in the code of [renzulli2025]. Distances are
measured over the batch; in evaluation their running mean is used.
"""

import math

import torch
from torch import Tensor, nn

# A torchcaps network calls its tensors by the names on the left.
NAMES = {
    "backbone.0.": "conv.",
    "primary.projection.": "primary.",
    "layers.hidden.routing.": "hidden.",
    "layers.hidden.": "hidden.",
    "layers.classes.routing.": "classes.",
    "layers.classes.": "classes.",
}


class GammaCapsNet(nn.Module):
    def __init__(self, *, image: tuple[int, int, int], n_classes: int, iterations: int = 3):
        super().__init__()
        channels, height, width = image
        self.conv = nn.Conv2d(channels, 256, 9)
        self.primary = nn.Conv2d(256, 256, 9, stride=2)
        n_in = ((height - 15) // 2) * ((width - 15) // 2) * 32
        self.hidden = Layer(n_in, 8, 32, 8, iterations)
        self.classes = Layer(32, 8, n_classes, 16, iterations)

    def forward(self, image: Tensor, target: Tensor | None = None) -> tuple[Tensor, None]:
        maps = self.primary(torch.relu(self.conv(image)))
        batch, _, height, width = maps.shape
        poses = maps.view(batch, 32, 8, height, width).permute(0, 3, 4, 1, 2)
        children = squash(poses.reshape(batch, -1, 8))
        return self.classes(self.hidden(children)).norm(dim=-1), None


class Layer(nn.Module):
    running_scale: Tensor

    def __init__(self, n_in: int, d_in: int, n_out: int, d_out: int, iterations: int):
        super().__init__()
        self.iterations = iterations
        self.weight = nn.Parameter(torch.randn(n_in, n_out, d_out, d_in) * 0.1)
        self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))
        self.register_buffer("running_scale", torch.ones(iterations - 1))

    def forward(self, children: Tensor) -> Tensor:
        votes = torch.einsum("bid,ijod->bijo", children, self.weight)
        # A vote is no longer than its child.
        limit, norm = children.norm(dim=-1).unsqueeze(-1), votes.norm(dim=-1)
        votes = votes * torch.where(norm > limit, limit / norm, 1).unsqueeze(-1)
        n_out, p = votes.shape[-2], 0.9
        b = votes.new_zeros(votes.shape[:-1])
        for t in range(self.iterations):
            last = t == self.iterations - 1
            seen = votes if last else votes.detach()
            c = b.softmax(dim=-1)
            v = squash(torch.einsum("bij,bijo->bjo", c, seen) + self.bias)
            if not last:
                distance = torch.sqrt(((v.unsqueeze(1) - seen) ** 2).sum(dim=-1) + 1e-8)
                if self.training:
                    mean = distance.mean()
                    with torch.no_grad():
                        self.running_scale[t] += 0.1 * (mean - self.running_scale[t])
                else:
                    mean = self.running_scale[t]
                log_odds = math.log(p * (n_out - 1)) - math.log(1 - p)
                b = distance * log_odds / (mean / 2 - mean)
        return v


def squash(s: Tensor) -> Tensor:
    square = s.pow(2).sum(dim=-1, keepdim=True)
    return square / (1 + square) * s / torch.sqrt(square + 1e-8)
