"""Whether a network can learn a few images by heart, as any can that learns at all."""

import copy
import math
import time

import torch
from torch import nn

from torchcaps.data import Batch, JudgedBy
from torchcaps.tasks.examination.diagnosis import Diagnosis
from torchcaps.tasks.progress import progress
from torchcaps.train.answers import is_correct
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser
from torchcaps.train.recipe import Recipe
from torchcaps.train.seeds import STEP, seed_of

# Images to learn by heart, and the steps for it.
LEARNT, STEPS = 16, 100


def _learn_by_heart(
    model: nn.Module, recipe: Recipe, batch: Batch, judged_by: JudgedBy, seconds: float
) -> tuple[list[float], float, bool, bool]:
    """Teach it a few images: losses, share right, whether it only draws, whether time ran out."""
    parts = None if batch.parts is None else batch.parts[:LEARNT]
    few = Batch(batch.pixels[:LEARNT], batch.labels[:LEARNT], parts)
    model = copy.deepcopy(model).train()
    optimiser = make_optimiser(recipe, [w for w in model.parameters() if w.requires_grad])
    started, losses, right = time.monotonic(), [], 0.0
    only_draws = ran_out = False
    with (
        torch.random.fork_rng(devices=[]),
        progress(f"learning {len(few.labels)} images by heart", STEPS) as advance,
    ):
        torch.manual_seed(seed_of(recipe.seed, STEP))
        for step in range(STEPS + 1):
            out = model(few.pixels, few.labels)
            terms = loss_parts(recipe, out, few, step)
            loss = terms["classification_loss"]
            # Where a decoder alone is trained, no class moves.
            only_draws = not loss.requires_grad and "reconstruction_loss" in terms
            loss = terms["reconstruction_loss"] if only_draws else loss
            losses.append(float(loss.detach()))
            right = float(is_correct(out, few.labels, judged_by=judged_by).float().mean())
            by_heart = (only_draws or right == 1) and losses[-1] <= losses[0] / 10
            ran_out = time.monotonic() - started > seconds
            if by_heart or ran_out or not bool(loss.isfinite()) or step == STEPS:
                break
            optimiser.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            optimiser.step()
            advance(1)
    return losses, right, only_draws, ran_out


def overfit(
    model: nn.Module, recipe: Recipe, batch: Batch, *, judged_by: JudgedBy, seconds: float
) -> Diagnosis:
    started = time.monotonic()
    losses, right, drawn, ran_out = _learn_by_heart(model, recipe, batch, judged_by, seconds)
    first, last, steps, images = losses[0], losses[-1], len(losses) - 1, len(batch.labels[:LEARNT])
    numbers = {
        "images": images,
        "steps": steps,
        "seconds": round(time.monotonic() - started, 1),
        "first_loss": first,
        "last_loss": last if math.isfinite(last) else None,
        "right": right,
    }
    facts = (
        f"{steps} steps at learning rate {recipe.learning_rate:g} on {images} images took "
        f"the loss{' of what is drawn' if drawn else ''} from {first:.3g} to {last:.3g}"
        f"{'' if drawn else f', {right:.0%} right'}"
    )
    if numbers["last_loss"] is None:
        text = f"{facts}: it came apart; take a smaller learning rate."
        return Diagnosis("overfit", "broken", text, numbers)
    # Pixels are learnt later than classes, and a trained decoder has learnt most of them.
    if last <= 0.9 * first if drawn else right == 1 or last <= first / 10:
        return Diagnosis("overfit", "fine", f"{facts}: it can learn.", numbers)
    if ran_out and steps < STEPS:
        text = f"{facts}: {seconds:g} seconds were not enough to tell; give it more with --seconds."
        return Diagnosis("overfit", "look", text, numbers)
    if last <= first / 2:
        text = f"{facts}: it learns, but slowly; try another learning rate."
        return Diagnosis("overfit", "look", text, numbers)
    text = (
        f"{facts}: a network that can learn gets so few by heart; what is marked above says why, "
        f"or the learning rate does: try ten times more, and less."
    )
    return Diagnosis("overfit", "broken", text, numbers)
