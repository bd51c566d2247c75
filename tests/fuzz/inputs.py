"""Bad files for every reader, and odd words for every command.

A file is taken as it should be, changed, and read: what comes must be a sentence, or, where a file
carries a digest, what was there before. A command line of odd words ends with exit code 0, 2 or 130
and never with a traceback.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from PIL import Image

from fuzz.mutate import mutated, odd_value
from made_records import made
from torchcaps import TorchcapsError, create_model, load, save
from torchcaps.cli import main
from torchcaps.data import from_npz, image_folder, mnist, smallnorb
from torchcaps.data.idx import read_idx
from torchcaps.data.mat import read_mat
from torchcaps.study import compare, read_record, write_record
from torchcaps.study.measured import values_file
from torchcaps.study.runner import Ledger, study_of
from torchcaps.tasks.check_run import check_run
from torchcaps.train import Run, read_recipe
from torchcaps.train.state import state_of

__all__ = ["Bench", "Target", "Wrong", "check_command", "check_file", "draw_command", "targets"]

SECONDS, LETTERS = 20, 2000


class Wrong(AssertionError):
    """Neither a sentence nor what was there before."""


class _Late(BaseException):
    """No Exception, of which a command makes a sentence."""


class Target(NamedTuple):
    """A file and who reads it; `same` says whether what was read is what was there before."""

    name: str
    path: Path
    read: Callable[[], Any]
    same: Callable[[Any], bool] = lambda found: True


class Bench:
    """A folder with one good file of each kind."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.network, self.recipe = folder / "net.safetensors", folder / "recipe.toml"
        torch.manual_seed(0)
        save(create_model("peer_sign_dynamic", image=(1, 2, 3), n_classes=3), self.network)
        self.recipe.write_text(
            'model = "capsnet"\ndata = "part-whole"\nepochs = 3\nlearning_rate = 1e-3\n'
            'schedule = "steps"\nmilestones = [1, 2]\ndecay = 0.5\n[options]\nkernel = 5\n'
        )
        self.study = folder / "study.toml"
        self.study.write_text(
            'name = "few"\nmodel = "peer_sign_dynamic"\ndata = "tiny"\nepochs = 1\n'
            'measure = ["accuracy"]\n[vary]\nbias = [true, false]\nseed = [0]\n'
        )
        self.run, self.old = Run(folder / "run"), Run(folder / "old")
        self._train()
        self._lay_results()
        self._lay_images()

    def _train(self) -> None:
        words = ["torchcaps", "train", "--model", "peer_sign_dynamic", "--data", "tiny"]
        words += ["--epochs", "1", "--batch-size", "20", "--out", str(self.run.folder)]
        with mock.patch.object(sys, "argv", words), contextlib.suppress(SystemExit), _quiet():
            main()
        assert self.run.is_done

    def _lay_results(self) -> None:
        """A run of the time before digests, what a study measured of it, and a record."""
        shutil.copytree(self.run.folder, self.old.folder)
        (self.old.folder / "digests.json").unlink()
        looks = {"layers@tiny/test": {"dyr.1": 0.25}, "accuracy@tiny/train": {"accuracy": 50.0}}
        values_file(self.old.folder).write_text(json.dumps({"commit": None, "looks": looks}))
        claim = {"process": 1, "machine": "here", "since": 0.0}
        (self.folder / "old.claim").write_text(json.dumps(claim))
        values = [{"accuracy": 50.0, "dyr.1": 0.25}, {"accuracy": 51.0, "dyr.1": 0.5}]
        self.record = write_record(made(self.run.recipe, values), self.folder / "evidence")

    def _lay_images(self) -> None:
        noise = np.random.default_rng(0)
        digits = self.folder / "mnist"
        digits.mkdir()
        for stem, count in (("train", 20), ("t10k", 10)):
            pixels = noise.integers(0, 256, (count, 28, 28), dtype=np.uint8).tobytes()
            images = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + pixels
            answers = struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(range(10)) * (count // 10)
            (digits / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
            (digits / f"{stem}-labels-idx1-ubyte").write_bytes(answers)
        np.savez_compressed(
            self.folder / "set.npz",
            images=noise.integers(0, 256, (6, 5, 5), dtype=np.uint8),
            labels=np.arange(6) % 3,
        )
        for name, mode in (("cat", "L"), ("dog", "RGB")):
            (self.folder / "pictures" / name).mkdir(parents=True)
            for n, kind in enumerate(("png", "jpg", "bmp")):
                shape = (6, 7) if mode == "L" else (6, 7, 3)
                picture = Image.fromarray(noise.integers(0, 256, shape, dtype=np.uint8), mode)
                picture.save(self.folder / "pictures" / name / f"{n}.{kind}")
        self._lay_norb()

    def _lay_norb(self) -> None:
        folder = self.folder / "norb"
        folder.mkdir()
        stem = "smallnorb-5x46789x9x18x6x2x96x96-training"
        noise = np.random.default_rng(1)
        pixels = noise.integers(0, 256, (3, 2, 96, 96), dtype=np.uint8)
        parts = {
            "dat": (0x1E3D4C55, pixels),
            "cat": (0x1E3D4C54, np.arange(3, dtype="<i4")),
            "info": (0x1E3D4C54, np.zeros((3, 4), dtype="<i4")),
        }
        for name, (magic, array) in parts.items():
            sizes = [*array.shape, *[1] * (3 - array.ndim)]
            head = struct.pack(f"<2I{len(sizes)}I", magic, array.ndim, *sizes)
            (folder / f"{stem}-{name}.mat").write_bytes(head + array.tobytes())


def targets(bench: Bench) -> list[Target]:
    run, folder = bench.run, bench.folder
    found = [
        Target("recipe.toml", bench.recipe, lambda: read_recipe(bench.recipe)),
        Target(
            "saved network",
            bench.network,
            lambda: load(bench.network).state_dict(),
            _equal_to(load(bench.network).state_dict()),
        ),
        Target("npz", folder / "set.npz", lambda: from_npz(folder / "set.npz")),
    ]
    for name, read in _readers_of(run).items():
        path = getattr(run, name) if hasattr(run, name) else run.folder / "digests.json"
        before = read()
        found.append(Target(f"run: {path.name}", path, read, _equal_to(before)))
        found.append(Target(f"check: {path.name}", path, lambda: check_run(run.folder)))
    found += _of_results(bench)
    for path in sorted((folder / "mnist").iterdir()):
        split = "train" if path.name.startswith("train") else "test"
        found.append(Target(path.name, path, lambda split=split: mnist(folder / "mnist", split)))
    for path in sorted((folder / "norb").iterdir()):
        found.append(Target(path.name, path, lambda: smallnorb(folder / "norb", "train")))
    for path in sorted((folder / "pictures").glob("*/*")):
        read = lambda: image_folder(folder / "pictures", size=(5, 5))  # noqa: E731
        found.append(Target(f"picture {path.suffix}", path, read))
    plain = folder / "mnist" / "t10k-labels-idx1-ubyte"
    found.append(Target("idx", plain, lambda: read_idx(plain, axes=1)))
    found.append(Target("as mat", plain, lambda: read_mat(plain, ("X", "y"))))
    return found


def _of_results(bench: Bench) -> list[Target]:
    old, record = bench.old, bench.record
    side_by_side = lambda: compare([old.folder]).text()  # noqa: E731
    read = [
        (old.recipe_file, side_by_side),
        (old.metrics_file, side_by_side),
        (old.result_file, side_by_side),
        (values_file(old.folder), side_by_side),
        (bench.folder / "old.claim", lambda: Ledger(bench.folder).claimed_by(1, "here")),
        (bench.study, lambda: study_of(str(bench.study)).cells()),
        (record, lambda: _read_under_its_digest(record)),
    ]
    whole = Target("record", record, lambda: read_record(record), _equal_to(read_record(record)))
    return [whole, *(Target(f"results: {path.name}", path, reader) for path, reader in read)]


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
        "model_file": lambda: load(run.model_file).state_dict(),
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
    good = target.path.read_bytes()
    bad = None if draw.random() < 0.05 else mutated(good, draw)
    try:
        if bad is None:
            target.path.unlink()
            # A pipe waits for whoever reads it.
            draw.choice([os.mkdir, os.mkfifo])(target.path)
        else:
            target.path.write_bytes(bad)
        with _in_time():
            found = target.read()
    except TorchcapsError as error:
        _check_sentence(str(error))
        return "refused"
    finally:
        if bad is None:
            (target.path.rmdir if target.path.is_dir() else target.path.unlink)()
        target.path.write_bytes(good)
    if bad != good and not target.same(found):
        raise Wrong(f"{target.name}: something else than before came out of a changed file")
    return "accepted"


def _check_sentence(text: str) -> None:
    if "\n" in text or len(text) > LETTERS or not text.strip():
        raise Wrong(f"no sentence: {text[:300]!r}")


TRAIN_OPTIONS = ["--out", "--recipe", "--model", "--data", "--root", "--image-size", "--option"]
TRAIN_OPTIONS += ["--epochs", "--batch-size", "--learning-rate", "--seed", "--protocol", "--set"]
TRAIN_OPTIONS += ["--workers", "--time-budget", "--import", "--seeds"]
COMMANDS = {
    "models": (["capsnet", "capsnt", "--json"], []),
    "train": ([], TRAIN_OPTIONS),
    "dissect": (["RUN"], ["--out", "--images", "--root"]),
    "eval": (["RUN"], ["--root", "--json", "--batch-size"]),
    "predict": (["RUN", "PICTURE"], ["--picture", "--top", "--json"]),
    "doctor": (["RUN"], ["--images", "--root", "--recipe", "--model", "--data"]),
    "check": (["RUN"], []),
    "estimate": ([], ["--model", "--image", "--classes", "--batch-size", "--option", "--recipe"]),
    "compare": (["RUN"], ["--plot", "--statistic", "--import", "--json"]),
    "lr": (["RUN"], ["--model", "--data", "--low", "--high", "--steps", "--picture"]),
    "prune": (["RUN"], ["--out", "--to", "--by", "--unit", "--epochs", "--learning-rate", "--set"]),
    "shrink": (["RUN"], ["--out", "--silent", "--images", "--data", "--root", "--json"]),
    "perturb": (["RUN"], ["--picture", "--image", "--data", "--root", "--json"]),
    "dictionary": (["RUN"], ["--levels", "--each", "--picture", "--data", "--split", "--json"]),
    "data list": ([], ["--json"]),
    "data check": (["part-whole", "mnist", "PICTURES"], ["--root", "--json", "--image-size"]),
    "study claims": ([], ["--paper", "--json"]),
    "study table": (["peer"], ["--paper", "--json"]),
    "study status": (["peer", "STUDY"], ["--out", "--seeds", "--only", "--by"]),
}
FLAGS = ("--each", "--json")
MODELS = ["capsnet", "mitterreiter_5x16", "peer_sign_dynamic", "no_such"]
DATA = ["tiny", "part-whole", "mnist", "folder", "no_such"]


def draw_command(draw: random.Random, bench: Bench) -> list[str]:
    """Some command with a few options, of which most values are odd."""
    name = draw.choice(list(COMMANDS))
    arguments, options = COMMANDS[name]
    words = name.split()
    if arguments and draw.random() < 0.9:
        words.append(_argument(draw, draw.choice(arguments), bench))
    for option in draw.sample(options, k=min(len(options), draw.randint(0, 4))):
        words += [option] if option in FLAGS else [option, _argument(draw, option, bench)]
    # What trains has to stop soon, and what writes needs a place.
    if name == "lr" and "--steps" not in words:
        words += ["--steps", "10"]
    if name == "shrink":
        words += ["--out", str(bench.folder / "small.safetensors")]
    if name == "prune":
        words += ["--out", str(bench.folder / f"out{draw.randrange(3)}"), "--time-budget", "1s"]
    if name == "train":
        words += ["--model", draw.choice(MODELS), "--data", draw.choice(DATA)]
        words += ["--out", str(bench.folder / f"out{draw.randrange(3)}"), "--time-budget", "1s"]
    return words


def _argument(draw: random.Random, what: str, bench: Bench) -> str:
    good = {
        "RUN": [str(bench.run.folder), str(bench.network)],
        "PICTURE": [str(bench.folder / "pictures" / "cat" / "0.png"), str(bench.recipe)],
        "PICTURES": ["folder"],
        "STUDY": [str(bench.study), str(bench.recipe)],
        "--recipe": [str(bench.recipe), str(bench.network)],
        "--root": [str(bench.folder / name) for name in ("mnist", "pictures", "run")],
        "--model": MODELS,
        "--data": DATA,
        "--out": [str(bench.folder / "out0"), str(bench.run.folder), str(bench.recipe)],
        "--picture": ["x.png", "x.svg", "x.gif"],
        "--plot": ["x.png", "x.svg", "x.gif"],
        "--statistic": ["accuracy", "dyr.1"],
        "--to": ["0.5"],
        "--by": ["magnitude", "lobster", "snip", "random_masks", "cost"],
        "--unit": ["weight", "capsule", "type"],
        "--levels": ["11", "3,4"],
        "--seeds": ["0-1", "2"],
        "--steps": ["10"],
        "--image-size": ["8", "8x9", "0x3"],
        "--image": ["1,8,8", "1x28x28", "3"],
    }
    if draw.random() < 0.4 and what in good:
        return draw.choice(good[what])
    if what in ("--set", "--option"):
        return f"{draw.choice(['epochs', 'kernel', 'lr', 'x', ''])}={_text(odd_value(draw))}"
    if not what.startswith("--") and what.islower() and draw.random() < 0.5:
        return what
    return _text(odd_value(draw))


def _text(value: Any) -> str:
    """No argument of a program holds the character zero."""
    try:
        text = value if isinstance(value, str) else json.dumps(value)
    except ValueError:
        text = "9" * 5000
    return text.replace("\0", "")


def check_command(words: list[str]) -> str:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with mock.patch.object(sys, "argv", ["torchcaps", *words]), _quiet(out, err), _in_time():
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    if code == 0:
        return "accepted"
    text = err.getvalue()
    if code not in (2, 130) or "Traceback" in text:
        raise Wrong(f"exit code {code}: {text[:300]!r}")
    said = text.strip().splitlines()[-1:]
    _check_sentence(said[0] if said else "")
    return "refused"


@contextlib.contextmanager
def _quiet(out: io.StringIO | None = None, err: io.StringIO | None = None) -> Iterator[None]:
    here = Path.cwd()
    with (
        contextlib.redirect_stdout(out or io.StringIO()),
        contextlib.redirect_stderr(err or io.StringIO()),
    ):
        try:
            yield
        finally:
            os.chdir(here)


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """What takes longer hangs."""

    def late(number: int, frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    except _Late:
        raise Wrong(f"longer than {SECONDS} s") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
