"""What the checks at the bottom say, in checks.txt, word for word."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from error_text import cases_of, said_by
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

NAMES = globals() | {"Callable": Callable, "math": math, "Step": Step, "torch": torch}


@pytest.mark.parametrize(("call", "sentence"), cases_of(Path(__file__).with_name("checks.txt")))
def test_each_check_says_what_was_expected_and_what_came(call, sentence):
    assert said_by(call, NAMES) == sentence


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
