"""What is freed is used again."""

import json
import subprocess
import sys

from torchcaps.layers import keep_memory, memory

SCRIPT = """
import json, resource, sys
import torch
from torchcaps.layers import keep_memory

told = keep_memory() if sys.argv[1] == "keep" else None

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def touch():
    started = faults()
    torch.ones(16 << 20)  # 64 MB
    return faults() - started

every = [touch() for _ in range(40)]
print(json.dumps({"told": told, "first": every[0], "later": every[-5:]}))
"""


def run(word):
    command = [sys.executable, "-c", SCRIPT, word]
    # Whoever runs the tests may keep memory by the environment.
    made = subprocess.run(command, capture_output=True, text=True, check=True, env={})
    return json.loads(made.stdout)


def test_tensors_take_the_pages_of_earlier_ones():
    found = run("keep")
    if not found["told"]:  # another C library, or another system
        assert found["told"] is False
        return
    assert found["first"] >= 1000, "64 MB of fresh pages"
    # The first few do not: what is aligned to 64 bytes asks for a little more than was freed.
    assert max(found["later"]) <= 100
    assert min(run("default")["later"]) >= 1000


def test_other_systems_and_libraries_say_no(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    assert keep_memory() is False
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert keep_memory() is False
