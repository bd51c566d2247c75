"""Compile every kernel that routing starts, for a GPU that is not there.

python compile_ahead.py 90 prints a line for each: its name, and how many bytes of a thread's stack
it takes, which is what did not fit into registers.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from triton.backends.compiler import GPUTarget

from torchcaps.ops.triton import dynamic_routing, em, inverted_routing, mixing, votes
from torchcaps.types import Capsules, VoteMap, Window

TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class Absent:
    """As much of a driver as compiling asks for."""

    def __init__(self, architecture):
        self.target = GPUTarget("cuda", architecture, 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def stack_of(machine_code):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        printed = subprocess.run(
            [TOOL, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return int(re.search(r"STACK:(\d+)", printed)[1])


def compile_only(kernel, programs, like, *arguments, **constants):
    compiled = kernel.warmup(*arguments, grid=(programs,), **constants)
    print(kernel.fn.__name__, stack_of(compiled.asm["cubin"]))


def route(
    *, batch, n_in, n_out, pose, weight, dtype, kind="vector", sharing="none", moved=(), **options
):
    """Forward and backward; memory is neither read nor written."""
    children = torch.empty(batch, n_in, pose, dtype=dtype, requires_grad=True)
    weight = torch.empty(weight, dtype=dtype, requires_grad=True)
    vote_map = VoteMap(Capsules(children), weight, sharing, kind, *moved)
    routed = dynamic_routing(vote_map, iterations=2, **options)
    routed.parents.pose.sum().backward()


def route_windows(*, n_out, dtype):
    """Inverted and EM routing of matrix poses, forward and backward."""
    pose = torch.empty(20, 200, 16, dtype=dtype, requires_grad=True)
    weight = torch.empty(8, n_out, 4, 4, dtype=dtype, requires_grad=True)
    children = Capsules(pose, torch.empty(20, 200))
    window = Window((5, 5, 8), (3, 3), (2, 2))
    vote_map = VoteMap(children, weight, "type", "matrix", None, window)
    inverted_routing(vote_map, keep="steps").parents.pose.sum().backward()
    beta = torch.zeros(n_out)
    em.em_routing(vote_map, beta_a=beta, beta_u=beta).parents.pose.sum().backward()


def main():
    triton.runtime.driver.set_active(Absent(int(sys.argv[1])))
    votes.launch = compile_only
    for module in (mixing, em):
        module.check_available = lambda device: None
    # Triton compiles an argument of one as a constant.
    ones = {"batch": 1, "n_in": 1, "n_out": 1, "pose": 1, "dtype": torch.float16}
    prior, bias = (torch.zeros(1, 1, requires_grad=True) for _ in range(2))
    moved = (torch.zeros(1, 1, requires_grad=True), None, torch.zeros(1, 1, requires_grad=True))
    rest = {"moved": moved, "prior": prior, "bias": bias, "keep": "steps"}
    route(**ones, weight=(1, 1, 1), sharing="all", **rest)
    for dtype in (torch.float32, torch.bfloat16):
        for n_out in (10, 196):
            weight = (40, n_out, 16, 8)
            sizes = {"batch": 20, "n_in": 40, "n_out": n_out, "pose": 8, "weight": weight}
            route(**sizes, dtype=dtype)
        prior = torch.zeros(36, 32, requires_grad=True)
        bias = torch.zeros(32, 16, requires_grad=True)
        route(
            **{"batch": 20, "n_in": 36, "n_out": 32, "pose": 16, "weight": (4, 32, 4, 4)},
            **{"dtype": dtype, "kind": "matrix", "sharing": "type"},
            **{"prior": prior, "bias": bias, "leaky": True, "odd_bias": True, "squash": "exp"},
        )
        for n_out in (16, 200) if dtype is torch.float32 else (16,):
            route_windows(n_out=n_out, dtype=dtype)


if __name__ == "__main__":
    main()
