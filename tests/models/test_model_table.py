"""The table of networks in docs/models.md is what the registry says, and the registry keeps it.

To write the table again: PYTHONPATH=tests python tests/models/test_model_table.py
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
HEAD = """# Networks

Every name that `create_model` knows, with the image and the classes of its paper; both may be
chosen, `create_model(name, image=(3, 64, 48), n_classes=7)`. Parameters are all
that is trained, the decoder included where there is one.

`routing=` takes what stands under routings, the network's own first. A dash: the network has no
routing, or the routing is what the network is.

| model | image | classes | parameters | routings | source |
|---|---|---|---|---|---|
"""

OPTIONS = """
`torchcaps models NAME` prints the options of one network with what they are if nobody sets them.

| option | what it means | choices |
|---|---|---|
"""
TAIL = """
`mitterreiter_grid` with `widths="16,16"` has three layers of capsules, for the classes make one
more. `peer_deep_dynamic` of four layers or more stays at chance without a bias from its paper's
first weights, in [three epochs of ours](../claims/pages/questions/does-depth-kill-capsules.md);
with `bias="added"` it learns.

`torchcaps models --compare` prints the parameters that papers print beside ours, equal or why not.

## How the three routings of [tsai2020] differ

The table of its §4.3, and what our networks are, which tests/models/test_variants.py keeps true.

| | dynamic routing | EM routing | inverted attention |
|---|---|---|---|
| network | `tsai_dynamic_simple_c10` | `tsai_em_simple_c10` | `tsai_inverted_simple_c10` |
| routing | sequential | sequential | concurrent |
| poses | vector | matrix | matrix |
| activations | length of the pose | by EM | none |
| non-linearity | squash | none | none |
| normalisation | none | none | LayerNorm |
| loss | margin | spread | cross-entropy; binary cross-entropy where several classes are present |

The table is about capsule layers. Below them the network of EM routing has a batch normalisation
and a sigmoid, Tables 6 and 7.

## Many architectures

`models.grid_of_121()` gives the options of 121 networks of `mitterreiter_grid`: one to six layers
below the classes, of 8 to 32 capsules with 4 to 16 components, and one layer of 1152 capsules.
[mitterreiter2023] trains as many; its list is in an appendix that is not public, and this is ours.
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


def page(rows):
    options = "".join(map(option_row, sorted(MEANINGS)))
    return HEAD + "".join(rows) + OPTIONS + options + TAIL


def written_rows():
    """What the page says of networks, a line each."""
    after = PAGE.read_text(encoding="utf-8").removeprefix(HEAD)
    return after.partition(OPTIONS)[0].splitlines(keepends=True)


def test_the_page_is_what_the_registry_says():
    rows = written_rows()
    assert PAGE.read_text(encoding="utf-8") == page(rows), AGAIN
    assert [each.split("`")[1] for each in rows] == list_models(), AGAIN


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
        anew = page([row(name, create_model(name)) for name in list_models()])
    PAGE.write_text(anew, encoding="utf-8")
