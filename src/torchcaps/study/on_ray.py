"""Workers on a Ray cluster. Ray finds them a machine, a core or a GPU each, and says when one died.

This process must be on a machine of the cluster: Ray's core knows no other way in. All machines
must see the folder of the cells.
"""

import os
import platform
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

from torchcaps import __version__
from torchcaps.errors import TorchcapsError
from torchcaps.study.disk import signed, unseen
from torchcaps.study.ledger import Ledger
from torchcaps.study.settings import Settings
from torchcaps.study.system import Cell
from torchcaps.study.workers import End, Hire, serve

__all__ = ["on_ray"]

HOW_TO_START = (
    "`ray start --head` on one machine and `ray start --address=HOST:6379` on each of the others "
    "make one, this machine among them"
)
SECONDS_TO_ANSWER = 5.0


@contextmanager
def on_ray(settings: Settings, ledger: Ledger) -> Iterator[Hire]:
    """Workers on the cluster that `settings.on` names, a core or a GPU each."""
    ray = _connected(settings.place_options)
    try:
        n_gpus = _gpus_a_worker(ray, settings)
        # Ray tells of machines that went away on standard output, which is for results.
        with signed(ledger.folder) as sign, redirect_stdout(sys.stderr):
            yield lambda cells, number: _OnRay(
                ray, cells, settings, number, sign=sign, n_gpus=n_gpus
            )
    finally:
        ray.shutdown()


def _connected(given: str) -> Any:
    """The module, in touch with a cluster."""
    # Ray would tell its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise TorchcapsError(
            "--on ray needs Ray, which comes with the extra [cluster]: "
            "pip install 'torchcaps[cluster]' here and on every machine of the cluster."
        ) from None
    address = given or os.environ.get("RAY_ADDRESS") or "auto"
    if address != "auto":
        _check_address(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise TorchcapsError(
            f"--on ray needs a running Ray cluster with this machine in it, and there is none "
            f"({reason}): {HOW_TO_START}."
        ) from None
    return ray


def _check_address(address: str) -> None:
    """Ray itself tries for two minutes, and then ends the process."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise TorchcapsError(
            f"--on ray:HOST:PORT takes the address that `ray start --head` prints, for example "
            f"ray:10.0.0.1:6379, but came with {address!r}; without one, the cluster of this "
            f"machine is taken."
        )
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise TorchcapsError(
            f"no Ray cluster answers at {address} ({error}); is it the address that `ray start "
            f"--head` printed, and is it still running? {HOW_TO_START}."
        ) from None


def _gpus_a_worker(ray: Any, settings: Settings) -> int:
    found = int(ray.cluster_resources().get("GPU", 0))
    if settings.device == "cuda" and not found:
        raise TorchcapsError(
            "--device cuda needs a GPU on some machine of the Ray cluster, and Ray knows of none; "
            "leave it out, and processors are taken, or tell Ray: ray start --num-gpus 1."
        )
    return int(settings.device != "cpu" and found > 0)


class About(NamedTuple):
    """What a pool must know of a worker before it gives it cells."""

    version: str
    process: int
    machine: str
    # Ray's name of the machine.
    node: str
    # Why it cannot take cells, or nothing.
    unseen: str


class OnNode:
    """What runs in the process that Ray started for a worker: it takes cells by itself, as workers
    of one machine do."""

    def __init__(self, settings: Settings, number: int, command: Sequence[str], n_gpus: int):
        self.settings, self.number = settings, number
        # Runs write down which command began them.
        sys.argv = list(command)
        if not n_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def about(self, sign: str) -> About:
        """Who this is, and whether it sees the folder that was signed."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        why_not = unseen(self.settings.folder, sign, "the Ray worker")
        return About(__version__, os.getpid(), platform.node(), node, why_not)

    def serve(self, cells: Sequence[Cell]) -> bool:
        """Take cells until none is left."""
        return serve(cells, self.settings, self.number)


class _OnRay:
    """A worker on some machine of the cluster, and the thread that waits for it here."""

    def __init__(
        self,
        ray: Any,
        cells: Sequence[Cell],
        settings: Settings,
        number: int,
        *,
        sign: str,
        n_gpus: int,
    ):
        self._ray, self._cells, self._sign = ray, cells, sign
        self._ledger = Ledger(settings.folder)
        self._about: About | None = None
        self._end = End("done")
        self._error: Exception | None = None
        made = ray.remote(num_cpus=1, num_gpus=n_gpus)(OnNode)
        self._actor = made.remote(settings.for_elsewhere(), number, sys.argv, n_gpus)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> End:
        if self._error is not None:
            raise self._error
        return self._end

    def terminate(self) -> None:
        about = self._about
        if about is None:
            # It waits for a place, or has just got one.
            self._ray.kill(self._actor)
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Runs beside the worker, whose training saves its state and stops. Ray sends the code of a
        # function that is inside another one; else the process would first import torch.
        def tell(process: int) -> None:
            import os
            import signal

            os.kill(process, signal.SIGTERM)

        near = NodeAffinitySchedulingStrategy(about.node, soft=False)
        task = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=near)(tell)
        task.remote(about.process)

    def join(self) -> None:
        self._thread.join()

    def _wait(self) -> None:
        errors = self._ray.exceptions
        try:
            self._serve()
        except errors.RayActorError:
            self._end = End("lost" if self._is_machine_gone() else "killed", self._cell())
        except errors.RayTaskError as error:
            self._error = TorchcapsError(_of_machine(error))
        except Exception as error:
            self._error = error
        finally:
            self._ray.kill(self._actor)

    def _serve(self) -> None:
        get, actor = self._ray.get, self._actor
        about = self._about = get(actor.about.remote(self._sign))
        if about.version != __version__:
            raise TorchcapsError(
                f"this is torchcaps {__version__}, but {about.machine} has {about.version}; "
                f"install the same one on every machine of the cluster."
            )
        if about.unseen:
            raise TorchcapsError(about.unseen)
        # The pool knows by itself when its time is up.
        get(actor.serve.remote(self._cells))

    def _cell(self) -> str | None:
        about = self._about
        return None if about is None else self._ledger.claimed_by(about.process, about.machine)

    def _is_machine_gone(self) -> bool:
        about = self._about
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        return about is not None and about.node not in alive


def _of_machine(error: Exception) -> str:
    last = str(error).strip().splitlines()[-1]
    return (
        f"a worker failed on a machine of the Ray cluster ({last}); is torchcaps {__version__} "
        f"installed there?"
    )
