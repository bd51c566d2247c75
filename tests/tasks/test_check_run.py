"""Every file of a run is looked at, and for each that is not whole there is something to do."""

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from error_text import text_of
from torchcaps.data import SOURCES, ImageSet, PartWholeSpec, part_whole
from torchcaps.tasks import check_run
from torchcaps.tasks.check_run import MENDS
from torchcaps.train import Run, fit, make_recipe

FILES = [name for name in MENDS if name != "best.safetensors"]


@cache
def tiny(split: str, root: object) -> ImageSet:
    return part_whole(split, {"train": 48, "test": 12}[split], spec=PartWholeSpec(size=20))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny)
        recipe = make_recipe(model="peer_sign_dynamic", data="tiny", epochs=1, batch_size=48)
        yield fit(recipe, tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(finished: Run, tmp_path: Path) -> Run:
    shutil.copytree(finished.folder, tmp_path / "run")
    return Run(tmp_path / "run")


def states(run: Run) -> dict[str, str]:
    return {file.name: file.state for file in check_run(run.folder).files}


def test_a_whole_run_is_called_whole(run: Run) -> None:
    found = check_run(run.folder)
    assert found.is_whole
    assert states(run) == dict.fromkeys(FILES, "whole") | {"digests.json": "whole"}
    assert "damaged" not in found.text()


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_nothing_else_is(run: Run, name: str) -> None:
    content = bytearray((run.folder / name).read_bytes())
    content[len(content) // 2] ^= 128
    (run.folder / name).write_bytes(content)
    found = check_run(run.folder)
    assert {file.name for file in found.files if file.state != "whole"} >= {name}
    assert f"{name} is damaged: remove it; {MENDS[name]}." in found.text()
    # Without its recipe nobody can say whether a state belongs to it; nothing is trusted without
    # digests that can be read.
    others = set(states(run).values()) if name not in ("recipe.json", "digests.json") else set()
    assert others <= {"whole", "damaged"}
    if name not in ("recipe.json", "digests.json"):
        assert [state for state in states(run).values() if state != "whole"] == ["damaged"]
    assert json.loads(json.dumps(found.numbers()))["whole"] is False


@pytest.mark.parametrize("name", [name for name in FILES if name != "digests.json"])
def test_a_missing_file_is_named(run: Run, name: str) -> None:
    (run.folder / name).unlink()
    assert states(run)[name] == "missing"
    # There is nothing to remove.
    assert f"{name} is missing: {MENDS[name]}." in check_run(run.folder).text()


@pytest.mark.parametrize("name", ["metrics.jsonl", "model.safetensors", "result.json"])
def test_what_is_advised_mends_it(run: Run, finished: Run, name: str) -> None:
    (run.folder / name).write_bytes(b"garbage")
    (run.folder / name).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny)
        fit(run.recipe, run.folder)
    assert run.model_file.read_bytes() == finished.model_file.read_bytes()
    assert states(run)["model.safetensors"] == "whole"


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    said = f"{tmp_path} holds no run; name the folder that was given as --out."
    assert text_of(lambda: check_run(tmp_path)) == said
    assert "holds no run" in text_of(lambda: check_run(tmp_path / "nowhere"))
