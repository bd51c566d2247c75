"""`torchcaps prune`: a run of its own, that of the network it is given left as it was."""

import importlib
import itertools
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from cli.command_line import assert_one_sentence, well
from torchcaps import load, save
from torchcaps.errors import Emptied, Interrupted, TorchcapsError
from torchcaps.prune import MaskAtTheEnd, sparsity
from torchcaps.tasks import prune_run
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.folder.alone import alone

# The package hides its module behind the function.
MODULE = importlib.import_module("torchcaps.tasks.prune_run")
MASK = ["--by", "mask_at_the_end", "--to", "0.5"]
PLACES = [*itertools.product(("train", "test"), ("cat", "dog"), range(10))]


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def mask(call, tmp_path):
    """Masks a run to a half, and gives the run that this made."""

    def mask(run, *more, out="masked"):
        well(call("prune", run, *MASK, *more, "--out", tmp_path / out))
        return Run(tmp_path / out)

    return mask


@pytest.fixture
def pictures(tmp_path):
    """A folder of pictures, parted already."""
    drawn = np.random.default_rng(0).integers(0, 256, (40, 24, 24), dtype=np.uint8)
    for (split, label, number), pixels in zip(PLACES, drawn, strict=True):
        folder = tmp_path / "pictures" / split / label
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "pictures"


@pytest.fixture
def of_pictures(pictures, tmp_path):
    """A run on them, which remembers where they lie."""
    fields = {"model": "mitterreiter_5x16", "data": "folder", "epochs": 1, "batch_size": 20}
    return fit(make_recipe(**fields), tmp_path / "of_pictures", root=pictures).folder


def test_prune_makes_a_run_of_its_own(trained, call, tmp_path):
    before = contents(trained)
    out = tmp_path / "pruned"
    words = ["prune", trained, "--to", "0.5", "--epochs", "2", "--set", "prune_ramp=1"]
    done = well(call(*words, "--out", out))
    said = json.loads(done.out)
    assert said["run"] == str(out)
    assert said["sparsity"]["share"] == pytest.approx(0.5, abs=1e-4)
    # Every epoch's line tells how far it is.
    assert done.err.count("sparsity 50.0%  entropy ") == 2
    assert contents(trained) == before
    old, new = Run(trained).recipe, Run(out).recipe
    assert (new.prune, new.prune_to, new.epochs, new.seed) == ("magnitude", 0.5, 2, old.seed)
    assert new.learning_rate == old.learning_rate / 10
    assert sparsity(load(Run(out).model_file)).share == said["sparsity"]["share"]
    # The same line again finds it done; another sparsity is another run.
    assert json.loads(call(*words, "--out", out).out) == said
    words[3] = "0.6"
    assert_one_sentence(call(*words, "--out", out), "holds a run of another recipe (prune_to 0.5")


def test_a_pruning_that_was_stopped_goes_on(trained, call, tmp_path):
    words = ["prune", trained, "--to", "0.5", "--epochs", "1", "--set", "prune_ramp=1"]
    words += ["--out", tmp_path / "run", "--time-budget", "1s"]
    well(call(*words[:-3], tmp_path / "whole"))
    for _ in range(20):
        if call(*words).code == 0:
            break
    files = [tmp_path / name / "model.safetensors" for name in ("run", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("scope", "frozen"), [("network", ()), ("layer", ()), ("lamp", ()), ("layer", ("backbone",))]
)
def test_masking_at_the_end_is_what_training_with_it_gives(trained, mask, tmp_path, scope, frozen):
    fields = Run(trained).recipe.model_dump(exclude_defaults=True)
    if frozen:
        fields["freeze"] = frozen
        trained = fit(make_recipe(**fields), tmp_path / "frozen").folder
    masked = mask(trained, "--set", f"prune_scope={scope}")
    way = {"prune": "mask_at_the_end", "prune_to": 0.5, "prune_scope": scope}
    again = fit(make_recipe(**{**fields, **way}), tmp_path / "b")
    assert masked.model_file.read_bytes() == again.model_file.read_bytes()
    assert masked.recipe == again.recipe
    # How long it took alone is that of the run.
    took = {"seconds_of_last_stretch": Run(trained).result()["seconds_of_last_stretch"]}
    assert masked.result() == {**again.result(), **took}


def test_a_masked_run_does_not_begin_anew(trained, mask):
    """Asked for more epochs it did, from first weights, and lost its result."""
    out = mask(trained).folder
    before = contents(out)
    recipe = Run(out).recipe
    longer = recipe.model_copy(update={"epochs": recipe.epochs + 1})
    with pytest.raises(TorchcapsError) as caught:
        fit(longer, out)
    assert str(caught.value) == (
        f"{out} is finished, but has no state.ckpt, so more epochs would begin anew and lose its "
        "result (a run masked at its end never has one); choose another folder, or remove "
        "result.json to begin anew."
    )
    assert contents(out) == before


def test_a_masked_run_outlives_more_epochs_of_the_run_it_is_of(trained, mask, call, tmp_path):
    """It was written over by what the run had become."""
    out, longer = mask(trained).folder, Run(shutil.copytree(trained, tmp_path / "longer"))
    before = contents(out)
    recipe = longer.recipe.model_copy(update={"epochs": longer.recipe.epochs + 2})
    longer.write(longer.recipe_file, recipe.model_dump_json())
    assert_one_sentence(
        call("prune", longer.folder, *MASK, "--out", out),
        f"{out} holds what was masked after 1 epoch, and {longer.folder} has been trained for 3 "
        f"since; give what is masked now a folder of its own: name another one with --out.",
    )
    assert contents(out) == before


@pytest.mark.parametrize(
    ("protocol", "name", "value"), [("gu", "validation_share", 0.1), ("rem", "keep", "last")]
)
def test_masking_keeps_what_a_run_has_otherwise_than_its_protocol(
    mask, tmp_path, protocol, name, value
):
    # Each of these is the field's default, and not what the protocol has.
    fields = {"model": "mitterreiter_5x16", "data": "tiny", "epochs": 1, "batch_size": 20}
    run = fit(make_recipe(protocol=protocol, **fields, **{name: value}), tmp_path / "run")
    masked = mask(run.folder)
    way = {"prune": "mask_at_the_end", "prune_to": 0.5, "prune_scope": "lamp"}
    assert masked.recipe == run.recipe.model_copy(update=way)
    assert (masked.recipe.protocol, getattr(masked.recipe, name)) == (protocol, value)
    departures = masked.result()["departures"]
    assert departures == run.result()["departures"]
    assert any(each.startswith(f"{name}: ") for each in departures)


def test_a_run_that_was_pruned_is_not_masked_as_if_it_never_was(trained, mask, call, tmp_path):
    """No recipe says both, so what had been made of a run that was not pruned was given back as
    that of one that was."""
    mask(trained)
    run = Run(shutil.copytree(trained, tmp_path / "pruned"))
    way = {"prune": "snip", "prune_to": 0.2}
    run.write(run.recipe_file, run.recipe.model_copy(update=way).model_dump_json())
    for out in ("masked", "new"):
        assert_one_sentence(
            call("prune", run.folder, *MASK, "--out", tmp_path / out),
            f"{run.folder} was pruned before, by snip, and no recipe says both: mask a run that "
            f"was not pruned, or prune this one further by a way that trains on, as magnitude.",
        )
    assert not (tmp_path / "new").exists()


def test_masking_a_run_with_damaged_metrics_leaves_nothing_behind(trained, call, tmp_path):
    run = Run(shutil.copytree(trained, tmp_path / "run"))
    run.write(run.metrics_file, "no row\n")
    words = [*MASK, "--out", tmp_path / "masked"]
    assert_one_sentence(call("prune", run.folder, *words), f"{run.metrics_file} ")
    assert not (tmp_path / "masked").exists()


def test_a_pruning_that_is_not_finished_is_not_told_to_train(trained, call, tmp_path):
    """Its train line, which it never had, was to finish it."""
    half = tmp_path / "half"
    words = ["--to", "0.5", "--set", "prune_ramp=1"]
    with pytest.raises(Interrupted):
        prune_run(trained, half, to=0.5, epochs=2, fields={"prune_ramp": 1}, time_budget=1e-3)
    for command in (["prune", half, *words, "--out", tmp_path / "new"], ["dictionary", half]):
        assert_one_sentence(
            call(*command),
            f"{half} holds no finished run (result.json is missing); finish it with the command "
            f"that began it, which its environment.json holds. torchcaps eval and doctor take it "
            f"as it is.",
        )
    assert not (tmp_path / "new").exists()
    assert "command" in Run(half).began()
    done = well(call("eval", half))
    assert "the run is not finished; the command that began it continues it" in done.out


def test_what_somebody_put_beside_a_run_outlives_it(trained, call, tmp_path, monkeypatch):
    """It is emptied where its training, and not the network it began with, comes to that."""
    monkeypatch.setattr(MODULE, "_check_leaves_some", lambda *_: None)
    out = tmp_path / "new"
    with pytest.raises(Interrupted):
        prune_run(trained, out, to=0.9999, time_budget=1e-3)
    (out / "notes.txt").write_text("of my own")
    words = ["--to", "0.9999", "--scope", "network", "--out", out]
    assert call("prune", trained, *words).code == 2
    assert [file.name for file in out.iterdir()] == ["notes.txt"]


def test_a_finished_run_outlives_more_epochs_that_empty_it(trained, call, tmp_path, monkeypatch):
    out = tmp_path / "new"
    words = ["prune", trained, "--to", "0.5", "--set", "prune_ramp=1", "--out", out]
    well(call(*words, "--epochs", "1"))
    before = {name: each for name, each in contents(out).items() if name != "state.ckpt"}

    def emptied(recipe, folder, **options):
        Run(folder).begin(recipe, Run(folder).about()["training_images"])
        raise Emptied("pruning would set all weights to zero.")

    monkeypatch.setattr(MODULE, "fit", emptied)
    done = call(*words, "--epochs", "2")
    assert_one_sentence(done, f"to zero; what was written in {out} is as it was before.")
    assert contents(out).keys() == before.keys()
    same = before.keys() - {"digests.json"}
    assert {name: contents(out)[name] for name in same} == {name: before[name] for name in same}
    assert Run(out).is_finished(Run(out).recipe)
    assert load(out) is not None


def test_a_masked_run_is_written_by_one_process_alone(trained, call, tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.train.folder.alone.LOCK_SECONDS", 0.1)
    out = tmp_path / "masked"
    out.mkdir()
    words = ["prune", trained, *MASK, "--out", out]
    with alone(out):
        assert_one_sentence(call(*words), f"another process is training in {out}; wait for it")
    assert not [*out.iterdir()]
    well(call(*words))


@pytest.mark.parametrize(
    ("loss", "fields", "steps"),
    [
        ("spread", {}, 1),
        ("spread", {"spread_steps": 9}, 9),
        ("spread", {"loss": "margin"}, 500_000),
        ("margin", {"loss": "spread"}, 500_000),
        ("margin", {}, 500_000),
    ],
)
def test_the_margin_of_the_spread_loss_does_not_begin_again(
    loss, fields, steps, trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(MODULE, "fit", lambda recipe, out, **given: recipe)
    run = Run(shutil.copytree(trained, tmp_path / "old"))
    update = {"loss": loss, **({"spread_steps": 600} if loss == "spread" else {})}
    run.write(run.recipe_file, run.recipe.model_copy(update=update).model_dump_json())
    made = prune_run(run.folder, tmp_path / "new", to=0.5, fields=fields)
    assert made.spread_steps == steps


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        ((), "lamp"),
        (("--by", "mask_at_the_end"), "lamp"),
        (("--set", "prune=magnitude"), "lamp"),
        (("--scope", "network"), "network"),
        (("--by", "mask_at_the_end", "--scope", "layer"), "layer"),
        (("--set", "prune_scope=network"), "network"),
        # LAMP scores are of magnitudes.
        (("--by", "snip"), "network"),
        (("--set", "prune=random_masks"), "network"),
        (("--by", "lobster"), "network"),
    ],
)
def test_single_weights_are_compared_by_lamp_unless_a_scope_is_named(
    words, scope, trained, call, tmp_path, monkeypatch
):
    """One threshold for all layers costs most, and can take the whole of one."""
    made = []

    def fit(recipe, out, **given):
        made.append(recipe)
        return Run(trained)

    monkeypatch.setattr(MODULE, "fit", fit)
    well(call("prune", trained, "--to", "0.1", *words, "--out", tmp_path / "new"))
    (recipe,) = made or [Run(tmp_path / "new").recipe]
    assert recipe.prune_scope == scope


def test_a_run_is_pruned_on_the_images_that_it_remembers(of_pictures, pictures, call, tmp_path):
    words = ["--to", "0.5", "--epochs", "1", "--set", "prune_ramp=1", "--out", tmp_path / "pruned"]
    well(call("prune", of_pictures, *words))
    assert Run(tmp_path / "pruned").root == pictures


def test_a_masked_run_remembers_its_images_and_its_trunk(
    of_pictures, pictures, mask, call, tmp_path
):
    run = Run(of_pictures)
    # As if it had one: the digest of the file that its weights came from.
    run.write(run.environment_file, json.dumps({**run.about(), "trunk": "0123456789ab"}))
    masked = mask(of_pictures)
    assert masked.root == run.root == pictures
    assert masked.about()["trunk"] == "0123456789ab"
    found = json.loads(call("eval", masked.folder, "--json").out)
    assert found["accuracy"] == masked.result()["test_accuracy"]
    # Where they were moved, the folder that is named is remembered.
    moved = pictures.rename(tmp_path / "moved")
    assert mask(of_pictures, "--root", moved, out="again").root == moved
    assert_one_sentence(
        call("prune", of_pictures, *MASK, "--out", tmp_path / "once_more"),
        f"was begun on the data in {pictures}, which is not there now; name the folder where they",
    )


def test_a_masked_run_tells_the_images_that_it_was_tested_on(of_pictures, pictures, mask, call):
    before = Run(of_pictures)
    assert before.result()["test_images"] == 20
    for number in range(5, 10):
        (pictures / "test" / "cat" / f"{number}.png").unlink()
    masked = mask(of_pictures)
    assert masked.result()["test_images"] == 15
    assert masked.image_digests()["train"] == before.image_digests()["train"]
    assert masked.image_digests()["test"] != before.image_digests()["test"]
    found = json.loads(call("eval", masked.folder, "--json").out)
    assert found["images"] == 15
    assert "changed_since_training" not in found
    assert found["accuracy"] == masked.result()["test_accuracy"]
    # Ten dogs are left, and five cats.
    assert before.result()["commonest"]["share"] == 0.5
    for result in (found, masked.result()):
        assert result["commonest"] == {"class": "dog", "share": 10 / 15}
    assert found["constant"] == masked.result()["constant"]


def test_a_pruned_run_is_pruned_further_and_never_back(trained, mask, call, tmp_path):
    masked, more = mask(trained), tmp_path / "more"
    half, weights = masked.folder, load(masked.model_file).state_dict()
    back = ["--to", "0.3", "--epochs", "2", "--set", "prune_ramp=1", "--out", tmp_path / "less"]
    sentence = "was pruned before: 50.0% of its weights are zero and stay so"
    assert_one_sentence(call("prune", half, *back), sentence)
    assert not (tmp_path / "less").exists()
    steps = ["--to", "0.6", "--epochs", "3", "--set", "prune_ramp=3"]
    well(call("prune", half, *steps, "--out", more))
    # The first target of the ramp, 42 %, is below what is there.
    shares = [row["sparsity"] for row in Run(more).metrics()]
    assert shares == pytest.approx([0.5, 0.578, 0.6], abs=1e-3)
    after = load(Run(more).model_file).state_dict()
    assert all(
        bool((after[name] == 0)[weights[name] == 0].all())
        for name in weights
        if name.endswith("weight") and "decoder" not in name
    )


@pytest.mark.parametrize(
    ("scope", "to", "less"), [("network", 0.333, 0.332), ("layer", 0.77, 0.769)]
)
def test_a_run_is_pruned_on_at_the_sparsity_that_it_has(trained, call, tmp_path, scope, to, less):
    """Weights are whole, so a run may have a few more zeros than the share that was asked for."""
    words = ["--set", f"prune_scope={scope}", "--out"]
    at_the_end = ["--by", "mask_at_the_end", "--to", to]
    masked = well(call("prune", trained, *at_the_end, *words, tmp_path / "masked"))
    before = json.loads(masked.out)["sparsity"]
    assert before["share"] > to
    on = ["prune", tmp_path / "masked", "--epochs", "1", "--set", "prune_ramp=1", *words]
    done = well(call(*on, tmp_path / "on", "--to", to))
    assert json.loads(done.out)["sparsity"] == before
    assert_one_sentence(
        call(*on, tmp_path / "less", "--to", less),
        f"{to:.1%} of its weights are zero and stay so, which is more than the {less:.1%} to prune",
    )


@pytest.mark.parametrize("by", ["magnitude", "mask_at_the_end"])
def test_zeros_of_frozen_parts_are_not_counted(trained, call, tmp_path, by):
    """A pruner leaves them alone, so what is pruned above may be less sparse than they are."""
    network = load(Run(trained).model_file)
    of_backbone = MaskAtTheEnd(network.backbone, to=0.9, scope="layer")
    of_backbone.at_the_end()
    save(network, tmp_path / "network.safetensors")
    assert sparsity(network).share > 0.5
    fields = {**Run(trained).recipe.model_dump(exclude_defaults=True), "freeze": ("backbone",)}
    begun = {"begin_with": tmp_path / "network.safetensors"}
    run = fit(make_recipe(**fields), tmp_path / "run", **begun)
    words = ["prune", run.folder, "--by", by, "--to", 0.3, "--set", "prune_scope=layer"]
    if by == "magnitude":
        words += ["--epochs", 1, "--set", "prune_ramp=1"]
    done = well(call(*words, "--out", tmp_path / "new"))
    found = json.loads(done.out)["sparsity"]
    assert found["weights"] == sparsity(network).weights - of_backbone.masks.size
    assert found["share"] == pytest.approx(0.3, abs=1e-4)
    after = load(tmp_path / "new")
    assert sparsity(after.backbone) == sparsity(network.backbone)
