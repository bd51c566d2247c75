"""--import: one's own routing in a named network, from the command line, and its run again."""

import json
import runpy
import sys

import pytest

import torchcaps as tc
from cli.command_line import TRAIN, assert_one_sentence, well
from registries import as_before, forget_imported
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


def forget() -> None:
    """As a new process knows nothing of the files that were imported."""
    forget_imported()
    tc.layers.ROUTINGS.pop("half", None)
    tc.models.MODELS.pop("mine_named", None)


@pytest.fixture(autouse=True)
def _as_before():
    with as_before():
        yield


def test_ones_own_routing_on_the_command_line(tmp_path, call):
    file = tmp_path / "mine_half.py"
    file.write_text(MINE)
    line = ["train", *TRAIN, "--option", "routing=half", "--out", tmp_path / "run"]
    assert_one_sentence(call(*line), "routing='half' is unknown")
    well(call(*line, "--import", file))
    (seen,) = Run(tmp_path / "run").began()["imported"]
    assert seen["path"] == str(file)
    assert json.loads(call("eval", tmp_path / "run", "--json").out)["images"] == 12
    forget()
    for command in ("eval", "dissect", "doctor"):
        refused = call(command, tmp_path / "run")
        assert_one_sentence(refused, "add --import mine_half.py to the command")
    well(call("dissect", tmp_path / "run", "--import", file, "--out", tmp_path / "x.html"))
    well(call(*line, "--import", file))


def test_a_fault_in_ones_own_file_is_told_by_its_line(tmp_path, call):
    file = tmp_path / "mine_half.py"
    file.write_text(MINE.replace("votes.sum(-3) / 2", "vote.sum(-3) / 2"))
    line = ["train", *TRAIN, "--option", "routing=half", "--out", tmp_path / "run"]
    done = call(*line, "--import", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1] == (
        f"torchcaps: {file} failed in line 10: NameError: name 'vote' is not defined; mend "
        f"the file."
    )


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


def test_a_registered_network_is_compared_by_its_file(tmp_path, call):
    file, out = tmp_path / "mine_named.py", tmp_path / "runs"
    build = "lambda image, n_classes: Net(), image=(1, 24, 24), n_classes=10"
    file.write_text(f'{NET}\ntc.register_model("mine_named", {build})\n')
    line = ["train", "--model", "mine_named", "--data", "tiny", "--epochs", 1, "--seeds", "0-1"]
    well(call(*line, "--set", "batch_size=20", "--out", out, "--import", file))
    forget()
    assert_one_sentence(call("compare", out), "add --import mine_named.py to the command")
    first = sorted(each for each in out.iterdir() if each.is_dir())[0]
    for line in (["doctor", first], ["train", "--init-from", first, "--data", "tiny"]):
        end = ["--out", tmp_path / "on"] if line[0] == "train" else []
        assert_one_sentence(call(*line, *end), "add --import mine_named.py to the command")
    assert_one_sentence(call("compare", first), "add --import mine_named.py to the command")
    done = well(call("compare", out, "--import", file))
    assert done.out.splitlines()[1].startswith("mine_named  2 ")


CONVOLUTION = NET.replace("Linear(576, 10)", "Conv2d(1, 10, 24)").replace(
    "self.layer(images.flatten(1))", "self.layer(images).flatten(1)"
)


def test_a_network_without_a_name_is_pruned_in_python_and_never_smaller(tmp_path, call):
    """It was told to give a module to fit, and that an OwnNetwork is no chain."""
    file = tmp_path / "mine_script.py"
    file.write_text(CONVOLUTION)
    own_code.import_file(file)
    net = sys.modules["mine_script"].Net
    fields = {"model": "own", "data": "tiny", "epochs": 1, "batch_size": 20}
    run = tc.train.fit(tc.train.make_recipe(**fields), tmp_path / "run", model=net()).folder
    line = ["prune", run, "--to", "0.5", "--import", file, "--out"]
    assert_one_sentence(
        call(*line, tmp_path / "pruned"),
        f"{run} holds a network of your own, of the class mine_script.Net, which no recipe can "
        f'make; prune it in Python: tc.train.fit(recipe, out, model=Net(...), begin_with="{run}'
        f'"), with prune and prune_to in the recipe.',
    )
    assert not (tmp_path / "pruned").exists()
    # That needs no module to train.
    done = well(call(*line, tmp_path / "masked", "--by", "mask_at_the_end"))
    assert json.loads(done.out)["sparsity"]["share"] == 0.5
    pruned = tc.train.make_recipe(**fields, prune="magnitude", prune_to=0.5, prune_ramp=1)
    made = tc.train.fit(pruned, tmp_path / "made", model=net(), begin_with=run)
    assert made.result()["sparsity"]["share"] == 0.5
    shown = Run(run).recipe.model_copy(update={"data": "own"})
    Run(run).write(Run(run).recipe_file, shown.model_dump_json())
    assert_one_sentence(
        call(*line, tmp_path / "pruned"),
        "prune in Python, with fit(recipe, out, own=..., model=..., begin_with=...).",
    )


SCRIPT = f"""{NET}
import sys
from torchcaps.data import SOURCES
from cli.command_line import tiny

SOURCES["tiny"] = tiny
if __name__ == "__main__":
    recipe = tc.train.make_recipe(model="own", data="tiny", epochs=1, batch_size=20)
    tc.train.fit(recipe, sys.argv[1], model=Net())
"""


def test_the_network_of_a_script_is_opened_by_its_file(tmp_path, call, monkeypatch):
    file, run = tmp_path / "mine_script.py", tmp_path / "run"
    file.write_text(SCRIPT)
    monkeypatch.setattr(sys, "argv", ["mine_script.py", str(run)])
    runpy.run_path(str(file), run_name="__main__")
    assert Run(run).about()["class"] == "__main__.Net"
    line = ["eval", run, "--json"]
    forget()
    done = well(call(*line, "--import", file))
    assert json.loads(done.out)["images"] == 12
    # Of two files with such a class, nobody knows which is meant.
    other = tmp_path / "mine_other.py"
    other.write_text(NET)
    forget()
    refused = call(*line, "--import", file, "--import", other)
    assert_one_sentence(refused, "several of that name, mine_script.Net and mine_other.Net;")
    other.write_text(NET.replace("class Net", "class Other"))
    forget()
    refused = call(*line, "--import", other)
    assert_one_sentence(refused, "the imported files have only mine_other.Other")


def test_a_network_without_a_name_is_opened_by_its_file_and_a_renamed_one_by_its_content(
    tmp_path, call, caplog
):
    file, run = tmp_path / "mine_script.py", tmp_path / "run"
    file.write_text(NET)
    own_code.import_file(file)
    recipe = tc.train.make_recipe(model="own", data="tiny", epochs=1, batch_size=20)
    tc.train.fit(recipe, run, model=sys.modules["mine_script"].Net())
    forget()
    line = ["eval", run, "--json"]
    assert_one_sentence(call(*line), "add --import mine_script.py to the command")
    assert json.loads(call(*line, "--import", file).out)["images"] == 12
    forget()
    renamed = file.rename(tmp_path / "mine_other.py")
    done = call(*line, "--import", renamed)
    assert json.loads(done.out)["images"] == 12
    assert "of the class mine_script.Net; mine_other.Net is taken for it" in caplog.text
    renamed.write_text(f"{NET}\n# changed")
    forget()
    refused = call(*line, "--import", renamed)
    assert_one_sentence(
        refused, "if mine_other.py is that file, changed since, name it mine_script.py again"
    )
