"""A network leaves torchcaps as a file that scores as it does."""

import re
import subprocess
import sys

import pytest
import torch

import torchcaps as tc
from error_text import text_of
from torchcaps.tasks import export

SMALL = {"image": (1, 12, 11), "n_classes": 3, "decoder": False}
READ = """
import sys, torch
sys.modules["torchcaps"] = None
images = torch.load("images.pt", weights_only=True)
torch.save(torch.export.load("net.pt2").module()(images), "scores.pt")
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    torch.manual_seed(0)
    tc.save(tc.create_model("mitterreiter_5x16", **SMALL), tmp_path / "net.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "net.safetensors"


def test_safetensors_are_the_network_alone(file, tmp_path):
    found = export(file, to="safetensors", out=tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == file.read_bytes()
    assert found.largest_difference == 0
    assert found.file_bytes == file.stat().st_size
    lines = found.text().splitlines()
    count = sum(each.numel() for each in tc.load(file).parameters())
    assert lines[0] == (
        f"written   {tmp_path}/again.safetensors: {found.file_bytes / 1e6:.2f} MB, {count:,} "
        f"parameters"
    )
    assert lines[1] == "scores    the same but for 0 on 7 random images"
    assert re.fullmatch(
        r"time      one image \d+\.\d\d ms, in torchcaps \d+\.\d\d ms; .*", lines[2]
    )
    assert found.numbers()["to"] == "safetensors"


@pytest.mark.slow
def test_torch_reads_it_without_torchcaps_at_another_batch_size(file, tmp_path, capfd):
    found = export(file, to="torch")
    assert found.path == "net.pt2"
    assert found.largest_difference <= 1e-5
    assert capfd.readouterr() == ("", "")
    images = torch.rand(5, *SMALL["image"])
    torch.save(images, "images.pt")
    subprocess.run([sys.executable, "-c", READ], check=True, cwd=tmp_path)
    torch.testing.assert_close(torch.load("scores.pt"), tc.load(file)(images).scores)


@pytest.mark.slow
def test_onnxruntime_reads_it_at_another_batch_size(file, capfd):
    # Here, because the default tier reads this file without the extra that brings it.
    import onnxruntime

    assert export(file, to="onnx").largest_difference <= 1e-5
    assert capfd.readouterr() == ("", "")
    images = torch.rand(5, *SMALL["image"])
    session = onnxruntime.InferenceSession("net.onnx")
    (scores,) = session.run(["scores"], {"images": images.numpy()})
    expected = tc.load(file)(images).scores.detach()
    torch.testing.assert_close(torch.from_numpy(scores), expected, rtol=1e-5, atol=1e-5)


def test_a_file_that_scores_otherwise_is_not_kept(file, tmp_path, monkeypatch):
    other = tc.create_model("mitterreiter_5x16", **SMALL).eval()
    room = sys.modules["torchcaps.tasks.export"]
    monkeypatch.setattr(room, "load_network", lambda path, model: other)
    said = text_of(lambda: export(file, to="safetensors", out="again.safetensors"))
    assert re.fullmatch(
        r"what was exported for safetensors scores otherwise, by up to 0\.\d+, so "
        r"again\.safetensors was not written; a layer of your own may do something that depends "
        r"on the images' number or values\.",
        said,
    )
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_without_onnxruntime_a_sentence_names_the_extra(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torchcaps\[export\]'\.$"):
        export(file, to="onnx")
