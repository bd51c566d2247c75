"""Some seconds of `make fuzz`, from another seed each time."""

import random

from fuzz.__main__ import fuzz

SECONDS = 5


def test_some_seconds_find_nothing():
    seed = random.SystemRandom().randrange(2**32)
    print(f"make fuzz SEED={seed}")
    found = fuzz(seed, seconds=SECONDS, files=1000, commands=1000, cases=1000)
    assert found["wrong"] == [], f"make fuzz SEED={seed}"
    assert min(found[kind]["tried"] for kind in ("files", "commands", "numbers")) > 0
