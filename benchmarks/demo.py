"""How long the demo takes, what its twins reach and how they route.

python benchmarks/demo.py --seeds 0 1 2

Each seed is a fresh process in a fresh folder, timed whole. Writes benchmarks/records/demo.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import write_record

RECORD = Path(__file__).parent / "records" / "demo.json"


def run_demo(seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        torchcaps = Path(sys.executable).with_name("torchcaps")
        started = time.perf_counter()
        command = [torchcaps, "demo", "--seed", str(seed)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        runs = ["torchcaps-demo/dynamic", "torchcaps-demo/uniform"]
        command = [torchcaps, "dissect", *runs, "--images", "2000", "--json"]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    twins = {
        name: {
            "test_accuracy": numbers["accuracy"],
            "dyr": {each["name"]: each["dyr"] for each in numbers["dynamics"]["layers"]},
            "dead": sum(each["cds"] for each in numbers["activity"]["layers"]),
        }
        for name, numbers in json.loads(done.stdout).items()
    }
    return {"seed": seed, "seconds": round(seconds, 1), **twins}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    runs = [run_demo(seed) for seed in parser.parse_args().seeds]
    write_record(
        RECORD,
        "torchcaps demo: wall time of the process; on 2,000 held-out images the accuracy, the "
        "routing dynamics of each layer (0 frozen, 1 perfect) and the dead capsules",
        bars="under 180 s on two cores; both twins at least 0.30, three times chance",
        runs=runs,
    )
    print(RECORD.read_text(), end="")


if __name__ == "__main__":
    main()
