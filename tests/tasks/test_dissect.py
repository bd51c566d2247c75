"""Dissection: answers counted by hand, pictures in their order, and a sentence for every misuse."""

import copy
import json
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from error_text import text_of
from laid_runs import Channels, ReadOff, lay_run, tiny_images
from torchcaps._paths import write_whole
from torchcaps.data import ImageSet, sample_of
from torchcaps.layers import DenseCapsules
from torchcaps.models import create_model
from torchcaps.prune import sparsity
from torchcaps.report import render
from torchcaps.report.verdict import about_count
from torchcaps.tasks import dissect, dissect_files, trace_images, write_report
from torchcaps.tasks.dissect import facts_of
from torchcaps.tasks.trained import label_of
from torchcaps.train import Run, fit, make_recipe
from torchcaps.train.class_measures import class_measures
from torchcaps.types import Capsules, Keep, LayerTrace, Output

tiny = tiny_images(96)
ROUTED = ["hidden_2", "hidden_3", "hidden_4", "classes"]


@pytest.fixture
def run(tmp_path):
    run = lay_run(tmp_path / "mine", {"training_images": 8600}, epochs=2, seed=7)
    run.write_metrics([{"epoch": 1, "seconds": 2.25}, {"epoch": 2, "seconds": 1.5}])
    return run


def bright(count: int, *, wrong: int) -> ImageSet:
    """Three classes told by a channel; the last `wrong` labels lie."""
    truth = torch.arange(count) % 3
    pixels = nn.functional.one_hot(truth, 3).float()[:, :, None, None]
    labels = torch.where(torch.arange(count) < count - wrong, truth, (truth + 1) % 3)
    return ImageSet("bright", pixels, labels, ("red", "green", "blue"))


def test_right_answers_are_counted_over_all_batches():
    model = Channels().train()
    trace, right = trace_images(model, bright(205, wrong=7))
    assert right == 198
    assert trace == ()
    assert (model.seen, model.kept) == ([100, 100, 5], "last")
    assert not model.training


def test_a_trace_of_many_batches_is_that_of_each_image(network):
    images = tiny("train")
    many = images.take(torch.arange(105) % 96)
    trace, _ = trace_images(network, many)
    assert [layer.name for layer in trace] == ROUTED
    last = trace[-1].routed
    assert last.steps[-1].coupling.shape == (105, 16, 10)
    alone, _ = trace_images(network, images.take(torch.tensor([5])))
    found = last.parents.pose[torch.tensor([5, 101])]
    assert torch.allclose(found, alone[-1].routed.parents.pose.expand(2, -1, -1), atol=1e-6)
    assert not last.parents.pose.requires_grad


def test_a_network_without_capsules_has_numbers_but_no_pictures():
    found = dissect(Channels(), bright(20, wrong=5), label="plain", facts={"seed": "3"})
    assert (found.right, found.images) == (15, 20)
    numbers = found.numbers()
    measures = numbers.pop("measures")
    shown = bright(20, wrong=5)
    out = Output(shown.images[:, :, 0, 0], "lengths")
    expected = class_measures(out, shown.labels, shown.class_names)
    assert (measures, found.measure_lines) == (expected.numbers(), expected.lines())
    assert numbers == {
        "accuracy": 0.75,
        "images": 20,
        "commonest": {"class": "green", "share": 7 / 20},
        "constant": None,
        "classes": {"red": 6, "green": 7, "blue": 7},
        "dynamics": None,
        "activity": None,
    }
    assert [(picture.about, picture.title) for picture in found.pictures] == [
        ("look", "Images 0 and after")
    ]
    assert found.facts == {
        "parameters": "1",
        "images": "20 of 20 of bright (red: 6, green: 7, blue: 7)",
        "right where": "the highest score is that of the class",
        "seed": "3",
    }


def test_a_network_that_says_one_thing_is_constant_on_the_images_shown():
    """90 of 106 by the whole set, and 85 of the hundred that are looked at."""
    images = ImageSet(
        "uneven",
        torch.tensor([[0.1, 0.9]]).repeat(106, 1)[:, :, None, None],
        torch.tensor([0] * 16 + [1] * 90),
        ("rare", "benign"),
    )
    found = dissect(Channels(), images, label="plain", count=100)
    assert (found.constant, found.right) == ("benign", 85)
    assert found.commonest == ("benign", 0.85)


def test_a_sample_shows_every_class_of_a_sorted_set_and_says_so():
    images = bright(300, wrong=0)
    images = images.take(images.labels.argsort(stable=True))
    found = dissect(Channels(), images, label="plain", count=30)
    assert found.facts["images"] == "30 of 300 of bright (10 of each class)"
    assert found.numbers()["classes"] == {"red": 10, "green": 10, "blue": 10}
    assert (found.right, found.images) == (30, 30)


def test_a_trace_of_some_images_is_that_of_the_sample(network):
    images = tiny("train")
    trace, _ = trace_images(network, images, count=9)
    chosen, _ = trace_images(network, images.take(sample_of(images, 9)))
    assert torch.equal(trace[-1].routed.parents.pose, chosen[-1].routed.parents.pose)


def test_the_tree_of_an_image_outside_the_sample_is_drawn(network):
    images = tiny("train")
    outside = min(set(range(96)) - set(sample_of(images, 4).tolist()))
    found = dissect(network, images, label="mine", count=4, example=outside)
    truth = images.class_names[int(images.labels[outside])]
    assert found.pictures[0].title == f"One image and its tree: image {outside}"
    assert found.pictures[0].note == f"class {truth}"
    alone = dissect(network, images.take(torch.tensor([outside] * 2)), label="mine")
    assert found.pictures[0].source == alone.pictures[0].source


def test_windows_are_measured_and_drawn_as_maps():
    model = create_model("tsai_inverted_simple_c10", image=(1, 24, 24))
    found = dissect(model, tiny("test"), label="windows", measurements=["polarisation"])
    windows, _, classes = found.dynamics.layers
    assert windows.name == "conv_1"
    assert windows.mean.shape[-1] == 32
    assert windows.mean.ndim == classes.mean.ndim + 1 == 3
    assert [picture.about for picture in found.pictures] == [
        "tree", "choice", "count", "life", "turn", "use", "look",
    ]  # fmt: skip
    words = [text.get_text() for text in found.pictures[0].figure.texts]
    assert words[1:5] == ["primary\n12×12×32", "conv_1\n5×5×32", "conv_2\n3×3×32", "classes\n10"]
    assert {row["name"] for row in found.numbers()["polarisation"]["steps"]} == {
        "conv_1",
        "conv_2",
        "classes",
    }


def test_every_question_has_a_picture(network):
    images = tiny("test")
    found = dissect(network, images, label="mine", example=3)
    assert [(picture.about, picture.title) for picture in found.pictures] == [
        ("tree", "One image and its tree: image 3"),
        ("tree", "All images: mean couplings"),
        ("choice", "Couplings of all images"),
        ("count", "Trees of each predicted class"),
        ("life", "Lengths of all capsules"),
        ("turn", "Lengths before and after a turn"),
        ("look", "What leads to the answer: image 3"),
        ("use", "Accuracy with other couplings"),
        ("look", "Images 3 and after"),
    ]
    asked = [sentence.about for sentence in found.sentences]
    assert asked == ["tree", "choice", "life", "turn", "count", "look", "use"]
    assert found.facts["images"].startswith("12 of 12 of part-whole (")
    numbers = found.numbers()
    assert numbers["images"] == 12
    assert [layer["name"] for layer in numbers["dynamics"]["layers"]] == ROUTED
    assert [layer["n"] for layer in numbers["activity"]["layers"]] == [16, 16, 16, 16, 10]


@pytest.mark.parametrize(
    ("fields", "epochs", "told"),
    [
        (
            {
                "epochs": 9,
                "optimiser": "sgd",
                "learning_rate": 0.1,
                "batch_size": 16,
                "patience": 1,
            },
            2,
            "tiny, 8,600 images, stopped after 2 of 9 epochs, SGD 0.1, batch 16, patience 1",
        ),
        (
            {"epochs": 20, "augment": "shift2-flip", "patience": 5, "keep": "best"},
            12,
            "tiny, 8,600 images, stopped after 12 of 20 epochs, Adam 0.001, batch 128, augment "
            "shift2-flip, patience 5, keep best",
        ),
        (
            {"epochs": 2, "data": "folder"},
            2,
            "the folder shapes, 8,600 images, 2 epochs, Adam 0.001, batch 128",
        ),
    ],
)
def test_what_a_recipe_does_is_told(tmp_path, fields, epochs, told):
    run = Run(tmp_path / "run")
    recipe = make_recipe(**{"model": "mitterreiter_5x16", "data": "tiny"} | fields)
    run.begin(recipe, "abc", root=str(tmp_path / "shapes"))
    run.write_metrics([{"epoch": each, "seconds": 1.0} for each in range(1, epochs + 1)])
    write_whole(run.result_file, json.dumps({"training_images": 8600}))
    assert facts_of(run)["trained on"] == told
    # An older run did not write down which epoch it was.
    assert "weights" not in facts_of(run)
    if recipe.keep == "best":
        run.write(run.result_file, json.dumps({"training_images": 8600, "best_epoch": 7}))
        assert facts_of(run)["weights"] == "of epoch 7 of 12, the lowest validation loss"


def test_options_of_the_network_are_among_the_facts(run):
    recipe = make_recipe(
        model="mitterreiter_5x16", data="tiny", options={"routing": "uniform", "iterations": 1}
    )
    run.write(run.recipe_file, recipe.model_dump_json())
    expected = "mitterreiter_5x16 (routing=uniform, iterations=1)"
    assert facts_of(run)["network"] == expected


def test_a_saved_network_and_a_run_of_it_give_the_same_numbers(run):
    one, two = dissect_files([run.model_file, run.folder], data="tiny", images=5000)
    assert (one.label, two.label) == ("model", "mine")
    assert one.facts["network"] == str(run.model_file)
    assert one.images == 12
    assert one.numbers() == two.numbers()
    assert two.facts["images"].startswith("12 of 12 of part-whole (")
    facts = {
        "network": "mitterreiter_5x16",
        "trained on": "tiny, 8,600 images, 2 epochs, Adam 0.001, batch 128",
        "seed": "7",
        "training time": "4 s",
        "recipe": run.recipe.digest(),
    }
    assert two.facts.items() >= facts.items()


def test_every_network_is_called_as_it_was_named():
    tree = "mitterreiter_5x16.part-whole"
    labels: list[str] = []
    for name in (f"zoo:{tree}", f"zoo:{tree}-uniform", "runs/mine", "others/mine"):
        labels.append(label_of(Path(name), labels))
    assert labels == [tree, f"{tree}-uniform", "mine", "others/mine"]


def test_what_a_hidden_patch_changes_is_told_image_by_image(network):
    found = dissect(network, tiny("test"), label="", count=4)
    said = r"Hide one of 36 patches: image by image, the answer changes at {} of them\."
    assert re.fullmatch(said.format(r"\d+, \d+ and \d+"), found.hidden.text)
    alone = dissect(network, tiny("test"), label="", count=4, example=11)
    assert re.fullmatch(said.format(r"\d+"), alone.hidden.text)


def test_the_report_is_written_whole_into_a_folder_of_its_own(tmp_path):
    page = tmp_path / "new" / "folder" / "page.html"
    found = dissect(Channels(), bright(20, wrong=5), label="plain <net>")
    write_report([found], str(page), title="A & B", more={"cost": "2 coins"})
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "A &amp; B" in text
    assert "plain &lt;net&gt;" in text
    assert "2 coins" in text
    assert [file.name for file in page.parent.iterdir()] == ["page.html"]


@pytest.mark.slow
def test_trees_are_counted_as_the_measurement_does(network):
    found = dissect(network, tiny("test"), label="mine", measurements=("keys",))
    assert found.keys == found.measured["keys"]
    assert found.zeros is None
    page = render([found], title="t", provenance={})
    assert page.index("How many trees are there?") < page.index("<h2>Numbers</h2>")
    assert about_count(found.keys).text in page
    zeroed = copy.deepcopy(network)
    with torch.no_grad():
        zeroed.layers["classes"].weight.zero_()
    share = sparsity(zeroed).share
    again = dissect(zeroed, tiny("test"), label="mine")
    assert again.zeros == share > 0
    assert f"{100 * share:.1f} % of the weights" in render([again], title="t", provenance={})


@pytest.mark.slow
def test_zeros_are_counted_among_what_was_trained(tmp_path):
    """As the run itself says it; of a network without its run, among all weights."""
    fields = {"data": "tiny", "epochs": 1, "batch_size": 20, "freeze": ("backbone",)}
    way = {"prune": "mask_at_the_end", "prune_to": 0.5, "prune_scope": "layer"}
    run = fit(make_recipe(model="mitterreiter_5x16", **fields, **way), tmp_path / "run")
    of_run, of_network = dissect_files([run.folder, run.model_file], data="tiny", images=5)
    assert of_run.zeros == run.result()["sparsity"]["share"]
    assert of_run.zeros > of_network.zeros > 0


def test_without_a_parent_for_each_class_there_are_no_trees():
    found = dissect(Channels(), bright(20, wrong=5), label="plain")
    assert found.keys is None
    assert "How many trees" not in render([found], title="t", provenance={})


def test_a_name_is_no_images():
    text = text_of(lambda: dissect(torch.nn.Identity(), "part-whole", label="mine"))
    assert text == ("dissect takes labelled images, what data.load returns, but got 'part-whole'.")


class SideBySide(nn.Module):
    """Two layers look at the same capsules; the second one scores."""

    def __init__(self) -> None:
        super().__init__()
        self.low = DenseCapsules(n_in=36, d_in=16, n_out=4, d_out=4)
        self.high = DenseCapsules(n_in=36, d_in=16, n_out=10, d_out=4)

    def forward(self, image: Tensor, *, keep: Keep = "none") -> Output:
        capsules = Capsules(image.reshape(len(image), 36, 16))
        traced = []
        for name, layer in (("low", self.low), ("high", self.high)):
            routed = layer(capsules, keep=keep)
            traced.append(LayerTrace(name, capsules, routed, None, "parents", layer.weight))
        lengths = routed.parents.activation
        return Output(lengths, "lengths", routed.parents, trace=tuple(traced))


def test_layers_that_do_not_lead_to_each_other_have_numbers_and_no_lines():
    """Lines were drawn from capsules that vote for none of those above, or an IndexError came."""
    found = dissect(SideBySide(), tiny("test"), label="mine")
    assert found.dynamics is not None
    assert [layer.name for layer in found.dynamics.layers] == ["low", "high"]
    titles = [picture.title for picture in found.pictures]
    assert titles[0] == "One image and its tree: image 0"
    assert "All images: mean couplings" not in titles
    assert not found.pictures[0].figure.axes[1].collections


def test_capsules_that_are_no_classes_have_numbers_for_names():
    """It ended in a sentence on class_names, which nobody gave."""
    found = dissect(ReadOff(), tiny("test"), label="mine")
    assert [picture.about for picture in found.pictures] == [
        "tree", "tree", "life", "turn", "look", "look",
    ]  # fmt: skip
    assert found.keys is None
    words = [text.get_text() for axes in found.pictures[0].figure.axes for text in axes.texts]
    assert any(re.fullmatch(r"longest capsule in parts: \d+", text) for text in words)
    assert "parts" in words
    assert not set(tiny("test").class_names) & set(words)
