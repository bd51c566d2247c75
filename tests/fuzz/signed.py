"""Faults behind a checksum: what was changed is packed anew, so that its parser sees it.

Each takes a good file and gives one that is whole as far as sums and digests tell.
"""

import gzip
import io
import json
import random
import zipfile

import torch

from fuzz.mutate import mutated, value_mutated
from torchcaps._digests import NAME, digest_of
from torchcaps.train import Run


def in_gzip(content: bytes, draw: random.Random) -> bytes:
    return gzip.compress(mutated(gzip.decompress(content), draw))


def in_zip(content: bytes, draw: random.Random) -> bytes:
    """One member of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info: archive.read(info) for info in archive.infolist()}
    one = draw.choice(list(members))
    members[one] = mutated(members[one], draw)
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as archive:
        for info, held in members.items():
            archive.writestr(info.filename, held, info.compress_type)
    return changed.getvalue()


def in_state(content: bytes, draw: random.Random) -> bytes:
    """Another value in a state of training, or another byte in one of its members."""
    if draw.random() < 0.5:
        return in_zip(content, draw)
    state = torch.load(io.BytesIO(content), weights_only=True)
    changed = io.BytesIO()
    torch.save(value_mutated(state, draw), changed)
    return changed.getvalue()


def in_safetensors(content: bytes, draw: random.Random) -> bytes:
    """Another value in the configuration or in the table of tensors of a saved network, which then
    has no digest, as those of earlier versions."""
    length = int.from_bytes(content[:8], "little")
    table, tensors = json.loads(content[8 : 8 + length]), content[8 + length :]
    config = json.loads(table["__metadata__"]["torchcaps"])
    del config["sha256"]
    if draw.random() < 0.6:
        config = value_mutated(config, draw)
    table["__metadata__"]["torchcaps"] = json.dumps(config)
    if draw.random() < 0.4:
        table = value_mutated(table, draw)
    head = json.dumps(table).encode()
    return len(head).to_bytes(8, "little") + head + tensors


def sign(run: Run) -> None:
    """Write down the digests of a run's files as they are."""
    digests = run.folder / NAME
    files = [path for path in run.folder.iterdir() if path.is_file() and path != digests]
    digests.write_text(json.dumps({path.name: [digest_of(path)] for path in files}))
