"""Looks: which numbers a network gives, and what they are called."""

import json

import pytest
import torch

from error_text import text_of
from torchcaps.analysis import (
    Antipodal,
    Calibration,
    ComponentChange,
    Inequality,
    LayerAntipodal,
    LayerInequality,
    LayerSelectivity,
    Perturbation,
    Polarisation,
    Reliability,
    Selectivity,
    Separation,
    StepPolarisation,
)
from torchcaps.analysis.trace import lengths
from torchcaps.models import create_model
from torchcaps.prune import prunable
from torchcaps.study.look import Look, looks_named
from torchcaps.study.measure import (
    _of_calibration,
    _of_inequality,
    _of_steps,
    _of_weights,
    images_of_others,
    look_at,
    root_of,
)
from torchcaps.tasks.evaluate import evaluate
from torchcaps.tasks.trained import open_trained
from torchcaps.train import fit, make_recipe
from torchcaps.train.start import initial_model
from torchcaps_claims import find_claim, plan_of
from torchcaps_claims.looks import looks_of
from torchcaps_claims.read_off import of_pairs, of_perturbation, of_selectivity, of_separation
from torchcaps_claims.result import _keys


def jobs(name):
    return plan_of(find_claim(name)).jobs


def looks(*jobs):
    return [look.name for job in jobs for look in looks_of(job)]


def test_a_job_names_its_looks():
    assert looks(*jobs("peer2022-t1-rba-bias")) == ["accuracy@sign/train"]
    (job,) = jobs("mitt2023-t1-layer1-dyr")
    assert looks(job) == ["layers@affnist/test"]
    assert looks(job.smaller()) == ["layers@affnist-style/test"]
    assert looks(*jobs("rem-t1-cifar-10-deepcaps-rem-entropy")) == ["keys+K11@cifar10/test"]
    assert looks(*jobs("rem-t7-dr-capsnet-q-mnist")) == ["accuracy+K11@mnist/test"]


def test_compactness_is_looked_at_factor_by_factor():
    (job,) = jobs("gu2021-t5-capsnet-trans-x")
    assert looks(job) == ["compactness@mnist/test"]
    assert [*_keys(job)] == ["compactness.trans-x"]
    assert job.commands()[1].endswith("--measure compactness --json")
    (look,) = looks_named(["compactness"], "mnist")
    assert look.kind == "compactness"


def test_couplings_are_looked_at_on_the_grid_of_a_row():
    (job,) = jobs("rem-t9-dr-capsnet-q-entropy")
    assert looks(job) == ["keys+K11@mnist/test"]
    assert job.commands()[1].endswith("--quantise 11 --measure keys --json")
    # Couplings as they are, pruned and not.
    assert looks(*jobs("rem-q-sparser-couplings")) == ["inequality@mnist/test"] * 2


def test_opposites_are_numbers_a_layer_and_a_mean_share():
    rows = [LayerAntipodal(f"l{k}", 0.5, k / 8, None, -k / 8, k / 4) for k in (1, 2)]
    assert of_pairs(Antipodal(9, 0.9, tuple(rows))) == {
        **{"antipodal_share.1": 0.125, "antipodal_share.2": 0.25, "antipodal_share": 0.1875},
        **{"lowest_cosine.1": -0.125, "lowest_cosine.2": -0.25},
        **{"negative_share.1": 0.25, "negative_share.2": 0.5},
    }


@pytest.mark.slow
def test_opposites_before_training_are_those_of_the_network_it_began_with(tmp_path):
    options = {"widths": "4,3", "d_pose": 2}
    few = {"epochs": 1, "train_images": 100, "batch_size": 25, "learning_rate": 0.05}
    recipe = make_recipe(model="mitterreiter_grid", data="part-whole", options=options, **few)
    run = fit(recipe, tmp_path / "run")
    images = open_trained(run.folder).images("test")
    begun = initial_model(recipe, images).eval()
    expected = evaluate(begun, images, measurements=("antipodal",)).measured["antipodal"].layers
    found = look_at(run, Look("antipodal-at-start", "part-whole"), root=None)
    after = look_at(run, Look("antipodal", "part-whole"), root=None)
    for k, layer in enumerate(expected, 1):
        assert found[f"lowest_cosine_at_start.{k}"] == layer.lowest != after[f"lowest_cosine.{k}"]
        assert found[f"antipodal_share_at_start.{k}"] == layer.per_child
    assert len(found) == len(after)


def test_inequality_is_a_number_a_layer_and_that_of_the_last():
    layers = (LayerInequality("hidden", 0.1, 0.4, None), LayerInequality("classes", 0.2, 0.5, 0.3))
    assert _of_inequality(Inequality(5, layers)) == {
        "small_couplings.1": 0.1,
        "even_couplings.1": 0.4,
        "small_couplings.2": 0.2,
        "even_couplings.2": 0.5,
        "small_couplings": 0.2,
        "even_couplings": 0.5,
        "gini.2": 0.3,
        "gini": 0.3,
    }
    # The last one may have none, and a lower one's is not its.
    lower = (LayerInequality("hidden", 0.1, 0.4, 0.2), LayerInequality("classes", 0.2, 0.5, None))
    found = _of_inequality(Inequality(5, lower))
    assert found["gini.1"] == 0.2
    assert "gini" not in found


def test_polarisation_of_the_last_step_is_its_own_or_none():
    steps = (StepPolarisation("hidden", 1, 0.2, 0.5), StepPolarisation("classes", 1, None, None))
    assert _of_steps(Polarisation(5, steps, None)) == {"polarisation.1.1": 0.2}
    assert _of_steps(Polarisation(5, steps[:1], None)) == {
        "polarisation.1.1": 0.2,
        "polarisation": 0.2,
    }


def test_separation_is_told_in_percent_where_it_is_an_accuracy():
    assert looks(jobs("gu2021-q-cr-separates-classes")[0]) == ["separation@toy-2d/test"]
    found = of_separation(Separation(5, 0.25, 0.8))
    assert found == {"silhouette": 0.25, "nearest_centroid": 80}


def test_self_attention_is_looked_at_as_it_is_and_on_the_grid():
    names = looks(*(job for job in jobs("rem-q-selfattention-collapse") if job.test == "mnist"))
    plain, grid = (f"layers{k}@mnist/test keys{k}@mnist/test".split() for k in ("", "+K11"))
    assert names == [*plain, *grid]


def test_dedicated_capsules_are_a_share_a_layer_where_some_live():
    assert looks(jobs("mitt2023-q-no-dedicated-entity")[0]) == ["selectivity@part-whole/test"]
    auc = torch.zeros(2, 3)
    rows = (
        LayerSelectivity(
            "primary", 2, 0.5, 0.0, auc, auc[:, 0], ((0.8, 0.7, 0.6), (0.9, 0.7, None))
        ),
        LayerSelectivity("hidden", 0, None, 0.25, auc, auc[:, 0]),
    )
    assert of_selectivity(Selectivity(5, (0, 1, 2), rows)) == {
        "one_part.1": 0.5,
        "one_part_at_most.1": 0.6,
        "one_part_by_chance.1": 0.0,
        "one_part_by_chance.2": 0.25,
    }


def test_how_far_drawings_change_is_a_number_an_amount():
    assert looks(jobs("gu2021-q-perturbation-range")[0]) == ["perturbation@mnist/test"]
    rows = [ComponentChange(a, c, torch.tensor([c])) for a, c in ((0.2, 0.1), (8.0, 0.5))]
    assert of_perturbation(Perturbation(5, tuple(rows))) == {"change.0.2": 0.1, "change.8": 0.5}


def test_numbers_of_other_images_carry_their_name():
    assert Look("accuracy", "mnist").key("accuracy", tested_on="mnist") == "accuracy"
    assert Look("layers", "mnist", "train").key("dyr.2", tested_on="mnist") == "dyr.2@mnist/train"
    quantised = Look("accuracy", "mnist", levels=(11, 6))
    assert quantised.key("accuracy", tested_on="mnist") == "accuracy+K11,6"
    assert quantised.key("accuracy", tested_on="sign") == "accuracy+K11,6@mnist/test"
    assert Look("layers", "affnist").key("dyr.2", tested_on="mnist") == "dyr.2@affnist/test"


def test_weights_are_the_same_whatever_images_are_shown():
    (job,) = jobs("rem-t1-f-mnist-dr-capsnet-rem-sparsity")
    assert looks(job) == ["weights@fashion-mnist/test"]
    for split in ("test", "train"):
        assert Look("weights", "mnist", split).key("sparsity", tested_on="sign") == "sparsity"


def test_looks_by_the_names_of_statistics():
    found = looks_named(["accuracy", "dyr", "cns", "accuracy@affnist-style/test"], "mnist")
    assert [look.name for look in found] == [
        "accuracy@mnist/test",
        "layers@mnist/test",
        "accuracy@affnist-style/test",
    ]
    (grid,) = looks_named(["entropy+K11,6@sign/train"], "mnist")
    assert grid == Look("keys", "sign", "train", (11, 6))


def test_only_files_have_a_root():
    assert (root_of("mnist", "sets"), root_of("sign", "sets")) == ("sets", None)


def test_how_sharp_agreement_became_is_a_number_a_routed_layer():
    model = create_model("mitterreiter_grid", widths="4,3", d_pose=2, agreement="learned")
    with torch.no_grad():
        model.layers["classes"].routing.agreement.fill_(0.5)
    found = _of_weights(model)
    assert found["agreement.2"] == 0.5
    assert found["agreement.1"] == pytest.approx(0.1)
    fixed = _of_weights(create_model("mitterreiter_grid", widths="4,3", d_pose=2, agreement=0.3))
    assert found.keys() - fixed.keys() == {"agreement.1", "agreement.2"}


def test_zeros_are_counted_among_what_was_trained():
    model = create_model("mitterreiter_grid", widths="4,3", d_pose=2)
    weights = prunable(model)
    with torch.no_grad():
        weights["layers.classes.weight"].zero_()
    n_zeros = weights["layers.classes.weight"].numel()
    trained = sum(w.numel() for name, w in weights.items() if not name.startswith("backbone"))
    assert trained < sum(w.numel() for w in weights.values())
    found = _of_weights(model, frozen=("backbone",))
    assert found["sparsity"] == pytest.approx(100 * n_zeros / trained)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = make_recipe(
        model="mitterreiter_grid",
        data="part-whole",
        epochs=1,
        batch_size=250,
        options={"widths": "4,3", "d_pose": 2, "init": "balanced"},
    )
    return fit(recipe, tmp_path_factory.mktemp("look") / "run")


@pytest.mark.slow
def test_layers_are_counted_from_below(run):
    found = look_at(run, Look("layers", "part-whole"), root=None)
    layers = {name.split(".")[1] for name in found if name.startswith("cns")}
    assert layers == {"1", "2", "3"}
    assert {name for name in found if name.startswith("dyr")} <= {"dyr.1", "dyr.2"}
    for name, n in (("1", 4), ("2", 3), ("3", 10)):
        assert found[f"capsules_alive.{name}"] + found[f"cds.{name}"] == n
        assert found[f"cns.{name}"] == pytest.approx(n * found[f"cnm.{name}"])
    trained = open_trained(run.folder)
    pixels = trained.images("test", data="part-whole", root=None).batch(slice(None)).pixels
    found_lengths = lengths(trained.model.eval()(pixels, keep="last").trace[-1].routed.parents)
    assert found["car_twice.3"] == pytest.approx(float((found_lengths >= 0.2).double().mean()))
    assert found["car_twice.3"] <= found["car.3"]
    assert torch.tensor(list(found.values())).isfinite().all()


@pytest.mark.slow
def test_the_accuracy_of_a_run_is_looked_at_once(run):
    (run.folder / "model.safetensors").rename(run.folder / "away")
    try:
        found = look_at(run, Look("accuracy", "part-whole"), root=None)
    finally:
        (run.folder / "away").rename(run.folder / "model.safetensors")
    assert found == {"accuracy": 100 * run.result()["test_accuracy"]}


@pytest.mark.slow
def test_images_that_were_exchanged_since_are_a_sentence(run):
    look, kept = Look("layers", "part-whole"), run.result_file.read_text()
    result = json.loads(kept)
    result["digests"]["test"] = "000000000000"
    run.write(run.result_file, json.dumps(result))
    try:
        text = text_of(lambda: look_at(run, look, root=None))
    finally:
        run.write(run.result_file, kept)
    assert text == (
        f"{run.folder} was tested on other images of part-whole than there are now, and its record "
        f"would be of both; put them back as they were, or name their --root."
    )
    assert images_of_others(run, look, root=None) is None
    moved = Look("layers", "part-whole", "train")
    assert images_of_others(run, moved, root=None) is None


@pytest.mark.slow
def test_zeros_are_counted_in_percent(run, monkeypatch):
    # Nothing is trained to be exactly zero.
    found = look_at(run, Look("weights", "part-whole"), root=None)
    assert found.pop("nonzero_parameters") == pytest.approx(
        sum(weight.numel() for weight in run.model().parameters()) / 1e6, rel=1e-3
    )
    assert found == {"sparsity": 0.0}
    model = run.model()
    first, *others = prunable(model).values()
    with torch.no_grad():
        for weight in others:
            weight.zero_()
    monkeypatch.setattr(type(run), "model", lambda self: model)
    found = look_at(run, Look("weights", "part-whole"), root=None)
    zeros = sum(weight.numel() for weight in others)
    assert found["sparsity"] == pytest.approx(100 * zeros / (zeros + first.numel()))


@pytest.mark.slow
def test_compactness_is_a_number_a_factor(run):
    found = look_at(run, Look("compactness", "part-whole"), root=None)
    mean = found.pop("compactness")
    assert len(found) == 6
    assert mean == pytest.approx(sum(found.values()) / 6)


@pytest.mark.slow
def test_a_quantised_run_is_looked_at_on_its_grid(run):
    grid = look_at(run, Look("accuracy", "part-whole", levels=(2,)), root=None)
    keys = look_at(run, Look("keys", "part-whole", levels=(11, 6)), root=None)
    assert 0 <= grid["accuracy"] <= 100
    assert keys["keys"] == pytest.approx(sum(keys[f"keys.{k}"] for k in range(10)) / 10)
    assert 0 <= keys["entropy"] <= keys["entropy_bound"]


def test_a_statement_about_epochs_needs_no_pass_but_that_of_its_run():
    for name in ("tsai2020-q-jitters", "tsai2020-q-dmm-converges-better"):
        assert {look.kind for job in jobs(name) for look in looks_of(job)} == {"accuracy"}


def test_confidence_is_the_mean_largest_probability():
    counts, confidence = torch.tensor([1.0, 3.0]), torch.tensor([0.25, 0.75])
    answers = Reliability("answers", 4, 0.0, counts, confidence, confidence)
    assert _of_calibration(Calibration(answers, answers)) == {"confidence": 0.625}
