"""The threads of the native kernels: how many, whose, and in which process."""

import subprocess
import sys

import pytest
import torch

from contracts.forms import Case, leaves_of, route
from torchcaps.ops.native import build

pytestmark = pytest.mark.usefixtures("kernels")


ROUTE = """
import hashlib, torch
from torchcaps.layers import DenseCapsules, use_backend
from torchcaps.ops import native
from torchcaps.types import Capsules

torch.manual_seed(0)
pose = torch.randn(33, 40, 8)
children = Capsules(pose.requires_grad_(), pose.detach().norm(dim=-1))
torch.set_num_threads(2)
assert native.available()
seen = hashlib.sha256()
for name in ("distance", "dynamic", "em"):
    layer = DenseCapsules(n_in=40, d_in=8, n_out=5, d_out=16, routing=name)
    use_backend(layer, "native")
    for _ in range(8):
        parents = layer(children).parents.pose
        for x in (parents, *torch.autograd.grad(parents.square().sum(), (pose, layer.weight))):
            seen.update(x.detach().numpy().tobytes())
print(seen.hexdigest())
"""


@pytest.mark.slow
def test_four_processes_at_once_route_alike():
    running = [
        subprocess.Popen([sys.executable, "-c", ROUTE], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [each.communicate(timeout=300)[0] for each in running]
    assert [each.returncode for each in running] == [0] * 4
    assert len(set(said)) == 1
    assert len(said[0].strip()) == 64


# Their OpenMP would wait for threads that a forked child does not have.
FORK = """
import os, signal
import torch
from torchcaps.ops import native
from torchcaps.types import Capsules, VoteMap
torch.set_num_threads(3)
vote_map = VoteMap(Capsules(torch.randn(37, 50, 8)), torch.randn(50, 6, 16, 8))
def routed():
    return native.dynamic_routing(vote_map).parents.pose
def of_a_child():
    child = os.fork()
    if not child:
        signal.alarm(60)
        torch.save(routed(), PATH)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return torch.load(PATH)
torch.ones(1 << 20).add(1)  # its threads have begun
before = of_a_child()  # the kernels are not loaded
parents = routed()
assert native.available()
assert torch.equal(before, parents)
assert torch.equal(of_a_child(), parents)
"""


@pytest.mark.slow
def test_a_forked_child_routes_as_its_parent_does(tmp_path):
    program = f"PATH = {str(tmp_path / 'parents')!r}\n"
    subprocess.run([sys.executable, "-c", program + FORK], timeout=300, check=True)


def test_threads_of_their_own_route_alike(monkeypatch):
    # PyTorch for Linux brings GNU's.
    assert build._team().run or not sys.platform.startswith("linux")
    case = Case("dynamic", n_in=12, n_out=5)
    leaves = leaves_of(case, torch.float32)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    fast = route("native", case, leaves).parents.pose
    build.library().torchcaps_use_team(build._Team())
    try:
        own = route("native", case, leaves).parents.pose
    finally:
        build.library().torchcaps_use_team(build._team())
    assert torch.equal(fast, own)
