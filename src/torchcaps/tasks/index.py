"""What torchcaps knows by name, as a file that is read without torch.

`make tables` writes it from what is registered where it is defined; a test compares both.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("index.json")


@cache
def index() -> dict[str, Any]:
    """Read it: `networks` as `network_row` has them, and what their options mean."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def network_row(name: str) -> dict[str, Any]:
    """Say of a network what `torchcaps models` prints of it."""
    import torch

    from torchcaps.models import MODELS, create_model
    from torchcaps.models.limits import without_memory

    preset = MODELS[name]
    # One of a user's own may not be made on it: it may look at numbers.
    place = torch.random.fork_rng(devices=[]) if preset.is_own else without_memory()
    with place:
        size = sum(p.numel() for p in create_model(name).parameters())
    kind = {bool: ["true", "false"], int: ["a whole number"], float: ["a number"]}
    choices = {}
    for option, default in preset.options.items():
        words = preset.routings if option == "routing" else preset.words(option)
        if words:
            choices[option] = [*kind.get(type(default), []), *words]
    return {
        "image": list(preset.image),
        "n_classes": preset.n_classes,
        "parameters": size,
        "options": preset.options,
        "source": preset.source,
        "choices": choices,
    }


def made_index() -> dict[str, Any]:
    """Make it of what is registered."""
    from torchcaps.models import MODELS
    from torchcaps.models.meanings import MEANINGS

    names = sorted(name for name, preset in MODELS.items() if not preset.is_own)
    return {"networks": {name: network_row(name) for name in names}, "meanings": MEANINGS}


def write_index() -> None:
    """Write the file, a line a name."""
    parts = (
        f'"{part}": {{\n'
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        + "\n}"
        for part, rows in made_index().items()
    )
    FILE.write_text("{" + ", ".join(parts) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    write_index()
