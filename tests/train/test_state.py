"""The state of a run as somebody else may have packed it: memory is taken for its bytes alone."""

import errno
import json
import resource
import zipfile

import pytest
import torch

from error_text import text_of
from torchcaps.train import Run, make_recipe
from torchcaps.train.folder.state import PARTS, RECIPE, read_state, state_of, write_state

ZEROS = {"epoch": 1, "state_dict": {"a": torch.zeros(100_000)}}


def packed_anew(path, compression):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def read(path):
    return read_state(path, needs=("epoch", "state_dict"), device="cpu")


def test_the_recipe_of_an_older_state_lacks_what_a_protocol_has_today(tmp_path):
    """Written before there was pruning, in a run that goes on."""
    named = {"model": "efficient_capsnet", "data": "mnist", "protocol": "rem_pruned"}
    recipe = make_recipe(**named, prune=None, channels_last=False)
    fields = recipe.model_dump(mode="json")
    for name in ("prune", "freeze", "channels_last"):
        del fields[name]
    run = Run(tmp_path)
    torch.save(dict.fromkeys(PARTS) | {RECIPE: json.dumps(fields)}, run.state_file)
    assert state_of(run, recipe) == run.state_file


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_compressed_state_is_refused_before_it_is_unpacked(tmp_path, compression, monkeypatch):
    path = tmp_path / "state.ckpt"
    torch.save(ZEROS, path)
    packed_anew(path, zipfile.ZIP_STORED)
    assert torch.equal(read(path)["state_dict"]["a"], ZEROS["state_dict"]["a"])
    packed_anew(path, compression)
    monkeypatch.delattr(zipfile.ZipFile, "testzip")
    assert text_of(lambda: read(path)) == (
        f"{path} cannot be read (it is compressed, and torch compresses nothing); it is damaged: "
        f"remove it, and the run begins anew."
    )


def test_a_state_of_more_bytes_than_its_file_is_refused(tmp_path, monkeypatch):
    """Members may lie on each other in an archive, so that its bytes count many times."""
    path = tmp_path / "state.ckpt"
    torch.save(ZEROS, path)
    monkeypatch.setattr(
        zipfile.ZipFile, "infolist", lambda self: [each for each in self.filelist for _ in "ab"]
    )
    assert "cannot be read (its parts have more bytes than the file); it is" in text_of(
        lambda: read(path)
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_full_disk_is_told_by_its_name_and_leaves_nothing(tmp_path, share):
    """Of a state of many bytes, only some can be written."""
    path = tmp_path / "state.partial"
    write_state(ZEROS, path)
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size * share), before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            write_state(ZEROS, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(path))
    assert not path.exists()
    write_state(ZEROS, path)
    assert torch.equal(read(path)["state_dict"]["a"], ZEROS["state_dict"]["a"])


def test_a_state_is_not_written_through_a_planted_link(tmp_path):
    victim, path = tmp_path / "thesis", tmp_path / "run" / "state.partial"
    victim.write_text("years of work")
    path.parent.mkdir()
    path.symlink_to(victim)
    write_state(ZEROS, path)
    assert victim.read_text() == "years of work"
    assert torch.equal(read(path)["state_dict"]["a"], ZEROS["state_dict"]["a"])
