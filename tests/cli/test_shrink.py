"""`torchcaps shrink`: a smaller file of a network that says the same."""

import copy
import json
import math

import pytest
import torch

from cli.command_line import tiny
from torchcaps import create_model, load, save
from torchcaps.prune import MaskAtTheEnd, Silent, removable, silent
from torchcaps.tasks.shrink import _largest_change, _take_as_silent
from torchcaps.types import Capsules


@pytest.fixture
def pruned(tmp_path):
    """A network whose channels were pruned as wholes."""
    torch.manual_seed(0)
    model = create_model("mitterreiter_5x16", image=(1, 24, 24))
    MaskAtTheEnd(model, to=0.1, unit="channel").at_the_end()
    save(model, tmp_path / "pruned.safetensors")
    return tmp_path / "pruned.safetensors"


def test_shrink_writes_a_smaller_network_and_says_what_it_brings(pruned, call, tmp_path):
    before = pruned.read_bytes()
    small = tmp_path / "small.safetensors"
    done = call("shrink", pruned, "--data", "tiny", "--out", small, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    old, new = found["before"], found["after"]
    assert found["largest_change"] <= 1e-6
    assert old["accuracy"] == new["accuracy"]
    assert (old["file_bytes"], new["file_bytes"]) == (len(before), small.stat().st_size)
    for what in ("parameters", "file_bytes", "peak_bytes"):
        assert new[what] < old[what]
    assert pruned.read_bytes() == before
    whole, few = load(pruned), load(small)
    assert new["parameters"] == sum(parameter.numel() for parameter in few.parameters())
    images = torch.rand(3, 1, 24, 24)
    with torch.no_grad():
        assert torch.allclose(whole(images).scores, few(images).scores, rtol=0, atol=1e-6)
    # Every command reads it.
    assert call("eval", small, "--data", "tiny").code == 0


def test_types_that_go_are_told(call, tmp_path):
    torch.manual_seed(0)
    model = create_model("capsnet", image=(1, 24, 24), width=8, types=6, decoder=False)
    MaskAtTheEnd(model, to=0.3, unit="type").at_the_end()
    save(model, tmp_path / "whole.safetensors")
    small = tmp_path / "small.safetensors"
    done = call("shrink", tmp_path / "whole.safetensors", "--data", "tiny", "--out", small)
    assert done.code == 0, done.err
    types = load(small).primary_grid[2]
    assert types < 6
    assert f"types of primary 6 → {types}" in done.out.splitlines()[0]


def test_what_only_an_unread_part_reads_goes_too(call, tmp_path):
    torch.manual_seed(0)
    model = create_model("rem_eff_mnist", image=(1, 24, 24))
    names = [name for name, part in model.backbone.named_children() if hasattr(part, "groups")]
    first, second, third = (model.backbone.get_submodule(name) for name in names[:3])
    with torch.no_grad():
        third.weight[:, 5] = 0
        second.weight[:5, 3] = 0
        second.weight[6:, 3] = 0
    save(model, tmp_path / "whole.safetensors")
    small = tmp_path / "small.safetensors"
    done = call("shrink", tmp_path / "whole.safetensors", "--data", "tiny", "--out", small)
    assert done.code == 0, done.err
    backbone = load(small).backbone
    assert backbone.get_submodule(names[0]).out_channels == first.out_channels - 1
    assert backbone.get_submodule(names[1]).out_channels == second.out_channels - 1


def test_shrink_tells_people(pruned, call, tmp_path):
    words = ["shrink", pruned, "--data", "tiny", "--out", tmp_path / "small.safetensors"]
    done = call(*words, "--silent", "0", "--images", "20")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("taken out   channels of backbone.")
    assert lines[0].endswith("or that were no longer than 0 on 20 images")
    # Only channels were pruned.
    none = ", ".join(f"{name} 0.00%" for name in ("hidden_2", "hidden_3", "hidden_4", "classes"))
    assert lines.pop(1) == f"zero blocks {none}"
    assert [line.split()[0] for line in lines[1:4]] == ["parameters", "file", "time"]
    assert " times less)" in lines[1]
    # The test images are fewer than a batch of 64.
    assert " ms an image of 12" in lines[3]
    assert lines[5].startswith("memory ")
    assert " MB for 12" in lines[5]
    assert lines[-1].startswith("scores      the largest change is ")
    # What is small already loses nothing more.
    again = ["shrink", tmp_path / "small.safetensors", "--data", "tiny"]
    done = call(*again, "--out", tmp_path / "same.safetensors")
    assert done.out == (
        "nothing is taken out: of the parts that can go there are none that nothing reads; "
        f"{tmp_path / 'same.safetensors'} is the same network\n"
        f"zero blocks {none}\n"
    )


def test_dead_capsules_are_taken_out_and_the_change_is_told(call, tmp_path):
    torch.manual_seed(0)
    model = create_model("mitterreiter_5x16", image=(1, 24, 24))
    with torch.no_grad():
        model.layers["hidden_2"].weight[:, 4:9] *= 1e-3
    save(model, tmp_path / "whole.safetensors")
    words = ["shrink", tmp_path / "whole.safetensors", "--data", "tiny"]
    # They are short and not silent.
    done = call(*words, "--silent", "0", "--out", tmp_path / "a.safetensors")
    assert done.code == 0, done.err
    assert "children" not in done.out
    done = call(*words, "--dead", "--images", "20", "--out", tmp_path / "b.safetensors")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    # One stands in for the five, with a prior.
    assert "children of hidden_3 16 → 12" in lines[0]
    # A channel that was zero on these images is no dead capsule.
    assert "channels" not in lines[0]
    assert lines[0].endswith(": parts that nothing reads, or that were dead on 20 images")
    assert lines[-1].startswith("scores      the largest change is ")
    assert load(tmp_path / "b.safetensors").layers["hidden_3"].n_in == 12


def test_capsules_that_are_dead_need_not_be_silent():
    """The first speaks up in one image of a hundred, the second is always short, and both are dead.
    The third is as short on average, but its spread, 0.2 √(0.2 · 0.8), is 0.08."""
    torch.manual_seed(0)
    model = create_model("rem_multilayer", image=(1, 20, 20)).eval()
    seen = torch.zeros(100, 16, 8)
    seen[0, 0, 0] = 0.4
    seen[:, 1, 0] = 0.04
    seen[:20, 2, 0] = 0.2
    seen[:, 3:, 0] = 0.2
    shown = [seen, seen[:60], seen[60:]]
    model.layers["hidden_3"].register_forward_pre_hook(
        lambda layer, given: (Capsules(x := shown.pop(0), x.norm(dim=-1)),)
    )
    images = torch.rand(100, 1, 20, 20)
    largest = silent(model, [images]).capsules["hidden_3"]
    assert largest[:3].tolist() == pytest.approx([0.4, 0.04, 0.2])
    # In two batches, of which one capsule speaks in the first alone.
    found = Silent()
    found.capsules = {f"hidden_{k}": torch.ones(16) for k in range(2, 5)} | {
        "classes": torch.ones(16)
    }
    _take_as_silent(found, model, [images[:60], images[60:]])
    assert found.capsules["hidden_3"].eq(0).tolist() == [True, True] + [False] * 14
    assert removable(model, found).parents["hidden_2"] == tuple(range(2, 16))


def test_zero_blocks_say_why_nothing_is_taken_out(call, tmp_path):
    """Half of a child's votes are zero, and one half is not enough for it to go."""
    torch.manual_seed(0)
    model = create_model("mitterreiter_5x16", image=(1, 24, 24))
    with torch.no_grad():
        model.layers["classes"].weight[3, :5] = 0
    save(model, tmp_path / "whole.safetensors")
    words = ["shrink", tmp_path / "whole.safetensors", "--data", "tiny", "--json"]
    done = call(*words, "--out", tmp_path / "small.safetensors")
    found = json.loads(done.out)
    assert found["zero_blocks"] == {
        "hidden_2": 0,
        "hidden_3": 0,
        "hidden_4": 0,
        "classes": pytest.approx(5 / (16 * 10)),
    }
    assert found["before"]["parameters"] == found["after"]["parameters"]


def test_a_change_that_is_no_number_is_not_hidden():
    torch.manual_seed(0)
    model = create_model("mitterreiter_5x16", image=(1, 24, 24), decoder=False).eval()
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.layers["classes"].weight.fill_(math.nan)
    assert _largest_change(model, copy.deepcopy(model), tiny("test", None)) == 0
    assert math.isnan(_largest_change(model, broken, tiny("test", None)))
