"""Small images, a small network, and the files of a run that nobody trained."""

import json
from functools import cache

import safetensors.torch
import torch

from torchcaps._paths import write_whole
from torchcaps.data import PartWholeSpec, part_whole, sign_set
from torchcaps.models import create_model, save
from torchcaps.train import Run, make_recipe

NETWORK = "mitterreiter_5x16"


def tiny_images(n_train, *, n_test=12, size=24):
    """Twelve test images and a few training images, as a source of data has them."""

    @cache
    def tiny(split, root=None):
        count = {"train": n_train, "test": n_test}[split]
        return part_whole(split, count, spec=PartWholeSpec(size=size))

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
