"""Pruning beside the steps: the pruner of a recipe, called at its moments, its masks in the state.

A row of metrics says how many weights are zero in the network that it measured: weights are pruned
after the last step of an epoch and before its validation.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.data import Images
from torchcaps.errors import TorchcapsError
from torchcaps.prune import (
    Lobster,
    Magnitude,
    MaskAtTheEnd,
    Pruner,
    RandomMasks,
    Snip,
    prunable,
    ramp,
)
from torchcaps.train.batches import Batches, brought
from torchcaps.train.frozen import eval_frozen
from torchcaps.train.loop import Loop, Watcher
from torchcaps.train.loss import loss_parts
from torchcaps.train.measures import of_trees
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import MASKS, seed_of


def make_pruner(recipe: Recipe, model: nn.Module) -> Pruner | None:
    """Give what the recipe prunes by; None where it does not."""
    way, to = recipe.prune, recipe.prune_to
    if way is None:
        return None
    if way == "magnitude":
        assert to is not None
        targets = to if isinstance(to, tuple) else ramp(to, epochs=recipe.prune_ramp)
        return Magnitude(model, targets=targets, scope=recipe.prune_scope)
    assert not isinstance(to, tuple)
    if way == "lobster":
        shrink, tolerance = recipe.prune_shrink, recipe.prune_tolerance
        return Lobster(model, shrink=shrink, tolerance=tolerance, most=to)
    assert to is not None
    if way == "random_masks":
        generator = torch.Generator().manual_seed(seed_of(recipe.seed, MASKS))
        return RandomMasks(model, to=to, generator=generator, scope=recipe.prune_scope)
    kind = {"snip": Snip, "mask_at_the_end": MaskAtTheEnd}[way]
    return kind(model, to=to, scope=recipe.prune_scope)


class Prune(Watcher):
    """Calls a pruner before training and after epochs, which an update calls within its steps; logs
    the sparsity and how many trees are left.

    It must come before what looks at the network after an epoch or saves it.
    """

    def __init__(self, pruner: Pruner, training: Images):
        self.pruner, self.training = pruner, training
        self.has_masks = False

    def state_dict(self) -> dict[str, Any]:
        return {"masks": self.pruner.masks.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # A damaged state may hold anything here, and the masks say so.
        found: Any = state_dict.get("masks") if isinstance(state_dict, dict) else state_dict
        self.pruner.masks.load_state_dict(found)
        self.has_masks = True

    def on_train_start(self, loop: Loop) -> None:
        self.pruner.masks.move(loop.device)
        if self.has_masks:
            return
        if loop.global_step:
            raise TorchcapsError(
                "the state of this run holds no masks, so which weights are pruned is not known; "
                "it is damaged: remove state.ckpt, and the run begins anew."
            )
        self.pruner.before_training(lambda: self._shared(loop))

    def on_validation_start(self, loop: Loop) -> None:
        if loop.should_stop:
            # Within an epoch it was accurate enough, and that is the network that is kept.
            return
        self.pruner.after_epoch(loop.current_epoch, lambda: self._loss(loop))

    def on_validation_epoch_end(self, loop: Loop) -> None:
        masks = self.pruner.masks
        trees = of_trees(loop.model, loop.validation.images)
        measured = {"sparsity": masks.count / masks.size, **trees}
        for name, value in measured.items():
            loop.log(name, value)

    @torch.no_grad()
    def _loss(self, loop: Loop) -> float:
        """Give the validation loss of the network as it is, as it would be logged."""
        total = 0.0
        for batch, (_, means), is_own in loop.shown():
            if is_own:
                loss, _ = means.values()
                total += float(loss) * len(batch.labels)
        return loop.ranks.total(total) / len(loop.validation.images)

    def _shared(self, loop: Loop) -> dict[str, Tensor]:
        """Give the mean over ranks, which all look at the same images. One's may differ by rounding
        from another's, and a weight that only one of them prunes would never be the same on both
        again."""
        return {name: loop.ranks.mean(found) for name, found in self._gradients(loop).items()}

    def _gradients(self, loop: Loop) -> Mapping[str, Tensor]:
        """Give the mean gradient over some batches, of a copy, whose running means may move."""
        model, recipe = copy.deepcopy(loop.model).train(), loop.update.recipe
        # As in every step.
        eval_frozen(model, recipe.freeze)
        size, how = recipe.batch_size, recipe.sampling
        batches = Batches(self.training, size, seed=recipe.seed, sampling=how)
        # Dropout draws, before the first step has set a seed.
        torch.manual_seed(seed_of(recipe.seed, MASKS))
        for _, batch in zip(range(recipe.prune_batches), batches, strict=False):
            here = brought(batch, loop.device)
            parts = loss_parts(recipe, model(here.pixels, here.labels), here)
            torch.stack(list(parts.values())).sum().backward()
        weights = prunable(model)
        return {n: torch.zeros_like(w) if w.grad is None else w.grad for n, w in weights.items()}
