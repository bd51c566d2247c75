"""What is freed is used again."""

import json
import subprocess
import sys

import pytest

from torchcaps.layers import can_keep_memory, keep_memory, memory

SCRIPT = """
import json, resource, sys
import torch

chosen = None
if sys.argv[1] == "keep":
    from torchcaps.layers import keep_memory

    chosen = keep_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def touch():
    started = faults()
    torch.ones(16 << 20)  # 64 MB
    return faults() - started

every = [touch() for _ in range(15)]
print(json.dumps({"chosen": chosen, "first": every[0], "later": every[-5:]}))
"""


def run(word):
    command = [sys.executable, "-c", SCRIPT, word]
    # Whoever runs the tests may keep memory by the environment.
    made = subprocess.run(command, capture_output=True, text=True, check=True, env={})
    return json.loads(made.stdout)


@pytest.mark.slow
def test_tensors_take_the_pages_of_earlier_ones():
    found = run("keep")
    if not found["chosen"]:
        pytest.skip("this system has another C library")
    assert found["first"] >= 1000, "64 MB of fresh pages"
    # The first few do not: what is aligned to 64 bytes asks for a little more than was freed.
    assert max(found["later"]) <= 100
    assert min(run("default")["later"]) >= 1000


class Library:
    """What a C library knows, by name."""

    def __init__(self, *names):
        self.chosen = {}
        for name in names:
            setattr(self, name, lambda *_: 1)
        self.mallopt = lambda option, value: self.chosen.update({option: value}) or 1


@pytest.mark.parametrize(
    ("system", "names", "said", "expected"),
    [
        ("linux", ("gnu_get_libc_version",), "", True),
        ("linux", ("gnu_get_libc_version",), "1", True),
        ("linux", ("gnu_get_libc_version",), "0", False),
        ("linux", (), "", False),
        ("linux", ("gnu_get_libc_version", "mallctl"), "", False),
        ("darwin", ("gnu_get_libc_version",), "", False),
    ],
)
def test_only_the_gnu_allocator_is_told(monkeypatch, system, names, said, expected):
    """Unless the environment turns it off."""
    library = Library(*names)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(memory.sys, "platform", system)
    monkeypatch.delenv("TORCHCAPS_KEEP_MEMORY", raising=False)
    if said:
        monkeypatch.setenv("TORCHCAPS_KEEP_MEMORY", said)
    assert can_keep_memory() is expected
    assert library.chosen == {}
    assert keep_memory() is expected
    assert library.chosen == ({-4: 0, -1: 2**31 - 1, -2: 64 << 20} if expected else {})
