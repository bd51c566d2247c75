"""Training on a GPU: a captured step is the eager one, a run that goes on is an unbroken one."""

import copy

import pytest
import torch

import torchcaps as tc
from torchcaps.data import SOURCES, PartWholeSpec, part_whole
from torchcaps.train import fit, fit_many, make_recipe
from torchcaps.train.captured import WARM_UP

pytestmark = pytest.mark.gpu

# Sums in another order move losses of twenty updates so far; other images or momenta a hundredfold.
APART = 1e-4


@pytest.mark.parametrize(
    "preset",
    ["mitterreiter_5x16", "efficient_capsnet", "matrix_capsnet", "tsai_inverted_simple_c10"],
)
def test_twenty_captured_steps_are_twenty_eager_ones(preset, device):
    from gpu_steps import PARITY, Step

    eager, captured = (Step(preset, device, 4, captured=captured) for captured in (False, True))
    begin = copy.deepcopy(eager.model.state_dict())
    for k in range(PARITY):
        assert captured.loss(k) == pytest.approx(eager.loss(k), rel=APART), k
    if device.type == "cuda":
        (size,) = captured.train.graphs
        assert captured.train.seen[size] == PARITY > WARM_UP
    states = [model.state_dict() for model in (eager.model, captured.model)]
    for name, before in begin.items():
        mine, theirs = (state[name].double() for state in states)
        assert (mine - theirs).norm() <= 0.05 * (mine - before.double()).norm(), name


@pytest.mark.parametrize("captures", ["0", "1"])
@pytest.mark.parametrize("preset", ["mitterreiter_5x16", "efficient_capsnet"])
def test_a_run_that_goes_on_is_an_unbroken_one(preset, captures, device, tmp_path, monkeypatch):
    if device.type != "cuda" and torch.cuda.is_available():
        pytest.skip("fit trains on the GPU that is there")
    monkeypatch.setenv("TORCHCAPS_CAPTURE", captures)
    spec = PartWholeSpec(size=28)
    own = part_whole("train", 96, spec=spec), part_whole("test", 24, spec=spec)

    def recipe(epochs):
        return make_recipe(model=preset, data="own", epochs=epochs, batch_size=16)

    whole = fit(recipe(3), tmp_path / "whole", own=own)
    fit(recipe(1), tmp_path / "broken", own=own)
    broken = fit(recipe(3), tmp_path / "broken", own=own)
    losses = [[float(row["loss"]) for row in run.metrics()] for run in (whole, broken)]
    assert len(losses[0]) == 3
    assert losses[1] == pytest.approx(losses[0], rel=APART)


@pytest.mark.parametrize("captures", ["0", "1"])
def test_runs_at_once_are_what_each_is_alone(captures, device, tmp_path, monkeypatch):
    if device.type != "cuda" and torch.cuda.is_available():
        pytest.skip("fit trains on the GPU that is there")
    monkeypatch.setenv("TORCHCAPS_CAPTURE", captures)
    monkeypatch.setitem(
        SOURCES,
        "part-whole",
        lambda split, root: part_whole(split, 96, spec=PartWholeSpec(size=28)),
    )
    recipes = [
        make_recipe(model=preset, data="part-whole", epochs=2, batch_size=16, seed=seed)
        for preset, seed in (("mitterreiter_5x16", 0), ("mitterreiter_5x16", 1), ("capsnet", 0))
    ]
    at_once = fit_many(recipes, [tmp_path / str(k) for k in range(3)])
    for k, recipe in enumerate(recipes):
        alone = fit(recipe, tmp_path / f"alone{k}")
        losses = [[float(row["loss"]) for row in run.metrics()] for run in (at_once[k], alone)]
        assert losses[0] == pytest.approx(losses[1], rel=APART)


@pytest.mark.parametrize("preset", ["mitterreiter_5x16", "efficient_capsnet", "capsnet"])
def test_scores_of_a_graph_are_the_networks(preset, device):
    torch.manual_seed(0)
    model = tc.create_model(preset).to(device).eval()
    images = torch.rand(11, *model.config["image"], device=device)
    fast = tc.optimise_for_inference(model, images[:4])
    for count in (11, 3):
        with torch.no_grad():
            expected = model(images[:count]).scores
        torch.testing.assert_close(fast(images[:count]), expected, rtol=1e-4, atol=1e-6)
