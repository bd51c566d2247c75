"""What a network does with one batch: is everything finite, does it start well, can it learn?

The borders are ours, but for Adam's ε; networks that learn were not seen to cross them.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from torchcaps.analysis import Thresholds, capsule_activity, routing_dynamics
from torchcaps.analysis.shares import constant_answer, says_always
from torchcaps.analysis.trace import last_coupling
from torchcaps.data import Batch, JudgedBy
from torchcaps.errors import TorchcapsError
from torchcaps.layers import Routing
from torchcaps.models.images import evaluating
from torchcaps.report.verdict import Sentence, about_tree
from torchcaps.tasks.examination.diagnosis import Diagnosis, Verdict
from torchcaps.tasks.examination.machine import examine_memory
from torchcaps.tasks.examination.overfit import overfit
from torchcaps.tasks.trained import evenly_routed
from torchcaps.train.answers import named_classes
from torchcaps.train.loss import loss_parts
from torchcaps.train.recipe import Recipe
from torchcaps.types import Output, Trace

# Below the first nothing pulls a length up again in reasonable time, below the second ever.
SHORT, VANISHED = 1e-3, 1e-5
SATURATED = 0.99
# Shares of lengths near one: odd, broken. Of two classes one is there, so half of the lengths of a
# trained network may be; dynamic routing of weights too large lets others vanish.
TOO_MANY = {"before": (0.2, 0.4), "after": (0.6, 0.99)}
# Relative to the scores themselves; gamma_capsnet starts to learn from 1e-3.
UNMOVED = 1e-5
# Adam divides by the root mean square of a gradient plus this.
EPSILON = 1e-8
HUGE = 1e3
LOGITS = 50.0
FROZEN = 1e-3
BARS = "▁▂▃▄▅▆▇█"


def examine_network(
    model: nn.Module,
    recipe: Recipe,
    batch: Batch,
    *,
    class_names: Sequence[str],
    judged_by: JudgedBy,
    trained: bool,
    seconds: float,
) -> list[Diagnosis]:
    """Examine a model, which is left as it was. `seconds` limits the overfit."""
    try:
        finite, out = _finite(model, recipe, batch)
        if out is None:
            return [finite]
        findings = [finite, _scores(out, trained), *_gradients(model, recipe, batch)]
        if trained:
            # Before training most networks say one thing.
            named = named_classes(out, batch.labels, judged_by=judged_by)
            findings += _answers(named, class_names)
        findings += [_capsules(out.trace, trained), _couplings(model, out.trace, trained)]
        return [*findings, overfit(model, recipe, batch, judged_by=judged_by, seconds=seconds)]
    except TorchcapsError as error:
        return [Diagnosis("network", "broken", f"it refuses these images: {error}")]


def _finite(model: nn.Module, recipe: Recipe, batch: Batch) -> tuple[Diagnosis, Output | None]:
    """Find the first value that is not finite, by the name of its layer; the output if all are."""
    remedy = (
        "a smaller learning rate, from before it happened, usually mends it"
        if recipe.precision == "float32"
        else f'precision = "float32" in the recipe instead of {recipe.precision} may mend it'
    )
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            many = int((~tensor.isfinite()).sum())
            text = (
                f"{name} holds NaN or infinity, in {many:,} of {tensor.numel():,} numbers: its "
                f"training diverged; {remedy}."
            )
            return Diagnosis("finite", "broken", text, {"first": name}), None
    seen: list[str] = []
    hooks = [
        module.register_forward_hook(_watch(name or type(model).__name__, seen))
        for name, module in model.named_modules()
        # Votes are stored for a routing with a hook. What it puts out, its layer does.
        if not isinstance(module, Routing)
    ]
    try:
        with torch.no_grad(), evaluating(model):
            out: Output = model(batch.pixels, keep="last")
    finally:
        for hook in hooks:
            hook.remove()
    if not bool(out.scores.isfinite().all()):
        text = (
            f"the weights are finite, but the output of {seen[0]} is not, the first to be so: look "
            f"there for weights that are too large, or for inputs that are; {remedy}."
        )
        return Diagnosis("finite", "broken", text, {"first": seen[0]}), None
    text = "weights, what every layer puts out, and scores are all finite."
    return Diagnosis("finite", "fine", text, {"first": None}), out


def _watch(name: str, seen: list[str]) -> Callable[..., None]:
    def look(module: nn.Module, given: Any, out: Any) -> None:
        tensors = [each for each in _pytree.tree_leaves(out) if isinstance(each, Tensor)]
        # Whole numbers are finite.
        if not seen and not all(bool(each.isfinite().all()) for each in tensors):
            seen.append(name)

    return look


def _scores(out: Output, trained: bool) -> Diagnosis:
    scores = out.scores.float().cpu()
    low, high, mean = float(scores.min()), float(scores.max()), float(scores.mean())
    # Over images, relative to their size.
    change = float(scores.std(0, correction=0).mean() / scores.abs().mean().clamp_min(1e-30))
    are_lengths = out.scores_are == "lengths"
    near_one = float((scores > SATURATED).float().mean()) if are_lengths and high <= 1.01 else 0.0
    ends = (0.0, max(1.0, high)) if are_lengths else (low, max(high, low + 1e-6))
    counts = scores.histc(10, *ends).int().tolist()
    numbers = {
        "scores_are": out.scores_are,
        "low": low,
        "high": high,
        "mean": mean,
        "share_near_one": near_one,
        "relative_change_over_images": change,
        "histogram": {"from": ends[0], "to": ends[1], "counts": counts},
    }
    bars = "".join(BARS[-(-7 * count // max(counts))] for count in counts)
    text = (
        f"class {'lengths' if are_lengths else 'logits'} {low:.2g} to {high:.2g}, mean {mean:.2g}, "
        f"spread from {ends[0]:.2g} to {ends[1]:.2g} as {bars}"
    )

    def diagnosis(verdict: Verdict, why: str) -> Diagnosis:
        return Diagnosis("scores", verdict, f"{text}{why}.", numbers)

    if are_lengths and high < SHORT:
        return diagnosis(
            "broken" if high < VANISHED else "look",
            ": they have vanished, and the gradient nearly with them; what helps is larger weights "
            "below the classes (--option init=balanced or weight_std=… where `torchcaps models` "
            "lists it), a bias in the routing, or fewer layers",
        )
    odd, broken = TOO_MANY["after" if trained else "before"]
    if near_one > odd:
        return diagnosis(
            "broken" if near_one > broken else "look",
            f": {near_one:.0%} are saturated near one, where the squash has no gradient; "
            f"smaller weights below the classes, or inputs in [0, 1]",
        )
    if not are_lengths and max(-low, high) > LOGITS:
        return diagnosis(
            "look",
            ": so far apart that their probabilities are 0 or 1 and learn nothing; smaller "
            "weights, or inputs in [0, 1]",
        )
    if len(out.scores) > 1 and change < UNMOVED:
        return diagnosis(
            "look",
            ": they hardly depend on the image; what the lower layers tell is lost on the way",
        )
    return diagnosis("fine", "" if trained else ", a start from which it can learn")


def _answers(named: Tensor, class_names: Sequence[str]) -> list[Diagnosis]:
    """Say whether one answer is given to all images; `named` is bool [images, classes]."""
    said = constant_answer(named.sum(0), len(named), class_names)
    if said is None:
        return []
    text = (
        f"{says_always(said)} it was shown, so it tells nothing apart, however often it is right."
    )
    return [Diagnosis("answers", "look", text, {"constant": said})]


def _gradients(model: nn.Module, recipe: Recipe, batch: Batch) -> list[Diagnosis]:
    """Take the root mean square of the gradient in every module that owns weights; and memory."""
    model = copy.deepcopy(model).train()
    own = {each.data_ptr() for each in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        parts = loss_parts(recipe, model(batch.pixels, batch.labels), batch, 0)
        loss = torch.stack(list(parts.values())).sum()
    activations = sum(kept.values()) * recipe.batch_size // len(batch.labels)
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    memory = examine_memory(weights, activations, batch_size=recipe.batch_size)
    loss.backward()
    squares: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            gradient = torch.zeros(1) if parameter.grad is None else parameter.grad
            squares.setdefault(name.rpartition(".")[0] or name, []).append(gradient.flatten().cpu())
    size = {name: float(torch.cat(all).square().mean().sqrt()) for name, all in squares.items()}
    finite = {name: value for name, value in size.items() if value < float("inf")}
    numbers = {"root_mean_square": {name: finite.get(name) for name in size}}
    return [_judge_gradients(size, finite, parts, numbers), memory]


def _judge_gradients(
    size: dict[str, float], finite: dict[str, float], parts: dict[str, Tensor], numbers: Any
) -> Diagnosis:
    # The top of the network is last, and the backward pass begins there.
    lost = [name for name in size if name not in finite]
    if lost:
        text = (
            f"the gradient of {lost[-1]} is not finite, the first on the way down; its forward "
            f"pass is, so look there for a root or a division at zero, or for values too large."
        )
        return Diagnosis("gradients", "broken", text, {**numbers, "first": lost[-1]})
    # A decoder is moved by the reconstruction, which weighs little while classes are short.
    # Where it is trained alone, there is nothing else.
    judged = {name: x for name, x in size.items() if not name.startswith("decoder")} or size
    low, high = min(judged, key=judged.__getitem__), max(judged, key=judged.__getitem__)
    facts = f"root mean square {judged[low]:.1e} ({low}) to {judged[high]:.1e} ({high})"
    learnt = float(parts["classification_loss"].detach()) < 0.01
    if judged[low] < EPSILON and not learnt:
        short = [name for name, value in judged.items() if value < EPSILON]
        which = ", ".join(short[:3]) + (", …" if len(short) > 3 else "")
        nothing = all(not judged[name] for name in short)
        text = (
            f"{facts}: {'nothing' if nothing else 'next to nothing'} arrives at {which} "
            f"({len(short)} of {len(judged)} parts), below Adam's ε of 1e-8, so it starts slowly "
            f"if at all; see the scores above, take fewer layers, or larger weights."
        )
        return Diagnosis("gradients", "broken" if nothing else "look", text, numbers)
    if judged[high] > HUGE:
        text = f"{facts}: so steep that steps overshoot; smaller weights, or inputs in [0, 1]."
        return Diagnosis("gradients", "look", text, numbers)
    return Diagnosis("gradients", "fine", f"{facts}.", numbers)


def _capsules(trace: Trace, trained: bool) -> Diagnosis:
    if not trace:
        return Diagnosis("capsules", "fine", "this network has none.")
    # Lengths start short in networks that learn, so only those at nought count as dead there.
    limits = Thresholds() if trained else Thresholds(dead_mean=SHORT, dead_std=SHORT)
    activity = capsule_activity(trace, thresholds=limits)
    rows = {
        layer.name: {"dead": layer.cds, "capsules": layer.n, "mean_length": layer.cnm}
        for layer in activity.layers
    }
    numbers = {"dead_below": limits.dead_mean, "layers": rows}
    counts = [(layer.cds, layer.n, layer.name) for layer in activity.layers]
    facts = "dead " + ", ".join(f"{dead} of {n} in {name}" for dead, n, name in counts)
    facts = f"{facts} (dead: mean length and its spread below {limits.dead_mean:g})"
    all_dead = [name for dead, n, name in counts if dead == n]
    if all_dead:
        text = (
            f"{facts}: nothing passes {all_dead[0]}, whatever the image; larger weights in that "
            f"layer (init=balanced where the network has it), or a bias in its routing."
        )
        return Diagnosis("capsules", "broken" if trained else "look", text, numbers)
    half = [name for dead, n, name in counts if 2 * dead > n]
    if half:
        text = (
            f"{facts}: more than half of {', '.join(half)} does nothing; fewer capsules would do, "
            f"or a bias in the routing wakes them."
        )
        return Diagnosis("capsules", "look", text, numbers)
    return Diagnosis("capsules", "fine", f"{facts}.", numbers)


def _couplings(model: nn.Module, trace: Trace, trained: bool) -> Diagnosis:
    if not trace:
        return Diagnosis("couplings", "fine", "there is no routing.")
    spread = {
        layer.name: float(last_coupling(layer).float().std(0, correction=0).mean())
        for layer in trace
    }
    numbers = {"standard_deviation_over_images": spread}
    facts = "change from image to image by " + ", ".join(
        f"{value:.1e} in {name}" for name, value in spread.items()
    )
    fixed = evenly_routed(model)
    routed = tuple(
        layer for layer in trace if last_coupling(layer).shape[-1] > 1 and layer.name not in fixed
    )
    if not routed:
        return Diagnosis(
            "couplings", "fine", f"{facts}: they are fixed, as this routing is.", numbers
        )
    if not trained:
        text = f"{facts}, which says little before training."
        return Diagnosis("couplings", "fine", text, numbers)
    # In the words of `torchcaps dissect`, where it can look: not through windows.
    if all(layer.window is None for layer in routed):
        tree = about_tree(routing_dynamics(routed))
    elif max(spread[layer.name] for layer in routed) < FROZEN:
        tree = Sentence("tree", "The tree is frozen: every image gets the same couplings.", False)
    else:
        tree = Sentence("tree", "The couplings change with the image.", True)
    if tree.is_good:
        return Diagnosis("couplings", "fine", f"{facts}. {tree.text}", numbers)
    text = (
        f"{facts}. {tree.text} So routing decides little: compare the network with its uniform "
        f"twin (option routing=uniform), and see torchcaps dissect."
    )
    return Diagnosis("couplings", "look", text, numbers)
