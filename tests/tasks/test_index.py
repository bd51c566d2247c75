"""The index that is read without torch says what is registered."""

import json

from torchcaps.tasks.index import FILE, index, made_index, write_index


def test_the_index_is_what_is_registered(tmp_path, monkeypatch):
    kept = FILE.read_text(encoding="utf-8")
    assert json.loads(json.dumps(made_index())) == index(), "run make tables, and commit its index"
    monkeypatch.setattr("torchcaps.tasks.index.FILE", tmp_path / "index.json")
    monkeypatch.setattr("torchcaps.tasks.index.made_index", index)
    write_index()
    assert (tmp_path / "index.json").read_text(encoding="utf-8") == kept
