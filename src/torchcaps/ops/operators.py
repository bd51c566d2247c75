"""One way to give an operator with a backward pass of its own to PyTorch's dispatcher.

The dispatcher takes a flat list of tensors and plain values, in which every value would be a place
to count. Here an operator takes one NamedTuple, whose fields may be NamedTuples again, and the
schema is read off their annotations:

    Tensor, Tensor | None               a tensor, or none
    bool, int, float, str, torch.dtype  a plain value; a Literal of strings is a string
    Sequence[int]                       a list of whole numbers, not a tuple: tuples are taken apart

The dispatcher's lists hold tensors alone, so a gradient that nobody needs travels as an empty one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_origin, get_type_hints

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError

Given = TypeVar("Given", bound=tuple[Any, ...])
Found = TypeVar("Found")
# Of every tensor that was given, in their order.
Gradients = Sequence[Tensor | None]

_SCHEMA: dict[Any, str] = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    bool: "bool",
    int: "SymInt",
    float: "float",
    str: "str",
    torch.dtype: "ScalarType",
    Sequence[int]: "SymInt[]",
}


class Asked(NamedTuple, Generic[Given]):
    """What a backward pass is asked."""

    given: Given
    # The outputs that the operator saves.
    saved: tuple[Tensor, ...]
    # The gradient of every output, or None where nothing depends on that output.
    gradients: tuple[Tensor | None, ...]
    # Of every tensor that was given, in their order, whether somebody needs its gradient.
    needs: tuple[bool, ...]


class Operator(Generic[Given, Found]):
    """An operator of the dispatcher that can be differentiated, compiled and exported.

    Arguments:
        name: as the dispatcher knows the operator, "torchcaps::…".
        forward: from a NamedTuple to a new tensor, or to a NamedTuple of new tensors. Both
            annotations are read.
        shapes: from the same NamedTuple to tensors of the same shapes, dtypes and strides, whose
            numbers do not count. `forward` may call this function for the tensors that it fills.
        backward: from `Asked` to the gradients of all tensors that were given, with as many
            numbers as these tensors. What nobody needs is dropped; None where a gradient is needed
            is zero.
        saves: the places of the outputs that the backward pass asks for. The tensors that were
            given are always kept for it.
        what: who refuses to be differentiated twice, as "fused EM routing".
        instead: what to do where gradients of gradients are needed. With None, `backward` is made
            of operators that can be differentiated themselves, and is no operator.
        device_types: on which devices the operator runs, "cpu"; None: on any.

    >>> class Scaled(NamedTuple):
    ...     x: Tensor
    ...     scale: float
    >>> def forward(given: Scaled) -> Tensor:
    ...     return given.scale * given.x
    >>> def backward(asked: Asked[Scaled]) -> Gradients:
    ...     (of_y,) = asked.gradients
    ...     return [None if of_y is None else asked.given.scale * of_y]
    >>> scaled = Operator(
    ...     "torchcaps::example_scaled",
    ...     forward=forward,
    ...     shapes=forward,
    ...     backward=backward,
    ...     what="the example",
    ...     instead="multiply",
    ... )
    >>> x = torch.ones(2, requires_grad=True)
    >>> scaled(Scaled(x, 3.0)).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """

    def __init__(
        self,
        name: str,
        *,
        forward: Callable[[Given], Found],
        shapes: Callable[[Given], Found],
        backward: Callable[[Asked[Given]], Gradients],
        saves: Sequence[int] = (),
        what: str = "",
        instead: str | None = None,
        device_types: str | None = None,
    ):
        hints = get_type_hints(forward)
        gives: Any = hints.pop("return")
        (self._kind,) = hints.values()
        self._wrapped: Any = None if gives is Tensor else gives
        self._run, self._shapes, self._backward = forward, shapes, backward
        self._saves = list(saves)
        leaves = list(_leaves(self._kind))
        self._is_tensor = [_SCHEMA[hint].startswith("Tensor") for _, hint in leaves]
        outputs = ["found"] if gives is Tensor else list(gives._fields)
        taken = [f"{_SCHEMA[hint]} {field}" for field, hint in leaves]
        asked = [f"Tensor? of_{field}" for field in outputs]
        asked += [f"Tensor saved_{outputs[place]}" for place in saves]
        self._asks = len(outputs), len(outputs) + len(self._saves), len(asked) + len(taken)
        # The dispatcher forgets a definition that nobody holds.
        self._definition: Any = torch.library.custom_op(
            name,
            self.run_flat,
            mutates_args=(),
            device_types=device_types,
            schema=f"({', '.join(taken)}) -> ({', '.join('Tensor' for _ in outputs)})",
        )
        self._definition.register_fake(self._fake)
        self._definition.register_autograd(self._differentiate, setup_context=self._keep)
        self.forward = self._definition._opoverload
        self.backward: Any = None
        if instead is None:
            return
        self._backward_definition: Any = torch.library.custom_op(
            f"{name}_backward",
            self.run_backward_flat,
            mutates_args=(),
            device_types=device_types,
            schema=f"({', '.join([*asked, *taken])}, bool[] needs) -> Tensor[]",
        )
        self._backward_definition.register_fake(self._backward_fake)
        self._backward_definition.register_autograd(_refusing(what, instead))
        self.backward = self._backward_definition._opoverload

    def __call__(self, given: Given) -> Found:
        found = self.forward(*_flat(given))
        result: Found = found if self._wrapped is None else self._wrapped(*found)
        return result

    def given(self, *flat: Any) -> Given:
        """Give what the operator was given, from the arguments of the dispatcher."""
        made: Given = _built(self._kind, iter(flat))
        return made

    def asked(self, *flat: Any) -> Asked[Given]:
        """Give what its backward pass was asked, from the arguments of the dispatcher."""
        first, second, last = self._asks
        given = self.given(*flat[second:last])
        return Asked(given, tuple(flat[first:second]), tuple(flat[:first]), tuple(flat[-1]))

    def run_flat(self, *flat: Any) -> Any:
        """Run the forward pass itself, of the arguments of the dispatcher."""
        return self._unwrapped(self._run(self.given(*flat)))

    def run_backward_flat(self, *flat: Any) -> list[Tensor]:
        """Run the backward pass itself, of the arguments of the dispatcher."""
        asked = self.asked(*flat)
        return self._listed(asked, self._backward(asked))

    def _unwrapped(self, found: Any) -> Any:
        return found if self._wrapped is None else tuple(found)

    def _fake(self, *flat: Any) -> Any:
        return self._unwrapped(self._shapes(self.given(*flat)))

    def _backward_fake(self, *flat: Any) -> list[Tensor]:
        return self._listed(self.asked(*flat), [None] * sum(self._is_tensor))

    def _listed(self, asked: Asked[Given], gradients: Gradients) -> list[Tensor]:
        tensors = self._tensors(_flat(asked.given))
        nothing = next(x for x in tensors if x is not None)
        return [
            nothing.new_empty(0)
            if x is None or not need
            else x.new_zeros(x.shape)
            if gradient is None
            # Contiguous, as compiled graphs are promised.
            else gradient.to(x.dtype).reshape(x.shape).contiguous()
            for x, need, gradient in zip(tensors, asked.needs, gradients, strict=True)
        ]

    def _tensors(self, flat: Sequence[Any]) -> list[Any]:
        """Pick the values that belong to tensors out of those of all arguments."""
        return [value for value, is_one in zip(flat, self._is_tensor, strict=True) if is_one]

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = [output] if self._wrapped is None else output
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(outputs[place] for place in self._saves), *self._tensors(inputs))
        ctx.options = [
            None if is_one else x for x, is_one in zip(inputs, self._is_tensor, strict=True)
        ]

    def _differentiate(self, ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        count, kept = len(self._saves), ctx.saved_tensors  # which may be asked for once
        saved, tensors = kept[:count], iter(kept[count:])
        flat = [
            next(tensors) if is_one else x
            for x, is_one in zip(ctx.options, self._is_tensor, strict=True)
        ]
        needs = self._tensors(ctx.needs_input_grad)
        if self.backward is None:
            asked = Asked(self.given(*flat), saved, gradients, tuple(needs))
            found = iter(self._backward(asked))
        else:
            found = iter(self.backward(*gradients, *saved, *flat, needs))
        made = (next(found) if is_one else None for is_one in self._is_tensor)
        return tuple(
            x if need else None for x, need in zip(made, ctx.needs_input_grad, strict=True)
        )


def by_stored_votes(plain: str) -> str:
    """Say what to do instead of differentiating a routing from a vote map twice: by a plain op."""
    return f"route ops.materialise(vote_map) with ops.{plain}"


def _refusing(what: str, instead: str) -> Callable[..., None]:
    """Refuse the backward pass of a backward pass that has none."""

    def refuse(ctx: Any, *_: Any) -> None:
        raise TorchcapsError(
            f"{what} gives gradients, but no gradients of gradients; where these are needed, as by "
            f"create_graph=True, {instead}."
        )

    return refuse


def _flat(values: tuple[Any, ...]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if isinstance(value, tuple):
            flat.extend(_flat(value))
        else:
            flat.append(value)
    return flat


def _built(kind: Any, flat: Iterator[Any]) -> Any:
    return kind(
        *(
            _built(hint, flat) if hasattr(hint, "_fields") else next(flat)
            for _, hint in _fields(kind)
        )
    )


def _leaves(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Give names and annotations of the values in the order of `_flat`; the name of a field inside
    another begins with that of the other."""
    for field, hint in _fields(kind):
        if hasattr(hint, "_fields"):
            yield from _leaves(hint, f"{path}{field}_")
        else:
            yield f"{path}{field}", hint


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (field, str if get_origin(hint) is Literal else hint)
        for field, hint in get_type_hints(kind).items()
    )
