"""Our names of the data sets that the claims name."""

import re

from torchcaps_claims.texts import read_texts

NAMED: list[tuple[str, list[str]]] = read_texts("sets")["named"]


def sets_in(text: str) -> tuple[str, ...]:
    """Our names of the data sets that a claim names, in its order.

    >>> sets_in("MNIST, Fashion-MNIST")
    ('mnist', 'fashion-mnist')
    """
    found: dict[int, list[str]] = {}
    for pattern, names in NAMED:
        for match in re.finditer(pattern, text):
            found[match.start()] = names
            text = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
    return tuple(dict.fromkeys(name for at in sorted(found) for name in found[at]))
