"""Whether training was long enough to show anything: how many updates, and what they taught."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchcaps.analysis.shares import commonest
from torchcaps.data import Images, sample_of
from torchcaps.tasks.examination.diagnosis import Diagnosis, counted
from torchcaps.tasks.examination.images import LABELS_OF
from torchcaps.train.recipe import Recipe

# Most networks here learn nothing in fewer updates.
FEW = 100
# One answer for all images leaves some wrong. A network has begun to learn where its accuracy lies
# above that answer's by so large a share of these.
BEGUN = 0.1


def examine_course(
    recipe: Recipe, training: Images, rows: Sequence[Mapping[str, Any]]
) -> Diagnosis:
    """Judge the updates that the rows of metrics stand for, or those that are planned."""
    seen = math.ceil(len(training) * (1 - recipe.validation_share))
    if recipe.train_images is not None:
        seen = min(seen, recipe.train_images)
    batches = math.ceil(seen / recipe.batch_size)
    an_epoch = math.ceil(batches / recipe.accumulate)
    epochs = len(rows) or recipe.epochs
    updates = epochs * an_epoch
    numbers: dict[str, Any] = {"updates": updates, "epochs": epochs}
    course = (
        f"{counted(updates, 'update')} in {counted(epochs, 'epoch')} of about {seen:,} images, "
        f"{min(recipe.batch_size, seen)} a batch"
    )
    if updates < FEW:
        text = (
            f"{course}: few networks learn anything from fewer than {FEW}; take more --epochs or a "
            f"smaller --batch-size."
        )
        return Diagnosis("updates", "look", text, numbers)
    if not rows or training.judged_by != "class":
        return Diagnosis("updates", "fine", f"{course}.", numbers)
    line = commonest(training.batch(sample_of(training, LABELS_OF)).labels, training.class_names)
    right, begun = float(rows[-1]["accuracy"]), line.share + BEGUN * (1 - line.share)
    held = rows[-1].get("validation_accuracy")
    numbers |= {"accuracy": right, "validation_accuracy": held, "commonest": line.numbers()}
    one_answer = f"always saying {line.name!r} would give {line.share:.0%}"
    learnt = f"in the last epoch {right:.0%} of the training images were right"
    if right < begun:
        text = (
            f"{course}; {learnt}, and {one_answer}: it has not begun to learn. Let the same "
            f"command go on with more --epochs, or try another --learning-rate."
        )
        return Diagnosis("updates", "look", text, numbers)
    if held is not None and held < begun:
        text = (
            f"{course}; {learnt}, but only {held:.0%} of those held out, and {one_answer}: "
            f"it learns by heart. More images help, or --set augment=shift2-flip."
        )
        return Diagnosis("updates", "look", text, numbers)
    return Diagnosis("updates", "fine", f"{course}; {learnt}.", numbers)
