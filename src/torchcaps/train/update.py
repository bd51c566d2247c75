"""One update of a network's weights. What changes from step to step are tensors, and what a step
measures stays on its device until it is read: nothing in a step waits for the device."""

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchcaps.data import Batch, JudgedBy
from torchcaps.errors import Diverged
from torchcaps.models.own import as_given
from torchcaps.prune import Pruner
from torchcaps.train.answers import is_correct
from torchcaps.train.compiled import Loss, compiled
from torchcaps.train.loss import loss_parts, margin_at
from torchcaps.train.optimiser import lay_out, make_optimiser, rate_factor, slower_weights
from torchcaps.train.recipe import Precision, Recipe

DTYPES: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# After so many steps a GPU is asked what they measured.
AT_ONCE = 50


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Let a network compute in this precision; weights and sums stay in float32."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


class Sums(dict[str, tuple[Any, int]]):
    """By name the sum of some numbers, and how many they are."""

    def add(self, name: str, mean: Any, count: int) -> None:
        """Add so many numbers with this mean."""
        total, before = self.get(name, (mean.dtype.type(0), 0))
        with np.errstate(over="ignore"):
            self[name] = total + mean * mean.dtype.type(count), before + count

    def add_row(self, names: Iterable[str], row: Iterable[Any], count: int) -> None:
        for name, mean in zip(names, row, strict=True):
            self.add(name, mean, count)

    def means(self) -> dict[str, float]:
        return {n: float(total / total.dtype.type(max(1, of))) for n, (total, of) in self.items()}


class Rows:
    """Numbers of some steps, a row a step, on the device where they were made."""

    def __init__(self, most: int):
        self.most = most
        self.width = 0

    def write(self, numbers: Sequence[Tensor]) -> None:
        """Write a row below the last one."""
        row = torch.stack(list(numbers))
        if len(row) != self.width:
            self.width = len(row)
            self.kept = row.new_empty(self.most * self.width)
            self.first = torch.arange(self.width, device=row.device)
            self.places = self.first.clone()
            self.array: Any = None
        self.kept.index_copy_(0, self.places, row)
        if self.most > 1:
            self.places.add_(self.width)

    def read(self, count: int) -> Any:
        """Give the first rows, as an array [count, width], and begin anew in their place."""
        if self.most > 1:
            self.places.copy_(self.first)
        if self.array is None or self.kept.device.type != "cpu":
            # On a processor it shows the rows themselves, now and later.
            self.array = self.kept.cpu().numpy()
        return self.array[: count * self.width].reshape(count, self.width)


class Update:
    """A training step: loss, gradients, and the optimiser's move.

    The learning rate and the margin of the spread loss are tensors that are filled before it, so
    `work` is the same sequence of operators in every step. A pruner is told of gradients and of
    moves; `network` is called in place of the model, where several devices share its gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        *,
        judged_by: JudgedBy = "class",
        steps_an_epoch: int = 1,
        pruner: Pruner | None = None,
        network: nn.Module | None = None,
    ):
        self.model, self.recipe, self.judged_by = model, recipe, judged_by
        self.steps_an_epoch, self.pruner = steps_an_epoch, pruner
        self.network = model if network is None else network
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.device = self.weights[0].device
        slower = slower_weights(recipe, model)
        self.optimiser = make_optimiser(recipe, self.weights, slower=slower)
        on_gpu = self.device.type == "cuda"
        # A fused move reads a float32 on a GPU, and Python's number on a processor.
        dtype = torch.float32 if on_gpu else torch.float64
        self.rate = torch.zeros((), dtype=dtype, device=self.device)
        self.margin = torch.zeros((), dtype=torch.float64, device=self.device)
        self.slow_rate = self.rate.clone()
        for group in self.optimiser.param_groups:
            group["lr"] = self.slow_rate if "share" in group else self.rate
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "float16")
        self.loss: Loss = loss_and_accuracy
        # Updates so far, and the epoch.
        self.step = self.epoch = 0
        # Of the epoch so far: by what is measured, and by the part whose gradients have a norm.
        self.sums, self.norms = Sums(), Sums()
        self._measured, self._gradients = (Rows(AT_ONCE if on_gpu else 1) for _ in range(2))
        # Of each row of the first that was not read: its step, its images. Rows of the other.
        self._unread: list[tuple[int, int]] = []
        self._moves = 0
        self._names: tuple[str, ...] = ()
        self._columns: dict[str, list[int]] = {}
        self._trained: Sequence[Tensor] = ()
        self._filled: tuple[float, ...] = (0.0, 0.0, 0.0)

    def __call__(
        self,
        batch: Batch,
        *,
        images: int | None = None,
        factor: float = 1.0,
        first: bool = True,
        last: bool = True,
    ) -> None:
        """Train on a batch on the network's device, its loss times a factor; its means count for so
        many images, by default its own. The `first` batch begins an update, the `last` ends it."""
        self.fill()
        self.work(batch, factor=factor, first=first, last=last)
        self.worked(len(batch.labels) if images is None else images, last=last)

    def compile_loss(self) -> None:
        self.loss = compiled(loss_and_accuracy)

    def rate_now(self) -> float:
        """Give the learning rate of the next update."""
        factor = rate_factor(self.recipe, self.step, self.steps_an_epoch)
        return self.recipe.learning_rate * factor

    def fill(self) -> None:
        """Give the tensors the numbers of the next update."""
        is_spread = self.recipe.loss == "spread"
        rate, margin = self.rate_now(), margin_at(self.recipe, self.step) if is_spread else 0.0
        now = rate, rate * self.recipe.backbone_rate, margin
        tensors = self.rate, self.slow_rate, self.margin
        for tensor, before, number in zip(tensors, self._filled, now, strict=True):
            if number != before:
                tensor.fill_(number)
        self._filled = now

    def work(
        self, batch: Batch, *, factor: float = 1.0, first: bool = True, last: bool = True
    ) -> None:
        """Do all that the device does in a step."""
        if first:
            self.optimiser.zero_grad()
        with computing(self.recipe.precision, self.device):
            shown = self.loss(self.network, self.recipe, batch, self.margin, self.judged_by)
        loss = shown["loss"]
        self.scaler.scale(loss if factor == 1.0 else loss * factor).backward()
        self._names = tuple(shown)
        with torch.no_grad():
            self._measured.write(list(shown.values()))
            if last:
                self._move()

    def _move(self) -> None:
        self.scaler.unscale_(self.optimiser)
        if self.pruner is not None:
            self.pruner.after_backward(self.epoch)
        found = [(weight, weight.grad) for weight in self.weights if weight.grad is not None]
        trained, gradients = zip(*found, strict=True)
        if list(map(id, trained)) != list(map(id, self._trained)):
            self._name_columns(trained)
        self._gradients.write(torch._foreach_norm(gradients))
        self.scaler.step(self.optimiser)
        self.scaler.update()
        if self.pruner is not None:
            self.pruner.after_step()

    def _name_columns(self, trained: Sequence[Tensor]) -> None:
        """Name the parts of the network that these weights are of; a row has as many norms."""
        self._read_norms()
        at = {id(weight): column for column, weight in enumerate(trained)}
        found = {
            name: [at[id(weight)] for weight in part.parameters() if id(weight) in at]
            for name, part in parts(self.model).items()
        }
        self._columns = {name: columns for name, columns in found.items() if columns}
        self._trained = trained

    def worked(self, images: int, *, last: bool = True) -> None:
        """Count a step whose work was begun."""
        self._unread.append((self.step, images))
        self._moves += last
        self.step += last
        if len(self._unread) == self._measured.most:
            self.read()

    def read(self) -> None:
        """Add what the steps measured to the sums; refuse to go on from a loss that was lost."""
        if not self._unread:
            return
        rows = self._measured.read(len(self._unread))
        for row, (step, images) in zip(rows, self._unread, strict=True):
            refuse_lost(row[0], f"the loss became {row[0]} at step {step}", self.recipe)
            # What a stand-in measured counts for nothing.
            if images:
                self.sums.add_row(self._names, row, images)
        self._unread = []
        self._read_norms()

    def _read_norms(self) -> None:
        if not self._moves:
            return
        rows = self._gradients.read(self._moves)
        for name, columns in self._columns.items():
            # Each row in one piece: else numpy adds in another order where several are read.
            for norm in np.linalg.norm(rows.take(columns, axis=1), axis=1):
                # An update whose gradients overflow, as in float16 now and then, is left out.
                is_finite = bool(np.isfinite(norm))
                self.norms.add(name, norm if is_finite else norm.dtype.type(0), int(is_finite))
        self._moves = 0

    def state(self) -> dict[str, Any]:
        """Give what the optimiser remembers."""
        state = self.optimiser.state_dict()
        rate = self.rate_now()
        groups = [{**group, "lr": rate * group.get("share", 1)} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    def load_state(self, state: dict[str, Any], *, step: int) -> None:
        """Go on after so many updates."""
        as_made = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.optimiser.param_groups
        ]
        self.optimiser.load_state_dict(state)
        for group, made in zip(self.optimiser.param_groups, as_made, strict=True):
            group.update(made)
        lay_out(self.optimiser)
        self.step = step


def refuse_lost(value: float, became: str, recipe: Recipe) -> None:
    """Refuse to go on from a number that became NaN or infinite; `became` says which and when."""
    if not math.isfinite(value):
        raise Diverged(
            f"{became}, so training diverged; take a smaller learning rate than "
            f"{recipe.learning_rate:g}, in a new folder."
        )


def loss_and_accuracy(
    network: nn.Module, recipe: Recipe, batch: Batch, margin: Tensor, judged_by: JudgedBy
) -> dict[str, Tensor]:
    """Give what a step measures of a batch by name, first the loss."""
    out = network(batch.pixels, batch.labels)
    terms = loss_parts(recipe, out, batch, margin=margin)
    right = is_correct(out, batch.labels, judged_by=judged_by).float().mean()
    loss = torch.stack(list(terms.values())).sum()
    return {"loss": loss, **(terms if len(terms) > 1 else {}), "accuracy": right}


def parts(model: nn.Module) -> dict[str, nn.Module]:
    """Give the pieces of a network that have weights, each routed layer by itself."""
    pieces = dict(as_given(model).named_children())
    layers = pieces.pop("layers", None)
    if isinstance(layers, nn.ModuleDict):
        pieces |= dict(layers.items())
    return {name: piece for name, piece in pieces.items() if any(True for _ in piece.parameters())}
