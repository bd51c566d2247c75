"""Training: a recipe in, a run folder out. Needs the extra [train]."""

from torchcaps._extras import needing

with needing("lightning", room="train", extra="train"):
    from torchcaps.train.fit import fit
    from torchcaps.train.folder.recipe_file import read_fields, read_recipe
    from torchcaps.train.folder.run import Run
    from torchcaps.train.images import images_of
    from torchcaps.train.judging import accuracy
    from torchcaps.train.loss import loss_of
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
    "images_of",
    "loss_of",
    "make_recipe",
    "read_fields",
    "read_recipe",
]
