"""What benchmarks/gpu.py takes along to a machine without a network, and how it is used there."""

import argparse
import configparser
import gzip
import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Packages that a machine for training seldom has.
RARE = ("pydantic", "pydantic-core", "annotated-types", "typing-inspection")
SETS = ("MNIST/raw", "FashionMNIST/raw")
KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
FILES = [
    f"{folder}/{part}-{kind}" for folder in SETS for part in ("train", "t10k") for kind in KINDS
]


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def as_if_installed(folder: Path, site: Path) -> None:
    """Tell Python the version of a project and what it registers, if it is not installed: a record
    names the one, and commands are found by the other."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if list(importlib.metadata.distributions(name=project["name"])):
        return
    version = project.get("version")
    if version is None:
        source = (folder / "src" / project["name"] / "__init__.py").read_text(encoding="utf-8")
        version = source.split('__version__ = "')[1].split('"')[0]
    about = site / f"{project['name'].replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {version}\n")
    registered = configparser.ConfigParser()
    registered.read_dict(project.get("entry-points", {}))
    with (about / "entry_points.txt").open("w") as file:
        registered.write(file)


def unpack(packed: Path, scratch: Path, root: Path) -> Path:
    """Make what was packed usable from here and from children; returns the folder of data."""
    site, data, git = scratch / "site", scratch / "data", scratch / "git"
    for wheel in sorted(packed.glob("wheels/*.whl")):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
    for folder in (ROOT, ROOT / "claims"):
        as_if_installed(folder, site)
    if (packed / "data.tar.xz").is_file() and not data.exists():
        shutil.rmtree(scratch / "part", ignore_errors=True)
        with tarfile.open(packed / "data.tar.xz") as file:
            file.extractall(scratch / "part", filter="data")
        (scratch / "part").rename(data)
    at_a_commit = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    able = (packed / "git").is_dir() and shutil.which("git") is not None
    if able and subprocess.run(at_a_commit, capture_output=True).returncode:
        shutil.copytree(packed / "git", git, dirs_exist_ok=True)
        os.environ |= {"GIT_DIR": str(git), "GIT_WORK_TREE": str(ROOT)}
        subprocess.run(["git", "read-tree", "HEAD"], check=True)
    paths = [str(ROOT / "src"), str(ROOT / "claims"), str(site)]
    sys.path[:0] = paths
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *([others] if others else [])])
    return data if data.exists() else root


def content(path: Path) -> bytes:
    """Read a file, or the same packed by gzip, which xz makes a sixth smaller."""
    if path.is_file():
        return path.read_bytes()
    packed = path.with_name(f"{path.name}.gz")
    if not packed.is_file():
        sys.exit(f"{path} is not there, packed or not; torchcaps data get brings it.")
    return gzip.decompress(packed.read_bytes())


def commit_alone(tree: Path, folder: Path) -> None:
    """A repository of the last commit without the contents of its files, some 60 kB: it tells which
    commit a tree is at, and whether the tree was changed."""
    (folder / "objects" / "pack").mkdir(parents=True)
    (folder / "refs").mkdir()
    git = ["git", "-C", str(tree)]
    words = ["rev-list", "--objects", "--filter=blob:none", "-n1", "HEAD"]
    named = subprocess.check_output([*git, *words], text=True).splitlines()
    names = "\n".join(line.split()[0] for line in named)
    words = ["pack-objects", "-q", str(folder / "objects" / "pack" / "pack")]
    subprocess.run([*git, *words], input=names, text=True, check=True, stdout=subprocess.DEVNULL)
    commit = names.split("\n")[0] + "\n"
    (folder / "HEAD").write_text(commit)
    (folder / "shallow").write_text(commit)
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")


def pack(given: argparse.Namespace) -> str:
    """Data as small as it gets, wheels, and a repository of one commit that has no contents."""
    data = {name: content(given.root / name) for name in FILES}
    for name in ("git", "wheels"):
        shutil.rmtree(given.out / name, ignore_errors=True)
    given.out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(given.out / "data.tar.xz", "w:xz") as packed:
        for name, each in data.items():
            about = tarfile.TarInfo(name)
            about.size = len(each)
            packed.addfile(about, io.BytesIO(each))
    if given.wheels:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--only-binary=:all:", "--python-version", given.python, "-d"),
                *(given.out / "wheels", "-c", ROOT / "constraints.txt", *given.wheels),
            ],
            check=True,
        )
    commit_alone(ROOT, given.out / "git")
    tracked = subprocess.check_output(["git", "-C", ROOT, "ls-files", "-z"], text=True).split("\0")
    sizes = {path: path.stat().st_size for path in given.out.rglob("*") if path.is_file()}
    tree = sum((ROOT / name).stat().st_size for name in tracked if (ROOT / name).is_file())
    for path, size in sorted(sizes.items()):
        print(f"{size / 2**20:7.2f} MiB  {path}")
    print(f"{tree / 2**20:7.2f} MiB  files of the repository")
    print(f"{(sum(sizes.values()) + tree) / 2**20:7.2f} MiB  in all")
    return ""
