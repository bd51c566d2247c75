"""Causal use: what the answers of a network owe to its couplings, and to single capsules. Ours.

The couplings of the last iteration of a layer, or of all layers at once, are replaced by

mean         their mean over the images
other        those of another image
same class   those of another image with the same labels
uniform      their mean over everything on which they sum to one: the parents of a child, in all
             windows that compete for it; of attention, the children of a parent

and the parents are made anew. A capsule is silenced by a pose and an activation of zero. With b
images that were right and are wrong then, and c that were wrong and are right, out of k,

    fall = (b − c) / k
    interval = [b − c ± 1.96 sqrt(b + c + 1 − (b − c)² / (k + 2))] / (k + 2)

the interval of [agresti2005] for paired shares, which has a width even where nothing changes.

A fall of zero means that the tree is not used, or that every image has the same.

Departures: none.
Ambiguities: none.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from torchcaps._checks import check_count, check_finite
from torchcaps.analysis.even_split import evenly
from torchcaps.analysis.measure import Answer, Labelled, check_mode
from torchcaps.analysis.result import Result, quantity
from torchcaps.analysis.sample import MOST, Sample
from torchcaps.analysis.trace import capsule_layers, check_trace, judged_answers, last_coupling
from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.types import Capsules, Couple, Trace

ALL = "all layers"
MOST_CAPSULES = 32


# Of some images, the couplings of each layer, or functions that make them.
Way = Callable[[Tensor], Mapping[str, Tensor | Couple]]


class Network(Protocol):
    """What is called: a network of this library, or any that takes the same words."""

    def __call__(self, pixels: Tensor, /, **asked: Any) -> Answer: ...


@dataclass(frozen=True)
class CouplingUse:
    """The couplings of one layer replaced, or those of all."""

    layer: str
    by: str
    images: int = quantity("images", "images judged; one that is alone in its class has no other")
    fall: float = quantity("share of images", "fall in accuracy")
    interval: tuple[float, float] = quantity("share of images", "95 % of the fall")
    changed: float = quantity("share of images", "images whose answer is another one")


@dataclass(frozen=True)
class CapsuleUse:
    """One capsule silenced."""

    layer: str
    capsule: int
    fall: float = quantity("share of images", "fall in accuracy")
    interval: tuple[float, float] = quantity("share of images", "95 % of the fall")


@dataclass(frozen=True)
class CausalUse(Result):
    """What the answers owe to couplings and to capsules."""

    images: int
    accuracy: float = quantity("share of images", "images that are right with nothing replaced")
    couplings: tuple[CouplingUse, ...] = ()
    capsules: tuple[CapsuleUse, ...] = ()


def causal_use(
    network: Network,
    pixels: Tensor,
    labels: Tensor,
    *,
    silenced: Sequence[str] = (),
    layers: Sequence[str] | None = None,
    batch_size: int = 100,
    seed: int = 0,
) -> CausalUse:
    """Say how far the accuracy falls when couplings are replaced, or capsules silenced.

    Arguments:
        network: takes pixels and `keep`, `couple` and `intervene` as the networks of this library
            do, and is in evaluation mode.
        pixels: images [k, ...]; a sample will do, the interval says how well.
        labels: of these images, [k], or [k, m] where m objects share one: an answer is right when
            the highest scores are theirs.
        silenced: layers whose capsules are silenced one by one, "primary" or the name of a routed
            layer; of more than 32 capsules a seeded sample of 32.
        layers: whose couplings are replaced, one after the other; "all layers" are all at once.
            None: each, and all.
        batch_size: images at once.
        seed: of which image lends its couplings, and of the sample of capsules.

    >>> use = causal_use(model, images, labels, silenced=["primary"])
    """
    _check_words(network, ("keep", "couple", *(["intervene"] if silenced else [])))
    if isinstance(silenced, str):
        raise TorchcapsError(
            f"silenced is a list of layers, but came as a word; write silenced=[{short(silenced)}]."
        )
    check_count("batch_size", batch_size, of="images")
    check_mode(network)
    images = _Images(network, pixels, labels, batch_size)
    with torch.no_grad():
        trace, right, said = images.plain()
        names = [layer.name for layer in trace]
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(pixels), generator=generator)
        even = {layer.name: evenly(layer) for layer in trace}
        lenders = {name: _after(order, labels, name) for name in ("other", "same class")}
        ways = [
            ("mean", images.with_means(), images.index),
            *(
                (by, images.with_those_of(lender), (lender >= 0).nonzero().flatten())
                for by, lender in lenders.items()
            ),
            ("uniform", lambda some: even, images.index),
        ]
        rows = []
        for layer in layers or [*names, *([ALL] if len(names) > 1 else [])]:
            chosen = names if layer == ALL else [layer]
            for by, couple, index in ways:
                if len(index):
                    now, says = images.answers(index, couple, chosen)
                    changed = float((says != said[index]).any(-1).double().mean())
                    fall = paired_fall(right[index], now)
                    rows.append(CouplingUse(layer, by, len(index), *fall, changed))
        capsules = [
            CapsuleUse(layer, number, *paired_fall(right, now))
            for layer, number, now in images.silenced(trace, silenced, generator)
        ]
    accuracy = float(right.double().mean())
    return CausalUse(len(pixels), accuracy, tuple(rows), tuple(capsules))


class MeasureCausalUse:
    """`causal_use` of the couplings of every layer, and of all at once, in a sample.

    Arguments:
        network: the network that is measured, which takes `keep` and `couple`; it looks at the
            sample when the result is asked for, six times for each layer and six for all.
        sample: most images of the sample.
        seed: another seed draws another sample, and others that lend their couplings.
    """

    def __init__(self, network: Network, *, sample: int = MOST, seed: int = 0) -> None:
        _check_words(network, ("keep", "couple"))
        self.network, self.seed = network, seed
        self._sample = Sample(size=sample, seed=seed)
        self._device = torch.device("cpu")

    def update(self, out: Answer, batch: Labelled) -> None:
        if batch.labels is None:
            raise TorchcapsError("causal use compares with labels, but the batches have none.")
        self._device = out.scores.device
        self._sample.add(batch.pixels, batch.pixels, batch.labels)

    def result(self) -> CausalUse:
        pixels, labels = self._sample.columns()
        return causal_use(self.network, pixels.to(self._device), labels, seed=self.seed)


def paired_fall(before: Tensor, after: Tensor) -> tuple[float, tuple[float, float]]:
    """Give the fall of a share and its interval.

    Arguments:
        before: which images are right, bool [k].
        after: which of the same images are right then, bool [k].

    >>> fall, (low, high) = paired_fall(torch.rand(100) > 0.1, torch.rand(100) > 0.5)
    """
    k = len(before)
    lost, won = int((before & ~after).sum()), int((~before & after).sum())
    middle = (lost - won) / (k + 2)
    half = 1.96 * math.sqrt(lost + won + 1 - (lost - won) ** 2 / (k + 2)) / (k + 2)
    return (lost - won) / k, (middle - half, middle + half)


def silence(*capsules: int) -> Callable[[Capsules], Capsules]:
    """Make a function for `intervene` that silences capsules by their numbers.

    Arguments:
        capsules: their numbers in the layer.

    >>> model(images, intervene={"primary": silence(0, 1, 2)})
    """
    for each in capsules:
        if isinstance(each, bool) or not isinstance(each, int):
            raise TorchcapsError(
                f"silence takes the numbers of capsules one by one, as in silence(0, 1, 2), but "
                f"came with a {type(each).__name__}; write a star before a list: silence(*numbers)."
            )

    def silenced(made: Capsules) -> Capsules:
        n = made.pose.shape[-2]
        if absent := [each for each in capsules if not -n <= each < n]:
            raise TorchcapsError(
                f"silence names capsule {absent[0]}, but the layer has {n}: 0 to {n - 1}."
            )
        heard = made.pose.new_ones(n)
        heard[list(capsules)] = 0
        activation = None if made.activation is None else made.activation * heard
        return Capsules(made.pose * heard.unsqueeze(-1), activation)

    return silenced


def _check_words(network: Network, words: Sequence[str]) -> None:
    """Refuse a network that does not take what it will be asked."""
    called = network.forward if isinstance(network, torch.nn.Module) else network
    taken = inspect.signature(called).parameters
    if any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return
    for word in words:
        if word not in taken:
            name = getattr(network, "__name__", type(network).__name__)
            default = 'keep="none"' if word == "keep" else f"{word}=None"
            raise TorchcapsError(
                f"causal use asks a network for its trace and replaces couplings and capsules, but "
                f"{name} takes no `{word}`; take a capsule network, or let the forward of your own "
                f"take {default} and hand it to its layers."
            )


def _after(order: Tensor, labels: Tensor, which: str) -> Tensor:
    """Find the image after each in a random order, of its class if asked; −1 without another."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index in order.tolist():
        name = ()
        if which == "same class":
            name = tuple(sorted(labels[index].view(-1).tolist()))
        groups.setdefault(name, []).append(index)
    donor = torch.full((len(order),), -1)
    for each in groups.values():
        if len(each) > 1:
            donor[each] = torch.tensor([*each[1:], each[0]])
    return donor


class _Images:
    def __init__(self, network: Network, pixels: Tensor, labels: Tensor, batch_size: int):
        if not len(pixels) or len(pixels) != len(labels):
            raise TorchcapsError(
                f"causal use needs images and a label for each, but got {len(pixels)} images and "
                f"{len(labels)} labels."
            )
        self.network, self.pixels, self.labels = network, pixels, labels
        self.batch_size = batch_size
        self.index = torch.arange(len(pixels))

    def answers(
        self, index: Tensor, way: Way | None = None, layers: Sequence[str] = (), **asked: Any
    ) -> tuple[Tensor, Tensor]:
        """Say which of some images are right, bool [k], and the classes that are named, [k, m],
        with the couplings of some layers replaced in a way."""
        made = []
        for some in index.split(self.batch_size):
            if way is not None:
                given = way(some)
                asked["couple"] = {name: _giving(given[name]) for name in layers}
            scores = self.network(self.pixels[some], **asked).scores
            check_finite("the scores of the network", scores)
            made.append(judged_answers(scores, self.labels[some]))
        right, said = zip(*made, strict=True)
        return torch.cat(right), torch.cat(said)

    def plain(self) -> tuple[Trace, Tensor, Tensor]:
        """Return the trace of one image, and the answers to all."""
        trace = self.network(self.pixels[:1], keep="last").trace
        check_trace(trace)
        return trace, *self.answers(self.index)

    def with_means(self) -> Way:
        """Replace couplings by their means over all images, layer by layer."""
        total: dict[str, Tensor] = {}
        for some in self.index.split(self.batch_size):
            for layer in self.network(self.pixels[some], keep="last").trace:
                part = last_coupling(layer).double().sum(0) / len(self.pixels)
                total[layer.name] = total.get(layer.name, torch.zeros_like(part)) + part
        return lambda some: total

    def with_those_of(self, lender: Tensor) -> Way:
        """Replace couplings by those of the image that lends them, made anew: none is kept."""

        def lent(some: Tensor) -> dict[str, Tensor]:
            trace = self.network(self.pixels[lender[some]], keep="last").trace
            return {layer.name: last_coupling(layer) for layer in trace}

        return lent

    def silenced(
        self, trace: Trace, layers: Sequence[str], generator: torch.Generator
    ) -> Iterator[tuple[str, int, Tensor]]:
        """Give layer and number of each silenced capsule, and which images are right then."""
        known = {name: capsules.pose.shape[-2] for name, capsules in capsule_layers(trace)}
        for layer in layers:
            if layer not in known:
                raise TorchcapsError(
                    f"there is no layer {short(layer)} to silence; {nearest(layer, known)}."
                )
            numbers = torch.randperm(known[layer], generator=generator)[:MOST_CAPSULES]
            for number in sorted(numbers.tolist()):
                right, _ = self.answers(self.index, intervene={layer: silence(number)})
                yield layer, number, right


def _giving(value: Tensor | Couple) -> Couple:
    if isinstance(value, Tensor):
        return lambda coupling: value.to(coupling).expand_as(coupling)
    return value
