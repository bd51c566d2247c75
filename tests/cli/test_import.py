"""--import: one's own routing in a named network, from the command line, and its run again."""

import json
import sys
from pathlib import Path

import pytest

import torchcaps as tc
from cli.command_line import TRAIN, Call, assert_one_sentence
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
