"""`torchcaps data`: paths, rows and sentences on standard output, everything else beside it."""

import hashlib
import json
from functools import partial

import pytest
from PIL import Image

from cli.command_line import printed, tiny
from loopback import serving, whole
from torchcaps.data import PUBLISHED, SOURCES
from torchcaps.data.registry import PublishedSet, RemoteFile

CONTENT = bytes(range(256)) * 8


@pytest.fixture
def call(call):
    return partial(call, "data")


@pytest.fixture
def server(monkeypatch):
    """Publishes the set "tiny", of one file."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        sha256 = hashlib.sha256(CONTENT).hexdigest()
        file = RemoteFile("tiny/a.bin", len(CONTENT), sha256, (server.url("/a.bin"),))
        monkeypatch.setitem(PUBLISHED, "tiny", PublishedSet("bytes", "free", "here", (file,)))
        server.answers["/a.bin"] = whole(CONTENT)
        yield server


def test_list_tells_size_and_terms_of_each(call):
    lines = printed(call("list")).splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == sorted(SOURCES)
    at = lines.index("mnist  60,000 + 10,000 grey digits, 28 × 28, 12 MB to fetch")
    assert lines[at + 1] == (
        "    CC BY-SA 3.0, Yann LeCun and Corinna Cortes; http://yann.lecun.com/exdb/mnist/"
    )
    for said in (
        "folder  not fetched: it reads a folder of pictures for each class",
        "dogs-vs-cats  not fetched: it reads cat.0.jpg, dog.0.jpg and so on, or its folder train",
        "expanded-mnist  not fetched: it reads the four files of MNIST "
        "(train-images-idx3-ubyte.gz and so on)",
        "part-whole  nothing to fetch: it is made, of no files",
        "own  nothing to fetch: images that a Python program holds",
    ):
        assert said in lines


def test_list_speaks_json(call):
    rows = json.loads(printed(call("list", "--json")))
    assert list(rows) == sorted(SOURCES)
    assert rows["part-whole"] is None
    assert rows["svhn"]["size"] == 182_040_794 + 64_275_384
    address = "://ufldl.stanford.edu/housenumbers/train_32x32.mat"
    assert rows["svhn"]["files"][0]["mirrors"] == [f"https{address}", f"http{address}"]


def test_get_prints_the_paths_alone_or_json(call, server, tmp_path):
    assert printed(call("get", "tiny", "--root", tmp_path)) == f"{tmp_path}/tiny/a.bin\n"
    assert (tmp_path / "tiny/a.bin").read_bytes() == CONTENT
    found = json.loads(printed(call("get", "tiny", "--root", tmp_path, "--json")))
    assert found == {"name": "tiny", "files": [f"{tmp_path}/tiny/a.bin"]}


def test_get_shows_its_progress_to_somebody_who_looks(call, server, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    code, out, err = call("get", "tiny", "--root", tmp_path)
    assert (code, out) == (0, f"{tmp_path}/tiny/a.bin\n")
    assert "a.bin" in err
    assert "2.0/2.0 kB" in err


def test_an_interruption_ends_with_130_and_the_same_line_goes_on(
    call, server, tmp_path, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("torchcaps.data.read.fetch.os.fsync", interrupted)
        code, out, err = call("get", "tiny", "--root", tmp_path)
    assert (code, out) == (130, "")
    assert err == (
        "torchcaps: fetching tiny was interrupted; the same command goes on where it stopped.\n"
    )
    assert call("get", "tiny", "--root", tmp_path)[0] == 0


def test_check_tells_in_sentences(call):
    lines = printed(call("check", "tiny")).splitlines()
    assert lines[0] == (
        "part-whole: 40 training and 12 test images of 24 × 24 pixels, 1 channel; 10 classes."
    )
    assert lines[-1] == "No test image is among the training images."


def test_check_speaks_json(call, monkeypatch):
    monkeypatch.setitem(SOURCES, "tiny", lambda split, root: tiny("test", root))
    found = json.loads(printed(call("check", "tiny", "--json")))
    assert (found["shared"], found["shared_example"]) == (12, [0, 0])
    assert found["test"]["shape"] == [1, 24, 24]
    assert sum(found["test"]["class_counts"].values()) == 12
    assert found["sentences"][-1].startswith("12 of 12 test images are among the training images")


def test_a_class_name_does_not_steer_the_terminal(call, tmp_path):
    """Folders of pictures are other people's; so are their names."""
    for name, count in (("cat\x1b[2J", 4), ("dog", 8)):
        (tmp_path / name).mkdir()
        for number in range(count):
            Image.new("L", (3, 2), number).save(tmp_path / name / f"{number}.png")
    code, printed, beside = call("check", "folder", "--root", tmp_path)
    assert code == 0
    assert "cat\\x1b[2J" in printed
    assert "\x1b" not in printed + beside


def test_an_error_does_not_steer_the_terminal(call, tmp_path):
    code, printed, beside = call("check", "folder", "--root", tmp_path / "cat\x1b[2J")
    assert code == 2
    assert "cat\\x1b[2J" in beside
    assert "\x1b" not in printed + beside
