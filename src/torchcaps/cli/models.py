"""`torchcaps models`: the networks by name."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from torchcaps.cli.arguments import AsJson, Imports

__all__ = ["models"]


def models(
    as_json: AsJson = False,
    own_code: Imports = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="The sizes that papers print, and ours.")
    ] = False,
) -> None:
    """List the networks by name."""
    if compare:
        _compare(as_json)
        return
    import torch

    from torchcaps.models import MODELS, create_model, list_models

    rows: dict[str, dict[str, Any]] = {}
    for name in list_models():
        preset = MODELS[name]
        with torch.device("meta"):
            size = sum(p.numel() for p in create_model(name).parameters())
        rows[name] = {
            "image": preset.image,
            "n_classes": preset.n_classes,
            "parameters": size,
            "options": preset.options,
            "source": preset.source,
        }
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for name, row in rows.items():
        image = "×".join(map(str, row["image"]))
        print(f"{name}  {image}, {row['n_classes']} classes, {row['parameters']:,} parameters")
        print(f"    {row['source']}")
        print(f"    {', '.join(f'{k}={v}' for k, v in row['options'].items())}")


def _compare(as_json: bool) -> None:
    from torchcaps.study import published_sizes

    sizes = published_sizes()
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
