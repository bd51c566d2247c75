"""What every test stands on: device and dtype, a seed of its own, no network, poisoned memory."""

import gc
import ipaddress
import os
import random
import signal
import socket
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch

from chromium import browser
from cli.command_line import call

__all__ = ["browser", "call"]

DTYPES = {"float64": torch.float64, "float32": torch.float32}
POISONED = {"contracts", "ops", "theory"}

# Before workers start, which are to draw the same.
FUZZ_SEED = "TORCHCAPS_FUZZ_SEED"
os.environ.setdefault(FUZZ_SEED, str(random.SystemRandom().randrange(2**32)))

hypothesis.settings.register_profile(
    "default", max_examples=50, deadline=None, derandomize=True, database=None
)
hypothesis.settings.load_profile("default")
# What a script starts with & ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tensors are small: a second thread only waits, and sums keep one order.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="device of the numeric tests (default cpu)")
    parser.addoption(
        "--dtype", default="float64", choices=sorted(DTYPES), help="dtype of the numeric tests"
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    # pytest hides what a test prints that passes, and with -q its header.
    terminalreporter.write_line(f"make fuzz SEED={os.environ[FUZZ_SEED]}")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Twenty thousand tests stay until the end: to look for garbage among them takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is `drawn(n)` one case in n is in the default tier, drawn by its name."""
    for item in items:
        drawn = item.get_closest_marker("drawn")
        if drawn is not None and zlib.crc32(item.nodeid.encode()) % drawn.args[0]:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return DTYPES[request.config.getoption("--dtype")]


@pytest.fixture(scope="session")
def tolerance(dtype: torch.dtype) -> float:
    """The largest error of numbers near one: 1e-10 in float64."""
    return 1e-10 if dtype == torch.float64 else 1e-4


@pytest.fixture(autouse=True)
def _seed(request: pytest.FixtureRequest) -> None:
    # Without a GPU torch.manual_seed keeps the stack for later, which takes a hundred times longer.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def _no_files_of_its_own() -> Iterator[None]:
    """What a test imports by --import is forgotten after it: torchcaps tells faults of a state from
    those of code of one's own by it."""
    path = list(sys.path)
    yield
    if "torchcaps.train.own_code" in sys.modules:
        # Here, because a test that trains nothing is not to wait for what trains.
        from registries import forget_imported

        forget_imported()
        sys.path[:] = path


@pytest.fixture(autouse=True)
def _poisoned_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Memory that nobody wrote is NaN, so that reading it cannot pass a test of the ops."""
    poison = request.config.getoption("--device") == "cpu" and POISONED & set(request.path.parts)
    if not poison or torch.are_deterministic_algorithms_enabled():
        yield
        return
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _is_near(address: Any) -> bool:
    if not isinstance(address, tuple):  # unix socket
        return True
    host = address[0]
    if host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """Tests reach nothing outside this machine."""

    def guard(original: Any) -> Any:
        def connect(self: socket.socket, address: Any) -> Any:
            if not _is_near(address):
                raise OSError(f"tests must not use the network, but one connects to {address}.")
            return original(self, address)

        return connect

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guard(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", guard(socket.socket.connect_ex))
        yield
