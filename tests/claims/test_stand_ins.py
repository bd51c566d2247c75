"""Studies of sets that are not here, on a few images laid down as the sets are published.

A case runs a planned job in full but for its epochs, seeds and images: from the files, by the line
`torchcaps study run`, to a record and to what that says of its claims.
"""

import dataclasses
import gzip
import json
import math
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from cli.command_line import well
from laid_cifar import archive, member
from laid_idx import idx
from laid_mat import affnist_bytes, as_published, svhn_bytes, zipped
from laid_norb import TEST, TRAIN, cat, dat, info
from laid_pictures import paint
from laid_trunk import published
from study_line import in_this_process
from torchcaps.data import ImageSet
from torchcaps.data.shown.crop import windows
from torchcaps.models.preset import NamedNetwork
from torchcaps.study import pool, read_record
from torchcaps.study.look import OF_CAPSULES
from torchcaps_claims import Reduced, claims_of_table, find_claim, of_claims, result_of
from torchcaps_claims.pages import appendix, page

CUT = "1 epoch on a few images laid down by hand"
# Images by their numbers. Two of those tested on are alike and of two classes, so that no network
# comes near to what a paper prints.
LEARNT, OF_LEARNT = range(8), (0, 1, 2, 3, 4, 0, 1, 2)
TESTED, OF_TESTED = (8, 9, 9), (3, 1, 4)
NUMBERS = range(11)
# The others take more than a second.
QUICK = {"svhn"}


def ramp(number: int, channels: int, rows: Tensor, columns: Tensor) -> Tensor:
    """An image that no turn, no flip and no other order of channels leaves as it is: the first
    channel brightens downwards, the second to the right, and the third is even."""
    down, right = torch.meshgrid(rows, columns, indexing="ij")
    return torch.stack([down, right, torch.full_like(down, 100)][:channels]) + 8 * number


def image(number: int, channels: int, height: int, width: int) -> Tensor:
    return ramp(number, channels, torch.arange(height), torch.arange(width)).to(torch.uint8)


def joined(numbers: Sequence[int], *shape: int, by_columns: bool = False) -> bytes:
    """Their bytes, one image after the other; row by row unless told otherwise."""
    images = torch.stack([image(number, *shape) for number in numbers])
    return (images.mT if by_columns else images).numpy().tobytes()


def photograph(path: Path, number: int, height: int, width: int) -> None:
    pixels = image(number, 3, height, width).permute(1, 2, 0).numpy()
    paint(path, np.ascontiguousarray(pixels))


def sides(number: int) -> tuple[int, int]:
    """Of photographs of many sizes."""
    return 90 + 2 * number, 110 - 3 * number


def lay_affnist(root: Path) -> None:
    """Beside MNIST, of which the images are made that networks learn by."""
    for stem, numbers, labels in (("train", LEARNT, OF_LEARNT), ("t10k", TESTED, OF_TESTED)):
        images = idx((len(numbers), 28, 28), joined(numbers, 1, 28, 28))
        (root / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        answers = gzip.compress(idx((len(labels),), bytes(labels)))
        (root / f"{stem}-labels-idx1-ubyte.gz").write_bytes(answers)
    images = joined(TESTED, 1, 40, 40)
    content = affnist_bytes(labels=bytes(OF_TESTED), images=images)
    zipped(root / "affNIST" / "test.mat.zip", test=content)


def lay_svhn(root: Path) -> None:
    for split, numbers, labels in (("train", LEARNT, OF_LEARNT), ("test", TESTED, OF_TESTED)):
        images = joined(numbers, 3, 32, 32, by_columns=True)
        # The digit 0 has label 10.
        answers = bytes(label or 10 for label in labels)
        content = svhn_bytes(images=images, labels=answers)
        (root / f"{split}_32x32.mat").write_bytes(content)


def lay_cifar100(root: Path) -> None:
    files = []
    for name, numbers, labels in (("train", LEARNT, OF_LEARNT), ("test", TESTED, OF_TESTED)):
        rows = (
            bytes([19 - label, label]) + joined([number], 3, 32, 32)
            for number, label in zip(numbers, labels, strict=True)
        )
        files.append(member(f"cifar-100-binary/{name}.bin", b"".join(rows)))
    archive(root / "cifar-100-binary.tar.gz", *files)


def lay_smallnorb(root: Path) -> None:
    """In the training file image 8 alone is seen from a novel azimuth, in the test file both
    images 10 are."""
    seen = (0, 2, 4, 30, 32, 34, 0, 2)
    files = {
        TRAIN: ((*LEARNT, 8), (*OF_LEARNT, 3), (*seen, 6)),
        TEST: ((9, 10, 10, 9), (0, 1, 2, 3), (34, 28, 6, 0)),
    }
    for stem, (numbers, labels, azimuths) in files.items():
        contents = {
            "dat": dat(joined(numbers, 2, 96, 96)),
            "cat": cat(*labels),
            "info": info(*((k % 10, k % 9, azimuth, 5) for k, azimuth in enumerate(azimuths))),
        }
        for kind, content in contents.items():
            (root / f"{stem}-{kind}.mat.gz").write_bytes(gzip.compress(content))


WNIDS = ("n02124075", "n04067472", "n04540053", "n04099969", "n07749582")


def lay_tiny_imagenet(root: Path) -> None:
    home = root / "tiny-imagenet-200"
    for number, label in zip(LEARNT, OF_LEARNT, strict=True):
        name = WNIDS[label]
        photograph(home / "train" / name / "images" / f"{name}_{number}.JPEG", number, 64, 64)
    notes = []
    for k, (number, label) in enumerate(zip(TESTED, OF_TESTED, strict=True)):
        photograph(home / "val" / "images" / f"val_{k}.JPEG", number, 64, 64)
        notes.append(f"val_{k}.JPEG\t{WNIDS[label]}\t0\t32\t44\t62\n")
    (home / "val" / "val_annotations.txt").write_text("".join(notes))
    (home / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (home / "words.txt").write_text("".join(f"{name}\tword {name}\n" for name in WNIDS))
    safetensors.torch.save_file(published(), root / "resnet18_imagenet.safetensors")


# By folders, which hold the classes in turn.
TINY = {
    "train": ((0, 5, 1, 6, 2, 7, 3, 4), (0, 0, 1, 1, 2, 2, 3, 4)),
    "test": (TESTED, OF_TESTED),
}


def lay_dogs_vs_cats(root: Path) -> None:
    for number in range(10):
        name = ("cat", "dog")[number % 2]
        photograph(root / "train" / f"{name}.{number}.jpg", number, *sides(number))


SORTS = ("n01440764", "n02102040", "n02979186", "n03000684", "n03028079")


def lay_imagenette(root: Path) -> None:
    """Beside another set, as a claim needs both."""
    lay_dogs_vs_cats(root / "dogs-vs-cats")
    for split, (numbers, labels) in IMAGENETTE.items():
        for number, label in zip(numbers, labels, strict=True):
            folder = root / "imagenette2" / split / SORTS[label]
            # The second image 9 is of another class.
            photograph(folder / f"{SORTS[label]}_{number}.JPEG", number, *sides(number))


IMAGENETTE = {"train": TINY["train"], "val": ((9, 8, 9), (1, 3, 4))}


class Case(NamedTuple):
    """A line of `torchcaps study run`, and what is to come of it."""

    line: str
    lay: Callable[[Path], None]
    # Of its record: the claims, and statistics that it has at least.
    claims: tuple[str, ...]
    values: frozenset[str]
    # The images by set and split: their numbers and labels.
    images: Mapping[str, tuple[Sequence[int], Sequence[int]]]
    # How they lie in the files, and how a network is shown them.
    channels: int
    laid: Callable[[int], tuple[int, int]]
    size: tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    # Whether they are learnt as they are.
    is_plain: bool = False
    # A photograph loses some levels of 255 when it is saved.
    error: float = 0.5


def ids(row: str, numbers: str) -> tuple[str, ...]:
    """The claims of a row of a table."""
    return tuple(f"{row}-{number}" for number in numbers.split())


def on_grid(levels: int, *, classes: int, images: str = "") -> frozenset[str]:
    """What is measured of quantised couplings."""
    names = ("accuracy", "entropy", "keys", *(f"keys.{k}" for k in range(classes)))
    return frozenset(f"{name}+K{levels}{images}" for name in names)


OF_PRUNED = frozenset({"accuracy", "sparsity", "nonzero_parameters"})
NUMBERS_OF_ALL = {"train": (LEARNT, OF_LEARNT), "test": (TESTED, OF_TESTED)}
PHOTOGRAPH = 3.5

CASES = {
    "affnist": Case(
        "mitterreiter2023 2",
        lay_affnist,
        tuple(claim.id for claim in claims_of_table("mitterreiter2023", 2)),
        frozenset(f"{n}.{k}@affnist/test" for n in OF_CAPSULES for k in range(1, 6)),
        {"affnist/test": (TESTED, OF_TESTED)},
        channels=1,
        laid=lambda number: (40, 40),
    ),
    "cifar100": Case(
        "tsai2020 1 --only tsai_cnn_c100",
        lay_cifar100,
        ("tsai2020-t1-baseline-cnn-simple-cifar-100-acc",),
        frozenset({"accuracy"}),
        {f"cifar100/{split}": each for split, each in NUMBERS_OF_ALL.items()},
        channels=3,
        laid=lambda number: (32, 32),
    ),
    "dogs-vs-cats": Case(
        "renzulli2025 1 --only dogs-vs-cats --only prune=lobster",
        lay_dogs_vs_cats,
        (
            *ids("rem-t1-dogs-vs-cats-eff-convcapsnet-rem", "acc entropy sparsity"),
            "rem-q-negligible-loss",
        ),
        OF_PRUNED | on_grid(21, classes=2),
        {
            "dogs-vs-cats/train": ((0, 2, 4, 8, 1, 3, 5, 7), (0, 0, 0, 0, 1, 1, 1, 1)),
            # Drawn by the names of the files.
            "dogs-vs-cats/test": ((6, 9), (0, 1)),
        },
        channels=3,
        laid=sides,
        size=(128, 128),
        is_plain=True,
        error=PHOTOGRAPH,
    ),
    "imagenette": Case(
        "renzulli2025 1 --only imagenette --only prune=lobster",
        lay_imagenette,
        (
            *ids("rem-t1-imagenette-eff-convcapsnet-rem", "acc entropy sparsity"),
            "rem-q-negligible-loss",
        ),
        OF_PRUNED | on_grid(21, classes=5),
        {"imagenette/train": IMAGENETTE["train"], "imagenette/test": IMAGENETTE["val"]},
        channels=3,
        laid=sides,
        size=(128, 128),
        is_plain=True,
        error=PHOTOGRAPH,
    ),
    "smallnorb": Case(
        "renzulli2025 3 --only smallnorb-azimuth --only prune=lobster",
        lay_smallnorb,
        (
            *ids("rem-t3-eff-capsnet-rem-azimuth-familiar", "acc entropy"),
            *ids("rem-t3-eff-capsnet-rem-azimuth-novel", "acc entropy"),
            "rem-t3-eff-capsnet-rem-azimuth-sparsity",
            "rem-q-rem-novel-viewpoint",
        ),
        OF_PRUNED
        | on_grid(11, classes=5)
        | on_grid(11, classes=5, images="@smallnorb-azimuth-familiar/test"),
        {
            "smallnorb-azimuth/train": (LEARNT, OF_LEARNT),
            "smallnorb-azimuth-familiar/test": ((9, 9), (0, 3)),
            "smallnorb-azimuth/test": ((10, 10), (1, 2)),
        },
        channels=2,
        laid=lambda number: (96, 96),
        size=(64, 64),
        crop=(48, 48),
    ),
    "svhn": Case(
        "renzulli2025 1 --only rem_eff_svhn --only prune=lobster",
        lay_svhn,
        (*ids("rem-t1-svhn-eff-capsnet-rem", "acc entropy sparsity"), "rem-q-negligible-loss"),
        OF_PRUNED | on_grid(11, classes=10),
        {f"svhn/{split}": each for split, each in NUMBERS_OF_ALL.items()},
        channels=3,
        laid=lambda number: (32, 32),
        is_plain=True,
    ),
    "tiny-imagenet": Case(
        "renzulli2025 10 --only prune=lobster",
        lay_tiny_imagenet,
        ids("rem-t10-dr-capsnet-rem", "acc entropy sparsity"),
        OF_PRUNED | on_grid(129, classes=5),
        {f"tiny-imagenet/{split}": each for split, each in TINY.items()},
        channels=3,
        laid=lambda number: (64, 64),
        size=(224, 224),
        error=PHOTOGRAPH,
    ),
}


@pytest.fixture
def run(call, monkeypatch, tmp_path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Runs planned jobs by a line of the command line, cut to one epoch and one seed."""
    planned = of_claims.plan_of

    def cut(claim):
        plan = planned(claim)
        reduced = Reduced(CUT, {"epochs": 1})
        jobs = tuple(dataclasses.replace(job, reduced=reduced) for job in plan.jobs)
        return dataclasses.replace(plan, jobs=jobs)

    monkeypatch.setattr(of_claims, "plan_of", cut)
    monkeypatch.setattr(pool, "here", in_this_process)
    monkeypatch.setattr(pool, "SECONDS_BETWEEN_LOOKS", 0)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def run(line: str) -> dict[str, Any]:
        words = ("study", "run", *line.split(), "--reduced", "--seeds", "1", "--json")
        return json.loads(well(call(*words)).out)

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def shown() -> Iterator[list[tuple[bool, Tensor]]]:
    """The images that networks are given, each batch with whether it is learnt."""
    batches = []

    def note(module, inputs):
        if isinstance(module, NamedNetwork):
            batches.append((module.training, inputs[0].detach().clone()))

    handle = register_module_forward_pre_hook(note)
    yield batches
    handle.remove()


def numbers_of(pixels: Tensor, case: Case) -> tuple[int | None, ...]:
    """Which image each of these is. Levels go up evenly, so those of a stretched image are known by
    hand: a pixel has the level of its place between two pixels of the file. At the rim there are no
    two."""
    expected = {}
    for number in NUMBERS:
        levels = []
        laid = case.laid(number)
        for side, before, stretched in zip(pixels.shape[2:], laid, case.size or laid, strict=True):
            place = torch.arange(side) + (stretched - side) // 2
            levels.append((place + 0.5) * before / stretched - 0.5)
        expected[number] = ramp(number, case.channels, *levels)[:, 4:-4, 4:-4]
    return tuple(
        # Levels of bytes are divided by 255 in single precision.
        next((k for k, x in expected.items() if (each - x).abs().max() < case.error + 1e-4), None)
        for each in 255 * pixels[:, :, 4:-4, 4:-4]
    )


def digest(numbers: Sequence[int], labels: Sequence[int], case: Case, folder: Path) -> str:
    """Of the images of these numbers, as a network is shown them."""

    def in_file(number: int) -> Tensor:
        if case.error < PHOTOGRAPH:
            return image(number, case.channels, *case.laid(number))
        photograph(folder / "again.jpg", number, *case.laid(number))
        found = Image.open(folder / "again.jpg")
        if case.laid is sides:
            found = found.resize(case.size[::-1], Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(found)).permute(2, 0, 1)

    images = torch.stack([in_file(number) for number in numbers])
    found = ImageSet("expected", images, torch.tensor(labels), tuple(map(str, range(100))))
    return windows(found, size=case.size, crop=case.crop).digest()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES]
)
def test_a_planned_job_comes_from_published_files_to_a_verdict(
    name, run, shown, tmp_path, monkeypatch
):
    case = CASES[name]
    (tmp_path / "data").mkdir()
    case.lay(tmp_path / "data")
    as_published(monkeypatch, tmp_path / "data")
    outcome = run(case.line)
    (found,) = outcome["records"]
    record = read_record(tmp_path / "evidence" / outcome["study"] / f"{found}.json")

    # It says of what it is, and has what was to be measured.
    assert record.claims == case.claims
    assert (record.reduced, record.recipe["epochs"], len(record.seeds)) == (CUT, 1, 1)
    values = record.seeds[0].values
    assert case.values <= values.keys()
    assert all(math.isfinite(value) for value in values.values())
    expected = {name: digest(*each, case, tmp_path) for name, each in case.images.items()}
    assert {name: record.data.get(name) for name in expected} == expected

    # Nobody takes it for what the paper did.
    judged = [result_of(find_claim(x), {found: record}) for x in case.claims]
    rows, behind = (write(case.line.split()[0], judged) for write in (page, appendix))
    for each in outcome["claims"]:
        if find_claim(each["id"]).states:
            # One network alone is compared with none.
            assert (each["status"], each["verdict"]) == ("not run", None)
            continue
        (row,) = (line for line in rows.splitlines() if f"`{each['id']}`" in line)
        said = "reduced run is not comparable: "
        assert each["verdict"].startswith(f"undecided: {said}")
        assert re.search(r"\| \*\*undecided\*\* \| (full width|narrower) \|", row)
        (_, told) = behind.split(f"## {each['id']}\n")
        assert f"Runs: {said}" in told.partition("## ")[0]
        assert f" (reduced: {CUT})" in told.partition("## ")[0]

    # What the network saw are the images that were laid down.
    looks = [numbers_of(pixels, case) for is_learnt, pixels in shown if not is_learnt]
    tests = {tuple(numbers) for n, (numbers, _) in case.images.items() if n.endswith("/test")}
    assert tests <= set(looks)
    if case.is_plain:
        (learnt,) = (numbers_of(pixels, case) for is_learnt, pixels in shown if is_learnt)
        held = {number for look in looks if look not in tests for number in look}
        (numbers, _) = next(each for n, each in case.images.items() if n.endswith("/train"))
        assert sorted([*learnt, *held]) == sorted(numbers)
