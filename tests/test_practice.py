"""docs/practice.md, one command each: a grouped, unequal set, drawn as the page draws it."""

import json
import re
from pathlib import Path

import pytest

from cli.command_line import Call, well
from pages import DOCS, blocks_of

GROUPS = ["--groups", "(p[0-9]+)_"]


@pytest.fixture(scope="module")
def crops(tmp_path_factory):
    """The page's pictures, 72, 12 and 9 of 16 by 16, three of each patient."""
    (script,) = blocks_of(DOCS / "practice.md")
    for old, new in (("900,", "72,"), ("120,", "12,"), ("40,", "9,"), ("20", "16")):
        assert old in script
        script = script.replace(old, new)
    home = tmp_path_factory.mktemp("practice")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        exec(compile(script, "practice.md", "exec"), {})
    return home / "crops"


def train(crops: Path, call: Call, out: Path, *more: object) -> str:
    line = ["crossval", "--data", "folder", "--root", crops, *GROUPS, "--folds", 3, "--epochs", 1]
    line += ["--option", "decoder=false", "--batch-size", 31]
    done = well(call(*line, *more, "--out", out))
    return done.out


def test_from_the_folder_to_the_methods_paragraph(crops, tmp_path, call):
    out = tmp_path / "folds"
    text = train(crops, call, out, "--class-weights", "balanced")
    assert "crops: 93 images, 31 groups, 3 folds; no fold parts a group" in text
    # What there is to beat, with its class, and nothing that could be read as good without it.
    assert "always saying 'benign' has an accuracy of 77.4% and a balanced one of 33.3%" in text
    numbers = json.loads((out / "crossval.json").read_text())
    # The same line trains nothing again, and the run of a fold is a run.
    assert json.loads(train(crops, call, out, "--class-weights", "balanced", "--json")) == numbers
    capsules, plain = numbers["networks"]
    for each in (capsules, plain):
        fields = {name: each["recipe"][name] for name in ("batch_size", "class_weights", "epochs")}
        assert fields == {"batch_size": 31, "class_weights": "balanced", "epochs": 1}
    assert plain["parameters"] == pytest.approx(capsules["parameters"], rel=0.05)
    for name in ("balanced accuracy", "accuracy, to beat 77.4%"):
        assert re.search(rf"{name} +\d+\.\d%( \[\d+\.\d, \d+\.\d\])? ", text), name
    # Ranks vary in any network that gives different scores.
    for each in (capsules, plain):
        low, high = each["measures"]["auroc"]["interval"]
        assert 0 <= low <= each["measures"]["auroc"]["value"] <= high <= 1
    for test in ("over the folds", "DeLong", "McNemar"):
        assert re.search(rf"{test} +[+-]\d+\.\d points", text), test
    assert "the test over the folds knows that trainings vary" in text

    well(call("paper", out, "--no-figures", "--out", tmp_path / "paper"))
    methods = (tmp_path / "paper" / "methods.md").read_text(encoding="utf-8")
    data = methods.split("\n")[0]
    assert data.count("cross-validation") == 1
    assert "Groups of images (named by (p\\[0-9\\]+)\\_) were kept together" in data
    assert data.count("Always answering benign is right for") == 1
    assert "**Comparison.** Every image was judged once, by networks trained without" in methods
    # A row a network, of all patients, with what there is to beat and the tests below.
    table = (tmp_path / "paper" / "table.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in table.splitlines() if "3 folds" in line]
    for row, each in zip(rows, (capsules, plain), strict=True):
        assert row[0] == "| " + each["label"].replace("_", "\\_")
        assert row[2].startswith(f"{100 * each['accuracy']:.4g}")
    assert "an accuracy of 77.4% and a balanced one of 33.3%" in table
    for test in ("over the folds", "DeLong", "McNemar"):
        assert test in table
    assert "fold=" not in table


def test_names_tell_the_doctor_of_groups(crops, call):
    line = ["doctor", "--model", "efficient_capsnet", "--data", "folder", "--root", crops]
    said = " ".join(call(*line, "--seconds", 1).out.split())
    assert re.search(r"look groups \d+ of \d+ groups of the test are in training too", said)
    assert "always saying 'benign' is right for 7" in said


def test_a_constant_network_is_called_constant(crops, tmp_path, call):
    """It learns nothing, so that it says one class of every picture."""
    text = train(crops, call, tmp_path / "folds", "--set", "learning_rate=1e-9")
    says = r"efficient_convnet says '\w+' of every image of these folds: 1, 2, 3\."
    assert re.search(says, text), text
    assert "efficient_convnet is not shown to be better than that" in text


@pytest.mark.slow
def test_one_command_gives_parts_on_the_image_and_the_paper(crops, tmp_path, call, caplog):
    paper = tmp_path / "paper"
    train(crops, call, tmp_path / "folds", "--against", "none", "--paper", paper)
    assert "no picture of" not in caplog.text
    assert [x.name for x in (paper / "figures").iterdir()] == ["1"]
    names = {"confusion", "reliability", "roc", "precision-recall", "parts", "dimensions-2"}
    assert {f"{name}.svg" for name in names} <= {x.name for x in (paper / "figures/1").iterdir()}
    assert {"methods.tex", "table.tex", "references.bib"} <= {x.name for x in paper.iterdir()}
