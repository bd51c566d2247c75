"""What the numbers say, in sentences a newcomer can read. Every sentence carries its numbers. The
borders are ours: no paper gives any."""

from typing import Literal, NamedTuple

from torchcaps.analysis import (
    Activity,
    CausalUse,
    Fidelity,
    Invariance,
    Keys,
    LayerDynamics,
    RoutingDynamics,
)

# Borders of dyr, which is 0 when couplings never change and 1 for perfect routing.
FROZEN, WEAK, PERFECT = 0.05, 0.25, 0.9
# An even share times the number of parents is one, but for this, where couplings share a child out.
ROUNDING = 1e-6
# In float32, a share that is at most so many even shares is even.
EVEN = 1.00001
# A favourite parent that gets this many even shares is still no favourite.
NO_FAVOURITE = 1.1
# A favourite parent that gets this much of a child is its only parent.
ONE_PARENT = 0.9

# The least correlation of lengths that hold, and the share of its bound from which entropy means
# that nearly every image has a tree of its own.
HOLDS, OWN = 0.9, 0.75
# The turn, in degrees, of which the verdict speaks.
TURN = 30

About = Literal["tree", "choice", "life", "turn", "count", "look", "use", "truth"]
QUESTIONS: dict[About, str] = {
    "tree": "Does the tree depend on the image?",
    "choice": "Does a capsule choose?",
    "life": "Is anyone dead?",
    "turn": "Does it hold when the image turns?",
    "count": "How many trees are there?",
    "look": "What did it look at?",
    "use": "Does the network use its tree?",
    "truth": "Is it the true tree?",
}


class Sentence(NamedTuple):
    about: About
    text: str
    is_good: bool | None = False  # for a parse tree; None: neither good nor bad


def verdict(dynamics: RoutingDynamics | None, activity: Activity | None) -> list[Sentence]:
    """Say whether the tree depends on the image, a child chooses a parent, and every capsule is
    alive.

    Arguments:
        dynamics: what `analysis.routing_dynamics` measured; None: nothing is routed.
        activity: what `analysis.capsule_activity` measured; None: there are no capsules.

    >>> [sentence.text for sentence in verdict(dynamics, activity)]
    """
    if dynamics is None or activity is None:
        text = "This network has no capsules, so there is no tree to read."
        return [Sentence("tree", text)]
    return [about_tree(dynamics), _choice(dynamics), *_life(activity)]


def about_tree(dynamics: RoutingDynamics) -> Sentence:
    """Say whether the tree depends on the image."""
    layers = _with_choice(dynamics)
    rates = {layer.name: layer.dyr for layer in layers if layer.dyr is not None}
    if not rates:
        text = "There is no routing to judge: no layer has a living child and two living parents."
        return Sentence("tree", text)
    broken = " and ".join(layer.name for layer in layers if layer.dyr is None)
    if broken:
        text = (
            f"The tree is broken at {broken}: no child, or fewer than two parents, are alive there."
        )
        return Sentence("tree", text)
    low, high = min(rates.values()), max(rates.values())
    span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    scale = "0 is frozen, 1 is perfect routing"
    if high < FROZEN:
        return Sentence(
            "tree",
            f"The tree is frozen: every image gets {'nearly ' if high else ''}the same couplings "
            f"(they change by {span}; {scale}).",
        )
    if any(abs(layer.even * layer.mean.shape[-1] - 1) > ROUNDING for layer in layers):
        return Sentence(
            "tree",
            f"The tree depends on the image: couplings change by {span} (0 is frozen; how far it "
            f"could go is not known, since they do not sum to one over the parents of a child).",
            True,
        )
    if high < WEAK:
        text = f"The tree hardly depends on the image: couplings change by {span} ({scale})."
        return Sentence("tree", text)
    if low >= PERFECT:
        text = f"The tree is built anew for every image: couplings change by {span} ({scale})."
        return Sentence("tree", text, True)
    best = max(rates, key=lambda name: rates[name])
    return Sentence(
        "tree",
        f"The tree depends on the image in part: couplings change by {span}, most in {best} "
        f"({scale}).",
        True,
    )


def _with_choice(dynamics: RoutingDynamics) -> list[LayerDynamics]:
    """Return the layers of which something can be said: a single parent is no choice."""
    return [layer for layer in dynamics.layers if layer.mean.shape[-1] > 1]


def _is_attention(layer: LayerDynamics) -> bool:
    """Say whether couplings sum to one over children, unless these are as many as parents."""
    children, parents = layer.mean.shape[-2:]
    return children != parents and abs(layer.even * children - 1) <= ROUNDING


def is_frozen(dynamics: RoutingDynamics) -> bool:
    """Say whether `about_tree` calls the tree frozen."""
    rates = [layer.dyr for layer in _with_choice(dynamics)]
    return bool(rates) and all(rate is not None and rate < FROZEN for rate in rates)


def _choice(dynamics: RoutingDynamics) -> Sentence:
    layers = _with_choice(dynamics)
    if not layers:
        return Sentence("choice", "No capsule has a choice: every layer has one parent.")
    most = max(layers, key=lambda layer: layer.strongest / layer.even)
    # Where couplings are shares of a parent's attention, a child splits nothing.
    attends = _is_attention(most)
    if most.strongest < EVEN * most.even:
        evenly = "every one splits itself evenly among all of them"
        if attends:
            evenly = "every parent takes as much of it as the others"
        return Sentence("choice", f"No capsule chooses a parent: {evenly}.")
    if most.strongest < NO_FAVOURITE * most.even:
        gives = f"the strongest layer gives the favourite {most.strongest:.1%}"
        if attends:
            gives = "in the strongest layer the favourite gives it "
            gives += f"{most.strongest:.1%} of its attention"
        even = f"where an even split gives {most.even:.1%}"
        return Sentence("choice", f"No capsule chooses a parent: even {gives}, {even}.")
    if all(layer.strongest >= ONE_PARENT and not _is_attention(layer) for layer in layers):
        least = f"{min(layer.strongest for layer in layers):.0%}"
        gets = "all of a child" if least == "100%" else f"{least} of a child or more"
        text = f"Capsules choose one parent: in the mean of each layer the favourite gets {gets}."
        return Sentence("choice", text, True)
    without, share = " without choosing it", f"gets {most.strongest:.0%} of a child"
    if attends:
        without, share = "", f"gives {most.strongest:.0%} of its attention to a child"
    return Sentence(
        "choice",
        f"Capsules lean towards a parent{without}: in {most.name}, where they lean most, the "
        f"favourite {share}, where an even split gives {most.even:.0%}.",
    )


def _life(activity: Activity) -> list[Sentence]:
    sentences, limits = [], activity.thresholds
    for layer in activity.layers:
        if layer.cds == layer.n:
            text = (
                f"Layer {layer.name} is dead: all of its {layer.n} capsules stay near zero, "
                f"whatever the image (mean length at most {limits.dead_mean}, spread at most "
                f"{limits.dead_std})."
            )
        elif layer.cds:
            text = f"In layer {layer.name}, {layer.cds} of {layer.n} capsules are dead."
        else:
            continue
        sentences.append(Sentence("life", text))
    if not sentences:
        sentences = [Sentence("life", "No capsule is dead in any layer.", True)]
    return sentences


def about_turning(found: Invariance) -> Sentence | None:
    """Say how far the lengths of each layer hold as images turn."""
    rows = [row for row in found.layers if row.change == f"rotation {TURN}°"]
    held = sorted((row.pearson, row.name) for row in rows if row.pearson is not None)
    if not held:
        text = "No capsule changes its length from image to image."
        return Sentence("turn", text) if rows else None
    (low, lowest), (high, highest) = held[0], held[-1]
    span = f"{low:.2f} in {lowest}" + (f" to {high:.2f} in {highest}" if len(held) > 1 else "")
    return Sentence(
        "turn",
        f"Lengths {'hold' if low >= HOLDS else 'change'} when the image turns: after {TURN}° they "
        f"correlate with those before by {span} (1 is unmoved).",
        low >= HOLDS,
    )


def about_count(keys: Keys) -> Sentence:
    """Say whether images share trees."""
    count, used = sum(row.keys for row in keys.classes), sum(row.images > 0 for row in keys.classes)
    trees = f"{count:,} tree{'' if count == 1 else 's'}, {keys.images:,} images"
    bits = f"{trees}; {keys.entropy:.2f} bit of entropy, of at most {keys.bound:.2f}"
    text = f"Images share trees ({bits})."
    if count <= used:
        text = f"Every class has one tree ({trees}): it says no more than the class."
    elif keys.entropy >= OWN * keys.bound:
        text = f"Nearly every image has a tree of its own, if by a little ({bits})."
    return Sentence("count", text, None)


def about_use(use: CausalUse) -> Sentence | None:
    """Say whether accuracy falls when every image gets the same tree."""
    mean = next((row for row in reversed(use.couplings) if row.by == "mean"), None)
    if mean is None:
        return None
    low, high = (100 * end for end in mean.interval)
    # An interval that reaches zero shows no need, and does not show that there is none.
    found = "The network uses" if low > 0 else "It is not shown that the network needs"
    return Sentence(
        "use",
        f"{found} its tree: with one tree for all images it loses {100 * mean.fall:.1f} points of "
        f"accuracy (95 % interval {low:.1f} to {high:.1f}, {mean.images} images).",
        low > 0,
    )


def about_truth(found: Fidelity) -> Sentence | None:
    """Say whether couplings tell the parts of the whole from strays."""
    if found.edges is None or found.edges_interval is None or found.undiscerning is None:
        return None
    good = found.edges_interval[0] > found.undiscerning
    return Sentence(
        "truth",
        f"It is {'' if good else 'not '}the true tree: its edges score "
        f"{round(found.edges, 2) + 0:.2f}, where 0 is chance, 1 the truth, and "
        f"{found.undiscerning:.2f} what sends every part to the right class, strays too.",
        good,
    )
