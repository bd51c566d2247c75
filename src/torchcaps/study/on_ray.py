"""Workers on a Ray cluster. Ray finds them a machine, a core or a GPU each, and says when one died.
This machine must be in the cluster, and all machines must see the folder of the cells."""

import os
import platform
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from torchcaps import __version__
from torchcaps.errors import TorchcapsError
from torchcaps.study.disk import signed, unseen
from torchcaps.study.ledger import Ledger
from torchcaps.study.settings import Settings
from torchcaps.study.system import Cell
from torchcaps.study.workers import End, Hire, serve

HOW_TO_START = (
    "`ray start --head` on one machine and `ray start --address=HOST:6379` on each of the others "
    "make one, this machine among them"
)
SECONDS_TO_ANSWER = 5.0


@contextmanager
def on_ray(settings: Settings, ledger: Ledger) -> Iterator[Hire]:
    """Hire workers on the cluster that `settings.on` names, a core or a GPU each."""
    ray = _connected(settings.place_options)
    try:
        n_gpus = _gpus_a_worker(ray, settings)
        on_node, there = ray.remote(num_cpus=1, num_gpus=n_gpus)(OnNode), settings.for_elsewhere()
        # Ray tells of machines that went away on standard output, which is for results.
        with signed(ledger.folder) as sign, redirect_stdout(sys.stderr):

            def hire(cells: Sequence[Cell], number: int) -> _OnRay:
                actor = on_node.remote(there, number, sys.argv, n_gpus)
                return _OnRay(ray, actor, ledger, (cells, sign, __version__))

            yield hire
    finally:
        ray.shutdown()


def _connected(given: str) -> Any:
    """Load the module, in touch with a cluster."""
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
    """Refuse an address where nobody answers: Ray would try for two minutes, and exit."""
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


# Process and machine of a worker, and Ray's name of the machine.
About = tuple[int, str, str]


class OnNode:
    """Takes cells in the process that Ray started for a worker, as workers of one machine do."""

    def __init__(self, settings: Settings, number: int, command: Sequence[str], n_gpus: int):
        self.settings, self.number = settings, number
        # Runs write down which command began them.
        sys.argv = list(command)
        if not n_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def about(self) -> About:
        import ray

        return os.getpid(), platform.node(), ray.get_runtime_context().get_node_id()

    def serve(self, cells: Sequence[Cell], sign: str, version: str) -> str:
        """Take cells until none is left; the sentence that says why it cannot, or nothing."""
        if version != __version__:
            return (
                f"this is torchcaps {version}, but {platform.node()} has {__version__}; install "
                f"the same one on every machine of the cluster."
            )
        if said := unseen(self.settings.folder, sign, "the Ray worker"):
            return said
        serve(cells, self.settings, self.number)
        return ""


class _OnRay:
    """A worker on some machine of the cluster."""

    def __init__(self, ray: Any, actor: Any, ledger: Ledger, work: tuple[Any, ...]):
        self._ray, self._actor, self._ledger = ray, actor, ledger
        # Answered one after the other.
        self._told, self._served = actor.about.remote(), actor.serve.remote(*work)

    def is_alive(self) -> bool:
        return not self._ray.wait([self._served], timeout=0)[0]

    def end(self) -> End:
        errors = self._ray.exceptions
        try:
            why_not = self._ray.get(self._served)
        except errors.RayActorError:
            return self._died()
        except errors.RayTaskError as error:
            last = str(error).strip().splitlines()[-1]
            raise TorchcapsError(
                f"a worker failed on a machine of the Ray cluster ({last}); is torchcaps "
                f"{__version__} installed there?"
            ) from None
        finally:
            self._ray.kill(self._actor)
        if why_not:
            raise TorchcapsError(why_not)
        # The pool knows by itself when its time is up.
        return End("done")

    def terminate(self) -> None:
        about = self._about()
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

        pid, _, node = about
        near = NodeAffinitySchedulingStrategy(node, soft=False)
        task = self._ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=near)(tell)
        task.remote(pid)

    def join(self) -> None:
        self._ray.wait([self._served])

    def _about(self) -> About | None:
        """Give what it said of itself; None where it waits for a place or died before it could."""
        try:
            answered: About = self._ray.get(self._told, timeout=0)
        except (self._ray.exceptions.GetTimeoutError, self._ray.exceptions.RayActorError):
            return None
        return answered

    def _died(self) -> End:
        about = self._about()
        if about is None:
            return End("killed")
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        process, machine, node = about
        return End("killed" if node in alive else "lost", self._ledger.claimed_by(process, machine))
