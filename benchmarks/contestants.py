"""Who takes part: the table of contestants."""

import dataclasses
from dataclasses import dataclass

from parts import PARTS

from torchcaps.ops import native


@dataclass(frozen=True)
class Contestant:
    """`backend` is None for an opponent; `compiled` puts torch.compile around it; `channels_last`
    is the field of a recipe, `keeps_memory` what `fit` does by itself; `without` names a fast
    part that is switched off, `sources` the folder of another torchcaps; `as_fit` sets
    what `fit` of that torchcaps sets by itself."""

    name: str
    backend: str | None = None
    compiled: bool = False
    channels_last: bool = False
    keeps_memory: bool = False
    without: str = ""
    sources: str = ""
    as_fit: bool = False


def leaving_out(contestant: Contestant, part: str) -> Contestant:
    """Take a fast part away from a contestant."""
    if part not in PARTS:
        raise ValueError(f"no fast part is called {part!r}; there are {', '.join(PARTS)}.")
    return dataclasses.replace(contestant, name=f"{contestant.name}-without-{part}", without=part)


CONTESTANTS = {
    each.name: each
    for each in (
        Contestant("textbook"),
        Contestant("textbook-compiled", compiled=True),
        Contestant("ours-plain", backend="plain"),
        Contestant("ours-fused", backend="fused"),
        Contestant("ours-native", backend="native"),
        Contestant("ours-channels-last", backend="native", channels_last=True),
        Contestant("ours-keeping", backend="native", keeps_memory=True),
        Contestant("ours-keeping-last", backend="native", channels_last=True, keeps_memory=True),
        Contestant("ours-by-default", backend="native", as_fit=True),
    )
}


# What torchcaps can choose between today. A new backend is named here and taken in use_backend.
BACKENDS = frozenset({"plain", "fused", "native"})


def absent(contestant: Contestant, device: str = "cpu") -> str | None:
    """Why a contestant cannot take part, or None."""
    if contestant.backend == "native" and device == "cuda":
        return "native kernels are for processors"
    if contestant.backend == "native" and not native.available():
        return "native kernels need a C++ compiler"
    if contestant.backend is None or contestant.backend in BACKENDS:
        return None
    return f"this torchcaps has no backend {contestant.backend!r}"


def environment(contestant: Contestant) -> dict[str, str]:
    """The variables of a contestant's process."""
    variables = {"TORCHCAPS_NATIVE": "1" if contestant.backend == "native" else "0"}
    return variables | ({"PYTHONPATH": contestant.sources} if contestant.sources else {})
