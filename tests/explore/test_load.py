"""Eight clients at once: nothing is lost, and memory stays flat."""

import os
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from served import serving

pytestmark = pytest.mark.slow
CLIENTS, REQUESTS = 8, 1000


def megabytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read where Linux tells it")
def test_a_thousand_questions_of_eight_clients(looker):
    def ask(link, number, count):
        drawn = random.Random(number)
        found = Counter()
        with httpx.Client(base_url=link, timeout=60) as client:
            for at in range(count):
                shown = {"collection": 0, "number": drawn.randrange(12)}
                shown["turn"] = drawn.uniform(-90, 90)
                changed = {"iterations": drawn.choice([None, 1, 9])}
                selected = drawn.choice([None, ["primary", 3]])
                state = {"shown": shown, "changed": changed, "selected": selected}
                asked = {"page": f"{count} of client {number}", "number": at}
                found[client.post("api/look", json=state, params=asked).status_code] += 1
        return found

    def crowd(link, count):
        with ThreadPoolExecutor(CLIENTS) as clients:
            works = [clients.submit(ask, link, n, count // CLIENTS) for n in range(CLIENTS)]
            return sum((work.result() for work in works), Counter())

    with serving(looker) as link:
        crowd(link, 200)
        before = megabytes()
        assert crowd(link, REQUESTS) == {200: REQUESTS}
        assert megabytes() - before < 30
