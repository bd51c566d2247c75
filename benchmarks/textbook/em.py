"""Matrix capsules with EM routing [hinton2018], A-B-C-D = 64-8-16-16.

Two readings: `official=False` is Alg. 2 of [peer2022], where the parents of one window compete for
a child; `official=True` is the released code of [hinton2018], where those of all windows do.
"""

import math

import torch
from torch import Tensor, nn

A, B, C = 64, 8, 16
D, SIDE = 16, 4

# A torchcaps network calls its tensors by the names on the left.
NAMES = {
    "backbone.0.": "conv.",
    "primary.projection.": "poses.",
    "primary.activation.": "activations.",
    "layers.conv_1.weight": "weights.0",
    "layers.conv_2.weight": "weights.1",
    "layers.classes.weight": "weights.2",
    "layers.conv_1.routing.": "routings.0.",
    "layers.conv_2.routing.": "routings.1.",
    "layers.classes.routing.": "routings.2.",
}


class MatrixCapsNet(nn.Module):
    def __init__(
        self,
        *,
        image: tuple[int, int, int],
        n_classes: int,
        iterations: int = 2,
        official: bool = False,
    ):
        super().__init__()
        # The released code starts from activations that are rather off.
        self.offset = -1.0 if official else 0.0
        self.conv = nn.Conv2d(image[0], A, 5, stride=2)
        self.poses = nn.Conv2d(A, B * D, 1, bias=False)
        self.activations = nn.Conv2d(A, B, 1, bias=False)
        sizes = ((9 * B, C), (9 * C, C), (C, n_classes))
        self.weights = nn.ParameterList(torch.randn(i, j, SIDE, SIDE) * 0.3 for i, j in sizes)
        lambdas = (0.01, 0.01, 0.0025 if official else 0.01)
        self.routings = nn.ModuleList(
            EM(j, iterations, lambda_, official)
            for (_, j), lambda_ in zip(sizes, lambdas, strict=True)
        )

    def forward(self, image: Tensor, target: Tensor | None = None) -> tuple[Tensor, None]:
        features = torch.relu(self.conv(image))
        batch, _, height, width = features.shape
        pose = self.poses(features).view(batch, B, D, height, width).permute(0, 3, 4, 1, 2)
        active = torch.sigmoid(self.activations(features) + self.offset).permute(0, 2, 3, 1)
        for depth, stride in ((0, 2), (1, 1)):
            pose, active = self.windowed(depth, stride, pose, active)
        # Classes share a matrix among the children of a type; coordinates say where these are.
        matrices = pose.unflatten(-1, (SIDE, SIDE))
        votes = torch.einsum("bhwirk,ijkc->bhwijrc", matrices, self.weights[2]).flatten(-2)
        votes = votes + coordinates(votes)
        _, active = self.routings[2](votes.flatten(1, 3)[:, None], active.flatten(1)[:, None])
        return active[:, 0], None

    def windowed(
        self, depth: int, stride: int, pose: Tensor, active: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Poses [b, h, w, type, d] and activations [b, h, w, type] of the next layer."""
        _, height, width, types, _ = pose.shape
        number = torch.arange(height * width * types, dtype=pose.dtype, device=pose.device)
        child = windows(number.view(1, height, width, types, 1), stride)[0, :, :, 0].long()
        seen = windows(pose, stride).unflatten(-1, (SIDE, SIDE))
        a = windows(active.unsqueeze(-1), stride).squeeze(-1)  # [b, p, i]
        votes = torch.einsum("bpirk,ijkc->bpijrc", seen, self.weights[depth]).flatten(-2)
        pose, active = self.routings[depth](votes, a, child)
        positions = ((height - 3) // stride + 1, (width - 3) // stride + 1)
        return pose.unflatten(1, positions), active.unflatten(1, positions)


class EM(nn.Module):
    def __init__(self, n_out: int, iterations: int, lambda_: float, official: bool):
        super().__init__()
        self.iterations, self.lambda_, self.official = iterations, lambda_, official
        self.beta_a = nn.Parameter(torch.full((n_out,), 0.5))
        self.beta_u = nn.Parameter(torch.full((n_out,), 0.5))

    def forward(
        self, votes: Tensor, a: Tensor, child: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Means [b, p, j, d] and activations [b, p, j] of votes [b, p, i, j, d] and a [b, p, i]."""
        r = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2])  # [b, p, i, j]
        before = None
        for t in range(1, self.iterations + 1):
            weight = r * a.unsqueeze(-1)
            mass = weight.sum(dim=-2, keepdim=True)
            share = (weight / mass).unsqueeze(-1)
            mean = (share * votes).sum(dim=-3, keepdim=True)  # [b, p, 1, j, d]
            if self.official:
                mean = 0.9 * mean if before is None else 0.9 * mean + 0.1 * before
                before = mean
            squares = (votes - mean) ** 2
            floor = 5e-4 if self.official else 1e-4
            variance = (share * squares).sum(dim=-3, keepdim=True) + floor
            spread = variance.log().sum(dim=-1)  # [b, p, 1, j]
            lambda_t = self.lambda_ * (1 - 0.95**t)
            if self.official:
                cost = mass * (spread + self.beta_u * D * (math.log(2 * math.pi) + 1))
                logit = lambda_t * (-cost - 5000 * self.beta_a)
            else:
                logit = lambda_t * (self.beta_a - mass * (D * self.beta_u + spread / 2))
            if t < self.iterations:
                far = (squares / variance).sum(dim=-1)  # [b, p, i, j]
                log_q = nn.functional.logsigmoid(logit) - spread / 2 - far / 2
                if self.official and child is not None:
                    r = shares_over_windows(log_q, child)
                else:
                    r = log_q.softmax(dim=-1)
        return mean.squeeze(-3), torch.sigmoid(logit).squeeze(-2)


def shares_over_windows(log_q: Tensor, child: Tensor) -> Tensor:
    """Normalise [b, p, i, j] over every parent of every window that sees child[p, i]."""
    batch = len(log_q)
    index = child.flatten()
    rows = log_q.flatten(1, 2)  # [b, slot, j]
    many = int(index.max()) + 1
    slots = index.expand(batch, -1)
    top = rows.detach().amax(dim=-1)
    highest = top.new_full((batch, many), -math.inf).scatter_reduce(1, slots, top, "amax")
    q = (rows - highest[:, index].unsqueeze(-1)).exp()
    total = q.new_zeros(batch, many).index_add(1, index, q.sum(dim=-1))
    return (q / total[:, index].unsqueeze(-1)).view_as(log_q)


def windows(values: Tensor, stride: int) -> Tensor:
    """[b, h, w, type, d] as the 3×3 windows see it, [b, p, 9 * types, d]."""
    batch, height, width, types, d = values.shape
    maps = values.permute(0, 3, 4, 1, 2).reshape(batch, types * d, height, width)
    columns = nn.functional.unfold(maps, 3, stride=stride).view(batch, types, d, 9, -1)
    return columns.permute(0, 4, 3, 1, 2).reshape(batch, -1, 9 * types, d)


def coordinates(votes: Tensor) -> Tensor:
    """Row and column of a child as shares of the map, in the right-hand column of its votes."""
    _, height, width, *_ = votes.shape
    where = votes.new_zeros(height, width, 1, 1, D)
    where[..., SIDE - 1] = ((torch.arange(height) + 0.5) / height).to(votes).view(-1, 1, 1, 1)
    where[..., 2 * SIDE - 1] = ((torch.arange(width) + 0.5) / width).to(votes).view(-1, 1, 1)
    return where
