"""What the checks at the bottom say, word for word."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from error_text import text_of
from torchcaps import _checks
from torchcaps._checks import (
    check_choice,
    check_count,
    check_finite,
    check_flag,
    check_floating,
    check_number,
    check_shape,
    check_type,
)
from torchcaps.types import Step

POSES = torch.ones(2, 3, 4)

REFUSED = {
    "n must be a whole number from 1, but came as 0.": lambda: check_count("n", 0),
    "n must be a whole number from 1, but came as True.": lambda: check_count("n", True),
    "n must be a whole number of images from 2, but came as 1.5; give 2.": lambda: check_count(
        "n", 1.5, of="images", least=2, so="give 2"
    ),
    "p must be a finite number from 0 up, but came as inf.": lambda: check_number("p", math.inf),
    "p must be a finite number above 0, but came as 0.": lambda: check_number("p", 0, above=0),
    "p must be a number from 0 to 1, but came as nan; is it a share?": lambda: check_number(
        "p", math.nan, most=1, so="is it a share?"
    ),
    "p must be a number from 0 and below 1, but came as 1.": lambda: check_number("p", 1, below=1),
    "p must be a number above 0.25 and below 1, but came as 'x'.": lambda: check_number(
        "p", "x", above=0.25, below=1
    ),
    "keep='lst' is unknown; did you mean 'last'? known: last, none.": lambda: check_choice(
        "keep", "lst", ("none", "last")
    ),
    "keep=None is unknown; known: last, none.": lambda: check_choice(
        "keep", None, ("none", "last")
    ),
    "bias must be True or False, but came as 2.": lambda: check_flag("bias", 2),
    "bias must be True or False, but came as 1.0.": lambda: check_flag("bias", 1.0),
    "couple must be a function, but came as an int; write one.": lambda: check_type(
        "couple", 3, Callable, "write one", as_a="a function"
    ),
    "step must be a Step, but came as a tuple.": lambda: check_type("step", (), Step),
    "poses must be [*batch, capsule, 5], but came with shape [2, 3, 4].": lambda: check_shape(
        "poses", POSES, ("*batch", "capsule", 5)
    ),
    "poses must be [*batch, a, b, c, d], but came with shape [2, 3, 4].": lambda: check_shape(
        "poses", POSES, ("*batch", "a", "b", "c", "d")
    ),
    "poses must be [batch, 4], but came with shape [2, 3, 4]; flatten them.": lambda: check_shape(
        "poses", POSES, ("batch", 4), "flatten them"
    ),
    "poses must be a tensor [2], but came as a list.": lambda: check_shape("poses", [1, 2], (2,)),
    "y must be whole numbers [2], but came as torch.bool with shape [2].": lambda: check_shape(
        "y", torch.ones(2, dtype=torch.bool), (2,), of="whole numbers"
    ),
    "x must be floating point, but came as torch.bool; call .float().": lambda: check_floating(
        "x", torch.ones(2, dtype=torch.bool), "call .float()"
    ),
    "a must be floating point [2], but came as torch.int64 with shape [2].": lambda: check_shape(
        "a", torch.ones(2, dtype=torch.int64), (2,), of="floating point"
    ),
    f"scores must be finite, but came with NaN or infinite values; {_checks.DIVERGED}.": lambda: (
        check_finite("scores", torch.tensor([0.0, math.nan]))
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_each_check_says_what_was_expected_and_what_came(sentence):
    assert text_of(REFUSED[sentence]) == sentence


def test_what_fits_passes():
    check_count("n", 2, least=2)
    check_count("n", np.int64(2))
    check_number("p", 0)
    check_number("p", 1, most=1)
    check_number("p", torch.tensor(0.5), above=0, below=1)
    check_choice("keep", "last", ("none", "last"))
    check_flag("bias", False)
    check_flag("bias", 1)
    check_floating("x", POSES)
    check_type("couple", len, Callable)
    check_shape("poses", POSES, ("*batch", 4))
    check_shape("poses", POSES, ("*batch", "a", 3, 4))
    check_shape("poses", POSES, (2, 3, 4))
    check_shape("number", torch.tensor(1), ())
    check_shape("labels", torch.zeros(2, dtype=torch.uint8), (2,), of="whole numbers")
    check_finite("poses", POSES)


def test_a_shape_is_checked_inside_of_a_compiled_graph():
    def double(poses):
        check_shape("poses", poses, ("*batch", 3, 4), of="floating point")
        check_shape("poses", poses, poses.shape)
        return 2 * poses

    compiled = torch.compile(double, backend="eager", fullgraph=True, dynamic=True)
    assert torch.equal(compiled(POSES), 2 * POSES)
