"""Bad files for every reader.

A file is taken as it should be, changed, and read: what comes must be a sentence, or, where a file
carries a digest, what was there before.
"""

import hashlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

import torch

from fuzz.bench import Bench
from fuzz.commands import check_command
from fuzz.mutate import mutated
from fuzz.signed import in_gzip, in_safetensors, in_state, in_zip, sign
from fuzz.trial import Wrong, check_sentence, in_time
from loopback import serving
from torchcaps import TorchcapsError, load
from torchcaps.data import (
    PUBLISHED,
    affnist,
    cifar10,
    fetch_data,
    from_npz,
    image_folder,
    mnist,
    smallnorb,
    svhn,
    tiny_imagenet,
)
from torchcaps.data.read.idx import read_idx
from torchcaps.data.registry import PublishedSet, RemoteFile
from torchcaps.study import compare, read_record
from torchcaps.study.ledger import Ledger
from torchcaps.study.own import read_study
from torchcaps.tasks.check_run import check_run
from torchcaps.tasks.evaluate import evaluate_file
from torchcaps.tasks.values_file import values_file
from torchcaps.train import Run, read_recipe
from torchcaps.train.folder.state import state_of

CAME_TO = ("accepted", "refused")


class Target(NamedTuple):
    """A file and who reads it; `same` says whether what was read is what was there before. A
    command says itself what came of it."""

    name: str
    path: Path
    read: Callable[[], Any]
    same: Callable[[Any], bool] = lambda found: True
    change: Callable[[bytes, random.Random], bytes] = mutated


def targets(bench: Bench) -> list[Target]:
    run, folder = bench.run, bench.folder
    weights = partial(_weights, bench.network)
    found = [
        Target("recipe.toml", bench.recipe, partial(read_recipe, bench.recipe)),
        Target("saved network", bench.network, weights, _equal_to(weights())),
        Target("npz", folder / "set.npz", partial(from_npz, folder / "set.npz")),
    ]
    for name, read in _readers_of(run).items():
        path = getattr(run, name) if hasattr(run, name) else run.folder / "digests.json"
        before = read()
        found.append(Target(f"run: {path.name}", path, read, _equal_to(before)))
        found.append(Target(f"check: {path.name}", path, partial(check_run, run.folder)))
    found += _of_results(bench)
    found += _behind_digests(bench)
    found += _of_photographs(bench)
    found += _of_published(bench)
    found += _of_studies(bench)
    for path in sorted((folder / "mnist").iterdir()):
        read = partial(mnist, path.parent, _split_of(path))
        found.append(Target(path.name, path, read))
        if path.name.endswith("images-idx3-ubyte.gz"):
            found.append(Target(path.name, path, read, change=in_gzip))
    for path in sorted((folder / "norb").iterdir()):
        found.append(Target(path.name, path, partial(smallnorb, path.parent, "train")))
    pictures = partial(image_folder, folder / "pictures", size=(5, 5))
    for path in sorted((folder / "pictures").glob("*/*")):
        found.append(Target(f"picture {path.suffix}", path, pictures))
    grouped = partial(pictures, groups="who.csv:patient")
    found.append(Target("groups in csv", bench.groups, grouped))
    plain = folder / "mnist" / "t10k-labels-idx1-ubyte"
    found.append(Target("idx", plain, partial(read_idx, plain, axes=1)))
    return found


def _split_of(path: Path) -> Literal["train", "test"]:
    return "train" if path.name.startswith("train") else "test"


def _weights(path: Path) -> dict[str, torch.Tensor]:
    return load(path).state_dict()


def _of_results(bench: Bench) -> list[Target]:
    old, record = bench.old, bench.record
    side_by_side = lambda: compare([old.folder]).text()  # noqa: E731
    files = (old.recipe_file, old.metrics_file, old.result_file, values_file(old.folder))
    read = [
        *((path, side_by_side) for path in files),
        (bench.folder / "old.claim", lambda: Ledger(bench.folder).claimed_by(1, "here")),
        (bench.study, lambda: read_study(str(bench.study)).cells()),
        (record, partial(_read_under_its_digest, record)),
    ]
    whole = Target("record", record, partial(read_record, record), _equal_to(read_record(record)))
    return [whole, *(Target(f"results: {path.name}", path, reader) for path, reader in read)]


def _behind_digests(bench: Bench) -> list[Target]:
    """The parsers of a run's files, whose digests are written anew after every change; a run that
    was stopped is read by its state alone."""
    found = []
    changes: dict[str, list[Callable[[bytes, random.Random], bytes]]] = {
        "model.safetensors": [in_safetensors],
        "state.ckpt": [in_state, in_zip],
    }
    run, stopped = bench.signed, bench.stopped

    def add(name: str, path: Path, read: Callable[[], Any]) -> None:
        def read_signed() -> Any:
            sign(run)
            sign(stopped)
            return read()

        for change in [mutated, *changes.get(path.name, [])]:
            found.append(Target(f"signed: {name} {path.name}", path, read_signed, change=change))

    for name, read in _readers_of(run).items():
        path = getattr(run, name) if hasattr(run, name) else run.folder / "digests.json"
        if path.exists() and path.name != "digests.json":
            add("read", path, read)
            add("check", path, lambda: check_run(run.folder).text())
            add("compare", path, lambda: compare([run.folder]).text())
    for path in (run.model_file, run.recipe_file, run.result_file):
        add("eval", path, lambda: evaluate_file(run.folder).text())
    for path in (stopped.state_file, stopped.recipe_file):
        add("eval", path, lambda: evaluate_file(stopped.folder).text())
    for path in (stopped.state_file, stopped.environment_file, stopped.metrics_file):
        add("train", path, partial(_go_on, stopped))
    return found


def _go_on(run: Run) -> str:
    """Train in a copy, for one epoch more."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "--model", "peer_sign_dynamic", "--data", "tiny", "--batch-size", "20"]
        shutil.copytree(run.folder, f"{folder}/run", copy_function=_copy)
        return check_command([*words, "--epochs", "2", "--out", f"{folder}/run"])


def _of_photographs(bench: Bench) -> list[Target]:
    folder, tiny = bench.folder, bench.tiny
    tar, binary = folder / "cifar-10-binary.tar.gz", folder / "cifar" / "data_batch_2.bin"
    pickled, packed = folder / "pickled" / "test_batch", folder / "set.npz"
    in_tar = partial(cifar10, tar, "test")
    found = [
        Target("cifar", binary, partial(cifar10, binary.parent, "train")),
        # Their parsers see nothing but the published bytes, of which these are none.
        Target("mat", folder / "test_32x32.mat", partial(svhn, folder, "test")),
        Target("mat in zip", folder / "test.mat.zip", partial(affnist, folder, "test")),
        Target("pickled cifar", pickled, partial(cifar10, pickled.parent, "test")),
        Target("cifar tar", tar, in_tar),
        Target("cifar tar", tar, in_tar, change=in_gzip),
        Target("npz", packed, partial(from_npz, packed), change=in_zip),
    ]
    both = lambda: [tiny_imagenet(tiny, split) for split in ("train", "test")]  # noqa: E731
    paths = [path for path in sorted(tiny.rglob("*.*")) if path.is_file()]
    return [*found, *(Target(f"tiny imagenet: {path.name}", path, both) for path in paths)]


def _of_studies(bench: Bench) -> list[Target]:
    """Commands on files of studies: what they are told, what they measured, what they wrote."""
    cell = bench.ledger.run(bench.of_study.cells()[0])
    files = [bench.study, values_file(cell.folder)]
    files += [cell.recipe_file, cell.metrics_file, cell.result_file, cell.environment_file]
    report, tables = (partial(_of_record, bench, what) for what in ("report", "tables"))
    return [
        *(Target(f"study run: {path.name}", path, partial(_study_run, bench)) for path in files),
        Target("study report: record", bench.record, report),
        Target("study tables: record", bench.record, tables),
        Target("study tables: README.md", bench.readme, tables),
    ]


def _study_run(bench: Bench) -> str:
    """In a copy of the ledger, whose runs have the digests of their files as they are."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        shutil.copytree(bench.ledger.folder, runs, copy_function=_copy)
        for digests in runs.glob("*/digests.json"):
            sign(Run(digests.parent))
        words = ["study", "run", str(bench.study), "--out", str(runs)]
        return check_command([*words, "--evidence", f"{folder}/evidence", "--time-budget", "1s"])


def _of_record(bench: Bench, what: str) -> str:
    """A record under the name that its content asks for, among no others."""
    with tempfile.TemporaryDirectory() as folder:
        content = _content(bench.record)
        evidence = Path(folder) / "evidence" / "a" / "b"
        evidence.mkdir(parents=True)
        (evidence / f"{hashlib.sha256(content).hexdigest()[:12]}.json").write_bytes(content)
        words = ["study", what, "--evidence", f"{folder}/evidence", "--out", f"{folder}/out/it"]
        if what == "tables":
            _copy(bench.readme, Path(folder) / "README.md")
            words += ["--readme", f"{folder}/README.md"]
        return check_command(words)


def _of_published(bench: Bench) -> list[Target]:
    """What a server answers, and what was begun: what is kept in the end was published."""
    whole = lambda found: found == bench.published  # noqa: E731
    return [
        Target("data get: answer", bench.answer, partial(_fetched, bench), whole),
        Target("data get: begun", bench.partial, partial(_fetched, bench), whole),
    ]


def _fetched(bench: Bench) -> bytes:
    """From a server here."""
    content, answer = bench.published, _content(bench.answer)
    with (
        tempfile.TemporaryDirectory() as root,
        serving() as server,
        mock.patch.dict(PUBLISHED),
        mock.patch.dict(os.environ, no_proxy="127.0.0.1"),
    ):
        server.answers["/packed.zip"] = lambda handler: handler.wfile.write(answer)
        file = RemoteFile(
            "set/packed.zip",
            len(content),
            hashlib.sha256(content).hexdigest(),
            (server.url("/packed.zip"),),
        )
        PUBLISHED["drawn"] = PublishedSet("bytes", "free", "here", (file,))
        (Path(root) / "set").mkdir()
        _copy(bench.partial, Path(root) / "set" / "packed.zip.partial")
        (path,) = fetch_data("drawn", root=root, timeout=0.5)
        return path.read_bytes()


def _content(path: Path) -> bytes:
    """Nothing of a folder or a pipe."""
    return path.read_bytes() if path.is_file() else b""


def _copy(path: str | Path, place: str | Path) -> None:
    path = Path(path)
    if path.is_file():
        shutil.copy(path, place)
    else:
        (os.mkdir if path.is_dir() else os.mkfifo)(place)


def _read_under_its_digest(path: Path) -> None:
    """A changed record whose name was changed too, so that its digest is right."""
    if not path.is_file():
        # A folder or a pipe in its place has no content to be named after.
        read_record(path)
    content = path.read_bytes()
    named = path.with_name(f"{hashlib.sha256(content).hexdigest()[:12]}.json")
    before = named.exists()
    named.write_bytes(content)
    try:
        read_record(named)
    finally:
        if not before:
            named.unlink()


def _readers_of(run: Run) -> dict[str, Callable[[], Any]]:
    """By the file that each reads first."""
    recipe = run.recipe
    return {
        "recipe_file": lambda: run.recipe,
        "environment_file": run.began,
        "metrics_file": run.metrics,
        "result_file": run.result,
        "model_file": lambda: _weights(run.model_file),
        "state_file": lambda: state_of(run, recipe) and run.state_file.read_bytes(),
        "digests": lambda: run.result(),
    }


def _equal_to(before: Any) -> Callable[[Any], bool]:
    if isinstance(before, dict) and any(isinstance(x, torch.Tensor) for x in before.values()):
        return lambda found: (
            list(found) == list(before)
            and all(torch.equal(found[key], before[key]) for key in before)
        )
    return lambda found: bool(found == before)


def check_file(target: Target, draw: random.Random) -> str:
    """ "refused" in a sentence, or "accepted"; what is wrong is an error of its own."""
    if draw.random() >= 0.05:
        return check_content(target, target.change(target.path.read_bytes(), draw))
    # A pipe waits for whoever reads it.
    return check_content(target, draw.choice([os.mkdir, os.mkfifo]))


def check_content(target: Target, bad: bytes | Callable[[Path], None]) -> str:
    """The same of this content, or of what this makes in the place of the file."""
    good = target.path.read_bytes()
    try:
        if isinstance(bad, bytes):
            target.path.write_bytes(bad)
        else:
            target.path.unlink()
            bad(target.path)
        with in_time():
            found = target.read()
    except TorchcapsError as error:
        check_sentence(str(error))
        return "refused"
    finally:
        if not target.path.is_file():
            (target.path.rmdir if target.path.is_dir() else target.path.unlink)()
        target.path.write_bytes(good)
    if bad != good and not target.same(found):
        raise Wrong(f"{target.name}: something else than before came out of a changed file")
    return found if isinstance(found, str) and found in CAME_TO else "accepted"
