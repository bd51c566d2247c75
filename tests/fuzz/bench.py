"""A folder with one good file of each kind."""

import contextlib
import gzip
import json
import shutil
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image

import laid_norb
import laid_npz
import laid_pictures
from fuzz.trial import quiet
from laid_cifar import PICTURE, archive, binary_ten, member, python_ten
from laid_idx import idx
from laid_mat import affnist_bytes, svhn_bytes, zipped
from made_records import made
from torchcaps import create_model, save
from torchcaps.cli import main
from torchcaps.study import write_record
from torchcaps.study.ledger import Ledger
from torchcaps.study.own import read_study
from torchcaps.study.work import work
from torchcaps.tasks.values_file import values_file
from torchcaps.train import Run
from torchcaps_claims.site import BEGIN, END


class Bench:
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
            'measure = ["accuracy"]\n[vary]\nbias = ["none", "added"]\nseed = [0]\n'
        )
        self.run, self.old = Run(folder / "run"), Run(folder / "old")
        self.signed, self.stopped = Run(folder / "signed"), Run(folder / "stopped")
        self._train()
        self._lay_results()
        self._lay_images()
        self._lay_published()
        self._run_study()

    def _train(self) -> None:
        words = ["torchcaps", "train", "--model", "peer_sign_dynamic", "--data", "tiny"]
        words += ["--epochs", "1", "--batch-size", "20", "--out", str(self.run.folder)]
        with mock.patch.object(sys, "argv", words), contextlib.suppress(SystemExit), quiet():
            main()
        assert self.run.is_done

    def _run_study(self) -> None:
        """A study all of whose cells are done."""
        self.ledger = Ledger(self.folder / "runs")
        self.of_study = read_study(str(self.study))
        with quiet():
            work(self.of_study.cells(), self.ledger)

    def _lay_results(self) -> None:
        """A run of the time before digests, what a study measured of it, and a record."""
        shutil.copytree(self.run.folder, self.old.folder)
        (self.old.folder / "digests.json").unlink()
        for run in (self.signed, self.stopped):
            shutil.copytree(self.run.folder, run.folder)
        self.stopped.model_file.unlink()
        self.stopped.result_file.unlink()
        looks = {"layers@tiny/test": {"dyr.1": 0.25}, "accuracy@tiny/train": {"accuracy": 50.0}}
        values_file(self.old.folder).write_text(json.dumps({"commit": None, "looks": looks}))
        self.readme = self.folder / "README.md"
        self.readme.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
        (self.folder / "empty.bin").write_bytes(b"")
        claim = {"process": 1, "machine": "here", "since": 0.0}
        (self.folder / "old.claim").write_text(json.dumps(claim))
        values = [{"accuracy": 50.0, "dyr.1": 0.25}, {"accuracy": 51.0, "dyr.1": 0.5}]
        self.record = write_record(made(self.run.recipe, values), self.folder / "evidence")

    def _lay_images(self) -> None:
        noise = np.random.default_rng(0)
        digits = self.folder / "mnist"
        digits.mkdir()
        for stem, count in (("train", 20), ("t10k", 10)):
            images = idx((count, 28, 28), noise.bytes(count * 784))
            answers = idx((count,), bytes(range(10)) * (count // 10))
            (digits / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
            (digits / f"{stem}-labels-idx1-ubyte").write_bytes(answers)
        laid_npz.lay(self.folder / "set.npz", laid_npz.GOOD)
        for name, mode in (("cat", "L"), ("dog", "RGB")):
            (self.folder / "pictures" / name).mkdir(parents=True)
            for n, kind in enumerate(("png", "jpg", "bmp")):
                shape = (6, 7) if mode == "L" else (6, 7, 3)
                picture = Image.fromarray(noise.integers(0, 256, shape, dtype=np.uint8), mode)
                picture.save(self.folder / "pictures" / name / f"{n}.{kind}")
        rows = [f"{name}/{n},p{n}" for name in ("cat", "dog") for n in ("0.png", "1.jpg", "2.bmp")]
        self.groups = self.folder / "pictures" / "who.csv"
        self.groups.write_text("\n".join(["file,patient", *rows]) + "\n")
        (self.folder / "test_32x32.mat").write_bytes(svhn_bytes())
        zipped(self.folder / "test.mat.zip", test=affnist_bytes())
        (self.folder / "norb").mkdir()
        laid_norb.folder(self.folder / "norb")
        self._lay_photographs()

    def _lay_photographs(self) -> None:
        """CIFAR, packed and not, and Tiny ImageNet."""
        binary_ten(self.folder / "cifar")
        python_ten(self.folder / "pickled")
        inside = member("cifar-10-batches-bin/test_batch.bin", b"\x03" + PICTURE)
        archive(self.folder / "cifar-10-binary.tar.gz", inside)
        self.tiny = laid_pictures.tiny(self.folder / "tiny-imagenet-200")

    def _lay_published(self) -> None:
        """What a server sends for the one file of a published set, and what is here of it."""
        self.published = np.random.default_rng(0).bytes(800)
        self.partial, self.answer = self.folder / "begun.partial", self.folder / "answer.http"
        self.partial.write_bytes(self.published[:200])
        head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(self.published)}\r\n\r\n"
        self.answer.write_bytes(head.encode() + self.published)
