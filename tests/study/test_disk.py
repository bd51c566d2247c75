"""Folders that two machines see or do not."""

import platform
from concurrent.futures import ThreadPoolExecutor

from filelock import FileLock

from torchcaps.study.disk import is_held, signed, unseen


def test_a_signed_folder_is_seen_while_its_lock_holds(tmp_path):
    with signed(tmp_path / "runs") as sign:
        assert unseen(tmp_path / "runs", sign, "the Slurm job") == ""
        assert unseen(tmp_path, sign, "the Slurm job") == (
            f"the Slurm job on {platform.node()} does not see {tmp_path} as this machine does, or "
            f"its disk has no locks that hold across machines; let --out name a folder on the disk "
            f"that all machines share."
        )
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_disk_without_common_locks_is_not_seen(tmp_path, monkeypatch):
    """Two machines may see one file, and each its own locks."""
    with signed(tmp_path) as sign, monkeypatch.context() as elsewhere:
        elsewhere.setattr(FileLock, "acquire", lambda self, **_: None)
        assert "no locks that hold across machines" in unseen(tmp_path, sign, "a job")


def test_who_asks_whether_a_lock_is_free_does_not_hold_it(tmp_path):
    """Two that ask at once each took the other for a worker."""
    file = tmp_path / "cell.lock"
    with ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(lambda _: is_held(file), range(400))]
    assert not any(answers)
    with FileLock(file):
        assert is_held(file)
