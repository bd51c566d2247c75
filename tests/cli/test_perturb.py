"""`torchcaps perturb`: a decoder on a frozen network, and what the components of a class draw."""

import json

import pytest
import torch

from cli.command_line import tiny, well
from torchcaps import create_model, load, save
from torchcaps.prune import MaskAtTheEnd, sparsity


@pytest.fixture
def pruned(tmp_path):
    """A pruned network without a decoder."""
    torch.manual_seed(0)
    model = create_model("rem_eff_mnist", image=(1, 24, 24))
    MaskAtTheEnd(model, to=0.8, scope="layer").at_the_end()
    save(model, tmp_path / "pruned.safetensors")
    return tmp_path / "pruned.safetensors"


def test_a_decoder_learns_on_a_frozen_pruned_network(pruned, call, tmp_path):
    words = ["train", "--model", "rem_eff_mnist", "--option", "decoder=true", "--data", "tiny"]
    words += ["--init-from", pruned, "--epochs", 1, "--batch-size", 20, "--out", tmp_path / "run"]
    for part in ("backbone", "primary", "layers"):
        words += ["--freeze", part]
    well(call(*words))
    before, after = load(pruned).state_dict(), load(tmp_path / "run").state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {name.partition(".")[0] for name in set(after) - set(before)} == {"decoder"}
    # The grid of it, against what the decoder draws one by one.
    picture = tmp_path / "grid.svg"
    done = well(call("perturb", tmp_path / "run", "--image", 3, "--picture", picture, "--json"))
    found = json.loads(done.out)
    assert picture.read_text().startswith("<?xml")
    model = load(tmp_path / "run")
    pixels = tiny("test", None).batch(torch.tensor([3])).pixels
    with torch.no_grad():
        out = model(pixels)
        best = int(out.scores.argmax())
        assert found["error"] == pytest.approx(
            float((out.reconstruction - pixels).square().mean()), abs=1e-6
        )
        for d in range(16):
            ends = []
            for step in (-0.2, 0.2):
                pose = torch.zeros(10, 16)
                pose[best] = out.classes.pose[0, best]
                pose[best, d] += step
                ends.append(model.decoder.layers(pose.flatten()))
            assert found["ranges"][d] == pytest.approx(
                float((ends[1] - ends[0]).abs().mean()), abs=1e-6
            )
    assert found["predicted"] == tiny("test", None).class_names[best]
    lines = call("perturb", tmp_path / "run").out.splitlines()
    assert [line.split()[0] for line in lines] == ["image", "error", "components"]
    # What was pruned is still zero.
    assert sparsity(load(tmp_path / "run")).share == pytest.approx(0.8, abs=1e-4)


def test_the_capsule_that_moves_is_that_of_the_highest_score(call, tmp_path):
    """EM routing scores by activations, so the longest pose may be of another class."""
    torch.manual_seed(0)
    model = create_model("capsnet", image=(1, 24, 24), routing="em", decoder=True).eval()
    save(model, tmp_path / "em.safetensors")
    images = tiny("test", None)
    with torch.no_grad():
        out = model(images.batch(torch.arange(len(images))).pixels)
    best, longest = out.scores.argmax(-1), out.classes.pose.norm(dim=-1).argmax(-1)
    differ = (best != longest).nonzero().flatten().tolist()
    assert differ
    for image in differ[:2]:
        words = ["--data", "tiny", "--image", image, "--json"]
        found = json.loads(call("perturb", tmp_path / "em.safetensors", *words).out)
        assert found["predicted"] == images.class_names[int(best[image])]
        pose = out.classes.pose[image, best[image]]
        assert found["length"] == pytest.approx(float(pose.norm().detach()), abs=1e-5)
