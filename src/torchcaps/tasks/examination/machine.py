"""What the machine has: torch, a compiler, memory."""

import importlib
import importlib.util
import os
import platform
import shutil
from pathlib import Path

import torch

from torchcaps.ops.native.build import compiler_names
from torchcaps.tasks.examination.diagnosis import Diagnosis, counted

# Weights, their gradients, and the two moments of Adam.
COPIES = 4


def examine_machine() -> list[Diagnosis]:
    return [_torch(), _torchvision(), _compiler()]


def _torch() -> Diagnosis:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU, so the CPU"
    text = (
        f"torch {torch.__version__}, Python {platform.python_version()}, "
        f"{counted(os.cpu_count() or 1, 'core')}, {counted(torch.get_num_threads(), 'thread')}, "
        f"{device}."
    )
    return Diagnosis("torch", "fine", text, {"torch": torch.__version__})


def _torchvision() -> Diagnosis:
    if importlib.util.find_spec("torchvision") is None:
        return Diagnosis("torchvision", "fine", "not installed, and not needed.")
    try:
        found = importlib.import_module("torchvision")
    except Exception as error:
        # A build for another torch fails with an error of any kind.
        text = (
            f"installed, but cannot be imported ({str(error).splitlines()[0]}); it was built for "
            f"another torch: install the one that fits, or pip uninstall torchvision."
        )
        return Diagnosis("torchvision", "broken", text)
    return Diagnosis("torchvision", "fine", f"version {found.__version__}; not needed.")


def _compiler() -> Diagnosis:
    candidates = [name for name, *_ in compiler_names()]
    found = next((path for name in candidates if (path := shutil.which(name))), None)
    if found is None:
        return Diagnosis(
            "compiler",
            "fine",
            f"none of {', '.join(candidates)} is there; routing runs in PyTorch without compiled "
            f"kernels, and torch.compile cannot compile.",
            {"compiler": None},
        )
    text = f"{found}, for the routing kernels and torch.compile."
    return Diagnosis("compiler", "fine", text, {"compiler": found})


def examine_memory(weights: int, activations: int, *, batch_size: int) -> Diagnosis:
    """Judge the bytes of the weights, and of what one training step keeps for its backward pass."""
    needed = COPIES * weights + activations
    free = _free()
    numbers = {"weights": weights, "activations": activations, "free": free}
    text = (
        f"a step with {batch_size} images keeps {_size(activations)} for its backward pass, and "
        f"weights, gradients and Adam take {_size(COPIES * weights)}"
    )
    if free is None:
        return Diagnosis(
            "memory", "fine", f"{text}; how much is free cannot be read here.", numbers
        )
    text = f"{text}; {_size(free)} are free"
    if needed > free:
        remedy = "take a smaller --batch-size or image; torchcaps estimate tells what takes it"
        return Diagnosis("memory", "broken", f"{text}: it will not fit; {remedy}.", numbers)
    if 2 * needed > free:
        return Diagnosis(
            "memory",
            "look",
            f"{text}, and what is only there for a moment comes on top; a smaller --batch-size is "
            f"safer.",
            numbers,
        )
    return Diagnosis("memory", "fine", f"{text}.", numbers)


def _free() -> int | None:
    """Count the bytes that may be had, on the accelerator where there is one."""
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    about = Path("/proc/meminfo")
    if not about.is_file():
        return None
    lines = dict(line.split(":", 1) for line in about.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
