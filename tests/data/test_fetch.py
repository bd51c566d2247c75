"""Fetching from a server on this machine that truncates, stalls, lies, and never ends."""

import hashlib
import os
import random
import re
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

import loopback
from damage import MEGABYTE, at_most
from error_text import text_of
from loopback import endless, plain, serving, whole, without_ranges
from tables import beside, worked_out
from torchcaps.data import PUBLISHED, SOURCES, fetch_data, load
from torchcaps.data.read import fetch
from torchcaps.data.registry import PublishedSet, RemoteFile
from torchcaps.errors import TorchcapsError

CONTENT = random.Random(0).randbytes(5_000)
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER = random.Random(1).randbytes(5_000)
OTHER_BEGINS = hashlib.sha256(OTHER).hexdigest()[:12]
AGAIN = "try again later, or put it at"


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh(server, monkeypatch):
    """Small pieces, no proxy, and a server that knows nothing yet."""
    server.answers.clear()
    server.asked.clear()
    monkeypatch.setattr(fetch, "CHUNK", 1_000)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def publish(server, monkeypatch):
    """Publish the set "tiny", of one file, by what each of its mirrors answers, or by addresses."""

    def publish(*answers, urls=None, size=SIZE, sha256=SHA256, **more):
        paths = [f"/{number}/file.bin" for number in range(len(answers))]
        server.answers.update(zip(paths, answers, strict=True))
        urls = tuple(map(server.url, paths)) if urls is None else urls
        file = RemoteFile("tiny/file.bin", size, sha256, urls, **more)
        monkeypatch.setitem(PUBLISHED, "tiny", PublishedSet("bytes", "free", "here", (file,)))

    return publish


def get(root, **options):
    return fetch_data("tiny", root=root, **options)


def seen(root):
    """What lies in the folder of the set, but for the lock."""
    return sorted(path.name for path in (root / "tiny").iterdir() if path.suffix != ".lock")


def assert_fetched(root):
    assert (root / "tiny/file.bin").read_bytes() == CONTENT
    assert seen(root) == ["file.bin"]


def begun(root, content):
    (root / "tiny").mkdir(parents=True)
    (root / "tiny/file.bin.partial").write_bytes(content)


def by(number, start=None):
    """How a mirror is asked for the file, or for the rest of it."""
    return f"/{number}/file.bin", None if start is None else f"bytes={start}-"


SERVERS = beside(__file__, "fetch.toml")


@pytest.mark.parametrize("name", SERVERS["comes"])
def test_the_right_file_comes_and_lies_where_it_belongs(server, publish, tmp_path, name):
    answers, here, asked = worked_out([*SERVERS["comes"][name].values()], NAMES)
    publish(*answers)
    begun(tmp_path, here)
    assert get(tmp_path) == [tmp_path / "tiny/file.bin"]
    assert_fetched(tmp_path)
    assert server.asked == asked


def test_a_file_that_is_there_is_checked_and_not_fetched(server, publish, tmp_path):
    publish()
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/file.bin").write_bytes(CONTENT)
    assert get(tmp_path) == [tmp_path / "tiny/file.bin"]
    # A folder that may only be read will do.
    assert [path.name for path in (tmp_path / "tiny").iterdir()] == ["file.bin"]
    assert server.asked == []


def test_a_file_of_the_users_own_is_refused_and_left_alone(publish, tmp_path):
    publish(whole(CONTENT))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/file.bin").write_bytes(OTHER)
    assert text_of(lambda: get(tmp_path)) == (
        f"{tmp_path}/tiny/file.bin is not the published file: its SHA-256 begins with "
        f"{OTHER_BEGINS}, where {SHA256[:12]} belongs; move it away, and fetch again."
    )
    assert (tmp_path / "tiny/file.bin").read_bytes() == OTHER


def test_progress_counts_the_bytes_that_are_here(publish, tmp_path):
    publish(whole(CONTENT))
    begun(tmp_path, CONTENT[:1_500])
    calls = []
    get(tmp_path, progress=lambda *each: calls.append(each))
    assert {(name, size) for name, _, size in calls} == {("file.bin", 5_000)}
    here = [here for _, here, _ in calls]
    assert here == sorted(here)
    assert here[0] > 1_500
    assert here[-1] == 5_000


def plant(path, victim, kind):
    path.parent.mkdir()
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "hard link":
        path.hardlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize(
    ("name", "what"),
    [("file.bin.partial", "a file that was begun"), (".file.bin.lock", "the lock of a file")],
    ids=["partial", "lock"],
)
def test_a_planted_file_is_not_written_through(publish, tmp_path, name, what, kind):
    """In a folder that others may write to, the names that fetching needs may be taken."""
    publish(whole(CONTENT))
    victim = tmp_path / "victim"
    victim.write_bytes(b"not to be touched")
    planted = tmp_path / "tiny" / name
    plant(planted, victim, kind)
    assert text_of(lambda: get(tmp_path)) == (
        f"{planted} should be {what}, but is a link or no ordinary file; somebody "
        f"else may have put it there: look at it, remove it, and fetch again."
    )
    assert victim.read_bytes() == b"not to be touched"
    assert not (tmp_path / "tiny/file.bin").exists()


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_file_that_is_none_is_refused(publish, tmp_path, kind):
    """To open a pipe waits for somebody to write into it, for ever."""
    publish(whole(CONTENT))
    planted = tmp_path / "tiny/file.bin"
    plant(planted, tmp_path, kind)
    assert text_of(lambda: get(tmp_path)) == (
        f"{planted} should be the published file, but is a folder, a pipe or a device; move it "
        f"away, and fetch again."
    )


def elsewhere(handler):
    handler.begin(206, Content_Length=10, Content_Range="bytes 7-16/5000")
    handler.wfile.write(bytes(10))


NAMES = vars(loopback) | globals()


@pytest.mark.parametrize("name", SERVERS["fails"])
def test_what_a_server_does_instead_is_told(server, publish, tmp_path, name):
    case = {"here": 0, "times": 1, "kept": 0} | SERVERS["fails"][name]
    here, kept = case["here"], case["kept"]
    told = case["told"].format(other=OTHER_BEGINS)
    publish(worked_out(case["answer"], NAMES))
    begun(tmp_path, CONTENT[:here])
    assert text_of(lambda: get(tmp_path, timeout=0.2)) == (
        f"file.bin could not be fetched: {server.url('/0/file.bin')} {told}; {AGAIN} "
        f"{tmp_path}/tiny/file.bin yourself."
    )
    assert len(server.asked) == case["times"]
    partial = tmp_path / "tiny/file.bin.partial"
    assert (partial.read_bytes() if kept else seen(tmp_path)) == (CONTENT[:kept] if kept else [])
    # The next call goes on with what was kept.
    publish(whole(CONTENT))
    get(tmp_path)
    assert_fetched(tmp_path)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:1/file.bin", "could not be reached (Connection refused)"),
        ("file:///etc/passwd", "sent on to an address of 'file', which is not followed"),
        ("ftp://127.0.0.1/x", "sent on to an address of 'ftp', which is not followed"),
        ("/etc/passwd", "sent on to an address of '', which is not followed"),
    ],
)
def test_a_mirror_is_on_the_web_and_there(publish, tmp_path, url, sentence):
    publish(urls=(url,))
    assert f"{url} {sentence}; " in text_of(lambda: get(tmp_path))


def test_a_redirect_is_followed_with_the_wish_for_the_rest(server, publish, tmp_path):
    publish(plain(302, Location="/elsewhere"))
    server.answers["/elsewhere"] = whole(CONTENT)
    begun(tmp_path, CONTENT[:10])
    get(tmp_path)
    assert_fetched(tmp_path)
    assert server.asked == [("/0/file.bin", "bytes=10-"), ("/elsewhere", "bytes=10-")]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (endless(), "sent other bytes than were published: their SHA-256 begins with "),
        (endless(404), "answered 404 Not Found"),
        (endless(302, Location="/0/file.bin"), "sent on 5 times without an end"),
    ],
)
def test_a_body_without_an_end_fills_neither_disk_nor_memory(
    publish, tmp_path, monkeypatch, answer, sentence
):
    monkeypatch.setattr(fetch, "CHUNK", 1 << 18)
    publish(answer, size=3 * MEGABYTE)
    written = []
    with at_most(4 * MEGABYTE):
        text = text_of(lambda: get(tmp_path, progress=lambda *each: written.append(each[1])))
    assert sentence in text
    assert max(written, default=0) <= 3 * MEGABYTE
    assert seen(tmp_path) == []


def test_all_mirrors_are_told_when_all_fail(server, publish, tmp_path):
    publish(plain(404), without_ranges(CONTENT, sent=2_000), plain(416))
    first, second, third = (server.url(f"/{number}/file.bin") for number in range(3))
    assert text_of(lambda: get(tmp_path)) == (
        f"file.bin could not be fetched: {first} answered 404 Not Found; {second} stopped after "
        f"2000 of 5000 bytes; {third} answered 416 Requested Range Not Satisfiable; {AGAIN} "
        f"{tmp_path}/tiny/file.bin yourself."
    )


class Killed(BaseException):
    """The end of the process, as far as a test can have it."""


def killed_at(number, call):
    """Call with an end at the line of fetch.py that is run as this one; did it get there?"""
    count = 0

    def line(frame, event, _):
        nonlocal count
        count += event == "line"
        if event == "line" and count == number:
            raise Killed
        return line

    def function(frame, *_):
        return line if frame.f_code.co_filename == fetch.__file__ else None

    before = sys.gettrace()
    sys.settrace(function)
    try:
        call()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


# A process that ends closes its files; one that is only stopped here does so late.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("answer", [whole, without_ranges])
def test_killed_between_any_two_lines_the_next_call_finishes(
    publish, tmp_path, monkeypatch, answer
):
    monkeypatch.setattr(fetch, "CHUNK", 2_500)
    publish(answer(CONTENT))
    for step in count(1):
        root = tmp_path / str(step)
        killed = killed_at(step, lambda root=root: get(root))
        place = root / "tiny/file.bin"
        assert not place.exists() or place.read_bytes() == CONTENT
        get(root)
        assert_fetched(root)
        if not killed:
            break
    assert step > 100


@pytest.mark.parametrize("at", ["fsync", "replace", "write"])
def test_a_full_disk_is_told_and_what_came_is_kept(publish, tmp_path, monkeypatch, at):
    def full(*_):
        raise OSError(28, "No space left on device")

    publish(whole(CONTENT))
    with monkeypatch.context() as patch:
        if at == "write":
            patch.setattr(fetch, "_next", lambda *_: full())
        else:
            patch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[at], full)
        assert text_of(lambda: get(tmp_path)) == (
            f"tiny could not be written to {tmp_path} (No space left on device); is the folder "
            f"yours, and is there room: what came is kept, and the same command goes on."
        )
    assert seen(tmp_path) == ["file.bin.partial"]
    get(tmp_path)
    assert_fetched(tmp_path)


def test_a_root_that_is_no_folder_is_told(publish, tmp_path):
    publish(whole(CONTENT))
    (tmp_path / "file").write_text("years of work")
    sentence = (
        f"tiny could not be written to {tmp_path}/file (Not a directory); is the folder yours"
    )
    assert sentence in text_of(lambda: get(tmp_path / "file"))


def test_two_at_once_fetch_once(server, publish, tmp_path):
    gate = threading.Barrier(3)

    def slow(handler):
        handler.server.over.wait(0.05)
        whole(CONTENT)(handler)

    publish(slow)
    found = []

    def one():
        gate.wait()
        found.append(get(tmp_path))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[tmp_path / "tiny/file.bin"]] * 3
    assert len(server.asked) == 1
    assert_fetched(tmp_path)


PROCESS = """
import sys
from torchcaps.data.registry import PUBLISHED, PublishedSet, RemoteFile
from torchcaps.data.read.fetch import fetch_data
root, url, size, sha256 = sys.argv[1:]
file = RemoteFile("tiny/file.bin", int(size), sha256, (url,))
PUBLISHED["tiny"] = PublishedSet("bytes", "free", "here", (file,))
fetch_data("tiny", root=root)
"""


@pytest.mark.cluster
def test_two_processes_at_once_fetch_once(server, tmp_path):
    def slow(handler):
        handler.server.over.wait(10 if len(server.asked) > 1 else 3)
        whole(CONTENT)(handler)

    server.answers["/file.bin"] = slow
    words = [str(tmp_path), server.url("/file.bin"), str(SIZE), SHA256]
    processes = [subprocess.Popen([sys.executable, "-c", PROCESS, *words]) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len(server.asked) == 1
    assert_fetched(tmp_path)


def test_the_catalogue_tells_of_every_file_what_it_must():
    assert set(PUBLISHED) == set(SOURCES) & set(PUBLISHED)
    files = [file for each in PUBLISHED.values() for file in each.files]
    for file in files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size > 0
        assert file.mirrors
        for url in file.mirrors:
            assert url.startswith(("https://", "http://"))
            # Nobody on the line sees or stops what is fetched, where the server lets them not.
            assert url.startswith("https://") or url != file.mirrors[0]
            assert url.rpartition("/")[2] == Path(file.path).name
    assert len({file.sha256 for file in files}) == len(files)
    assert all(each.terms and each.holds and each.home for each in PUBLISHED.values())
    assert PUBLISHED["mnist"].size == 9_912_422 + 28_881 + 1_648_877 + 4_542


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", sorted(set(PUBLISHED)))
def test_a_reader_looks_where_the_files_are_laid(tmp_path, name, split):
    laid = []
    for file in PUBLISHED[name].files:
        place = tmp_path / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"no data")
        laid.append(place)
    text = text_of(lambda: load(name, split=split, root=tmp_path))
    assert any(text.startswith(str(place)) for place in laid), text


def test_nothing_but_errors_of_its_own_comes_out(publish, tmp_path):
    """Servers that say anything at all."""
    draw = random.Random(2)

    def anything(handler):
        handler.wfile.write(b"HTTP/1.1 " * draw.randrange(2) + draw.randbytes(draw.randrange(400)))

    publish(anything)
    for turn in range(40):
        with pytest.raises(TorchcapsError):
            get(tmp_path / str(turn), timeout=1.0)
