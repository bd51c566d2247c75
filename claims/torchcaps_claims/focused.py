"""Whether saliency lies on the object, of images that tell where it is [renzulli2025] Fig. 5."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.analysis import focus, saliency
from torchcaps.data import Images, load, part_masks
from torchcaps.errors import TorchcapsError
from torchcaps.types import Output
from torchcaps_claims.apart import known_mean

BATCH = 100


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
