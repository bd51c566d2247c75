"""Traces made by hand: lengths and couplings are chosen, so every measure can be had on paper."""

from dataclasses import replace
from types import SimpleNamespace

import torch
from torch.utils import _pytree

from torchcaps.types import Capsules, LayerTrace, Routed, Step


def capsules(lengths):
    """Capsules of given lengths [k, n], all pointing to (3/5, 4/5)."""
    length = torch.as_tensor(lengths, dtype=torch.float64)
    return Capsules(length.unsqueeze(-1) * torch.tensor([0.6, 0.8], dtype=torch.float64), length)


def layer(name, children, coupling, parents, **more):
    """A layer that was routed in one step."""
    routed = Routed(parents, (Step(children, coupling, parents),))
    return LayerTrace(name, children, routed, **more)


def recoupled(layer, *couplings):
    """The same layer with a step of each of these couplings, of whatever dtype."""
    (step,) = layer.routed.steps
    steps = tuple(step._replace(coupling=coupling) for coupling in couplings)
    return replace(layer, routed=layer.routed._replace(steps=steps))


def network(couplings, lengths=None):
    """A trace of layers {name: couplings [k, i, j]}; capsules are 0.5 long unless `lengths`, by the
    name of a layer or "primary", says otherwise."""
    couplings = {name: torch.as_tensor(c, dtype=torch.float64) for name, c in couplings.items()}
    lengths = lengths or {}
    images, n_in, _ = next(iter(couplings.values())).shape
    children = capsules(lengths.get("primary", torch.full((images, n_in), 0.5)))
    trace = []
    for name, coupling in couplings.items():
        even = torch.full((images, coupling.shape[2]), 0.5)
        parents = capsules(lengths.get(name, even))
        trace.append(layer(name, children, coupling, parents))
        children = parents
    return tuple(trace)


def switching(used, n_out, *, n_in=3):
    """Couplings [used, i, j] of children that go wholly to one of the first `used` parents, to each
    for one image; with `used` = `n_out` this is perfect routing."""
    coupling = torch.zeros(used, n_in, n_out)
    for image in range(used):
        for child in range(n_in):
            coupling[image, child, (image + child) % used] = 1
    return coupling


def even(images, n_in, n_out):
    """Couplings that never change and choose nothing."""
    return torch.full((images, n_in, n_out), 1 / n_out)


def result_of(measurement, *seen):
    """What a measurement says that has seen one trace, and the classes that were predicted."""
    measurement.add(*seen)
    return measurement.result()


def in_batches(measurement, trace, labels=None, *, batch=5):
    """What a measurement says that has seen a trace in batches; a pixel tells images apart."""
    for rows in torch.arange(len(trace[0].children.pose)).split(batch):
        some = _pytree.tree_map_only(torch.Tensor, lambda each, rows=rows: each[rows], trace)
        shown = None if labels is None else labels[rows]
        seen = SimpleNamespace(pixels=rows.unsqueeze(-1), labels=shown)
        measurement.update(SimpleNamespace(trace=some), seen)
    return measurement.result()
