"""Files replaced whole, and their digests written down first; `torchcaps._digests` reads them."""

import json
import re
from pathlib import Path

from torchcaps._digests import NAME, digest_of, known_digests
from torchcaps._paths import write_whole

# Where the files of a run are written before they take their places.
PARTIAL = re.compile(
    r"\.(recipe\.json|environment\.json|result\.json|digests\.json|metrics\.jsonl|state\.ckpt"
    r"|model\.safetensors|best\.safetensors)\.\d+\.partial"
)


def is_partial(file: Path) -> bool:
    """Say whether a write of a run that was cut off left it behind: others' .partial files stay."""
    return file.name == "state.partial" or bool(PARTIAL.fullmatch(file.name))


def settle(folder: Path) -> None:
    """Give every file of a run one digest: those of its past are no longer good."""
    known = {name: digests[:1] for name, digests in known_digests(folder).items()}
    write_whole(folder / NAME, json.dumps(known, indent=1))


def expect(partial: Path, path: Path) -> None:
    """Write down the digest of what is about to take the place of `path`."""
    known = known_digests(path.parent)
    before = [digest_of(path)] if path.is_file() else []
    known[path.name] = list(dict.fromkeys([digest_of(partial), *before]))
    write_whole(path.with_name(NAME), json.dumps(known, indent=1))
