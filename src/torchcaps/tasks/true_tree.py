"""The true tree of part-whole images: the end of the ruler that no trained network has reached."""

from dataclasses import replace

import torch
from torch.nn.functional import one_hot

from torchcaps.analysis import (
    MeasureActivity,
    MeasureCouplings,
    MeasureDynamics,
    MeasureFidelity,
    MeasureKeys,
)
from torchcaps.data import ImageSet
from torchcaps.data.part_truth import PART_NAMES
from torchcaps.data.sample import classes_shown
from torchcaps.report import Dissection
from torchcaps.tasks.dissect import pictures_of
from torchcaps.tasks.measurements import of_parts, parts_shown, with_parts
from torchcaps.types import Capsules, LayerTrace, Output, Routed, Step

# Where strays lead, and parts that are not there.
NOTHING = "no object"
TOLD = (
    "Nobody trained this: it is the true tree, from which the images were made. It shows what a "
    "parse tree is, and that these measures find one."
)


def true_tree(images: ImageSet) -> Output:
    """Trace the true trees of images: a capsule a kind of part, long where the image shows it,
    coupled to its object; strays and absent parts are coupled to one more capsule, "no object".

    >>> out = true_tree(data.load("part-whole", split="test"))
    """
    shown, n = parts_shown(images, ["fidelity"]), len(images.class_names)
    assert shown is not None
    to = torch.where(shown == 2, images.labels[:, None], n)  # [k, parts]
    there = (shown > 0).float()
    objects = one_hot(images.labels, n + 1).float()
    objects[:, n] = (shown == 1).any(1).float()
    children, parents = (Capsules(each.unsqueeze(-1), each) for each in (there, objects))
    step = Step(children, one_hot(to, n + 1).float(), parents)
    layer = LayerTrace("objects", children, Routed(parents, (step,)))
    return Output(objects, "lengths", parents, trace=(layer,))


def dissect_truth(images: ImageSet, *, example: int = 0) -> Dissection:
    """Measure and draw the true trees of part-whole images, as `dissect` does those of a network.

    >>> write_report([dissect_truth(test), dissect(model, test, label="mine")], "report.html")
    """
    every = slice(None)
    batch = with_parts(images.batch(every), parts_shown(images, ["fidelity"]), every)
    dynamics, activity, fidelity = MeasureDynamics(), MeasureActivity(), MeasureFidelity(of_parts)
    keys, couplings, names = MeasureKeys(), MeasureCouplings(), images.class_names
    for each in (dynamics, activity, fidelity, keys, couplings):
        each.update(true_tree(images), batch)
    found = Dissection(
        label="The true tree",
        facts={"network": "none; made from the truth of the images", "images": images.name},
        right=len(images),
        images=len(images),
        classes=classes_shown(images.labels, names),
        dynamics=dynamics.result(),
        activity=activity.result(),
        pictures=(),
        measured={"fidelity": fidelity.result()},
        keys=keys.result(),
        told=TOLD,
    )
    one = images.take(torch.tensor([example]))
    pictures = pictures_of(
        found,
        couplings.result(),
        true_tree(one),
        one.batch(every),
        (*names, NOTHING),
        example=example,
        part_names=PART_NAMES,
    )
    return replace(found, pictures=pictures)
