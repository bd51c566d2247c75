"""Networks that are named by where they come from, and no path: out of the zoo, or of a hub."""

import os

from torchcaps._zoo import PREFIX, zoo_weights
from torchcaps.models.files import hub


def located(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The file of a network that is so named; a path as it is."""
    text = os.fspath(name) if isinstance(name, str | os.PathLike) else ""
    if isinstance(text, str) and text.startswith(PREFIX):
        return zoo_weights(text.removeprefix(PREFIX))
    if isinstance(text, str) and text.startswith(hub.PREFIX):
        return hub.fetched(text.removeprefix(hub.PREFIX))
    return name
