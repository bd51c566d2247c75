"""Measurements while training: the run is the same, also after a stop, and its rows tell more."""

import pytest
import torch

from laid_runs import rows, tiny_images
from torchcaps.analysis import MeasureActivity, gradient_norms, measure
from torchcaps.data import by_name
from torchcaps.train import fit, make_recipe
from torchcaps.train.loss import loss_parts
from torchcaps.train.sampled import Sampled

NAMES = ["activity", "polarisation", "gradient-norms"]


DATA = {"tiny": tiny_images(48, size=20)}


def recipe(**fields):
    model = {"model": "mitterreiter_grid", "options": {"widths": "5,4", "d_pose": 4}}
    fields = {"data": "tiny", "epochs": 2, "batch_size": 16, "validation_share": 0.25} | fields
    return make_recipe(**(model | fields))


def test_a_measured_run_is_the_same_run_also_after_a_stop(tmp_path):
    plain = fit(recipe(), tmp_path / "plain")
    whole = fit(recipe(measure=NAMES), tmp_path / "whole")
    fit(recipe(measure=NAMES, epochs=1), tmp_path / "stopped")
    stopped = fit(recipe(measure=NAMES), tmp_path / "stopped")
    weights = plain.model().state_dict()
    for run in (whole, stopped):
        assert all(torch.equal(v, weights[n]) for n, v in run.model().state_dict().items())
    assert rows(stopped) == rows(whole)
    told = rows(whole)
    assert [row.pop("measured").keys() for row in told] == [{*NAMES}] * 2
    assert told == rows(plain)


def test_rows_are_what_analysis_says_every_other_epoch(tmp_path):
    asked = recipe(measure=NAMES, measure_every=2)
    run = fit(asked, tmp_path / "run")
    first, second = run.metrics()
    assert "measured" not in first
    # Of the validation images; twelve are all of them.
    held = by_name.SOURCES["tiny"]("train", None)
    sampled = Sampled(asked, held)
    model = run.model()
    batch = held.batch(sampled.index)
    row = sampled.of_epoch(model.train(), 2, step=6)["measured"]
    assert model.training
    (activity,) = measure(lambda x: model.eval()(x, keep="last"), [batch], [MeasureActivity()])
    cns = [layer["cns"] for layer in row["activity"]["layers"]]
    assert cns == pytest.approx([layer.cns for layer in activity.layers], rel=1e-5)
    assert len(second["measured"]["activity"]["layers"]) == len(cns)
    few = held.batch(sampled.index[:16])
    out = model(few.pixels, few.labels, keep="last")
    loss = sum(loss_parts(asked, out, few, 6).values())
    expected = gradient_norms(loss, out.trace).layers
    for ours, theirs in zip(row["gradient-norms"]["layers"], expected, strict=True):
        assert ours["capsules"] == pytest.approx(theirs.capsules.tolist(), rel=1e-4)
        assert torch.tensor(ours["matrices"]).shape == theirs.matrices.shape
    assert all(weight.grad is None for weight in model.parameters())


def test_the_sample_is_drawn_by_the_seed_and_old_recipes_keep_their_digest():
    held = by_name.SOURCES["tiny"]("train", None)
    orders = [Sampled(recipe(seed=seed), held).index.tolist() for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert recipe().digest() == recipe(measure=(), measure_every=1).digest()
    assert recipe().digest() != recipe(measure=["keys"]).digest()
