"""Estimate what a network would take before anything of it is allocated.

The training step of `torchcaps train` runs on fake tensors, which have sizes and no memory. What a
process takes beyond its tensors is in `tasks.footprint`: the estimate is for a CPU under Linux,
whose freed memory is kept where `fit` would keep it, and counts above imports, without the data.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from torchcaps._checks import check_choice
from torchcaps.data import Batch
from torchcaps.layers import CapsuleLayer, Conv3dCapsules, can_keep_memory
from torchcaps.models import create_model
from torchcaps.models.limits import in_bytes, without_memory
from torchcaps.models.own import as_network
from torchcaps.ops.fused.tiles import vote_like
from torchcaps.tasks.footprint import Footprint
from torchcaps.train.loss import loss_parts
from torchcaps.train.optimiser import make_optimiser
from torchcaps.train.recipe import Recipe, make_recipe
from torchcaps.types import Capsules

LISTED = 5


@dataclass(frozen=True)
class Votes:
    """The votes of a layer: what a textbook stores."""

    layer: str
    shape: tuple[int, ...]  # [b, i, j, d], or [b, p, i, j, d] through windows
    size: int  # bytes
    stored: bool  # or made a tile at a time


@dataclass(frozen=True)
class Peak:
    """The fullest moment, in bytes."""

    process: int  # resident memory above what imports take
    tensors: int  # of all tensors that are alive together
    largest: tuple[tuple[str, tuple[int, ...], int], ...]  # name, shape and bytes at that moment


@dataclass(frozen=True)
class Estimate:
    """What a network takes at a batch size."""

    model: str
    image: tuple[int, int, int]
    n_classes: int
    batch_size: int
    precision: str
    parameters: int
    flops_forward: int
    flops_step: int
    votes: tuple[Votes, ...]
    training: Peak
    inference: Peak

    def numbers(self) -> dict[str, Any]:
        """Give everything, as JSON has it; bytes and FLOPs are whole numbers."""
        found = asdict(self)
        for peak in (found["training"], found["inference"]):
            names = ("name", "shape", "size")
            peak["largest"] = [dict(zip(names, each, strict=True)) for each in peak["largest"]]
        return found

    def text(self) -> str:
        """Say it in sentences."""
        images = f"{self.batch_size} image{'s' if self.batch_size > 1 else ''}"
        classes = f"{self.n_classes} class{'es' if self.n_classes > 1 else ''}"
        lines = [
            f"{self.model} for images of {_by(self.image)}, {classes}: "
            f"{self.parameters:,} parameters.",
            f"A training step with {images} in {self.precision} takes "
            f"{in_bytes(self.training.process)}, {in_bytes(self.training.tensors)} of it tensors, "
            f"and {_flop(self.flops_step)}.",
            f"Inference takes {in_bytes(self.inference.process)} and {_flop(self.flops_forward)}.",
        ]
        for each in self.votes:
            lines.append(
                f"The votes of {each.layer}, {_by(each.shape)}, are {in_bytes(each.size)} and are "
                f"{'stored in training' if each.stored else 'never stored'}."
            )
        lines.append("Largest when the training step is at its fullest:")
        for name, shape, size in self.training.largest:
            lines.append(f"    {in_bytes(size):>9}  {name}{f' {list(shape)}' if shape else ''}")
        return "\n".join(lines)


def estimate(
    model: str,
    *,
    image: tuple[int, int, int] | None = None,
    n_classes: int | None = None,
    batch_size: int = 128,
    precision: Literal["float32", "bfloat16"] = "float32",
    **options: Any,
) -> Estimate:
    """Count parameters, FLOPs, votes and peak memory of a network at a batch size.

    FLOPs are those of products and convolutions, a multiplication and an addition two. No size is
    refused here.

    Arguments:
        model: a name that `create_model` knows.
        image: (channels, height, width); that of the paper if not given.
        n_classes: how many classes; as many as in the paper if not given.
        batch_size: images in a step.
        precision: "float32", or "bfloat16", which trains under autocast.
        options: those of the network, as for `create_model`.

    >>> print(estimate("capsnet", image=(3, 64, 48), n_classes=7, batch_size=128).text())
    """
    check_choice("precision", precision, ("float32", "bfloat16"))
    # Which data it is makes no difference to the step.
    recipe = make_recipe(
        model=model, data="part-whole", batch_size=batch_size, options=options, precision=precision
    )
    with without_memory():
        made = create_model(model, image=image, n_classes=n_classes, **options)
    chosen: Any = made.config
    # A registered one may take images alone.
    network = as_network(made)
    votes = _votes(network, batch_size)
    step, training = _trained(network, chosen["image"], chosen["n_classes"], recipe)
    forward, inference = _inferred(network, chosen["image"], recipe)
    return Estimate(
        model=model,
        image=chosen["image"],
        n_classes=chosen["n_classes"],
        batch_size=batch_size,
        precision=precision,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        flops_forward=forward,
        flops_step=step,
        votes=votes,
        training=training,
        inference=inference,
    )


def _trained(
    network: nn.Module, image: tuple[int, int, int], n_classes: int, recipe: Recipe
) -> tuple[int, Peak]:
    """Count FLOPs and memory of the second step: the first makes the state of the optimiser."""
    footprint = Footprint(keeps_memory=can_keep_memory())
    with FakeTensorMode(), footprint, footprint.naming(network.train()):
        with footprint.staying():
            _without_memory(network, footprint, recipe)
        pixels = torch.rand(recipe.batch_size, *image)
        batch = Batch(pixels, torch.randint(n_classes, (recipe.batch_size,)))
        optimiser = make_optimiser(recipe, network.parameters())
        for step in range(2):
            before = footprint.flops
            with _autocast(recipe):
                out = network(*batch[:2])
                loss = torch.stack(list(loss_parts(recipe, out, batch, step).values())).sum()
            del out
            # As Lightning does: the gradients of a step are there until the next one's forward
            # pass is done.
            optimiser.zero_grad()
            loss.backward()
            for name, parameter in network.named_parameters():
                if parameter.grad is not None:
                    footprint.call(parameter.grad, f"gradient of {name}")
            with footprint.staying():
                optimiser.step()
            for name, parameter in network.named_parameters():
                for moment in optimiser.state[parameter].values():
                    footprint.call(moment, f"what the optimiser keeps of {name}")
        peak = _peak(footprint)
    return footprint.flops - before, peak


def _inferred(network: nn.Module, image: tuple[int, int, int], recipe: Recipe) -> tuple[int, Peak]:
    footprint = Footprint(keeps_memory=can_keep_memory())
    with FakeTensorMode(), footprint, footprint.naming(network.eval()):
        with footprint.staying():
            _without_memory(network, footprint, recipe)
        pixels = torch.rand(recipe.batch_size, *image)
        with torch.no_grad(), _autocast(recipe):
            network(pixels)
        peak = _peak(footprint)
    return footprint.flops, peak


def _without_memory(network: nn.Module, footprint: Footprint, recipe: Recipe) -> None:
    """Give a network fake tensors of the default device for its own, laid out as in the recipe."""
    for where, module in network.named_modules():
        for name, old in [*module._parameters.items(), *module._buffers.items()]:
            if old is None:
                continue
            is_last = recipe.channels_last and isinstance(module, nn.Conv2d) and name == "weight"
            layout = torch.channels_last if is_last else torch.contiguous_format
            new = torch.empty(old.shape, dtype=old.dtype, memory_format=layout)
            if isinstance(old, nn.Parameter):
                module._parameters[name] = new = nn.Parameter(new, old.requires_grad)
            else:
                module._buffers[name] = new
            footprint.call(new, f"{where}.{name}")


def _autocast(recipe: Recipe) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=recipe.precision == "bfloat16")


def _votes(network: nn.Module, batch_size: int) -> tuple[Votes, ...]:
    """Count the votes of a network without memory."""
    found = []
    for name, layer in network.named_modules():
        if isinstance(layer, CapsuleLayer):
            pose = torch.empty(batch_size, layer.n_in, layer.d_in, device="meta")
            vote_map = layer.vote_map(Capsules(pose, pose[..., 0]))
            like, stored = vote_like(vote_map), not layer.routing.fuses(vote_map)
        elif isinstance(layer, Conv3dCapsules):
            shape = (batch_size, layer.child_grid[-1], layer.n_out, layer.d_out)
            like, stored = torch.empty(shape, device="meta"), True
        else:
            continue
        found.append(Votes(name, tuple(like.shape), like.numel() * like.itemsize, stored))
    return tuple(found)


def _peak(footprint: Footprint) -> Peak:
    return Peak(
        footprint.resident,
        footprint.tensors,
        tuple((piece.name, piece.shape, piece.size) for piece in footprint.largest(LISTED)),
    )


def _by(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _flop(count: int) -> str:
    return f"{count / 1e9:,.{0 if count >= 1e11 else 2}f} GFLOP"
