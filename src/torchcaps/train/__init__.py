"""Training: a recipe in, a run folder out. Needs the extra [train]."""

from typing import TYPE_CHECKING

from torchcaps._extras import check_installed
from torchcaps._lazy import lazily

if TYPE_CHECKING:
    from torchcaps.train.fit import fit as fit
    from torchcaps.train.folder.recipe_file import read_fields as read_fields
    from torchcaps.train.folder.recipe_file import read_recipe as read_recipe
    from torchcaps.train.folder.run import Run as Run
    from torchcaps.train.images import images_of as images_of
    from torchcaps.train.judging import accuracy as accuracy
    from torchcaps.train.loss import loss_of as loss_of
    from torchcaps.train.many import fit_many as fit_many
    from torchcaps.train.module import Training as Training
    from torchcaps.train.protocols import PROTOCOLS as PROTOCOLS
    from torchcaps.train.protocols import Protocol as Protocol
    from torchcaps.train.recipe import Recipe as Recipe
    from torchcaps.train.recipe import make_recipe as make_recipe


check_installed("lightning", room="train", extra="train")
lazily(__name__)
