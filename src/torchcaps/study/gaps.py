"""What torchcaps lacks to run a job, one word each.

Gaps are worked out, never written down: a job is compared with what torchcaps has today, so that a
gap closes by itself once the missing preset, option, data set or field exists. Steps after training
and statistics are listed by hand, because commands do them.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from torchcaps.data import SOURCES
from torchcaps.errors import TorchcapsError
from torchcaps.models import MODELS, create_model
from torchcaps.study.narrow import NARROW, WIDTHS
from torchcaps.study.pruned import WAYS
from torchcaps.study.statistics import STATISTICS
from torchcaps.train import PROTOCOLS, make_recipe
from torchcaps.train.recipe import Recipe

if TYPE_CHECKING:
    from torchcaps.study.job import Job

__all__ = ["STEPS", "gaps_of_measuring", "gaps_of_training"]

# What changes training: those of `pruned.WAYS` are fields of a recipe, and `narrow` is an option
# whose value is known once another network is trained.
STEPS = {
    "magnitude": "scheduled magnitude pruning in training",
    "mask_at_the_end": "as many weights masked, once training is done",
    NARROW: "as many capsules a layer as the routed twin of the same seed has alive at its end",
    "prune": "pruning in training, as the paper does: LOBSTER",
    "random_masks": "as many weights masked at random, from the start",
    "snip": "single-shot pruning before training",
}
# Statistics of class vectors, which some networks do not give.
OF_CLASS_VECTORS = {"compactness"}


def gaps_of_training(job: "Job") -> tuple[str, ...]:
    """What a job lacks to be trained."""
    lacking = []
    if job.model not in MODELS:
        lacking.append(f"preset:{job.model}")
    else:
        lacking += [name for name in job.options if name not in MODELS[job.model].options]
    lacking += [f"data:{name}" for name in (job.train, job.test) if name not in SOURCES]
    lacking += [] if job.protocol in PROTOCOLS else [f"protocol:{job.protocol}"]
    lacking += [name for name in job.fields if name not in Recipe.model_fields]
    if not lacking:
        lacking += _refused_fields(job)
    known = {*WAYS, NARROW} if _has_widths(job) else WAYS
    lacking += [step for step in job.steps_of_training if step not in known]
    return tuple(dict.fromkeys(lacking))


def gaps_of_measuring(job: "Job") -> tuple[str, ...]:
    """What a job lacks once it is trained."""
    lacking = [f"metric:{name}" for name in job.metrics if STATISTICS[name].command is None]
    if OF_CLASS_VECTORS & set(job.metrics) and not _gives_class_vectors(job.model):
        lacking.append("class_vectors")
    return tuple(lacking)


def _has_widths(job: "Job") -> bool:
    return job.model in MODELS and WIDTHS in MODELS[job.model].options


def _refused_fields(job: "Job") -> list[str]:
    """Fields that are refused together with the data or the network, where all names are known."""
    if "loss" in job.fields:
        several = "multi-mnist" in job.train
        options = tuple(job.options.items())
        if not _takes_loss(job.model, job.image, options, job.fields["loss"], several):
            return [f"loss:{job.fields['loss']}"]
    return []


@cache
def _takes_loss(
    model: str,
    image: tuple[int, int, int],
    options: tuple[tuple[str, Any], ...],
    loss: str,
    several: bool,
) -> bool:
    """Whether a network can be trained by a loss, on images that show one object or several."""
    import torch

    from torchcaps.data import Batch
    from torchcaps.train.loss import loss_parts
    from torchcaps.types import Output

    recipe = make_recipe(model=model, data="part-whole", loss=loss)
    pixels = torch.empty(2, *image)
    labels = torch.zeros((2, 2) if several else (2,), dtype=torch.int64)
    with torch.device("meta"):
        network = create_model(model, image=image, **dict(options)).eval()
        out = network(pixels.to("meta"))
    scored = Output(torch.full(out.scores.shape, 0.5), out.scores_are)
    try:
        loss_parts(recipe, scored, Batch(pixels, labels), 0)
    except TorchcapsError:
        return False
    return True


@cache
def _gives_class_vectors(name: str) -> bool:
    import torch

    preset = MODELS[name]
    with torch.device("meta"):
        out = create_model(name).eval()(torch.empty(1, *preset.image))
    return out.classes is not None
