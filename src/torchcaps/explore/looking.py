"""From a question to an answer: scores, layers, couplings, what leads to a capsule, what it saw.
One question is worked on at a time, because iterations are set in the network for as long.
"""

import math
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from torchcaps.analysis import (
    Activity,
    MeasureActivity,
    MeasureDynamics,
    RoutingDynamics,
    quantise,
    saliency,
)
from torchcaps.analysis.backtrack import ROUNDING, is_chain
from torchcaps.analysis.causal import silence
from torchcaps.analysis.even_split import comparable_coupling, evenly
from torchcaps.analysis.trace import capsule_layers, child_of, last_coupling, lengths
from torchcaps.data.batch import Batch
from torchcaps.data.shown.resize import resize
from torchcaps.data.warp import linear_maps, warp
from torchcaps.errors import TorchcapsError
from torchcaps.explore.opened import Collection, Opened
from torchcaps.explore.pictures import Pictures, png
from torchcaps.explore.remembered import Remembered, remembering
from torchcaps.explore.state import Capsule, Changed, Shown, State
from torchcaps.models.images import device_of
from torchcaps.types import Couple, Intervene, LayerTrace, Output, Trace

# More capsules a row would be a grey band, and more lines a fog.
MOST_CAPSULES, MOST_LINES = 32, 700
BATCH = 16
FACTS = ("label", "image", "classes", "iterations", "even", "collection", "note")
# Orange, as what is lit is drawn.
GLOW = (0.88, 0.51, 0.08)


class Looker:
    """Answers questions about the networks that were opened."""

    def __init__(self, opened: Opened):
        height, width = (max((n.image[k] for n in opened.networks), default=1) for k in (1, 2))
        self.opened, self.pictures = opened, Pictures((height, width))
        self._below: list[Remembered | None] = [remembering(n.model) for n in opened.networks]
        self._pixels = lru_cache(128)(self._make_pixels)
        self._out = lru_cache(24)(self._make_out)
        self._over = lru_cache(8)(self._make_over)
        self._saliency = lru_cache(24)(self._make_saliency)

    def about(self) -> dict[str, Any]:
        return {
            "networks": [
                {
                    **{name: getattr(each, name) for name in FACTS},
                    "layers": [name for name, _ in capsule_layers(each.trace)],
                }
                for each in self.opened.networks
            ],
            "collections": [each.name for each in self.opened.collections],
        }

    def images(self, number: int) -> list[dict[str, Any]]:
        """Send all images of a collection, with the true tree of each where that is known."""
        found: Collection = _at("collection", self.opened.collections, number)
        return [
            {"png": png(pixels), "label": label, "ideal": _ideal(found, at)}
            for at, (pixels, label) in enumerate(zip(found.pixels, found.labels, strict=True))
        ]

    def look(self, state: State) -> dict[str, Any]:
        began = time.perf_counter()
        network = _at("network", self.opened.networks, state.network)
        if state.selected is not None:
            _known(network.trace, state.selected)
        out = self._out(state.network, state.shown, state.changed)
        plain = out
        if state.changed != Changed():
            plain = self._out(state.network, state.shown, Changed())
        shown = _shown(out.trace, state.selected)
        pixels = self._pixels(state.network, state.shown)[0]
        answer = {
            "image": png(pixels),
            "empty": bool(pixels.min() == pixels.max()),
            "scores": _rounded(out.probabilities()[0]),
            "before": _rounded(plain.probabilities()[0]),
            "layers": _rows(out.trace, shown),
            "links": _links(out.trace, shown),
            "chain": is_chain(out.trace),
        }
        if state.selected is not None:
            glow, how = self._saliency(state.network, state.shown, state.changed, *state.selected)
            answer |= {"saliency": glow, "saliency_is": how}
            if is_chain(out.trace):
                answer["lit"] = _lit(out.trace, *state.selected)
        return {**answer, "ms": round(1000 * (time.perf_counter() - began), 1)}

    def over(self, state: State) -> dict[str, Any]:
        """Say which capsules are dead, how much trees change and how many answers are right over
        the images of a collection, and of the capsule that is selected, how long it is on each."""
        network = _at("network", self.opened.networks, state.network)
        if network.collection is None:
            return {"images": 0}
        activity, dynamics, found, right = self._over(state.network, state.changed)
        answer: dict[str, Any] = {
            "images": activity.images,
            "right": right,
            "right_before": self._over(state.network, Changed())[3],
            "dead": {each.name: each.dead.nonzero()[:, 0].tolist() for each in activity.layers},
            "dyr": {each.name: each.dyr for each in dynamics.layers},
        }
        if state.selected is not None:
            name, number = _known(network.trace, state.selected)
            answer["lengths"] = _rounded(found[name][:, number])
        return answer

    def lengths(self, number: int) -> dict[str, Tensor]:
        """Give the lengths [images, capsules] of each layer of a network over its collection."""
        return self._over(number, Changed())[2]

    def _make_pixels(self, number: int, shown: Shown) -> Tensor:
        channels, *size = _at("network", self.opened.networks, number).image
        if shown.picture is not None:
            pixels = self.pictures.get(shown.picture)
        elif shown.collection is not None:
            images = _at("collection", self.opened.collections, shown.collection).pixels
            pixels = _at("image", images, shown.number)
        else:
            pixels = torch.zeros(channels, *size)
        if len(pixels) != channels:
            pixels = pixels[:3].mean(0, keepdim=True).expand(channels, -1, -1)
        pixels = resize(pixels[None], (size[0], size[1])).clamp(0, 1)
        if shown.invert:
            pixels = 1 - pixels
        moved = (shown.turn, shown.x, shown.y, shown.scale, shown.shear)
        return pixels if moved == (0, 0, 0, 1, 0) else warp(pixels, _map(shown, size)).clamp(0, 1)

    def _ask(self, number: int, pixels: Tensor, changed: Changed, key: object) -> Output:
        """Show pixels [b, c, h, w] to a network in which something is changed."""
        network = self.opened.networks[number]
        if (below := self._below[number]) is not None:
            below.key = key
        asked: dict[str, Any] = {
            "couple": _couple(network.trace, changed),
            "intervene": _silenced(network.trace, changed),
            "iterations": None if network.iterations is None else changed.iterations,
        }
        asked = {name: each for name, each in asked.items() if each}
        out: Output = network.model(pixels.to(device_of(network.model)), keep="last", **asked)
        return out

    @torch.no_grad()
    def _make_out(self, number: int, shown: Shown, changed: Changed) -> Output:
        return self._ask(number, self._pixels(number, shown), changed, shown)

    @torch.no_grad()
    def _make_over(
        self, number: int, changed: Changed
    ) -> tuple[Activity, RoutingDynamics, dict[str, Tensor], int | None]:
        network = self.opened.networks[number]
        assert network.collection is not None
        collection = self.opened.collections[network.collection]
        activity, dynamics = MeasureActivity(), MeasureDynamics()
        found: dict[str, list[Tensor]] = {}
        said: list[str] = []
        for few in torch.arange(len(collection.pixels)).split(BATCH):
            pixels = collection.pixels[few]
            out = self._ask(number, pixels, changed, None)
            batch = Batch(pixels, few)
            for measure in (activity, dynamics):
                measure.update(out, batch)
            said += [network.classes[k] for k in out.scores.argmax(1).tolist()]
            for name, capsules in capsule_layers(out.trace):
                found.setdefault(name, []).append(lengths(capsules).float().cpu())
        joined = {name: torch.cat(each) for name, each in found.items()}
        labels, right = collection.labels, None
        # Images of several objects, or of other classes, have no answer that is right.
        if {*labels} <= {*network.classes}:
            right = sum(one == label for one, label in zip(said, labels, strict=True))
        return activity.result(), dynamics.result(), joined, right

    def _make_saliency(
        self, number: int, shown: Shown, changed: Changed, layer: str, capsule: int
    ) -> tuple[str, str]:
        """Draw where an image matters to a capsule, to lay over it; say how that was found."""
        network = self.opened.networks[number]
        trace = self._out(number, shown, changed).trace
        size = network.image[1:]
        grid = trace[-1].child_grid
        if layer == trace[-1].name and grid is not None and grid[0] * grid[1] > 1:
            n, chosen = len(network.classes), torch.tensor([capsule])
            maps = saliency(trace, chosen, n_classes=n, size=size)[0].float()
            how = "children of this class, by length times coupling"
        else:
            with torch.enable_grad():
                pixels = self._pixels(number, shown).clone().requires_grad_(True)
                out = self._ask(number, pixels, changed, None)
                long = lengths(dict(capsule_layers(out.trace))[layer])[0, capsule]
                (slope,) = torch.autograd.grad(long, pixels, allow_unused=True)
            slope = torch.zeros_like(pixels) if slope is None else slope
            # Smoothed over three pixels: single ones say little.
            maps = avg_pool2d(slope.abs().amax(1, keepdim=True), 3, 1, 1)[0, 0].cpu()
            how = "pixels whose change would move its length most"
        maps = maps / maps.max().clamp(min=1e-12)
        glow = torch.tensor(GLOW).view(3, 1, 1).expand(3, *size)
        return png(torch.cat([glow, 0.9 * maps.pow(1.4)[None]])), how


def _ideal(collection: Collection, at: int) -> dict[str, Any] | None:
    """Give the parts of a part-whole image, in shares of its sides, and which whole owns them."""
    if (truth := collection.truth) is None:
        return None
    there = (truth.part[at] >= 0).nonzero().flatten()
    columns = (each[at][there].tolist() for each in (truth.part, truth.owner, truth.pose))
    size = truth.size or 1
    parts = [
        {
            "name": truth.part_names[part],
            "own": owner == 0,
            **{"x": (x + 0.5) / size, "y": (y + 0.5) / size, "r": radius / size},
        }
        for part, owner, (x, y, _, radius) in zip(*columns, strict=True)
    ]
    return {"whole": collection.labels[at], "parts": parts, "placed": truth.size is not None}


def _at(what: str, there: Any, number: int) -> Any:
    if number >= len(there):
        raise TorchcapsError(
            f"there is no {what} {number}: the explorer has {len(there)}, the first is 0; the link "
            f"may be of another start."
        )
    return there[number]


def _known(trace: Trace, capsule: Capsule) -> Capsule:
    name, number = capsule
    there = {layer: each.pose.shape[-2] for layer, each in capsule_layers(trace)}
    if number >= there.get(name, 0):
        raise TorchcapsError(
            f"this network has no capsule {number} in a layer {name!r}; it has "
            f"{', '.join(f'{layer} with {n}' for layer, n in there.items())}."
        )
    return capsule


def _map(shown: Shown, size: list[int]) -> Tensor:
    """Say where the points of an image go, [1, 2, 3]."""
    turn, shear, scale, x, y = torch.tensor(
        [math.radians(shown.turn), shown.shear, shown.scale, shown.x * size[1], shown.y * size[0]]
    )[:, None]
    linear = linear_maps(turn, shear, scale, scale)
    to = torch.stack([x, y], 1)[..., None]
    return torch.cat([linear, to], -1)


def _couple(trace: Trace, changed: Changed) -> dict[str, Couple]:
    there = {layer.name for layer in trace}
    if wrong := [name for name in changed.even if name not in there]:
        raise TorchcapsError(
            f"this network has no routed layer {wrong[0]!r}; it has {', '.join(sorted(there))}."
        )
    couple: dict[str, Couple] = {}
    for layer in trace:
        if layer.name in changed.even:
            couple[layer.name] = evenly(layer)
        elif changed.levels is not None:
            couple[layer.name] = partial(quantise, levels=changed.levels)
    return couple


def _silenced(trace: Trace, changed: Changed) -> dict[str, Intervene]:
    known = [_known(trace, each) for each in changed.silenced]
    layers = {name for name, _ in known}
    return {layer: silence(*(k for name, k in known if name == layer)) for layer in layers}


def _shown(trace: Trace, selected: Capsule | None) -> dict[str, Tensor]:
    """Say which capsules of each layer are drawn: the longest, and the one that is selected."""
    found = {}
    for name, capsules in capsule_layers(trace):
        length = lengths(capsules)[0].float()
        chosen = length.topk(min(MOST_CAPSULES, len(length))).indices
        if selected is not None and selected[0] == name and selected[1] not in chosen:
            chosen[-1] = selected[1]
        found[name] = chosen.sort().values.cpu()
    return found


def _rows(trace: Trace, shown: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Give each layer of capsules from below, with the lengths of those that are drawn."""
    grids = [trace[0].child_grid, *(layer.parent_grid for layer in trace)]
    rows = []
    for (name, capsules), grid in zip(capsule_layers(trace), grids, strict=True):
        length = lengths(capsules)[0].float().cpu()
        row = {"name": name, "n": len(length), "grid": grid, "shown": shown[name].tolist()}
        if grid is not None and grid[0] * grid[1] > 1:
            row["map"] = _rounded(length.unflatten(0, (-1, grid[2])).amax(-1))
        rows.append({**row, "length": _rounded(length[shown[name]])})
    return rows


def _links(trace: Trace, shown: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Give the lines of each routed layer, and by how much its children prefer a parent."""
    found, below = [], "primary"
    for layer in trace:
        coupling = comparable_coupling(layer)[0]
        even, strongest = 1 / coupling.shape[-1], float(coupling.amax(-1).mean())
        lines = _lines(layer, shown[below], shown[layer.name])
        rounded = {"even": round(even, 5), "strongest": round(strongest, 5)}
        found.append({"name": layer.name, **rounded, "lines": lines})
        below = layer.name
    return found


def _lines(layer: LayerTrace, below: Tensor, above: Tensor) -> list[tuple[Any, ...]]:
    child, parent, coupling = _flat(layer)
    none = torch.full((int(child.max()) + 1,), torch.inf)
    best = (-none).scatter_reduce(0, child, coupling, "amax")
    lowest = none.scatter_reduce(0, child, coupling, "amin")
    strong = (coupling >= best[child]) & (best > lowest + ROUNDING)[child]
    keep = (torch.isin(child, below) & torch.isin(parent, above)).nonzero().flatten()
    if len(keep) > MOST_LINES:
        keep = keep[coupling[keep].topk(MOST_LINES).indices]
    columns = (each[keep].tolist() for each in (child, parent, coupling, strong))
    return [(i, j, round(c, 4), int(s)) for i, j, c, s in zip(*columns, strict=True)]


def _flat(layer: LayerTrace) -> tuple[Tensor, Tensor, Tensor]:
    """Child, parent and coupling of each line of the only image, windows one after the other."""
    coupling = last_coupling(layer)[0].float().cpu()
    child = child_of((layer,))[layer.name].cpu()
    if layer.window is None:
        coupling, child = coupling[None], child[None]
    windows, _, parents = coupling.shape
    parent = torch.arange(windows * parents).view(windows, 1, parents).expand_as(coupling)
    return child[..., None].expand_as(coupling).flatten(), parent.flatten(), coupling.flatten()


def _lit(trace: Trace, layer: str, capsule: int) -> dict[str, Any]:
    """Say which capsules and lines above an even split lead to a capsule, and from it."""
    names = ["primary", *(each.name for each in trace)]
    strong = []
    for each in trace:
        child, parent, _ = _flat(each)
        coupling = comparable_coupling(each)[0].cpu()
        marked = (coupling > 1 / coupling.shape[-1] + ROUNDING).flatten()
        strong.append(torch.stack([child[marked], parent[marked]]))
    depth = names.index(layer)
    inside = {name: torch.tensor([capsule])[name != layer :] for name in names}
    edges: list[Any] = [None] * len(trace)
    for at in (*reversed(range(depth)), *range(depth, len(trace))):
        # Below the capsule lines are followed from their parents, above it from their children.
        near = 1 if at < depth else 0
        kept = strong[at][:, torch.isin(strong[at][near], inside[names[at + near]])]
        inside[names[at + 1 - near]] = kept[1 - near].unique()
        edges[at] = kept.unique(dim=1)[:, :MOST_LINES].T.tolist()
    return {"capsules": {name: each.tolist() for name, each in inside.items()}, "edges": edges}


def _rounded(values: Tensor) -> list[float]:
    return [round(each, 5) for each in values.float().cpu().tolist()]
