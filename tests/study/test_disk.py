"""Whether somebody holds a lock."""

from concurrent.futures import ThreadPoolExecutor

from filelock import FileLock

from torchcaps.study.disk import is_held


def test_who_asks_whether_a_lock_is_free_does_not_hold_it(tmp_path):
    """Two that ask at once each took the other for a worker."""
    file = tmp_path / "cell.lock"
    with ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(lambda _: is_held(file), range(400))]
    assert not any(answers)
    with FileLock(file):
        assert is_held(file)
