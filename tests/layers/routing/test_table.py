"""Routings by name."""

import inspect

import pytest

from torchcaps.errors import TorchcapsError
from torchcaps.layers import ROUTINGS, DynamicRouting, UniformRouting
from torchcaps.layers.routing import as_routing, make_routing


def test_names_and_classes():
    for name, kind in ROUTINGS.items():
        assert kind.__name__.lower() == f"{name.removesuffix('_routing')}routing".replace("_", "")
    assert isinstance(as_routing("uniform"), UniformRouting)
    given = DynamicRouting(iterations=7)
    assert as_routing(given) is given


def test_options_that_a_routing_does_not_know_are_left_out():
    made = make_routing("uniform", iterations=5, normalise="mean", leaky=True)
    assert isinstance(made, UniformRouting)
    assert made.normalise == "mean"
    assert make_routing("inverted", iterations=5, squash="exp").iterations == 5


# Longer than any sentence should quote.
LONG = (10**3000, "x" * 3000, [0] * 3000)


@pytest.mark.parametrize(
    "name", [name for name, each in ROUTINGS.items() if inspect.signature(each).parameters]
)
@pytest.mark.parametrize("value", LONG, ids=("number", "text", "list"))
def test_a_value_of_thousands_of_letters_is_quoted_in_short(name, value):
    """Found by make fuzz."""
    said = []
    for option in inspect.signature(ROUTINGS[name]).parameters:
        try:
            ROUTINGS[name](**{option: value})
        except TorchcapsError as error:
            said.append(str(error))
    assert said
    assert max(map(len, said)) < 600
