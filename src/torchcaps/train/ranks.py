"""Several devices: which of the processes this one is, and what they do together.

torchrun and Slurm's srun start one process a device and tell each its rank by its environment.
"""

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import lightning
import torch
import torch.distributed
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.train.batches import Batches
from torchcaps.train.epoch_sums import Sums, over_ranks, put, so_far

T = TypeVar("T")
N = TypeVar("N", int, float, Tensor)


@dataclass(frozen=True)
class Ranks:
    """This process among those that train one network together; all alone by default."""

    rank: int = 0
    count: int = 1
    # How many of them share this machine.
    near: int = 1
    environment: ClusterEnvironment | None = None

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
        """The sum of every rank's number."""
        together: Any = sum(self.gathered(number))
        summed: N = together
        return summed

    def gathered(self, mine: T) -> list[T]:
        """What every rank has, in their order."""
        if self.count == 1:
            return [mine]
        everybodys: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(everybodys, mine)
        return everybodys

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean of every rank's tensor, the same on all of them bit for bit."""
        if self.count == 1:
            return tensor
        together = tensor.detach().clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(together)
        return together.div_(self.count)

    def devices(self) -> dict[str, Any]:
        """What Lightning's Trainer is told."""
        if self.count == 1:
            # Never Lightning's guess: a job of many tasks may run one process without srun.
            return {"accelerator": "auto", "devices": 1, "plugins": [LightningEnvironment()]}
        return {
            "accelerator": "cuda" if torch.cuda.is_available() else "cpu",
            "devices": self.near,
            "num_nodes": self.count // self.near,
            "strategy": DDPStrategy(),
            "plugins": [self.environment],
            # It needs an accelerator; on processors each rank normalises by its own share.
            "sync_batchnorm": torch.cuda.is_available(),
        }


def join() -> Ranks:
    """Meet the other processes that torchrun or srun started, if any, for the life of this one."""
    environment: ClusterEnvironment
    if TorchElasticEnvironment.detect():
        near = int(os.environ["LOCAL_WORLD_SIZE"])
        environment = TorchElasticEnvironment()
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        near = _tasks_a_node()
        # The run folder says how to go on; requeueing is the user's own choice.
        environment = SLURMEnvironment(auto_requeue=False)
    else:
        return Ranks()
    rank, count = environment.global_rank(), environment.world_size()
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
        os.environ["MASTER_ADDR"] = environment.main_address
        os.environ["MASTER_PORT"] = str(environment.main_port)
        if cuda:
            torch.cuda.set_device(environment.local_rank())
        torch.distributed.init_process_group(
            "nccl" if cuda else "gloo", rank=rank, world_size=count
        )
        atexit.register(_part)
    return Ranks(rank, count, near, environment)


def _part() -> None:
    """Let the threads of the process group end before Python does."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_first() -> bool:
    """Whether this process is alone or rank 0: the one that speaks for all."""
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


class MeanOfAll(Callback):
    """Gradients and metrics are means over whole batches, however unevenly the ranks share them."""

    def __init__(self, training: Batches, validation: Batches):
        self.training, self.validation = training, validation
        self.before: Sums = {}

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        assert isinstance(trainer.strategy.model, nn.parallel.DistributedDataParallel)
        trainer.strategy.model.register_comm_hook(None, self._reduce)

    def _reduce(
        self,
        state: None,
        bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        sent = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
        summed: torch.futures.Future[Tensor] = sent.get_future().then(lambda end: end.value()[0])
        return summed

    def on_train_batch_start(
        self, trainer: lightning.Trainer, module: Any, batch: Any, batch_idx: int
    ) -> None:
        self.before = so_far(trainer)
        # Of the loss, since an update may go by batches that are shared otherwise than its last.
        module.share = self.training.share

    def on_train_batch_end(
        self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # What a stand-in measured counts for nothing.
        if not self.training.share:
            put(trainer, self.before)

    def on_validation_batch_start(
        self,
        trainer: lightning.Trainer,
        module: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self.before = so_far(trainer)

    def on_validation_batch_end(
        self,
        trainer: lightning.Trainer,
        module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not self.validation.share:
            put(trainer, self.before)

    def on_validation_epoch_end(self, trainer: lightning.Trainer, module: Any) -> None:
        put(trainer, over_ranks(trainer))

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: Any) -> None:
        put(trainer, over_ranks(trainer))
