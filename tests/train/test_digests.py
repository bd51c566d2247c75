"""What digests.json may hold."""

import json
import os

import pytest

from error_text import text_of
from torchcaps._digests import check_digest

SOMETHING_ELSE = "it holds something else than digests"
CONTENTS = {
    "long": (b'{"a":' + b"1" * 6_000 + b"}", "it holds a number of thousands of digits"),
    "deep": (b"[" * 100_000, "its brackets are nested too deeply"),
    "not text": (b"\xff\xfe", "it is not text in UTF-8"),
    "list": (b"[1]", SOMETHING_ELSE),
    "null": (b"null", SOMETHING_ELSE),
    **{
        f"{wrong!r} for a digest": (json.dumps({"state.ckpt": wrong}).encode(), SOMETHING_ELSE)
        for wrong in ([], "abc", [1], None, {"a": "b"})
    },
}


@pytest.mark.parametrize(("content", "why"), CONTENTS.values(), ids=CONTENTS)
def test_digests_that_cannot_be_read_are_told_in_plain_words(tmp_path, content, why):
    path, known = tmp_path / "state.ckpt", tmp_path / "digests.json"
    path.write_bytes(b"weights")
    known.write_bytes(content)
    assert text_of(lambda: check_digest(path)) == (
        f"{known} cannot be read ({why}), so nobody can say whether the files beside it are whole; "
        f"copy it once more, or remove it and trust them."
    )


def test_digests_that_are_a_pipe_are_not_waited_for(tmp_path):
    path = tmp_path / "state.ckpt"
    path.write_bytes(b"weights")
    os.mkfifo(tmp_path / "digests.json")
    assert "digests.json cannot be read (it is a folder or a device)" in text_of(
        lambda: check_digest(path)
    )
