"""How far the gradients of near opposites cancel, whose labels differ: the conjecture of
[peer2022] §6.

g and g′ are the gradients of the loss of two images by the weights of all routed layers. Of a pair
cos(g, g′) is −1 where they cancel, and χ = 1 − ‖g + g′‖ / (‖g‖ + ‖g′‖) is 1.

Departures: pairs are nearest by ‖u + u′‖ / (‖u‖ + ‖u′‖), not by their cosine, which is −1 for any
two numbers of opposite signs. Pairs of one label, as a control, are left out.
"""

import torch
from torch import Tensor, nn

from torchcaps.analysis import gradient_cancellation
from torchcaps.analysis.pairs import names_of
from torchcaps.data import Batch, Images, sample_of
from torchcaps.errors import TorchcapsError
from torchcaps.models.own import as_network
from torchcaps.train.loss import loss_parts
from torchcaps.train.recipe import Recipe

# Pairs are looked for among so many images, and so many are taken, those nearest to opposite.
SAMPLE, PAIRS = 500, 20


def cancellation_of(model: nn.Module, recipe: Recipe, images: Images) -> dict[str, float]:
    """Means over the pairs of different labels whose inputs to the first routed layer are nearest
    to opposite: `cancellation_cosine` and `cancellation_chi`, and the cosine of their inputs. The
    network is in evaluation mode, and the images go where it is."""
    pixels, labels, parts = images.batch(sample_of(images, SAMPLE))
    device = next(model.parameters()).device
    parts = None if parts is None else parts.to(device)
    batch = Batch(pixels.to(device), labels.to(device), parts)
    with torch.no_grad():
        trace = as_network(model)(batch.pixels, keep="last").trace
    inputs = trace[0].children.pose.flatten(1).double()
    chosen = _pairs(inputs, batch.labels)
    rows = []
    for first, second in chosen:
        gradients = (_gradients(model, recipe, batch, place) for place in (first, second))
        whole = gradient_cancellation(*gradients).weights[-1]
        cosine = torch.cosine_similarity(inputs[first], inputs[second], dim=0)
        rows.append((whole.cosine, whole.chi, float(cosine)))
    names = ("cancellation_cosine", "cancellation_chi", "input_cosine")
    columns = zip(*rows, strict=True)
    return {name: sum(x) / len(x) for name, x in zip(names, columns, strict=True)}


def _pairs(inputs: Tensor, labels: Tensor) -> list[tuple[int, int]]:
    """Pair inputs of different labels by the least ‖u + u′‖ / (‖u‖ + ‖u′‖): 0 where u′ is −u."""
    norms = inputs.norm(dim=-1)
    apart = torch.cdist(inputs, -inputs) / (norms[:, None] + norms).clamp(min=1e-30)
    first, second = torch.triu_indices(len(inputs), len(inputs), 1, device=inputs.device)
    # Those of an image with several objects are a set.
    names = torch.tensor(names_of(labels), device=inputs.device)
    differ = names[first] != names[second]
    if not differ.any():
        raise TorchcapsError(
            f"gradients are compared between images of different labels, but all of a sample of "
            f"{len(inputs)} images have one label; take a set with more classes."
        )
    first, second = first[differ], second[differ]
    nearest = apart[first, second].argsort(stable=True)[:PAIRS]
    return [*zip(first[nearest].tolist(), second[nearest].tolist(), strict=True)]


def _gradients(model: nn.Module, recipe: Recipe, batch: Batch, place: int) -> dict[str, Tensor]:
    """Take the gradients of the loss of one image, by the weights of routed layers."""
    one = slice(place, place + 1)
    parts = None if batch.parts is None else batch.parts[one]
    alone = Batch(batch.pixels[one], batch.labels[one], parts)
    out = as_network(model)(alone.pixels, alone.labels, keep="last")
    loss = torch.stack([*loss_parts(recipe, out, alone, 0).values()]).sum()
    weights = {each.name: each.weight for each in out.trace if each.weight is not None}
    found = torch.autograd.grad(loss, [*weights.values()], materialize_grads=True)
    return dict(zip(weights, found, strict=True))
