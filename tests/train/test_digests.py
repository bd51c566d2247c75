"""What digests.json may hold."""

import json
import os

import pytest

from error_text import text_of
from torchcaps._digests import check_digest


@pytest.mark.parametrize("wrong", [[], "abc", [1], None, {"a": "b"}], ids=repr)
def test_a_file_without_a_list_of_digests_is_refused(tmp_path, wrong):
    path = tmp_path / "state.ckpt"
    path.write_bytes(b"weights")
    known = tmp_path / "digests.json"
    known.write_text(json.dumps({path.name: wrong}))
    assert text_of(lambda: check_digest(path)) == (
        f"{known} cannot be read (it holds something else than digests), so nobody can say whether "
        f"the files beside it are whole; copy it once more, or remove it and trust them."
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"a":' + "1" * 6_000 + "}", "it holds a number of thousands of digits"),
        ("[" * 100_000, "its brackets are nested too deeply"),
        (b"\xff\xfe", "it is not text in UTF-8"),
        ("[1]", "it holds something else than digests"),
        ("null", "it holds something else than digests"),
    ],
    ids=["long", "deep", "not text", "list", "null"],
)
def test_digests_that_cannot_be_read_are_told_in_plain_words(tmp_path, content, why):
    path, known = tmp_path / "state.ckpt", tmp_path / "digests.json"
    path.write_bytes(b"weights")
    known.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert f"{known} cannot be read ({why}), so nobody" in text_of(lambda: check_digest(path))


def test_digests_that_are_a_pipe_are_not_waited_for(tmp_path):
    path = tmp_path / "state.ckpt"
    path.write_bytes(b"weights")
    os.mkfifo(tmp_path / "digests.json")
    assert "digests.json cannot be read (it is a folder or a device)" in text_of(
        lambda: check_digest(path)
    )
