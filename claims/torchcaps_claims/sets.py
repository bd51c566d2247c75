"""Our names of the data sets that the claims name."""

import re

# Names in the claims, longest first where one is a part of another.
NAMED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"DiverseMultiMNIST", ("diverse-multi-mnist",)),
    (r"MultiMNIST(?: 6M)?", ("multi-mnist-100",)),
    (r"F(?:ashion)?-MNIST", ("fashion-mnist",)),
    (r"expanded MNIST", ("expanded-mnist",)),
    (r"[Aa]ffNIST", ("affnist",)),
    (r"MNIST", ("mnist",)),
    (r"CIFAR-?100", ("cifar100",)),
    (r"CIFAR-?10\b", ("cifar10",)),
    (r"SVHN", ("svhn",)),
    (r"smallNORB", ("smallnorb-elevation", "smallnorb-azimuth")),
    (r"Dogs vs\. Cats", ("dogs-vs-cats",)),
    (r"Imagenette", ("imagenette",)),
    (r"Tiny ImageNet", ("tiny-imagenet",)),
    (r"part-whole", ("part-whole",)),
    (r"sign (?:set|of a scalar)", ("sign",)),
    (r"toy 2-D set", ("toy-2d",)),
)


def sets_in(text: str) -> tuple[str, ...]:
    """Our names of the data sets that a claim names, in its order.

    >>> sets_in("MNIST, Fashion-MNIST")
    ('mnist', 'fashion-mnist')
    """
    found: dict[int, tuple[str, ...]] = {}
    for pattern, names in NAMED:
        for match in re.finditer(pattern, text):
            found[match.start()] = names
            text = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
    return tuple(dict.fromkeys(name for at in sorted(found) for name in found[at]))
