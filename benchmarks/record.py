"""The file that a benchmark leaves: when it was made, where, and what it found."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchcaps._paths import write_whole
from torchcaps.train.folder.environment import environment


def write_record(file: Path, what: str, **found: Any) -> None:
    about = {"date": datetime.now(UTC).date().isoformat(), "environment": environment()}
    record = {"what": what} | about | found
    write_whole(file, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
