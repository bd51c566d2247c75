"""Cells that travel, and folders that two machines see or do not."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from torchcaps.study import disk
from torchcaps.study.disk import is_held, is_seen, pack, signed, unpack


def test_a_signed_folder_is_seen_while_its_lock_holds(tmp_path):
    with signed(tmp_path / "runs") as sign:
        assert is_seen(tmp_path / "runs", sign)
        assert not is_seen(tmp_path, sign)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_disk_without_common_locks_is_not_seen(tmp_path, monkeypatch):
    """Two machines may see one file, and each its own locks."""
    monkeypatch.setattr(FileLock, "acquire", lambda self, **_: None)
    with signed(tmp_path) as sign:
        assert not is_seen(tmp_path, sign)


def test_a_cell_travels_whole(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "a" / "deep").mkdir(parents=True)
    (here / "a" / "deep" / "recipe.json").write_text("{}")
    (here / "a.decoder").mkdir()
    (here / "a.decoder" / "state.ckpt").write_text("half trained")
    (here / "a.dense").mkdir()
    (here / "a.dense" / "recipe.json").write_text("{}")
    (here / "a.values.json").write_text("1")
    (here / "b.values.json").write_text("of another cell")
    files = pack(here, "a")
    assert sorted(files) == [
        "a.decoder/state.ckpt",
        "a.dense/recipe.json",
        "a.values.json",
        "a/deep/recipe.json",
    ]
    # What lies there is replaced as a whole.
    (there / "a").mkdir(parents=True)
    (there / "a" / "state.ckpt").write_text("old")
    (there / "a.decoder").mkdir()
    (there / "a.decoder" / "metrics.jsonl").write_text("old")
    unpack(files, there, "a")
    assert pack(there, "a") == files
    assert sorted(path.name for path in there.iterdir()) == [
        "a",
        "a.decoder",
        "a.dense",
        "a.values.json",
    ]


@pytest.mark.parametrize("renames", range(4))
def test_a_cell_survives_a_kill_while_it_is_put_in_its_place(tmp_path, monkeypatch, renames):
    """Of the moves of two runs, so many are made; the next look at the cell makes the others."""
    there = {"net/result.json": b"1", "net.decoder/result.json": b"2"}
    arrives = {"net/result.json": b"3", "net.decoder/result.json": b"4", "net.values.json": b"{}"}
    unpack(there, tmp_path, "net")
    rename, left = Path.rename, [renames]

    def killed(path, target):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            unpack(arrives, tmp_path, "net")
    # Before the first move what was there is as it was, and after it what arrived is whole.
    assert pack(tmp_path, "net") == (arrives if renames else there)


def test_a_cell_that_nobody_began_is_nothing(tmp_path):
    assert pack(tmp_path, "a") == {}
    unpack({}, tmp_path, "a")
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_in_its_place_before_it_is_said_to_be_measured(tmp_path, monkeypatch):
    """Killed in between, it is measured again."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(disk.Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        unpack({"a/result.json": b"{}", "a.values.json": b"1"}, tmp_path, "a")
    assert (tmp_path / "a" / "result.json").is_file()
    assert not (tmp_path / "a.values.json").exists()


def test_who_asks_whether_a_lock_is_free_does_not_hold_it(tmp_path):
    """Two that ask at once each took the other for a worker."""
    file = tmp_path / "cell.lock"
    with ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(lambda _: is_held(file), range(400))]
    assert not any(answers)
    with FileLock(file):
        assert is_held(file)
