"""How long the explorer takes to answer, measured in its page.

python benchmarks/explorer.py --rounds 40 --out benchmarks/records/explorer.json

An image is turned by one degree after another, so that nothing is known from before. Each time is
that from the move of the slider to the new tree on the page, and beside it what the process of the
explorer computed meanwhile, which depends less on what else runs. Needs Chromium.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright
from record import write_record

from torchcaps import create_model, save
from torchcaps.explore.looking import Looker
from torchcaps.explore.opened import opened

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from chromium import ARGUMENTS, CHROMIUM
from served import serving

# Milliseconds within which each shall answer on two cores.
BARS = {"mitterreiter_5x16.part-whole": 100, "efficient_capsnet.mnist": 100, "capsnet": 500}
MOVED = """(turn) => new Promise((done) => {
  const shown = new MutationObserver(() => (shown.disconnect(), done(performance.now() - began)));
  shown.observe(document.querySelector(".ms"), { childList: true });
  const slider = document.getElementById("move-turn");
  slider.value = turn;
  const began = performance.now();
  slider.dispatchEvent(new Event("input"));
})"""


def measured(page: Page, link: str, rounds: int) -> dict[str, float]:
    page.goto(link)
    page.wait_for_selector(".verdict b")
    # What is asked when nothing moves, and the first answers of a network.
    for turn in range(-5, 0):
        page.evaluate(MOVED, turn)
    page.wait_for_timeout(1000)
    page.wait_for_selector("main[aria-busy=false]", timeout=60_000)
    walls, busy = [], []
    for turn in range(1, rounds + 1):
        before = time.process_time()
        walls.append(page.evaluate(MOVED, turn))
        busy.append(1000 * (time.process_time() - before))
    return {
        "median": round(statistics.median(walls), 1),
        "nine of ten": round(statistics.quantiles(walls, n=10)[-1], 1),
        "computing": round(statistics.median(busy), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, help="where to keep a record")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "capsnet.safetensors")
        torch.manual_seed(0)
        save(create_model("capsnet"), file)
        looker = Looker(opened(["zoo:" + name for name in BARS if "." in name] + [file]))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        found = {}
        with serving(looker) as link:
            for at, (name, bar) in enumerate(BARS.items()):
                page = browser.new_page()
                image = looker.opened.networks[at].collection
                shown = "" if image is None else f"i={image}.0&"
                found[name] = measured(page, f"{link}#{shown}a={at}", told.rounds) | {"bar": bar}
                print(name, found[name])
                page.close()
        browser.close()
    if told.out is not None:
        what = "milliseconds from a move of the slider to the new tree in the page of the explorer"
        load = [round(each, 1) for each in os.getloadavg()]
        write_record(told.out, what, rounds=told.rounds, load=load, networks=found)


if __name__ == "__main__":
    main()
