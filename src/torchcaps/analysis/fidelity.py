"""Fidelity: whether the tree of couplings is the tree of parts and wholes, where it is known. Ours.

For capsules i of one layer, images k with labels y, and parts p of which each image says whether it
lacks them, shows them as strays, or shows them as parts of its whole:

1. On one half of the images every capsule gets the part with the greatest mutual information
   between "the part is there" and the length of the capsule, in eight bins of as many images each.
2. On the other half a case is a capsule that is active in an image that shows its part. Its edge
   e_ic is the class to which most of its couplings lead: c along all layers above, rows summing to
   one, and through windows along all that see the capsule; a tie is shared evenly.
3. An edge is there where it leads to y, and should be where the part is the whole's own:
       F = 2 Σ_own e_iy / (Σ e_iy + cases own),      M = I(y; e_i) / H(y)
   F over all cases; M over those where the part is the whole's own, a mean over capsules.
4. Both are scaled so that chance is 0: fidelity = (F − F₀) / (1 − F₀). Chance is a tree whose
   edges are exchanged between the cases of a capsule: F₀ is expected of it, M₀ is the mean of eight
   exchanges; in the k-th, a case has the edge of the case k before it in the sample's random order.

True trees have 1 in both, exchanged ones 0, and so has a tree that never changes. A tree that sends
every capsule to the right class, strays too, has 1 in M and much in F: `undiscerning` is how much;
only a fidelity of edges above it tells parts of the whole from strays. The interval is a
t-interval of the delete-a-group jackknife, 20 groups of images.

Departures: none.
Ambiguities: a part that an image shows twice, once as its own, counts as its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.analysis.backtrack import check_chain
from torchcaps.analysis.measure import Answer, Labelled, checked_parts
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.sample import MOST, Sample
from torchcaps.analysis.trace import (
    capsule_layers,
    check_trace,
    child_of,
    class_labels,
    finite_coupling,
    image_coupling,
    image_lengths,
)
from torchcaps.errors import TorchcapsError, nearest
from torchcaps.types import LayerTrace, Trace

# What `parts` says where an image shows a part as one of its whole.
OWN = 2
BINS, GROUPS, EXCHANGES = 8, 20, 8
# Least lengths of an active capsule at which scores are reported again.
SWEEP = (0.05, 0.1, 0.3, 0.5, 0.8)
# Two-sided 95 % of Student's t with 19 degrees of freedom.
T_95 = 2.093


@dataclass(frozen=True)
class Fidelity(Result):
    """Scores of one layer. None where nothing can be said: no active capsule meets its part.
    `sweep` has (least length of an active capsule, cases, edges, tree) for other lengths."""

    layer: str
    images: int = quantity("images", "images of the half that is judged")
    capsules: int = quantity("capsules", "capsules that have a part and a case")
    cases: int = quantity("cases", "active capsules in images that show their part")
    edges: float | None = quantity("share above chance", "F of edges")
    edges_interval: tuple[float, float] | None = quantity("share above chance", "95 % of it")
    f1: float | None = quantity("share", "F itself")
    undiscerning: float | None = quantity(
        "share above chance", "edges of a tree that sends every case to its whole, strays too"
    )
    tree: float | None = quantity("share above chance", "mutual information of edges and wholes")
    tree_interval: tuple[float, float] | None = quantity("share above chance", "95 % of it")
    # The part of each capsule, -1 where its length tells of none.
    parts: tuple[int, ...] = ()
    sweep: tuple[tuple[float, int, float | None, float | None], ...] = ()


def class_paths(trace: Trace, layer: str) -> Tensor:
    """Say where the couplings of each capsule of a layer lead, [k, i, classes]; rows sum to one.

    Through windows the capsules are those of every type and position, and a child leads to the
    parents of all windows that see it; one that none sees leads to every class alike.

    Arguments:
        trace: of layers that lead to each other, from the named one up.
        layer: the name of a layer of capsules, "primary" or that of a routed layer but the last.

    >>> class_paths(out.trace, "primary").shape
    """
    names = [name for name, _ in capsule_layers(trace)]
    if layer not in names[:-1]:
        raise TorchcapsError(
            f"layer {layer!r} has no routed layer above it; {nearest(layer, names[:-1])}."
        )
    above = trace[names.index(layer) :]
    check_chain(above)
    coupling = finite_coupling(above[-1])
    n_classes = math.prod(coupling.shape[1:]) // coupling.shape[-2]
    paths = torch.eye(n_classes, dtype=torch.float64).expand(len(coupling), -1, -1)
    for each in reversed(above):
        paths = _led(each, paths)
    return paths


def _led(layer: LayerTrace, paths: Tensor) -> Tensor:
    """Say where the children of a layer lead, from where its parents do, [k, n, classes]."""
    # A dense layer looks at all of its children through one window.
    dense = layer.window is None
    coupling = image_coupling(layer).unsqueeze(1) if dense else finite_coupling(layer)
    coupling = coupling.clamp(min=0)  # [k, p, i, j]
    k, p, _, j = coupling.shape
    child, n = child_of((layer,))[layer.name].cpu().flatten(), layer.children.pose.shape[-2]

    def gathered(values: Tensor) -> Tensor:
        """Sum over the windows that see a child, [k, n, x] of [k, p, i, x]."""
        return values.new_zeros(k, n, values.shape[-1]).index_add_(1, child, values.flatten(1, 2))

    total = gathered(coupling.sum(-1, keepdim=True))
    # A child without couplings leads to all of its parents alike.
    is_coupled = (total > 0)[:, child].view(*coupling.shape[:3], 1)
    coupling = torch.where(is_coupled, coupling, 1)
    led = gathered(coupling @ paths.view(k, p, j, -1))
    total = led.sum(-1, keepdim=True)
    return torch.where(total > 0, led / total, 1 / led.shape[-1])


class MeasureFidelity:
    """Whether couplings are the tree of parts and wholes, in a sample.

    Arguments:
        parts: from a batch to what its images show, int [b, parts]: 0 where a part is lacking, 1
            where it is a stray, 2 where it is one of the whole.
        layer: the capsules that stand for parts.
        active: least length of an active capsule.
        sweep: lengths at which the scores are reported again.
        sample: most images of the sample.
        seed: another seed draws another sample.
    """

    def __init__(
        self,
        parts: Callable[[Labelled], Tensor],
        *,
        layer: str = "primary",
        active: float = 0.1,
        sweep: tuple[float, ...] = SWEEP,
        sample: int = MOST,
        seed: int = 0,
    ) -> None:
        self.parts, self.layer, self.active, self.sweep = parts, layer, active, sweep
        self._sample = Sample(size=sample, seed=seed)

    def update(self, out: Answer, batch: Labelled) -> None:
        check_trace(out.trace)
        labels = batch.labels
        if labels is None or labels.ndim != 1:
            raise TorchcapsError(
                "fidelity compares trees with the one whole of each image, so labels must be [b], "
                f"but are {None if labels is None else list(labels.shape)}."
            )
        paths = class_paths(out.trace, self.layer)
        class_labels(labels, paths.shape[-1])
        named = dict(capsule_layers(out.trace))
        length = image_lengths(self.layer, named[self.layer])
        parts = checked_parts(self.parts(batch), len(labels))
        _check_shown(parts)
        self._sample.add(batch.pixels, labels, parts, length, paths)

    def result(self) -> Fidelity:
        # One half tells the parts of capsules, the other is judged in groups.
        labels, parts, length, paths = self._sample.columns(least=2 * GROUPS)
        # A sample is in random order, so its first half is as good as any.
        half = len(labels) // 2
        part_of = parts_of_capsules(length[:half], parts[:half] > 0)

        def cases(active: float) -> _Cases:
            is_active = length[half:] >= active
            return _cases(labels[half:], parts[half:], is_active, paths[half:], part_of)

        sweep = []
        for active in self.sweep:
            again = cases(active)
            sweep.append((active, len(again.label), _edges(again), _tree(again)))
        judged = cases(self.active)
        edges, tree = _with_interval(_edges, judged), _with_interval(_tree, judged)
        return Fidelity(
            layer=self.layer,
            images=len(labels) - half,
            capsules=len(judged.capsule.unique()),
            cases=len(judged.label),
            edges=edges[0],
            edges_interval=edges[1],
            f1=_f1(judged)[0],
            undiscerning=_undiscerning(judged),
            tree=tree[0],
            tree_interval=tree[1],
            parts=tuple(part_of.tolist()),
            sweep=tuple(sweep),
        )


def _check_shown(parts: Tensor) -> None:
    whole = not parts.is_floating_point() and parts.dtype != torch.bool
    if not whole or not bool(((parts >= 0) & (parts <= OWN)).all()):
        came = f"{int(parts.min())} to {int(parts.max())}" if whole else f"{parts.dtype}"
        raise TorchcapsError(
            f"parts(batch) must say of each part 0 where an image lacks it, 1 where it is a stray, "
            f"{OWN} where it is one of the whole, as whole numbers, but gave {came}; where nobody "
            f"knows strays, MeasureSelectivity asks for no more than which parts are there."
        )


def parts_of_capsules(length: Tensor, present: Tensor) -> Tensor:
    """Give the part that the length of each capsule [k, i] tells most of, int [i], of those that
    images show, bool [k, parts]; -1 where it tells nothing."""
    order = length.argsort(0).argsort(0)
    bins = order * BINS // len(length)
    # Equal lengths share the bin of the first of them, so a constant tells nothing.
    bins = torch.stack([_shared(*pair) for pair in zip(length.T, bins.T, strict=True)], -1)
    inside = torch.nn.functional.one_hot(bins, BINS).double()  # [k, i, bins]
    there = torch.stack([~present, present], -1).double()  # [k, parts, 2]
    joint = torch.einsum("kib,kpt->ipbt", inside, there) / len(length)
    information = mutual_information(joint)  # [i, parts]
    # A part is there where its capsule is long, not where it is short.
    longer = (length.T @ present.double()) / present.sum(0).clamp(min=1)
    shorter = (length.T @ (~present).double()) / (~present).sum(0).clamp(min=1)
    information = torch.where(longer > shorter, information, -1)
    best = information.max(-1)
    return torch.where(best.values > 0, best.indices, -1)


def mutual_information(joint: Tensor) -> Tensor:
    """Compute the mutual information in nat of shares [*, a, b] that sum to one."""
    entr = torch.special.entr
    apart = entr(joint.sum(-1)).sum(-1) + entr(joint.sum(-2)).sum(-1)
    together: Tensor = entr(joint).sum((-2, -1))
    # A difference that rounding alone makes is none.
    information: Tensor = (apart - together).clamp(min=0)
    return torch.where(information > 1e-12, information, 0)


def _shared(values: Tensor, bins: Tensor) -> Tensor:
    different, where = values.unique(return_inverse=True)
    least = torch.full((len(different),), BINS).scatter_reduce(0, where, bins, "amin")
    return least[where]


class _Cases(NamedTuple):
    """Active capsules in images that show their part, one a row."""

    group: Tensor  # of images, [n]
    capsule: Tensor  # [n]
    label: Tensor  # [n]
    edge: Tensor  # [n, classes]
    own: Tensor  # bool [n]

    def take(self, some: Tensor) -> "_Cases":
        return _Cases(*(each[some] for each in self))


def _cases(labels: Tensor, parts: Tensor, active: Tensor, paths: Tensor, part_of: Tensor) -> _Cases:
    shown = torch.where(part_of >= 0, parts[:, part_of.clamp(min=0)], 0)  # [k, i]
    image, capsule = (active & (shown > 0)).nonzero().unbind(-1)
    path = paths[image, capsule]
    # Rounding decides no tie.
    top = (path >= path.max(-1, keepdim=True).values * (1 - 1e-9)).double()
    edge = top / top.sum(-1, keepdim=True)
    group, own = image * GROUPS // len(labels), shown[image, capsule] == OWN
    return _Cases(group, capsule, labels[image], edge, own)


def _f1(cases: _Cases) -> tuple[float | None, float]:
    """Return F, and F as expected where the edges of a capsule are exchanged between its cases."""
    own = cases.own.double()
    if not bool(cases.own.any()):
        return None, 0.0
    n = int(cases.capsule.max()) + 1
    total = torch.zeros(n, cases.edge.shape[1], dtype=torch.float64)
    total.index_add_(0, cases.capsule, cases.edge)
    count = cases.capsule.bincount(minlength=n).clamp(min=1)
    mean = (total / count[:, None])[cases.capsule]
    scores = []
    for edge in (cases.edge, mean):
        found = edge.gather(1, cases.label[:, None])[:, 0]
        scores.append(float(2 * (found * own).sum() / (found.sum() + own.sum())))
    return scores[0], scores[1]


def _edges(cases: _Cases) -> float | None:
    f1, chance = _f1(cases)
    return None if f1 is None or chance >= 1 else (f1 - chance) / (1 - chance)


def _undiscerning(cases: _Cases) -> float | None:
    f1, chance = _f1(cases)
    if f1 is None or chance >= 1:
        return None
    own = int(cases.own.sum())
    return (2 * own / (len(cases.own) + own) - chance) / (1 - chance)


def _tree(cases: _Cases) -> float | None:
    own = cases.take(cases.own)
    if not len(own.label):
        return None
    information = chance = bound = 0.0
    for capsule in own.capsule.unique().tolist():
        some = own.take(own.capsule == capsule)
        label = torch.nn.functional.one_hot(some.label, some.edge.shape[1]).double()
        n = len(label)
        information += n * float(mutual_information(label.T @ some.edge / n))
        # Exchanges are fixed: the jackknife would count the difference of two draws twenty times.
        for places in range(1, EXCHANGES + 1):
            other = some.edge.roll(places, 0)
            chance += n * float(mutual_information(label.T @ other / n)) / EXCHANGES
        bound += n * float(torch.special.entr(label.mean(0)).sum())
    return None if bound - chance <= 1e-9 else (information - chance) / (bound - chance)


def _with_interval(
    score: Callable[[_Cases], float | None], cases: _Cases
) -> tuple[float | None, tuple[float, float] | None]:
    """Return a score and its interval over groups of images."""
    whole = score(cases)
    without = [score(cases.take(cases.group != group)) for group in range(GROUPS)]
    parts = [each for each in without if each is not None]
    if whole is None or len(parts) < GROUPS:
        return whole, None
    pseudo = torch.tensor([GROUPS * whole - (GROUPS - 1) * each for each in parts])
    half = T_95 * float(pseudo.double().std()) / math.sqrt(GROUPS)
    middle = float(pseudo.double().mean())
    return whole, (middle - half, middle + half)
