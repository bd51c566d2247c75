"""How long commands take to start, beside `import torch`, in one run.

python benchmarks/start_up.py --rounds 5

Every line is a fresh process; the rounds go through all of them, so that a busy moment meets each.
Printed and written are the median seconds of wall time and of computing, and how much of them
`import torch` of the same round does not take.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import write_record

RECORD = Path(__file__).parent / "records" / "start_up.json"

PREPARE = """
import numpy, torchcaps as tc
from PIL import Image
tc.save(tc.create_model("capsnet"), "network.safetensors")
Image.fromarray(numpy.zeros((28, 28), "uint8")).save("picture.png")
"""
COLUMNS = ("wall", "wall_above", "computing", "computing_above")
TORCHCAPS = ["-m", "torchcaps"]
LINES = {
    "import torch": ["-c", "import torch"],
    "import torchcaps": ["-c", "import torchcaps"],
    "import torchcaps.train": ["-c", "import torchcaps.train"],
    "torchcaps.train.Recipe": ["-c", "from torchcaps.train import Recipe"],
    "torchcaps.train.fit": ["-c", "from torchcaps.train import fit"],
    "create_model": ["-c", "import torchcaps as tc; tc.create_model('capsnet')"],
    "torchcaps --help": [*TORCHCAPS, "--help"],
    "torchcaps models": [*TORCHCAPS, "models"],
    "torchcaps predict": [*TORCHCAPS, "predict", "network.safetensors", "picture.png"],
    "torchcaps estimate": [*TORCHCAPS, "estimate", "--model", "capsnet"],
}


def timed(line: list[str], folder: str) -> tuple[float, float]:
    """Seconds of wall time, and of computing, of a process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *line], cwd=folder, check=True, capture_output=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        timed(["-c", PREPARE], folder)
        for line in LINES.values():
            timed(line, folder)  # files are read, and compiled, for the first time
        rounds = [
            {name: timed(line, folder) for name, line in LINES.items()} for _ in range(given.rounds)
        ]
    rows = {}
    print(f"{'':24}{'wall':>7}{'above':>8}{'computing':>12}{'above':>8}")
    for name in LINES:
        numbers = []
        for k in (0, 1):
            numbers.append(statistics.median(each[name][k] for each in rounds))
            above = (each[name][k] - each["import torch"][k] for each in rounds)
            numbers.append(statistics.median(above))
        rows[name] = dict(zip(COLUMNS, (round(x, 2) for x in numbers), strict=True))
        print(f"{name:24}{'{:7.2f}{:+8.2f}{:12.2f}{:+8.2f}'.format(*numbers)}")
    what = "median seconds of a process, and how many more than `import torch` of the same round"
    write_record(given.out, what, rounds=given.rounds, rows=rows)


if __name__ == "__main__":
    main()
