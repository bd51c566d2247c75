"""What an epoch tells of the capsules: how strongly each layer is pulled, which capsules are dead,
how much the couplings depend on the image; of a pruned network also how many parse trees it has."""

import inspect
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.analysis import Keys, MeasureKeys, Thresholds, capsule_layers, lengths, quantise
from torchcaps.analysis.activity import dead_capsules
from torchcaps.analysis.trace import last_coupling, parents_are_classes
from torchcaps.analysis.zero_votes import zero_blocks
from torchcaps.data import Images
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DenseCapsules
from torchcaps.models.images import evaluating
from torchcaps.train.loop import Loop, Watcher
from torchcaps.train.update import Sums, parts

# Enough for a mean over images; couplings of a convolutional layer fill megabytes an image.
IMAGES, AT_ONCE = 128, 16
# Keys are counted by class, and the more images, the less the entropy is bounded by their number.
TREE_IMAGES = 1000


class Measures(Watcher):
    """Logs gradient_norm/, dead_capsules/, revivals/ and coupling_std/ with the name of the layer.

    The norm is the mean over the epoch's updates with finite gradients; the others are of the first
    validation images, or of training images where none are held out.
    """

    def __init__(self, validation: Images):
        self.validation = validation
        # Of the epoch so far; an update adds to it.
        self.norms = Sums()
        # By layer: at the ends of how many epochs each capsule was dead since it last lived.
        self.dead_for: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        norms = {name: torch.tensor([total, of]) for name, (total, of) in self.norms.items()}
        return {"norms": norms, "dead_for": self.dead_for}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, (total, of) in state_dict["norms"].items():
            self.norms[name] = total.numpy()[()], int(of)
        self.dead_for = state_dict["dead_for"]

    def on_train_start(self, loop: Loop) -> None:
        loop.update.norms.update(self.norms)
        self.norms = loop.update.norms

    def on_validation_epoch_end(self, loop: Loop) -> None:
        dead, moving = seen_of_capsules(loop.model, self.validation)
        for name, value in {**counted(dead), **self._revived(dead), **moving}.items():
            loop.log(name, value)

    def _revived(self, dead: dict[str, Tensor]) -> dict[str, float]:
        """Count revivals/ by layer: for how many epochs capsules that live now had been dead."""
        found = {}
        for name, now in dead.items():
            nobody = torch.zeros(now.shape, dtype=torch.int64)
            before = self.dead_for.get(name, nobody).to(now.device)
            if before.shape != now.shape:
                raise TorchcapsError(
                    f"the state of this run counts {before.numel()} capsules of {name}, which has "
                    f"{now.numel()}; it is damaged: remove state.ckpt, and the run begins anew."
                )
            found[f"revivals/{name}"] = float(before[~now].sum())
            self.dead_for[name] = torch.where(now, before + 1, 0)
        return found

    def on_train_epoch_end(self, loop: Loop) -> None:
        for name, mean in self.norms.means().items():
            loop.log(f"gradient_norm/{name}", mean)
        self.norms.clear()


def counted(dead: dict[str, Tensor]) -> dict[str, float]:
    """Count dead_capsules/ by layer."""
    return {f"dead_capsules/{name}": float(each.sum()) for name, each in dead.items()}


@torch.no_grad()
def seen_of_capsules(
    model: nn.Module, images: Images
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Say which capsules are dead, by layer, and coupling_std/; nothing without a trace."""
    if "keep" not in inspect.signature(model.forward).parameters:
        return {}, {}
    device = next(model.parameters()).device
    length: dict[str, list[Tensor]] = {}
    total: dict[str, Tensor] = {}
    index = torch.arange(min(IMAGES, len(images)))
    with evaluating(model):
        for some in index.split(AT_ONCE):
            trace = model(images.batch(some).pixels.to(device), keep="last").trace
            if not trace:
                break
            for name, capsules in capsule_layers(trace):
                length.setdefault(name, []).append(lengths(capsules).float())
            for layer in trace:
                coupling = last_coupling(layer).double()  # [b, *p, i, j]
                sums = torch.stack([coupling.sum(0), coupling.square().sum(0)])
                total[layer.name] = total.get(layer.name, torch.zeros_like(sums)) + sums
    dead = {name: dead_capsules(torch.cat(each), Thresholds()) for name, each in length.items()}
    moving = {}
    for name, sums in total.items():
        mean, square = sums / len(index)
        moving[f"coupling_std/{name}"] = float((square - mean.square()).clamp(min=0).sqrt().mean())
    return dead, moving


@torch.no_grad()
def of_trees(model: nn.Module, images: Images) -> dict[str, float]:
    """Measure keys a class, their entropy and its bound, on 11 levels, where the last parents are
    the classes; and zero_blocks/ of every layer with a matrix for each child and parent."""
    found = {}
    for name, layer in parts(model).items():
        weight = getattr(layer, "weight", None)
        if isinstance(layer, DenseCapsules) and isinstance(weight, Tensor) and weight.ndim == 4:
            found[f"zero_blocks/{name}"] = float(zero_blocks(weight).double().mean())
    keys = None
    # A network or a routing of one's own may not take `couple`: it costs numbers, and no training.
    with evaluating(model), suppress(TorchcapsError):
        keys = _keys(model, images)
    if keys is None:
        return found
    mean = sum(row.keys for row in keys.classes) / len(keys.classes)
    return {"entropy": keys.entropy, "entropy_bound": keys.bound, "keys": mean, **found}


def _keys(model: nn.Module, images: Images) -> Keys | None:
    if not {"keep", "couple"} <= set(inspect.signature(model.forward).parameters):
        return None
    device = next(model.parameters()).device
    kind = MeasureKeys(sweep=())
    # Of several routed layers the lower ones are on the grid as well, as in a dictionary.
    on_grid = partial(quantise, levels=kind.levels)
    for some in torch.arange(min(TREE_IMAGES, len(images))).split(AT_ONCE):
        out = model(images.batch(some).pixels.to(device), keep="last", couple=on_grid)
        if not out.trace or not parents_are_classes(out.trace, out.scores.shape[1]):
            return None
        kind.add(out.trace, out.scores.argmax(-1))
    return kind.result()
