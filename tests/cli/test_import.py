"""--import: one's own routing in a named network, from the command line, and its run again."""

import json
import sys
from pathlib import Path

import pytest

import torchcaps as tc
from cli.command_line import TRAIN, Call, assert_one_sentence
from torchcaps.models import own
from torchcaps.train import Run, own_code

MINE = """
import torchcaps as tc

class Half(tc.layers.Routing):
    def create_parameters(self, *, n_in, n_out, d_out):
        pass

    def forward(self, votes, activation, *, keep="none"):
        coupling = votes.new_full(votes.shape[:-1], 0.5)
        pose = tc.ops.squash(votes.sum(-3) / 2)
        parents = tc.Capsules(pose, pose.norm(dim=-1))
        return tc.Routed(parents, () if keep == "none" else (tc.Step(None, coupling, parents),))

tc.register_routing("half", Half)
"""


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process knows nothing of the file."""
    monkeypatch.setattr(own_code, "_IMPORTED", {})
    sys.modules.pop("mine_half", None)
    tc.layers.ROUTINGS.pop("half", None)


def test_ones_own_routing_on_the_command_line(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "mine_half.py"
    file.write_text(MINE)
    line = ["train", *TRAIN, "--option", "routing=half", "--out", tmp_path / "run"]
    assert_one_sentence(call(*line), "routing='half' is unknown")
    try:
        done = call(*line, "--import", file)
        assert done.code == 0, done.err
        (seen,) = Run(tmp_path / "run").began()["imported"]
        assert seen["path"] == str(file)
        assert json.loads(call("eval", tmp_path / "run", "--json").out)["images"] == 12
        forget(monkeypatch)
        for command in ("eval", "dissect", "doctor"):
            refused = call(command, tmp_path / "run")
            assert_one_sentence(refused, "add --import mine_half.py to the command")
        done = call("dissect", tmp_path / "run", "--import", file, "--out", tmp_path / "x.html")
        assert done.code == 0, done.err
        assert call(*line, "--import", file).code == 0
    finally:
        forget(monkeypatch)


NET = """
import torch
import torchcaps as tc

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(576, 10)

    def forward(self, images):
        return tc.Output(self.layer(images.flatten(1)), "logits")
"""


def test_a_network_without_a_name_is_opened_by_its_file(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(own_code, "_IMPORTED", {})
    file = tmp_path / "mine_net.py"
    file.write_text(NET)
    own_code.import_file(file)
    recipe = tc.train.make_recipe(model="own", data="tiny", epochs=1, batch_size=20)
    run = tc.train.fit(recipe, tmp_path / "run", model=sys.modules["mine_net"].Net())
    monkeypatch.setattr(own_code, "_IMPORTED", {})
    monkeypatch.setattr(own, "CLASSES", {})
    del sys.modules["mine_net"]
    line = ["eval", run.folder, "--json"]
    assert_one_sentence(call(*line), "add --import mine_net.py to the command")
    monkeypatch.setattr(own_code, "CLASSES", own.CLASSES)
    try:
        assert json.loads(call(*line, "--import", file).out)["images"] == 12
    finally:
        sys.modules.pop("mine_net", None)
