"""Systems in one line of text."""

import pytest

from error_text import text_of
from torchcaps_claims.cells import Cell, cells


def test_every_kind_of_word():
    assert cells("gu_capsnet kernel=5 :loss=binary @layer=4 +prune +quantise") == (
        Cell("gu_capsnet", {"kernel": 5}, {"loss": "binary"}, {"layer": 4}, ("prune", "quantise")),
    )


def test_alternatives_and_ranges_multiply():
    found = cells("peer_deep_em n_layers=5..6 bias=false|true; capsnet")
    assert [(cell.model, cell.options) for cell in found] == [
        ("peer_deep_em", {"n_layers": 5, "bias": False}),
        ("peer_deep_em", {"n_layers": 5, "bias": True}),
        ("peer_deep_em", {"n_layers": 6, "bias": False}),
        ("peer_deep_em", {"n_layers": 6, "bias": True}),
        ("capsnet", {}),
    ]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("none", "none"),
        ("48x64", (48, 64)),
        ("16,16", "16,16"),
        ("'16'", "16"),
    ],
)
def test_values(word, value):
    (cell,) = cells(f"capsnet x={word}")
    assert cell.options == {"x": value}
    assert type(cell.options["x"]) is type(value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "capsnet kernel",
            "cells of capsnet: 'kernel' must be NAME=VALUE, :FIELD=VALUE, @PLACE=VALUE or +STEP.",
        ),
        (
            "capsnet; ",
            "a line of cells must begin with the name of a preset, but is empty.",
        ),
    ],
)
def test_errors_say_what_to_mend(line, message):
    assert text_of(lambda: cells(line)) == message
