"""How hard the part-whole set is: python benchmarks/part_whole.py

Trains the small ConvNet of tests/data/test_part_whole.py with three seeds. Writes
benchmarks/records/part_whole.json.
"""

import json
import runpy
from datetime import UTC, datetime
from pathlib import Path

from torchcaps.train.environment import environment

ROOT = Path(__file__).parents[1]


def main() -> None:
    tests = runpy.run_path(str(ROOT / "tests" / "data" / "test_part_whole.py"))
    record = {
        "what": "accuracy of a small ConvNet on 2,000 held-out part-whole images, five epochs",
        "bar": "0.80 to 0.95",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": environment(),
        "accuracy": {str(seed): tests["convnet_accuracy"](seed) for seed in (0, 1, 2)},
    }
    text = json.dumps(record, indent=2)
    (ROOT / "benchmarks" / "records" / "part_whole.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
