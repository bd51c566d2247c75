"""Networks as narrow as the living part of others [mitterreiter2023] §4.3.

How narrow is known once the routed network is trained, and stands in its record: what every epoch
counts dead of the first images that are held out, after the last epoch. So a plan names such a
network by the step `narrow` and the widths of the routed one, and its runs have the options, and
the names, of networks like any other.
"""

from torchcaps.models import MODELS
from torchcaps.study.record import Record

# The step of a plan, and the option of the networks that take it.
NARROW, WIDTHS = "narrow", "widths"


def widths_alive(record: Record) -> dict[int, str]:
    """By the seed, how many capsules each layer below the classes has alive, as the option takes
    them; a layer that is dead altogether keeps one. Seeds that failed have none, and neither have
    records without such counts."""
    known = {**MODELS[record.recipe["model"]].options, **record.recipe.get("options", {})}
    widths = [int(width) for width in known[WIDTHS].split(",")]
    layers = ["primary", *(f"hidden_{number}" for number in range(2, len(widths) + 1))]
    found = {}
    for seed in record.seeds:
        last = seed.per_epoch[-1] if seed.per_epoch else {}
        dead = [last[name] for layer in layers if (name := f"dead_capsules/{layer}") in last]
        if seed.failed is None and len(dead) == len(layers):
            alive = (max(1, n - round(gone)) for n, gone in zip(widths, dead, strict=True))
            found[seed.seed] = ",".join(map(str, alive))
    return found
