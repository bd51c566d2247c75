"""The demo: twins that differ in routing alone, one page, and no work done twice."""

import importlib
import json
import subprocess

import pytest
import torch

from cli.command_line import COMMAND
from torchcaps.data import load
from torchcaps.data.make.part_whole import SIZES
from torchcaps.tasks import demo
from torchcaps.train import Run, make_recipe
from torchcaps.train.loop import Loop
from torchcaps.train.start import initial_model

# The package hides its module `demo` behind the function.
DEMO = importlib.import_module("torchcaps.tasks.demo")


@pytest.fixture(autouse=True, scope="module")
def _tiny():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DEMO, "EPOCHS", 1)
        patch.setitem(SIZES, "train", 40)
        patch.setitem(SIZES, "test", 48)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    assert demo(folder, seed=4) == folder / "report.html"
    return folder


def test_both_twins_are_trained_and_meet_on_one_page(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["dynamic", "report.html", "uniform"]
    for routing in ("dynamic", "uniform"):
        run = Run(folder / routing)
        assert run.recipe.options == {"routing": routing, "init": "balanced"}
        assert (run.recipe.seed, run.recipe.epochs, run.recipe.data) == (4, 1, "part-whole")
        assert run.result()["test_images"] == 48
    page = (folder / "report.html").read_text()
    assert "Is there a parse tree inside?" in page
    names = [page.index(name) for name in ("The true tree", "Dynamic routing", "Uniform twin")]
    assert names == sorted(names)
    assert "It is the true tree: its edges score 1.00" in page
    assert "48 of 48 of part-whole (" in page


def test_twins_differ_in_routing_and_share_every_weight_up_to_its_size_at_birth():
    images = load("part-whole", split="test")
    dynamic, uniform = (
        initial_model(
            make_recipe(
                model="mitterreiter_5x16",
                data="part-whole",
                seed=4,
                options={"routing": routing, "init": DEMO.INIT},
            ),
            images,
        ).state_dict()
        for routing in ("dynamic", "uniform")
    )
    shared = set(dynamic) & set(uniform)
    # Balanced lengths ask for another size of the same weights in each layer that is routed.
    scaled = {name for name in shared if not torch.equal(dynamic[name], uniform[name])}
    assert scaled == {
        f"layers.{name}.weight" for name in ("hidden_2", "hidden_3", "hidden_4", "classes")
    }
    for name in scaled:
        factor = dynamic[name].norm() / uniform[name].norm()
        torch.testing.assert_close(dynamic[name], factor * uniform[name])
    # Only the learned priors of dynamic routing have no counterpart.
    assert not set(uniform) - shared
    assert {name.rsplit(".", 1)[-1] for name in set(dynamic) - shared} == {"prior"}


@pytest.mark.slow
def test_a_second_call_trains_nothing_and_draws_the_page_again(folder, monkeypatch):
    files = [file for file in folder.glob("*/*") if file.is_file()]
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}
    (folder / "report.html").unlink()
    monkeypatch.setattr(Loop, "training_step", lambda *_: pytest.fail("it trains again"))
    assert demo(folder, seed=4).is_file()
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in before} == before


@pytest.mark.slow
def test_the_real_demo_teaches_both_twins_something(tmp_path):
    done = subprocess.run(
        [COMMAND, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torchcaps-demo/report.html\n"
    assert (tmp_path / "torchcaps-demo" / "report.html").stat().st_size > 10_000
    for routing in ("dynamic", "uniform"):
        result = json.loads((tmp_path / "torchcaps-demo" / routing / "result.json").read_text())
        # Three times chance.
        assert result["test_accuracy"] >= 0.30, routing
