"""A network without a textbook is held to its plain form."""

import dataclasses

from cases import CASES, tiny
from contestants import CONTESTANTS
from process import errors
from subjects import build


def test_a_network_without_a_textbook_is_held_to_its_plain_form():
    case = dataclasses.replace(tiny(CASES["resnet18-train-128"]), batch=2)
    found = errors(build(case, CONTESTANTS["ours-native"]))
    assert 0 < max(found["values"].values()) < 1e-4
    assert len(found["gradients"]) > 20
