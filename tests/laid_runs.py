"""Small images, a small network, and the files of a run that nobody trained."""

import json
import math
from functools import cache

import safetensors.torch
import torch
from torch import nn

from torchcaps._paths import write_whole
from torchcaps.data import PartWholeSpec, part_whole, sign_set
from torchcaps.layers import DenseCapsules
from torchcaps.models import create_model, save
from torchcaps.train import Run, make_recipe
from torchcaps.types import Capsules, LayerTrace, Output

NETWORK = "mitterreiter_5x16"


def tiny_images(n_train, *, n_test=12, seed=0, **spec):
    """Twelve test images and a few training images, as a source of data has them."""

    @cache
    def tiny(split, root=None):
        count = {"train": n_train, "test": n_test}[split]
        return part_whole(split, count, seed=seed, spec=PartWholeSpec(**{"size": 24, **spec}))

    return tiny


@cache
def few_numbers(split, root=None):
    """The set "sign" with 400 numbers of 20,000."""
    return sign_set("grid" if split == "train" else "between", n=400)


@cache
def small_network(name=NETWORK, image=(1, 24, 24), **options):
    """The same weights in every test, which changes none of them."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return create_model(name, image=image, **options).eval()


class Plain(nn.Module):
    """Nothing but images in, no capsules, and no batch statistics."""

    def __init__(self, image=(1, 24, 24), n_classes=10):
        super().__init__()
        self.layer = nn.Linear(math.prod(image), n_classes)

    def forward(self, images):
        return Output(self.layer(images.flatten(1)), "logits")


class Channels(nn.Module):
    """Scores of the classes are the first pixels of the channels; no capsules."""

    def __init__(self, scores_are="lengths"):
        super().__init__()
        self.scores_are, self.seen, self.kept = scores_are, [], None
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, image, *, keep="none"):
        self.seen.append(len(image))
        self.kept = keep
        return Output(image[:, :, 0, 0] * self.scale, self.scores_are)


class ReadOff(nn.Module):
    """Sixteen capsules, of which a linear layer reads ten classes."""

    def __init__(self):
        super().__init__()
        self.parts = DenseCapsules(n_in=36, d_in=16, n_out=16, d_out=4)
        self.read = nn.Linear(64, 10)

    def forward(self, image, *, keep="none", couple=None):
        capsules = Capsules(image.reshape(len(image), 36, 16))
        routed = self.parts(capsules, keep=keep, couple=couple)
        trace = (LayerTrace("parts", capsules, routed, None, "parents", self.parts.weight),)
        return Output(self.read(routed.parents.pose.flatten(1)), "logits", trace=trace)


def lay_run(folder, result=None, *, network=None, seen="abc", **fields):
    """Lay down the files of a finished run; one without a result has no network either."""
    run = Run(folder)
    run.begin(make_recipe(**{"model": NETWORK, "data": "tiny", **fields}), seen)
    if result is not None:
        save(network or small_network(), run.model_file)
        write_whole(run.result_file, json.dumps(result))
    return run


def rows(run):
    """What epochs told, but for how long they took."""
    return [{name: row[name] for name in row if name != "seconds"} for row in run.metrics()]


def assert_same(found, expected):
    """Two runs are done, with the same bits and results but for how long they took."""
    assert found.is_done
    assert found.model_file.read_bytes() == expected.model_file.read_bytes()
    assert rows(found) == rows(expected)
    one, other = ({**run.result(), "seconds_of_last_stretch": 0} for run in (found, expected))
    assert one == other


def contents(folder):
    """Every file of a folder, and when it was changed."""
    files = (file for file in folder.iterdir() if file.is_file())
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def assert_readable(folder):
    """Every file that is not marked as partial can be read whole."""
    for file in folder.iterdir():
        if file.suffix == ".json":
            json.loads(file.read_text())
        elif file.suffix == ".jsonl":
            lines = file.read_text().splitlines()
            assert [json.loads(line)["epoch"] for line in lines] == list(range(1, len(lines) + 1))
        elif file.suffix == ".ckpt":
            torch.load(file, weights_only=True)
        elif file.suffix == ".safetensors":
            safetensors.torch.load_file(file)
        else:
            assert file.suffix == ".partial", file.name
