"""A few turns of `make fuzz`, from another seed each time."""

import random

from fuzz.__main__ import fuzz

# At most: a few turns are done long before on a machine that is free.
SECONDS = 60


def test_a_few_turns_find_nothing():
    seed = random.SystemRandom().randrange(2**32)
    print(f"make fuzz SEED={seed}")
    found = fuzz(seed, seconds=SECONDS, files=40, commands=15, cases=40)
    assert found["wrong"] == [], f"make fuzz SEED={seed}"
    assert min(found[kind]["tried"] for kind in ("files", "commands", "numbers")) > 0
