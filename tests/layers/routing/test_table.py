"""Routings by name."""

import inspect
import re

import pytest

from error_text import text_of
from torchcaps.errors import TorchcapsError
from torchcaps.layers import ROUTINGS, DynamicRouting, UniformRouting
from torchcaps.layers.routing import as_routing, make_routing


def test_names_and_classes():
    for name, kind in ROUTINGS.items():
        assert kind.__name__.lower() == f"{name}routing".replace("_", "")
    assert isinstance(as_routing("uniform"), UniformRouting)
    given = DynamicRouting(iterations=7)
    assert as_routing(given) is given


@pytest.mark.parametrize(("name", "hint"), [("dinamic", "did you mean 'dynamic'? "), ("zzz", "")])
def test_unknown_name(name, hint):
    expected = f"routing={name!r} is unknown; {hint}known: {', '.join(sorted(ROUTINGS))}."
    with pytest.raises(TorchcapsError, match=f"^{re.escape(expected)}$"):
        as_routing(name)


def test_options_that_a_routing_does_not_know_are_left_out():
    made = make_routing("uniform", iterations=5, normalise="mean", leaky=True)
    assert isinstance(made, UniformRouting)
    assert made.normalise == "mean"
    assert make_routing("inverted", iterations=5, squash="exp").iterations == 5


def test_options_that_no_routing_knows_are_refused():
    assert text_of(lambda: make_routing("uniform", iteration=9)).startswith(
        "no routing has an option 'iteration'; did you mean 'iterations'?"
    )


# Longer than any sentence should quote.
LONG = (10**3000, "x" * 3000, [0] * 3000)


@pytest.mark.parametrize("name", ROUTINGS)
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
