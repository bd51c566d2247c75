"""Capsules with inverted dot-product attention [tsai2020] §3, Procedures 1 and 2, Tables 8 and A.1.

All layers route at once, all of their iterations are done, and every iteration makes its votes
anew, as Procedure 1 stands.
"""

import torch
from torch import Tensor, nn

TYPES, D, SIDE = 32, 16, 4

# A torchcaps network calls its tensors by the names on the left.
NAMES = {
    "primary.projection.": "primary.",
    "primary.norm.": "primary_norm.",
    "layers.conv_1.weight": "weights.0",
    "layers.conv_2.weight": "weights.1",
    "layers.classes.weight": "weights.2",
    "layers.conv_1.routing.norm.": "norms.0.",
    "layers.conv_2.routing.norm.": "norms.1.",
    "layers.classes.routing.norm.": "norms.2.",
}


class InvertedCapsNet(nn.Module):
    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        backbone: str = "simple",
        iterations: int = 2,
    ):
        super().__init__()
        channels, height, width = image
        self.iterations = iterations
        if backbone == "simple":
            features = 256
            self.backbone = nn.Sequential(
                nn.Conv2d(channels, features, 3, stride=2, padding=1), nn.ReLU()
            )
        else:
            features = 128
            self.backbone = resnet(channels)
        self.primary = nn.Conv2d(features, TYPES * D, 1)
        self.primary_norm = nn.LayerNorm(D)
        sides = [(side + 1) // 2 for side in (height, width)]
        sides = [(side - 3) // 2 + 1 - 2 for side in sides]
        seen = (9 * TYPES, 9 * TYPES, sides[0] * sides[1] * TYPES)
        parents = (TYPES, TYPES, n_classes)
        self.weights = nn.ParameterList(
            torch.randn(i, j, SIDE, SIDE) * (j / (SIDE * i)) ** 0.5
            for i, j in zip(seen, parents, strict=True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in parents)
        self.head = nn.Linear(D, 1)

    def forward(self, image: Tensor, target: Tensor | None = None) -> tuple[Tensor, None]:
        maps = self.primary(self.backbone(image))
        batch, _, height, width = maps.shape
        poses = maps.view(batch, TYPES, D, height, width).permute(0, 3, 4, 1, 2)
        below = self.primary_norm(poses)  # [b, h, w, type, d]
        layers: list[Tensor] = []
        for depth in range(3):
            layers.append(self.route(depth, layers[-1] if layers else below, None))
        for _ in range(1, self.iterations):
            children = [below, *layers[:-1]]
            layers = [self.route(depth, children[depth], layers[depth]) for depth in range(3)]
        return self.head(layers[-1]).flatten(1), None

    def route(self, depth: int, children: Tensor, parents: Tensor | None) -> Tensor:
        """One iteration: children [b, h, w, type, d] to parents [b, h, w, type, d]."""
        if depth < 2:
            seen = windows(children, stride=2 - depth)  # [b, ph, pw, i, d]
        else:
            seen = children.flatten(1, 3)[:, None, None]
        matrices = seen.unflatten(-1, (SIDE, SIDE))
        votes = torch.einsum("bxyirk,ijkc->bxyijrc", matrices, self.weights[depth]).flatten(-2)
        if parents is None:
            r = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2])
        else:
            r = torch.einsum("bxyijd,bxyjd->bxyij", votes, parents).softmax(dim=-1)
        return self.norms[depth](torch.einsum("bxyij,bxyijd->bxyjd", r, votes))


def windows(poses: Tensor, *, stride: int) -> Tensor:
    """[b, h, w, type, d] as the 3×3 windows see it, [b, ph, pw, 9 * types, d]."""
    batch, height, width, types, d = poses.shape
    maps = poses.permute(0, 3, 4, 1, 2).reshape(batch, types * d, height, width)
    columns = nn.functional.unfold(maps, 3, stride=stride).view(batch, types, d, 9, -1)
    seen = columns.permute(0, 4, 3, 1, 2).reshape(batch, -1, 9 * types, d)
    return seen.unflatten(1, ((height - 3) // stride + 1, (width - 3) // stride + 1))


def resnet(channels: int) -> nn.Sequential:
    """A 3×3 convolution, three residual blocks of 64 channels, four of 128, halved once."""
    blocks: list[nn.Module] = [
        nn.Conv2d(channels, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    ]
    blocks += [Block(64, 64, 1) for _ in range(3)]
    blocks += [Block(64, 128, 2)] + [Block(128, 128, 1) for _ in range(3)]
    return nn.Sequential(*blocks)


class Block(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )
        self.shortcut = nn.Sequential()
        if c_in != c_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, maps: Tensor) -> Tensor:
        return torch.relu(self.residual(maps) + self.shortcut(maps))
