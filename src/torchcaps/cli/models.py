"""`torchcaps models`: the networks by name."""

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from torchcaps._zoo import PREFIX, zoo_card, zoo_images, zoo_names, zoo_weights
from torchcaps.cli.arguments import AsJson, Imports
from torchcaps.cli.listed import command
from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.tasks.index import index, network_row

SAID = "image", "n_classes", "parameters", "options", "source"


@command(20)
def models(
    name: Annotated[
        str | None, typer.Argument(help="One network: what each of its options means.")
    ] = None,
    as_json: AsJson = False,
    own_code: Imports = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="The sizes that papers print, and ours.")
    ] = False,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Trained networks that come with torchcaps.")
    ] = False,
) -> None:
    """List the networks by name, or say what one can be told."""
    if compare and (name is not None or pretrained):
        other = "--pretrained" if pretrained else f"the name {short(name)}"
        raise TorchcapsError(
            f"--compare prints the sizes of all networks, but came with {other}; leave out one of "
            f"the two."
        )
    if pretrained:
        _show_cards(name, as_json)
        return
    if compare:
        _compare(as_json)
        return
    rows = _rows(name)
    if as_json:
        print(json.dumps({each: {k: row[k] for k in SAID} for each, row in rows.items()}, indent=2))
        return
    for each, row in rows.items():
        image = "×".join(map(str, row["image"]))
        print(f"{each}  {image}, {row['n_classes']} classes, {row['parameters']:,} parameters")
        print(f"    {row['source']}")
        if name is None:
            print(f"    {', '.join(f'{k}={v}' for k, v in row['options'].items())}")
        else:
            _explain(row, {} if name in _own() else index()["meanings"])


def _show_cards(name: str | None, as_json: bool) -> None:
    """Print what is known of the trained networks: of all, or of those of a model, or of one."""
    cards = {each: zoo_card(zoo_weights(each)) for each in zoo_names()}
    asked = {each: card for each, card in cards.items() if name in (None, each, card["model"])}
    if not asked:
        known = nearest(str(name), {*cards, *(card["model"] for card in cards.values())})
        raise TorchcapsError(f"no trained network {short(name)} comes with torchcaps; {known}.")
    if as_json:
        print(json.dumps(asked, indent=2, ensure_ascii=False))
        return
    for each, card in asked.items():
        along = "; 64 of its test images come along" if zoo_images(card["data"]) else ""
        low, high = card["interval"]
        layers = card["layers"]
        dyr = ", ".join(f"{layer} {row['dyr']}" for layer, row in layers.items() if "dyr" in row)
        dead, capsules = (
            sum(row[what] for row in layers.values()) for what in ("dead", "capsules")
        )
        print(
            f"{each}  {card['parameters']:,} parameters, {card['bytes'] / 1e3:,.0f} kB\n"
            f"    {card['what']}\n"
            f"    {card['right']:,} of {card['images']:,} test images of {card['data']} right, "
            f"{card['accuracy']:.2%} ({low:.2%} to {high:.2%})\n"
            f"    dyr {dyr or 'of no layer'}; {dead} of {capsules} capsules dead\n"
            f"    limits: {card['limits']}\n"
            f"    licence of the data: {card['licence']}{along}\n"
            f"    tc.create_model({card['model']!r}, pretrained={card['pretrained']!r})\n"
            f"    torchcaps eval {PREFIX}{each}"
        )


def _own() -> list[str]:
    """Networks of one's own, which nobody can have registered who has not imported the others."""
    if "torchcaps.models" not in sys.modules:
        return []
    from torchcaps.models import MODELS

    return [name for name, preset in MODELS.items() if preset.is_own]


def _rows(name: str | None) -> dict[str, dict[str, Any]]:
    known = index()["networks"]
    names = sorted({*known, *_own()})
    if name is not None and name not in names:
        raise TorchcapsError(f"model {short(name)} is unknown; {nearest(name, names)}.")
    asked = names if name is None else [name]
    return {each: network_row(each) if each in _own() else known[each] for each in asked}


def _explain(row: dict[str, Any], meanings: dict[str, str]) -> None:
    """Explain one option a paragraph: how it is typed, what it means, what it may be."""
    if not row["options"]:
        print("    It has no options but image and n_classes.")
    for option, default in row["options"].items():
        value = json.dumps(default) if isinstance(default, bool) else default
        print(f"--option {option}={value}")
        if option in meanings:
            print(f"    {meanings[option]}")
        if option in row["choices"]:
            print(f"    one of: {', '.join(row['choices'][option])}")


def _compare(as_json: bool) -> None:
    from torchcaps.study.court import needed_court

    sizes = needed_court("`torchcaps models --compare`").published_sizes()
    if as_json:
        print(json.dumps([asdict(size) for size in sizes], indent=2, ensure_ascii=False))
        return
    for size in sizes:
        print(f"{size.where}  {size.system}")
        if size.ours is None:
            print(f"    printed {size.printed}, not counted: {size.why}")
            continue
        verdict = "equal" if size.is_equal else f"not equal: {size.why}"
        print(f"    printed {size.printed}, ours {size.ours:,} ({size.model}), {verdict}")
    counted = [size for size in sizes if size.ours is not None]
    equal = sum(size.is_equal for size in counted)
    print(f"{equal} of {len(counted)} are equal in the digits that are printed.")
