"""The tables of docs/models.md are what the registry says, and the registry keeps it.

To write them again: PYTHONPATH=tests python tests/models/test_model_table.py
"""

from pathlib import Path

import pytest
import torch

from error_text import text_of
from torchcaps import create_model, list_models
from torchcaps.layers import ROUTINGS
from torchcaps.models import MODELS
from torchcaps.models.meanings import MEANINGS

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
AGAIN = (
    "if this is meant, run `PYTHONPATH=tests python tests/models/test_model_table.py` and commit "
    "the page"
)
HEAD = """| model | image | classes | parameters | routings | source |
|---|---|---|---|---|---|
"""
OPTIONS = """| option | what it means | choices |
|---|---|---|
"""


def own_first(name):
    own = MODELS[name].options.get("routing")
    return sorted(MODELS[name].routings, key=lambda routing: routing != own)


def row(name, model):
    preset = MODELS[name]
    parameters = sum(p.numel() for p in model.parameters())
    cells = (
        f"`{name}`",
        "×".join(map(str, preset.image)),
        str(preset.n_classes),
        f"{parameters:,}",
        ", ".join(own_first(name)) or "–",
        preset.source,
    )
    return f"| {' | '.join(cells)} |\n"


def choices(option):
    """What an option may be, in any network that has it."""
    having = [preset for preset in MODELS.values() if option in preset.options]
    words = {word: None for preset in having for word in preset.words(option)}
    if option == "routing":
        words = dict.fromkeys(sorted(ROUTINGS))
    kinds = {type(preset.options[option]) for preset in having}
    named = {bool: "true or false", int: "a whole number", float: "a number"}
    plain = [named[kind] for kind in named if kind in kinds]
    return ", ".join([*plain, *(f"`{word}`" for word in words)]) or "text"


def option_row(option):
    return f"| `{option}` | {MEANINGS[option]} | {choices(option)} |\n"


def rows_below(head, page):
    """The rows of a table, which ends at an empty line."""
    return page.partition(head)[2].partition("\n\n")[0].splitlines(keepends=True)


def written_rows():
    """What the page says of networks, a line each."""
    return [f"{row.rstrip()}\n" for row in rows_below(HEAD, PAGE.read_text(encoding="utf-8"))]


def test_the_page_is_what_the_registry_says():
    assert [each.split("`")[1] for each in written_rows()] == list_models(), AGAIN
    options = "".join(rows_below(OPTIONS, PAGE.read_text(encoding="utf-8"))).rstrip() + "\n"
    assert options == "".join(map(option_row, sorted(MEANINGS))), AGAIN


# Networks that are nothing without their decoder.
DRAWING = {"gu_convnet_cr", "gu_convnet_cr_sf", "gu_convnet_r"}


@pytest.mark.parametrize("name", list_models())
def test_a_name_alone_gives_the_network_of_the_paper(name):
    with torch.device("meta"):
        model = create_model(name)
        out = model(torch.rand(2, *MODELS[name].image))
    assert row(name, model) in written_rows(), AGAIN
    assert out.scores.shape == (2, MODELS[name].n_classes)
    draws = MODELS[name].options.get("decoder", name in DRAWING)
    assert (out.reconstruction is not None) == draws
    if draws:
        assert out.reconstruction.shape == (2, *MODELS[name].image)


ALLOWED = [(name, routing) for name in list_models() for routing in MODELS[name].routings]
REFUSED = [
    (name, routing)
    for name in list_models()
    for routing in ROUTINGS
    # Those that are another network by EM routing say which (test_registry.py).
    if routing not in MODELS[name].routings and not (routing == "em" and MODELS[name].by_em)
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("name", "routing"), ALLOWED)
def test_what_the_table_allows_works(name, routing):
    preset = MODELS[name]
    with torch.device("meta"):
        model = create_model(name, routing=routing)
        out = model(torch.empty(2, *preset.image), keep="last")
    assert out.scores.shape == (2, preset.n_classes)
    routed = [getattr(layer, "routing", None) for layer in model.layers.values()]
    assert type(routed[-1]) is ROUTINGS[routing]
    assert {type(each) for each in routed} <= {ROUTINGS[routing], type(None)}


@pytest.mark.drawn(4)
@pytest.mark.parametrize(("name", "routing"), REFUSED)
def test_what_the_table_does_not_allow_is_refused(name, routing):
    text = text_of(lambda: create_model(name, routing=routing))
    or_head = ", or any with head=True" if "head" in MODELS[name].options else ""
    if MODELS[name].routings:
        assert text == (
            f"{name} scores by the activations of its classes, and {routing} routing gives none; "
            f"it takes {', '.join(MODELS[name].routings)}{or_head}."
        )
    else:
        why = (
            "its routing is part of what it is; docs/models.md tells which networks route as they "
            "are told"
            if MODELS[name].routes
            else "it routes nothing"
        )
        fixed = f"{name} has no option 'routing': {why}."
        bare = f"{name} has no options but image and n_classes; leave 'routing' out."
        assert text == (fixed if MODELS[name].options else bare)


def test_a_network_that_is_another_by_em_routing_names_one_that_is_there():
    named = {name: preset.by_em for name, preset in MODELS.items() if preset.by_em}
    assert len(named) == 2
    for name, other in named.items():
        assert "em" not in MODELS[name].routings
        assert MODELS[other].image == MODELS[name].image


def test_the_own_routing_is_allowed():
    for name, preset in MODELS.items():
        assert ("routing" in preset.options) == bool(preset.routings)
        if preset.routings:
            assert preset.options["routing"] in preset.routings
            assert own_first(name)[0] == preset.options["routing"]


if __name__ == "__main__":
    with torch.device("meta"):
        networks = [row(name, create_model(name)) for name in list_models()]
    text = PAGE.read_text(encoding="utf-8")
    for head, anew in ((HEAD, networks), (OPTIONS, map(option_row, sorted(MEANINGS)))):
        text = text.replace("".join(rows_below(head, text)), "".join(anew).rstrip())
    PAGE.write_text(text, encoding="utf-8")
