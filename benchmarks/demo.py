"""How long the demo takes and what its twins reach: python benchmarks/demo.py --seeds 0 1 2

Each seed is a fresh process in a fresh folder, timed whole. Writes benchmarks/records/demo.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from torchcaps.train.run import environment

RECORD = Path(__file__).parent / "records" / "demo.json"


def run_demo(seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(sys.executable).with_name("torchcaps"), "demo", "--seed", str(seed)]
        started = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        twins = {
            name: json.loads((Path(folder) / "torchcaps-demo" / name / "result.json").read_text())
            for name in ("dynamic", "uniform")
        }
    accuracies = {name: result["test_accuracy"] for name, result in twins.items()}
    return {"seed": seed, "seconds": round(seconds, 1), "test_accuracy": accuracies}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    runs = [run_demo(seed) for seed in parser.parse_args().seeds]
    record = {
        "what": "torchcaps demo: wall time of the whole process, accuracy on 2,000 held-out images",
        "bars": "under 180 s on two cores; both twins at least 0.30, three times chance",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "runs": runs,
    }
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
