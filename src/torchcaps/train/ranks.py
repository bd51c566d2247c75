"""Several devices: which of the processes this one is, and what they do together.

torchrun and Slurm's srun start one process a device and tell each its rank by its environment.
"""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchcaps.errors import TorchcapsError

T = TypeVar("T")
N = TypeVar("N", int, float, Tensor)


@dataclass(frozen=True)
class Ranks:
    """This process among those that train one network together; all alone by default."""

    rank: int = 0
    count: int = 1

    @property
    def device(self) -> torch.device:
        """Where this process trains."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", torch.cuda.current_device())

    @property
    def generators(self) -> list[torch.device]:
        """Whose random numbers training draws, beside the processor's."""
        return [self.device] if self.device.type == "cuda" else []

    def first_does(self, act: Callable[[], T]) -> T:
        """Rank 0 acts, the others wait; all return what it returned, or raise what it raised."""
        if self.count == 1:
            return act()
        outcome: list[Any] = [None, None]
        if self.rank == 0:
            try:
                outcome[0] = act()
            except Exception as error:
                outcome[1] = error
        torch.distributed.broadcast_object_list(outcome)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result

    def total(self, number: N) -> N:
        """Give the sum of every rank's number."""
        together: Any = sum(self.gathered(number))
        summed: N = together
        return summed

    def gathered(self, mine: T) -> list[T]:
        """Give what every rank has, in their order."""
        if self.count == 1:
            return [mine]
        everybodys: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(everybodys, mine)
        return everybodys

    def mean(self, tensor: Tensor) -> Tensor:
        """Give the mean of every rank's tensor, the same on all of them bit for bit."""
        if self.count == 1:
            return tensor
        together = tensor.detach().clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(together)
        return together.div_(self.count)

    def any(self, *here: bool) -> list[bool]:
        """Say of each whether any rank says so."""
        if self.count == 1:
            return list(here)
        said = torch.tensor(here, dtype=torch.uint8, device=self.device)
        torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MAX)
        return said.bool().tolist()

    @contextmanager
    def together(self, model: nn.Module) -> Iterator[nn.Module]:
        """Give the network as all train it: gradients are sums, GPUs normalise whole batches."""
        if self.count == 1:
            yield model
            return
        parts = dict(model.named_modules())
        if torch.cuda.is_available():
            # On processors each rank normalises by its own share.
            nn.SyncBatchNorm.convert_sync_batchnorm(model)
        shared = DistributedDataParallel(model)
        shared.register_comm_hook(None, _summed)
        try:
            yield shared
        finally:
            for name, part in parts.items():
                if isinstance(part, nn.modules.batchnorm._BatchNorm) and name:
                    model.set_submodule(name, part)


def _summed(
    state: None,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Losses are weighted by shares, so that sums of gradients are means over the batch."""
    sent = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
    summed: torch.futures.Future[Tensor] = sent.get_future().then(lambda end: end.value()[0])
    return summed


def join() -> Ranks:
    """Meet the other processes that torchrun or srun started, if any, for the life of this one."""
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        near = int(os.environ["LOCAL_WORLD_SIZE"])
        rank, count, local = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        near = _tasks_a_node()
        rank, count, local = _of_slurm()
    else:
        return Ranks()
    if count == 1:
        return Ranks()
    cuda = torch.cuda.is_available()
    if cuda and near > torch.cuda.device_count():
        raise TorchcapsError(
            f"{near} processes were started on a machine with {torch.cuda.device_count()} GPUs; "
            f"start one a GPU, and let each see all of them: srun --gres=gpu:{near} rather than "
            f"--gpus-per-task."
        )
    if not torch.distributed.is_initialized():
        if cuda:
            torch.cuda.set_device(local)
        torch.distributed.init_process_group(
            "nccl" if cuda else "gloo", rank=rank, world_size=count
        )
        atexit.register(_part)
    return Ranks(rank, count)


def _of_slurm() -> tuple[int, int, int]:
    """Find rank, number and local rank, and tell torch where the first rank is."""
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    # The run folder says how to go on; requeueing is the user's own choice.
    slurm = SLURMEnvironment(auto_requeue=False)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = slurm.main_address, str(slurm.main_port)
    return slurm.global_rank(), slurm.world_size(), slurm.local_rank()


def _part() -> None:
    """Let the threads of the process group end before Python does."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_first() -> bool:
    """Say whether this process is alone or rank 0: the one that speaks for all."""
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not several or torch.distributed.get_rank() == 0


def _tasks_a_node() -> int:
    tasks, nodes = int(os.environ["SLURM_STEP_NUM_TASKS"]), int(os.environ["SLURM_NNODES"])
    if tasks % nodes:
        raise TorchcapsError(
            f"{tasks} tasks on {nodes} nodes cannot be shared evenly; give srun "
            f"--ntasks-per-node, one task a device."
        )
    # Lightning asks for it, Slurm tells it only where the user did.
    os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(tasks // nodes))
    return tasks // nodes
