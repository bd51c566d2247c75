"""Capsules on a backbone of your own: any module that makes maps [b, c, h, w] of images."""

import torch
from torch import nn

from torchcaps import ops
from torchcaps.layers import DenseCapsules, PrimaryCapsules

torch.manual_seed(0)
backbone = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()
)
# 32 maps of 5×7 from images of 24×32: four types of capsules × 8 at every position.
primary = PrimaryCapsules(nn.Conv2d(32, 32, 1), d_out=8)
classes = DenseCapsules(n_in=5 * 7 * 4, d_in=8, n_out=10, d_out=16, routing="dynamic")
model = nn.ModuleList([backbone, primary, classes])
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

image, target = torch.rand(16, 3, 24, 32), torch.randint(10, (16,))
for step in range(5):
    lengths = classes(primary(backbone(image))).parents.activation
    loss = ops.margin_loss(lengths, target)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(f"step {step}: loss {float(loss.detach()):.4f}")
