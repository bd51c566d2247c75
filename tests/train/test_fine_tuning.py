"""A run that begins with another's weights, with frozen parts, and updates of several batches."""

import copy

import pytest
import torch
from PIL import Image

import torchcaps as tc
from error_text import text_of
from laid_runs import Plain, tiny_images
from torchcaps.errors import Interrupted
from torchcaps.train import fit, make_recipe
from torchcaps.train.first_weights import check_unseen

DATA = {"few": tiny_images(60)}


def recipe(**fields):
    base = {"model": "rem_multilayer", "data": "few", "epochs": 1, "batch_size": 10}
    return make_recipe(**{**base, **fields})


@pytest.fixture(scope="module")
def seven(tmp_path_factory):
    """A network of the same sizes but for seven classes."""
    path = tmp_path_factory.mktemp("seven") / "net.safetensors"
    torch.manual_seed(3)
    tc.save(tc.create_model("rem_multilayer", image=(1, 24, 24), n_classes=7), path)
    return path


def test_a_frozen_backbone_stays_bit_for_bit_statistics_too(seven, tmp_path, caplog):
    run = fit(recipe(freeze=("backbone",)), tmp_path / "run", begin_with=seven)
    before, after = tc.load(seven).state_dict(), run.model().state_dict()
    for name, value in after.items():
        if name.startswith("backbone."):
            assert torch.equal(value, before[name]), name
    assert any(not torch.equal(after[n], before[n]) for n in after if n.startswith("layers."))
    assert run.result()["made_new"] == ["layers.classes.weight"]
    assert (
        f"{seven}: layers.classes.weight is made new; {len(after) - 1} of the file's {len(before)} "
        f"tensors fit by name and shape, and were kept"
    ) in caplog.text
    assert len(run.recipe.begins_with) == 12


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run of an epoch, which others begin with."""
    return fit(recipe(), tmp_path_factory.mktemp("runs") / "first")


def test_nothing_is_chosen_by_images_that_the_network_has_learnt(first, tmp_path):
    for way, fields in {
        'keep = "best"': {"keep": "best"},
        'patience and keep = "best"': {"patience": 2, "keep": "best"},
        "stop_at": {"stop_at": 0.9},
        'prune = "lobster"': {"prune": "lobster"},
    }.items():
        out, one = tmp_path / "second", recipe(seed=1, **fields)
        assert text_of(lambda out=out, one=one: fit(one, out, begin_with=first.folder)) == (
            f"{way} would choose by images that the network has learnt: {first.folder} was trained "
            f"on images that are held out here: there they were those of seed 0 and "
            f"validation_share 0.1, here they are of seed 1 and validation_share 0.1; take that "
            f"seed and that share, or leave {way} out."
        )
        assert not out.exists()
    digest = first.image_digests()["train"]
    best = {"keep": "best"}
    assert "seed 0 and validation_share 0.2; take" in text_of(
        lambda: check_unseen(recipe(validation_share=0.2, **best), first.model_file, digest)
    )
    elsewhere = tmp_path / "net.safetensors"
    elsewhere.write_bytes(first.model_file.read_bytes())
    for begins, fields in (
        # The same images or some of them, others, and a network of which nobody knows them.
        (first.model_file, best),
        (first.model_file, {"validation_share": 0.05, **best}),
        (first.model_file, {"train_images": 20, **best}),
        (first.model_file, {"seed": 1, "stop_at": 0.9, "stop_on": "test"}),
        (elsewhere, {"seed": 1, **best}),
        (None, {"seed": 1, **best}),
    ):
        check_unseen(recipe(**fields), begins, digest)
    check_unseen(recipe(seed=1, **best), first.model_file, "0123456789ab")


def test_a_run_folder_is_begun_with_as_well(first, tmp_path, caplog):
    second = fit(recipe(seed=1, learning_rate=1e-12), tmp_path / "second", begin_with=first.folder)
    for name, value in second.model().state_dict().items():
        if "running" not in name and "num_batches" not in name:
            torch.testing.assert_close(value, first.model().state_dict()[name], rtol=0, atol=1e-8)
    assert (
        "here they are of seed 1 and validation_share 0.1; the accuracy on validation images says "
        "nothing of new ones"
    ) in caplog.text
    # The same call goes on with it, and another beginning is refused.
    again = recipe(seed=1, learning_rate=1e-12)
    assert fit(again, tmp_path / "second", begin_with=first.folder).is_done
    assert "holds a run of another recipe (begins_with" in text_of(
        lambda: fit(again, tmp_path / "second")
    )


def test_a_run_that_was_stopped_is_to_be_finished_first(tmp_path):
    out = tmp_path / "first"
    with pytest.raises(Interrupted):
        fit(recipe(epochs=50), out, time_budget=0.001)
    assert text_of(lambda: fit(recipe(), tmp_path / "on", begin_with=out)) == (
        f"{out} is no folder of a finished run (model.safetensors is missing); finish it with "
        f"the command that began it, or name a file."
    )


@pytest.mark.parametrize(
    ("together", "each", "accumulate"),
    # 60 images are three updates of two batches; or one of four batches, and one of the two left.
    [(20, 10, 2), (40, 10, 4)],
)
def test_batches_of_an_update_are_one_batch_of_all(tmp_path, together, each, accumulate):
    start = Plain()
    fields = {"model": "own", "optimiser": "sgd", "learning_rate": 0.5, "validation_share": 0}
    whole, parts = copy.deepcopy(start), copy.deepcopy(start)
    fit(recipe(batch_size=together, **fields), tmp_path / "whole", model=whole)
    fields |= {"batch_size": each, "accumulate": accumulate}
    fit(recipe(**fields), tmp_path / "parts", model=parts)
    torch.testing.assert_close(parts.layer.weight, whole.layer.weight, rtol=1e-4, atol=1e-6)
    assert float((parts.layer.weight - start.layer.weight).detach().abs().max()) > 0.01


NUMBERS = ((0.2,), (0.3,))


def standardised(folder):
    """The file of a network that standardises."""
    torch.manual_seed(0)
    network = tc.create_model("rem_multilayer", image=(1, 24, 24), standardise=NUMBERS)
    tc.save(network, folder / "net.safetensors")
    return folder / "net.safetensors"


def test_tensors_of_the_file_that_have_no_place_are_named(tmp_path, caplog):
    begun = {"begin_with": standardised(tmp_path)}
    many = len(tc.load(begun["begin_with"]).state_dict())
    fit(recipe(), tmp_path / "without", **begun)
    assert (
        f"{tmp_path / 'net.safetensors'}: standardise.mean, standardise.std of the file have no "
        f"place in this network and were left out; {many - 2} of the file's "
        f"{many} tensors fit by name and shape, and were kept"
    ) in caplog.messages
    caplog.clear()
    fit(recipe(standardise=NUMBERS), tmp_path / "with", **begun)
    assert "tensors fit" not in caplog.text


def test_a_network_standardises_as_its_recipe_says_whatever_it_begins_with(tmp_path):
    begins = standardised(tmp_path)
    run = fit(recipe(standardise=((0.4,), (0.5,))), tmp_path / "run", begin_with=begins)
    model = run.model()
    mean, std = model.config["standardise"]
    assert (mean, std) == ([0.4], [0.5])
    assert model.standardise.mean.flatten().tolist() == pytest.approx(mean)
    assert model.standardise.std.flatten().tolist() == pytest.approx(std)
    assert "made_new" not in run.result()


def test_pictures_of_many_sizes_are_to_have_that_of_the_network(seven, tmp_path):
    for name in "ab":
        (tmp_path / "pets" / name).mkdir(parents=True)
        for side in (30, 40):
            Image.new("L", (side, side + 9)).save(tmp_path / "pets" / name / f"{side}.png")
    here = {"out": tmp_path / "run", "root": tmp_path / "pets"}
    pictures = recipe(data="folder")
    assert text_of(lambda: fit(pictures, begin_with=seven, **here)).endswith(
        f"choose one size for all, (height, width): size= in Python, --image-size 24x24, that of "
        f"the network in {seven}, on the command line."
    )
    assert text_of(lambda: fit(pictures, **here)).endswith(
        "--image-size 39x30 on the command line."
    )
