"""Training takes no more memory the longer it lasts."""

import json
import os
import subprocess
import sys

import pytest

# A network of all that has buffers of its own: a large convolution, every routing with a kernel.
STEPS = """
import json
import sys
import torch
from pathlib import Path
from torch import nn
from torchcaps.layers import (
    ConvCapsules, DenseCapsules, DynamicRouting, InvertedRouting, PrimaryCapsules, use_backend,
)
from torchcaps.layers import convolution
from torchcaps.layers.convolution import LargeConv2d
from torchcaps.ops import margin_loss
from torchcaps.types import Capsules

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20

convolution.WORTH = 0.0
torch.manual_seed(0)
trunk = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU())
primary = PrimaryCapsules(LargeConv2d(16, 64, 9, stride=2), d_out=8)
windows = ConvCapsules(child_grid=(4, 4, 8), d_in=8, types=8, d_out=8, kernel=3,
                       routing=InvertedRouting(iterations=2))
classes = DenseCapsules(n_in=32, d_in=8, n_out=10, d_out=16, routing=DynamicRouting())
beside = [DenseCapsules(n_in=32, d_in=8, n_out=6, d_out=8, routing=name)
          for name in ("distance", "em", "self_attention")]
network = nn.ModuleList([trunk, primary, windows, classes, *beside])
use_backend(network, "native")
optimiser = torch.optim.Adam(network.parameters(), fused=True)
images, target = torch.rand(32, 1, 19, 19), torch.arange(32) % 10
found = []
steps = int(sys.argv[1])
for step in range(steps):
    seen = windows(primary(trunk(images))).parents
    loss = margin_loss(classes(seen).parents.pose.norm(dim=-1), target)
    seen = Capsules(seen.pose.detach(), seen.pose.detach().norm(dim=-1))
    optimiser.zero_grad()
    (loss + sum(layer(seen).parents.pose.square().mean() for layer in beside)).backward()
    optimiser.step()
    if step % (steps // 20) == 0:
        found.append(resident())
print(json.dumps([found, float(loss)]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
# Two threads that wait for each other take long where other tests run.
@pytest.mark.parametrize(("threads", "steps"), [(1, 2000), (2, 200)])
def test_two_thousand_steps_are_flat(threads, steps):
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", STEPS, str(steps)],
        capture_output=True,
        text=True,
        timeout=1200,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found, loss = json.loads(done.stdout)
    assert loss < (0.1 if steps == 2000 else 0.5)
    # The first quarter fills the allocator's bins, and goes up and down by some 7 MB.
    assert max(found[5:]) - max(found[:5]) < 8, found
