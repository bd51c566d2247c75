"""What saliency maps show: whether they lie on the object, of images that tell where it is
[renzulli2025] Fig. 5, and how far pruning moves them, Figs. 21 and 22.

A pruned network is compared with the one of the same seed from which nothing is pruned, each with
the map of the class that it says itself, stretched to the size of the images. Its run lies beside
that of the pruned one where a study trains both, and is else trained as NAME.dense.
"""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.analysis import focus, saliency, saliency_distance
from torchcaps.data import Images, load, part_masks
from torchcaps.errors import TorchcapsError
from torchcaps.study.system import Cell
from torchcaps.train import PROTOCOLS, Recipe, Run, fit
from torchcaps.train.folder.environment import CHANGED
from torchcaps.types import Output

BATCH = 100


def dense_recipe(recipe: Recipe) -> Recipe:
    """The recipe without its pruning. A pruned network of [renzulli2025] is that of the last epoch,
    its dense ones are those of the best."""
    fields = Recipe.model_fields.items()
    changes = {name: each.default for name, each in fields if name.startswith("prune")}
    if recipe.protocol == "rem_pruned":
        changes |= {"protocol": "rem", "keep": PROTOCOLS["rem"].fields["keep"]}
    return recipe.model_copy(update=changes)


def dense_run(
    run: Run,
    *,
    root: str | os.PathLike[str] | None,
    trunk: Path | None = None,
    time_budget: float | None = None,
) -> Run:
    """The run that a pruned one is compared with. One that another process is still at is not
    waited for but trained twice, and past the time budget its state is saved."""
    recipe = dense_recipe(run.recipe)
    beside = Run(run.folder.with_name(Cell(recipe, ()).name))
    # What changed code trained may stand beside a run of a commit, whose record would hide it.
    if beside.is_done and _is_of_commits(beside) >= _is_of_commits(run):
        return beside
    return fit(
        recipe,
        run.folder.with_name(f"{run.folder.name}.dense"),
        root=root,
        label=f"{run.folder.name} without pruning",
        trunk=trunk,
        time_budget=time_budget,
    )


@torch.no_grad()
def apart_of(
    dense: Callable[[Tensor], Output], pruned: Callable[[Tensor], Output], images: Images
) -> dict[str, float]:
    """The distance of both maps, mean over test images; those where one of them is zero everywhere
    have none, and `saliency_known` is the share of the others."""
    found = []
    for part in torch.arange(len(images)).split(BATCH):
        pixels = images.batch(part).pixels
        maps = [_map(network(pixels), pixels) for network in (dense, pruned)]
        found.append(saliency_distance(*maps))
    return known_mean("saliency", torch.cat(found))


def known_mean(name: str, values: Tensor) -> dict[str, float]:
    """Take the mean of those that are known, and their share as `NAME_known`; it is alone where
    none is known."""
    known = values[~values.isnan()]
    share = {f"{name}_known": len(known) / len(values)}
    return {name: float(known.mean()), **share} if len(known) else share


@torch.no_grad()
def focus_of(network: Callable[[Tensor], Output], images: Images) -> dict[str, float]:
    """The share of saliency on the visible parts of the whole, mean over test images; those whose
    map is zero everywhere have none, and `focus_known` is the share of the others."""
    truth = getattr(images, "truth", None)
    if truth is not None:
        # In the size in which they were made: stretched images do not name places.
        truth = getattr(load(images.name, split="test"), "truth", None)
    if truth is None or len(truth.part) != len(images):
        raise TorchcapsError(
            f"focus asks where the object is, which the images of {images.name} do not tell; take "
            f"the test images of part-whole."
        )
    shares = []
    for part in torch.arange(len(images)).split(BATCH):
        out = network(images.batch(part).pixels)
        size, n_classes = (truth.size, truth.size), out.scores.shape[1]
        maps = saliency(out.trace, out.scores.argmax(-1), n_classes=n_classes, size=size)
        of_whole = (truth.owner[part] == 0)[:, :, None, None]
        shares.append(focus(maps.cpu(), (part_masks(truth, part) & of_whole).any(1)))
    return known_mean("focus", torch.cat(shares).double())


def _map(out: Output, pixels: Tensor) -> Tensor:
    """Saliency of the predicted classes, in the size of the images."""
    height, width = pixels.shape[-2:]
    n_classes, predicted = out.scores.shape[1], out.scores.argmax(-1)
    return saliency(out.trace, predicted, n_classes=n_classes, size=(height, width)).cpu()


def _is_of_commits(run: Run) -> bool:
    return not any(commit is None or CHANGED in commit for commit in run.commits())
