"""What a recipe may have measured while it is trained."""

from typing import Annotated

from pydantic import AfterValidator

from torchcaps.analysis.by_name import TRACE_MEASUREMENTS
from torchcaps.errors import nearest

# Norms of the gradients of every capsule and matrix, [mitterreiter2023] Figs. 10–12.
GRADIENTS = "gradient-norms"


def _known(name: str) -> str:
    names = (*TRACE_MEASUREMENTS, GRADIENTS)
    if name not in names:
        raise ValueError(f"{name[:40]!r} is unknown; {nearest(name, names)}")
    return name


Measured = tuple[Annotated[str, AfterValidator(_known)], ...]
