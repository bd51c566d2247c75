"""`make fuzz-readers`: what is drawn is led by the code that it reaches.

Atheris keeps each content of a file that comes to new code, and changes it further; by half of all
draws as `fuzz.inputs` does, behind digests and checksums too. At the end all that was kept is read
once more, and the lines of readers that none of it came to are listed.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import atheris

with atheris.instrument_imports(include=["torchcaps"]):
    import torchcaps
    from fuzz.__main__ import bench
    from fuzz.inputs import Target, check_content, targets
    from fuzz.mutate import mutated

# Commands, which take seconds.
COMMANDS = ("study ", "data get", "signed: train", "signed: eval")
ROOT = Path(torchcaps.__file__).parent
READERS = [ROOT / name for name in ("_digests.py", "_json.py", "data/groups.py")]
READERS += [ROOT / "study" / f"{name}.py" for name in ("own", "record")]
READERS += [ROOT / "tasks" / f"{name}.py" for name in ("check_run", "values_file")]
READERS += [ROOT / "models/files/saving.py", ROOT / "data/shown/resize.py"]
READERS += [ROOT / "train/folder" / f"{name}.py" for name in ("objects", "recipe_file", "state")]
READERS += [
    ROOT / "data/read" / f"{name}.py"
    for name in ("arrays", "cifar", "folder", "idx", "listed", "mat", "norb", "packed")
]
READERS += [ROOT / "data/read/tiny_imagenet.py"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz-readers", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--record", type=Path, help="a JSON file for what came of it")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    with bench() as here, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        known = [each for each in targets(here) if not each.name.startswith(COMMANDS)]
        corpus = _corpus(known, folder)
        # Atheris ends its process.
        if not (child := os.fork()):
            _draw(known, folder, asked.minutes, asked.seed)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        wrong = (folder / "wrong").read_text().splitlines()
        if code:
            wrong.append(f"the process ended with {code}")
        kept = sorted(corpus.iterdir())
        reached = _reached(known, kept)
        tried = Counter((folder / "tried").read_text())
    unseen = {
        str(path.relative_to(ROOT)): _ranges(lines)
        for path in READERS
        if (lines := _lines_of(path) - reached[str(path)])
    }
    lines = sum(len(_lines_of(path)) for path in READERS)
    found = {"seed": asked.seed, "readers": len(known), "tried": tried.total(), "kept": len(kept)}
    found |= {"accepted": tried["a"], "refused": tried["r"], "wrong": len(wrong), "lines": lines}
    found |= {"unseen": lines - sum(len(_lines_of(path) & reached[str(path)]) for path in READERS)}
    for name, which in unseen.items():
        print(f"not reached: {name} {which}")
    print("\n".join([*dict.fromkeys(wrong), json.dumps(found)]))
    if asked.record is not None:
        about = {
            "command": f"python -m fuzz.guided --minutes {asked.minutes:g} --seed {asked.seed}"
        }
        asked.record.write_text(
            json.dumps({**about, **found, "not_reached": unseen}, indent=2) + "\n"
        )
    return bool(wrong)


def _corpus(known: list[Target], folder: Path) -> Path:
    """The good file of each reader, under its number."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, target in enumerate(known):
        content = number.to_bytes(2, "little") + target.path.read_bytes()
        (corpus / str(number)).write_bytes(content)
    for name in ("wrong", "tried"):
        (folder / name).touch()
    return corpus


def _of(known: list[Target], drawn: bytes) -> tuple[Target, bytes]:
    return known[int.from_bytes(drawn[:2], "little") % len(known)], drawn[2:]


def _draw(known: list[Target], folder: Path, minutes: float, seed: int) -> None:
    """Draw until the time is up, and end the process."""
    with (folder / "wrong").open("a") as wrong, (folder / "tried").open("a") as tried:

        def attempt(drawn: bytes) -> None:
            target, content = _of(known, drawn)
            try:
                tried.write(check_content(target, content)[0])
            except Exception as error:
                tried.write("w")
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                said = f"{target.name}: {type(error).__name__}: {str(error)[:200]!r} ({where})"
                print(said, file=wrong, flush=True)
            tried.flush()

        def change(drawn: bytes, most: int, turn: int) -> bytes:
            draw, (target, content) = random.Random(turn), _of(known, drawn)
            if draw.random() < 0.5:
                content = atheris.Mutate(content, most - 2)
            else:
                try:
                    content = target.change(content, draw)
                except Exception:
                    # No archive any more, which only bytes can change.
                    content = mutated(content, draw)
            return (drawn[:2] + content)[:most]

        # What hangs is told here, and memory is torch's.
        words = [f"-seed={seed}", f"-max_total_time={round(60 * minutes)}", "-timeout=0"]
        words += ["-rss_limit_mb=0", "-len_control=0", f"-artifact_prefix={folder}/ended-"]
        atheris.Setup([sys.argv[0], *words, str(folder / "corpus")], attempt, custom_mutator=change)
        atheris.Fuzz()


def _reached(known: list[Target], kept: Iterable[Path]) -> dict[str, set[int]]:
    """Which lines of each reader what was kept comes to, by its file."""
    reached: dict[str, set[int]] = {str(path): set() for path in READERS}

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        lines = reached.get(frame.f_code.co_filename)
        if lines is None:
            return None
        lines.add(frame.f_lineno)
        return trace

    for path in kept:
        target, content = _of(known, path.read_bytes())
        sys.settrace(trace)
        try:
            check_content(target, content)
        except Exception:
            # It was told when it was drawn.
            pass
        finally:
            sys.settrace(None)
    return reached


def _lines_of(path: Path) -> set[int]:
    """The lines of functions, which run when they are called."""

    def inside(code: CodeType) -> Iterator[CodeType]:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield each
                yield from inside(each)

    module = compile(path.read_text(), str(path), "exec")
    functions = [each for each in inside(module) if each.co_flags & 1]
    # Where a function begins nothing runs but its call.
    return {
        line
        for each in functions
        for _, _, line in each.co_lines()
        if line is not None and line > each.co_firstlineno
    }


def _ranges(lines: set[int]) -> str:
    """`3-5, 9`."""
    found: list[list[int]] = []
    for line in sorted(lines):
        if found and line == found[-1][-1] + 1:
            found[-1][1:] = [line]
        else:
            found.append([line])
    return ", ".join("-".join(map(str, each)) for each in found)


if __name__ == "__main__":
    sys.exit(main())
