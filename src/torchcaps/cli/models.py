"""`torchcaps models`: the networks by name."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from torchcaps.cli.arguments import AsJson, Imports
from torchcaps.errors import TorchcapsError, nearest, short


def models(
    name: Annotated[
        str | None, typer.Argument(help="One network: what each of its options means.")
    ] = None,
    as_json: AsJson = False,
    own_code: Imports = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="The sizes that papers print, and ours.")
    ] = False,
) -> None:
    """List the networks by name, or say what one can be told."""
    if compare and name is not None:
        raise TorchcapsError(
            f"--compare prints the sizes of all networks, but came with the name {short(name)}; "
            f"leave out one of the two."
        )
    if compare:
        _compare(as_json)
        return
    import torch

    from torchcaps.models import MODELS, create_model, list_models

    if name is not None and name not in MODELS:
        raise TorchcapsError(f"model {short(name)} is unknown; {nearest(name, MODELS)}.")
    rows: dict[str, dict[str, Any]] = {}
    for each in list_models() if name is None else [name]:
        preset = MODELS[each]
        # One of a user's own may not be made on it: it may look at numbers.
        place = torch.random.fork_rng(devices=[]) if preset.is_own else torch.device("meta")
        with place:
            size = sum(p.numel() for p in create_model(each).parameters())
        rows[each] = {
            "image": preset.image,
            "n_classes": preset.n_classes,
            "parameters": size,
            "options": preset.options,
            "source": preset.source,
        }
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for each, row in rows.items():
        image = "×".join(map(str, row["image"]))
        print(f"{each}  {image}, {row['n_classes']} classes, {row['parameters']:,} parameters")
        print(f"    {row['source']}")
        if name is None:
            print(f"    {', '.join(f'{k}={v}' for k, v in row['options'].items())}")
    if name is not None:
        _explain(name)


def _explain(name: str) -> None:
    """One option a paragraph: how it is typed, what it means, what it may be."""
    from torchcaps.models import MODELS
    from torchcaps.models.meanings import MEANINGS

    preset = MODELS[name]
    if not preset.options:
        print("    It has no options but image and n_classes.")
    for option, default in preset.options.items():
        value = json.dumps(default) if isinstance(default, bool) else default
        print(f"--option {option}={value}")
        # What an option of a network of one's own means is its own matter.
        if option in MEANINGS and not preset.is_own:
            print(f"    {MEANINGS[option]}")
        words = preset.routings if option == "routing" else preset.words(option)
        if words:
            kind = {bool: "true, false", int: "a whole number", float: "a number"}
            own = [kind[type(default)]] if type(default) in kind else []
            print(f"    one of: {', '.join([*own, *words])}")


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
