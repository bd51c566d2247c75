"""Training: a recipe in, a run folder out. Needs the extra [train]."""

from typing import TYPE_CHECKING

from torchcaps._extras import check_installed
from torchcaps._lazy import lazily

if TYPE_CHECKING:
    from torchcaps.train.fit import fit
    from torchcaps.train.folder.recipe_file import read_fields, read_recipe
    from torchcaps.train.folder.run import Run
    from torchcaps.train.images import images_of
    from torchcaps.train.judging import accuracy
    from torchcaps.train.loss import loss_of
    from torchcaps.train.many import fit_many
    from torchcaps.train.module import Training
    from torchcaps.train.protocols import PROTOCOLS, Protocol
    from torchcaps.train.recipe import Recipe, make_recipe

__all__ = [
    "PROTOCOLS",
    "Protocol",
    "Recipe",
    "Run",
    "Training",
    "accuracy",
    "fit",
    "fit_many",
    "images_of",
    "loss_of",
    "make_recipe",
    "read_fields",
    "read_recipe",
]

check_installed("lightning", room="train", extra="train")
lazily(__name__)
