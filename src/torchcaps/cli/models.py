"""`torchcaps models`: the networks by name."""

import json
from typing import Any

from torchcaps.cli.arguments import AsJson, Imports

__all__ = ["models"]


def models(
    as_json: AsJson = False,
    own_code: Imports = None,
) -> None:
    """List the networks by name."""
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
