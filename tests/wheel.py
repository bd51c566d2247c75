"""What a wheel and an sdist hold: the library whole, and no claims, tests or records.

python tests/wheel.py dist/*.whl dist/*.tar.gz
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What an sdist says of itself.
ABOUT = {"PKG-INFO", ".gitignore", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
ABOUT |= {"CITATION.cff"}


def names_in(path: Path) -> set[str]:
    """Names below the top, as they lie in the clone."""
    if path.suffix == ".whl":
        return {
            f"src/{name}" for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name
        }
    with tarfile.open(path) as packed:
        files = {member.name.partition("/")[2] for member in packed.getmembers() if member.isfile()}
    return files - ABOUT


def main() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "src/torchcaps"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    library = set(listed.stdout.split())
    for path in map(Path, sys.argv[1:]):
        found = names_in(path)
        if missing := library - found:
            sys.exit(f"{path.name} lacks {sorted(missing)[:5]}")
        if more := found - library:
            sys.exit(f"{path.name} holds what is not the library: {sorted(more)[:5]}")
        print(f"{path.name}: {len(found)} files, {path.stat().st_size / 2**20:.1f} MiB")


main()
