"""The doctor finds planted diseases, each in its own check, and nothing wrong with the healthy."""

import copy
import dataclasses
import json
import sys
from functools import cache

import pytest
import torch
from torch import nn

from error_text import text_of
from laid_images import Unchecked
from torchcaps._paths import write_whole
from torchcaps.data import Batch, ImageSet, PartWholeSpec, part_whole
from torchcaps.data.image_set import hold_out
from torchcaps.errors import TorchcapsError
from torchcaps.models import save
from torchcaps.report.verdict import about_tree
from torchcaps.tasks import dissect, doctor, doctor_run, examine
from torchcaps.tasks.examination import machine
from torchcaps.tasks.examination.images import examine_images
from torchcaps.tasks.examination.network import examine_network
from torchcaps.train import Run, make_recipe
from torchcaps.train.seeds import HOLD_OUT, seed_of
from torchcaps.train.start import initial_model
from torchcaps.types import Output


def recipe(**fields):
    return make_recipe(**{"model": "mitterreiter_5x16", "data": "tiny", "batch_size": 20} | fields)


RECIPE = recipe(data="part-whole")
CHECKS = ["updates", "torch", "torchvision", "compiler", "pixels", "classes"]
CHECKS += ["validation images", "test images", "finite", "scores", "gradients", "memory"]
CHECKS += ["capsules", "couplings", "overfit"]


@pytest.mark.parametrize(("threads", "words"), [(1, ", 1 thread, "), (2, ", 2 threads, ")])
def test_one_thread_is_no_threads(threads, words, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert words in machine.examine_machine()[0].text


@cache
def tiny(split, root=None):
    sizes, seeds = {"train": 96, "test": 12}, {"train": 0, "test": 1}
    return part_whole(split, sizes[split], seed=seeds[split], spec=PartWholeSpec(size=24))


@pytest.fixture(scope="module")
def first():
    return initial_model(RECIPE, tiny("train"))


@pytest.fixture
def network(first):
    return copy.deepcopy(first)


def looked_at(model, *, trained=False, seconds=0, by=RECIPE):
    batch = tiny("train").batch(slice(0, 32))
    found = examine_network(
        model,
        by,
        batch,
        class_names=tiny("train").class_names,
        judged_by="class",
        trained=trained,
        seconds=seconds,
    )
    return {each.check: each for each in found}


def begun(by, *, trained=False):
    """What is found of the network that a recipe begins with."""
    return looked_at(initial_model(by, tiny("train")), trained=trained, by=by)


def scaled(model, factor):
    with torch.no_grad():
        for layer in model.layers.values():
            layer.weight.mul_(factor)
    return model


def shown(pixels, labels):
    return Unchecked(pixels, torch.tensor(labels), ("a", "b", "c"))


ALL = recipe(data="part-whole", validation_share=0)


def images_found(pixels=None, labels=None, test=None):
    pixels = torch.rand(30, 1, 4, 4) if pixels is None else pixels
    training = shown(pixels, labels or [k % 3 for k in range(len(pixels))])
    some = shown(torch.rand(6, 1, 4, 4), [0, 1, 2] * 2)
    found = examine_images(ALL, training, lambda: test or some)
    return {each.check: each for each in found}


def test_nothing_is_wrong_with_the_healthy(network):
    before = copy.deepcopy(network.state_dict())
    longer = recipe(epochs=30)
    found = doctor(longer, seconds=500)
    assert [each.check for each in found.findings] == CHECKS
    assert {each.verdict for each in found.findings} == {"fine"}, found.text()
    assert found.subject == "mitterreiter_5x16 on 96 training images of tiny, before training"
    some = doctor(longer.model_copy(update={"train_images": 48}), seconds=0)
    assert some.subject.startswith("mitterreiter_5x16 on 48 of 96 training images of tiny, ")
    # 96 images of ten classes, 64 of them in the shares they have.
    there = torch.bincount(tiny("train").labels, minlength=10)
    assert sum(found.classes.values()) == 64
    for shown, count in zip(found.classes.values(), there.tolist(), strict=True):
        assert count * 64 // 96 <= shown <= count * 64 // 96 + 1
    assert found.text().splitlines()[1].startswith("The network is shown some of them (")
    assert found.text().endswith("\n\nnothing wrong was found")
    assert max(map(len, found.text().splitlines())) <= 100
    numbers = json.loads(json.dumps(found.numbers(), allow_nan=False))
    assert [row["check"] for row in numbers["findings"]] == CHECKS
    overfit = numbers["findings"][-1]["numbers"]
    assert overfit["images"] == 16
    assert overfit["last_loss"] <= overfit["first_loss"] / 10 or overfit["right"] == 1
    looked_at(network)
    assert all(torch.equal(before[name], now) for name, now in network.state_dict().items())


@pytest.mark.parametrize("name", ["resnet18", "gu_convnet_r", "efficient_capsnet", "gamma_capsnet"])
def test_other_networks_start_without_an_alarm(name):
    found = begun(recipe(model=name))
    marked = {check for check, each in found.items() if each.verdict != "fine"}
    assert marked <= {"overfit"}
    assert "seconds were not enough to tell" in found["overfit"].text


def judged(found, verdict, words):
    """A finding has this verdict and says so."""
    assert (found.verdict, words in found.text) == (verdict, True), found.text
    json.dumps(found.numbers, allow_nan=False)


def test_weights_too_small_let_lengths_vanish(network):
    found = looked_at(scaled(network, 1e-3))
    judged(found["scores"], "broken", "they have vanished")
    assert found["scores"].numbers["histogram"]["counts"][0] == 320
    assert found["gradients"].verdict != "fine"
    judged(found["gradients"], found["gradients"].verdict, "nothing")
    assert found["capsules"].verdict == "look"


def test_weights_too_large_saturate_lengths(network):
    found = looked_at(scaled(network, 1e3))["scores"]
    judged(found, "broken", "are saturated near one")
    assert found.numbers["share_near_one"] > 0.4
    # One of ten classes would be right.
    trained = looked_at(scaled(network, 0.01), trained=True)["scores"]
    assert (trained.verdict, trained.numbers["share_near_one"] > 0.6) == ("look", True)


def test_logits_too_large_are_told():
    by = recipe(model="gu_convnet_r")
    model = initial_model(by, tiny("train"))
    with torch.no_grad():
        model.head.weight.mul_(1e4)
    found = looked_at(model, by=by)["scores"]
    judged(found, "look", "so far apart that their probabilities are 0 or 1")


def test_scores_that_do_not_depend_on_the_image_are_told(network):
    with torch.no_grad():
        network.backbone[0].weight.zero_()
        network.backbone[0].bias.fill_(0.5)
    judged(looked_at(network)["scores"], "look", "they hardly depend on the image")


@pytest.mark.parametrize(
    ("weights", "culprit", "words"),
    [
        (
            {"layers.hidden_3.weight": (0, torch.nan)},
            "layers.hidden_3.weight",
            "layers.hidden_3.weight holds NaN or infinity, in 1 of ",
        ),
        (
            {"backbone.2.weight": (slice(None), 1e38), "backbone.0.weight": (slice(None), 1.0)},
            "backbone.2",
            "the output of backbone.2 is not, the first to be so",
        ),
    ],
)
def test_what_is_not_finite_is_named_and_ends_the_examination(network, weights, culprit, words):
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for name, (place, value) in weights.items():
            parameters[name].view(-1)[place] = value
    found = looked_at(network)
    assert list(found) == ["finite"]
    judged(found["finite"], "broken", words)
    assert found["finite"].numbers["first"] == culprit


class Rooted(nn.Module):
    """A network whose gradient alone is broken, the root of nought, in the lower two layers."""

    def __init__(self):
        super().__init__()
        self.lowest, self.below, self.above = nn.Linear(576, 8), nn.Linear(8, 10), nn.Linear(10, 10)

    def forward(self, image, target=None, *, keep="none"):
        below = self.below(self.lowest(image.flatten(1)))
        return Output(self.above((0 * below).square().sqrt()), "logits")


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.below, self.above = nn.Linear(576, 10), nn.Linear(10, 10)

    def forward(self, image, target=None, *, keep="none"):
        return Output(self.above(self.below(image.flatten(1)).detach()), "logits")


class Steep(Cut):
    def forward(self, image, target=None, *, keep="none"):
        return Output(1e6 * self.above(self.below(image.flatten(1))), "logits")


@pytest.mark.parametrize(
    ("model", "verdict", "words"),
    [
        (Rooted, "broken", "the gradient of below is not finite, the first on the way down"),
        (Cut, "broken", "nothing arrives at below (1 of 2 parts)"),
        (Steep, "look", "so steep that steps overshoot"),
    ],
)
def test_the_first_gradient_that_is_wrong_is_named(model, verdict, words):
    found = looked_at(model())
    assert found["finite"].verdict == "fine"
    judged(found["gradients"], verdict, words)
    if "not finite" in words:
        assert found["gradients"].numbers["first"] == "below"
        assert found["gradients"].numbers["root_mean_square"]["below"] is None


@pytest.mark.parametrize(
    ("dead", "trained", "verdict", "words"),
    [
        (16, True, "broken", "nothing passes hidden_3, whatever the image"),
        (16, False, "look", "nothing passes hidden_3, whatever the image"),
        (10, True, "look", "more than half of hidden_3"),
        (4, False, "fine", "dead 0 of 16 in primary, 0 of 16 in hidden_2, 4 of 16 in hidden_3"),
    ],
)
def test_dead_capsules_are_counted(network, dead, trained, verdict, words):
    # Long enough to be alive after training too.
    scaled(network, 8)
    with torch.no_grad():
        network.layers["hidden_3"].weight[:, :dead].zero_()
    found = looked_at(network, trained=trained)["capsules"]
    assert found.numbers["layers"]["hidden_3"]["dead"] == dead
    judged(found, verdict, words)


def test_a_frozen_tree_is_told_after_training_only(network):
    assert looked_at(network)["couplings"].verdict == "fine"
    judged(looked_at(network, trained=True)["couplings"], "look", "The tree is frozen")


@pytest.mark.parametrize("factor", [1, 3, 10])
def test_the_tree_is_judged_in_the_words_of_dissect(network, factor):
    images = tiny("train").take(torch.arange(32))
    dissection = dissect(scaled(network, factor), images, label="")
    tree = about_tree(dissection.dynamics)
    found = looked_at(network, trained=True)["couplings"]
    judged(found, "fine" if tree.is_good else "look", tree.text)


def test_couplings_that_are_meant_to_be_fixed_are_fine():
    found = begun(recipe(options={"routing": "uniform"}), trained=True)
    judged(found["couplings"], "fine", "they are fixed, as this routing is")


@pytest.mark.parametrize(
    ("rate", "verdict", "words"),
    [
        (1e-9, "broken", "a network that can learn gets so few by heart"),
        (1e30, "broken", "it came apart; take a smaller learning rate"),
    ],
)
def test_a_learning_rate_at_which_nothing_is_learnt_is_told(
    network, monkeypatch, rate, verdict, words
):
    monkeypatch.setattr("torchcaps.tasks.examination.overfit.STEPS", 20)
    by = RECIPE.model_copy(update={"learning_rate": rate})
    found = looked_at(network, by=by, seconds=500)["overfit"]
    judged(found, verdict, words)


@pytest.mark.slow
def test_the_overfit_is_the_same_every_time(network):
    one, two = (looked_at(network, seconds=500)["overfit"].numbers for _ in range(2))
    assert one["last_loss"] == two["last_loss"]
    assert one["steps"] > 1


@pytest.mark.parametrize(
    ("pixels", "verdict", "words"),
    [
        (lambda x: x * 255, "broken", "the networks take floats in [0, 1], and at this scale"),
        (lambda x: (x - 0.5) / 0.3, "look", "leave out the normalisation by mean and standard"),
        (lambda x: x / 255, "look", "were they divided by 255 twice?"),
        (lambda x: x / (x > 0.01), "broken", "some pixels are NaN or infinite"),
        (lambda x: x[:1].expand_as(x), "broken", "every image is the same"),
        (lambda x: x, "fine", "in [0, 1], as it should be"),
    ],
)
def test_the_range_of_pixels(pixels, verdict, words):
    x = torch.rand(30, 1, 4, 4)
    x[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    found = images_found(pixels(x))["pixels"]
    judged(found, verdict, words)


@pytest.mark.parametrize(
    ("labels", "verdict", "words"),
    [
        ([1] * 30, "broken", "all of 30 images looked at are 'b': there is nothing to tell apart"),
        ([0, 1] * 15, "look", "1 of 3 classes have no image of 30 images looked at ('c')"),
        ([0] * 24 + [1] * 4 + [2] * 2, "look", "always saying 'a' is right for 80%"),
        ([0] * 10 + [1] * 11 + [2] * 9, "fine", "9 (c) to 11 (b) images a class of 30 images"),
        ([0, 1, 2] * 10, "fine", "10 images of every class of 30 images looked at."),
    ],
)
def test_the_balance_of_classes(labels, verdict, words):
    found = images_found(labels=labels)["classes"]
    judged(found, verdict, words)
    assert sum(found.numbers["counts"]) == 30


def test_several_objects_an_image_are_counted_each():
    found = images_found(labels=[[0, 1], [1, 2], [2, 2]] * 10)["classes"]
    assert found.numbers["counts"] == [10, 20, 20]


def test_test_images_that_are_training_images_are_counted(monkeypatch):
    pixels = torch.rand(30, 1, 4, 4)
    test = shown(torch.cat([pixels[3:5], torch.rand(4, 1, 4, 4)]), [0, 1, 2] * 2)
    found = images_found(pixels, test=test)["test images"]
    judged(found, "look", "2 of 6 are among the training images, pixel for pixel")
    test.class_names = ("a", "b")
    words = "images (1, 4, 4) of 2 classes, while the training images are (1, 4, 4)"
    judged(images_found(test=test)["test images"], "broken", words)
    # They are not looked for among millions.
    test.class_names = ("a", "b", "c")
    monkeypatch.setattr("torchcaps.tasks.examination.images.MOST_COMPARED", 29)
    found = images_found(pixels, test=test)["test images"]
    words = "6; they were not looked for among 30 training images, which would take hours."
    assert (found.verdict, found.text) == ("fine", words)
    assert "in_training" not in found.numbers


def held_out_found(pixels, test, **fields):
    """What is said of validation and test images, of 20 training images."""
    training = ImageSet("mine", pixels, torch.arange(len(pixels)) % 2, ("a", "b"))
    tests = ImageSet("mine", test, torch.arange(len(test)) % 2, ("a", "b"))
    found = examine_images(recipe(seed=3, **fields), training, lambda: tests)
    return {each.check: each for each in found if each.check.endswith(" images")}


def test_images_on_both_sides_of_the_split_are_counted():
    """Nobody saw that validation images had been learnt by heart."""
    pixels = torch.rand(20, 1, 4, 4)
    order = hold_out(20, share=0.2, seed=seed_of(3, HOLD_OUT))
    (rest, held) = (each.tolist() for each in order)
    # Two of the four that are held out, and two of those that stay, which tells nothing.
    pixels[held[1]], pixels[held[3]] = pixels[rest[5]], pixels[rest[0]]
    pixels[rest[7]] = pixels[rest[8]]
    # One test image was trained on, one was held out.
    test = torch.cat([pixels[[rest[2], held[0]]], torch.rand(3, 1, 4, 4)])
    found = held_out_found(pixels, test, validation_share=0.2)
    assert list(found) == ["validation images", "test images"]
    validation = found["validation images"]
    assert (validation.verdict, validation.numbers) == ("look", {"images": 4, "in_training": 2})
    assert validation.text == (
        "2 of 4 are among the training images, pixel for pixel; what is right about them proves "
        "nothing: the training set holds images more than once, so take their copies out of it."
    )
    assert found["test images"].numbers == {"images": 5, "in_training": 2}


def test_validation_images_of_their_own_are_fine():
    pixels = torch.rand(20, 1, 4, 4)
    found = held_out_found(pixels, torch.rand(3, 1, 4, 4))["validation images"]
    assert (found.verdict, found.text) == ("fine", "none of 2 is among the training images.")
    assert "validation images" not in held_out_found(pixels, pixels, validation_share=0)


def test_a_share_that_holds_nothing_out_is_told_before_training():
    found = held_out_found(torch.rand(2, 1, 4, 4), torch.rand(3, 1, 4, 4))
    words = "none can be held out, and training would end with that: share=0.1 of 2 images leaves "
    judged(found["validation images"], "broken", words)
    assert found["test images"].verdict == "fine"


def test_frozen_parts_are_not_trained_by_the_doctor():
    lessons = [
        {each.check: each for each in doctor(recipe(**more), seconds=1).findings}
        for more in ({}, {"freeze": ("backbone", "primary")})
    ]
    whole, frozen = (each["gradients"].numbers for each in lessons)
    assert whole != frozen
    said = text_of(lambda: doctor(recipe(freeze=("nonsense",)), seconds=1))
    assert said.startswith("freeze: the network has no part 'nonsense'")


@pytest.mark.parametrize(
    ("rate", "verdict", "words"),
    [(1e-3, "fine", ": it can learn."), (1e-9, "broken", "gets so few by heart")],
)
def test_a_decoder_that_is_trained_alone_is_judged_by_what_it_draws(
    monkeypatch, rate, verdict, words
):
    monkeypatch.setattr("torchcaps.tasks.examination.overfit.STEPS", 6)
    fields = {"options": {"decoder": True}, "freeze": ("backbone", "primary", "layers")}
    by = recipe(learning_rate=rate, **fields)
    found = {each.check: each for each in doctor(by, seconds=500).findings}
    assert found["gradients"].verdict == "fine"
    assert "(decoder.layers.0) to " in found["gradients"].text
    overfit = found["overfit"]
    assert (overfit.verdict, words in overfit.text) == (verdict, True), overfit.text
    # Squared errors of pixels, whose mean weighs 0.0005; no class moves.
    assert "took the loss of what is drawn from 0.05" in overfit.text
    assert "right" not in overfit.text


def test_test_images_that_cannot_be_read_are_told_before_training():
    def missing():
        raise TorchcapsError("there is no test folder.")

    (*_, found) = examine_images(ALL, shown(torch.rand(6, 1, 4, 4), [0, 1, 2] * 2), missing)
    assert found.verdict == "broken"
    assert found.text == (
        "they cannot be read, and training would end with that: there is no test folder."
    )


@pytest.mark.parametrize("differs", [False, True])
def test_a_trained_network_that_says_one_thing_is_called_constant(network, differs, monkeypatch):
    names = tiny("train").class_names
    forward = type(network).forward

    def says(self, image, *args, **keep):
        out = forward(self, image, *args, **keep)
        scores = out.scores.detach().clone()
        scores[:, 3] = 2.0
        scores[0, 4] = 3.0 if differs else 0.0
        # The gradients are those of the network.
        return dataclasses.replace(out, scores=scores + 0 * out.scores)

    monkeypatch.setattr(type(network), "forward", says)
    assert "answers" not in looked_at(network)
    found = looked_at(network, trained=True)
    assert ("answers" in found) == (not differs)
    if not differs:
        assert found["answers"].verdict == "look"
        assert found["answers"].numbers == {"constant": names[3]}
        assert found["answers"].text == (
            f"constant: it says {names[3]!r} of every image it was shown, so it tells nothing "
            f"apart, however often it is right."
        )


def test_images_that_a_network_refuses_are_a_finding(network, monkeypatch):
    broken = Batch(torch.full((4, 1, 24, 24), torch.nan), torch.arange(4))
    monkeypatch.setattr(ImageSet, "batch", lambda *_: broken)
    (found,) = looked_at(network).values()
    assert found.check == "network"
    judged(found, "broken", "it refuses these images: the images hold NaN")


def test_bytes_are_found_though_the_network_takes_them(network):
    pixels, labels, _ = tiny("train").batch(slice(None))
    images = Unchecked(255 * pixels, labels, tiny("train").class_names)
    found = examine(network, ALL, images, lambda: images, stage="before training", seconds=0)
    verdicts = {each.check: each.verdict for each in found.findings}
    assert verdicts["pixels"] == "broken"
    assert verdicts["test images"] == "look"
    assert "broken: pixels" in found.text().splitlines()[-1]


def test_another_network_than_the_images_need_is_told(network):
    images = ImageSet("mine", torch.rand(3, 1, 20, 20), torch.tensor([0, 1, 0]), ("a", "b"))
    assert text_of(
        lambda: examine(network, RECIPE, images, lambda: images, stage="before training")
    ).startswith("the network takes images of (channels, height, width) = (1, 24, 24), but mine")


@pytest.mark.parametrize(
    ("free", "verdict", "words"),
    [
        (None, "fine", "how much is free cannot be read here"),
        (2**30, "fine", "1.0 GiB are free."),
        (900 * 2**20, "look", "a smaller --batch-size is safer"),
        (
            400 * 2**20,
            "broken",
            "it will not fit; take a smaller --batch-size or image; torchcaps est",
        ),
    ],
)
def test_memory(monkeypatch, free, verdict, words):
    monkeypatch.setattr(machine, "_free", lambda: free)
    found = machine.examine_memory(100 * 2**20, 100 * 2**20, batch_size=20)
    judged(found, verdict, words)
    assert found.text.startswith(
        "a step with 20 images keeps 100 MiB for its backward pass, and weights, gradients and "
        "Adam take 400 MiB"
    )


def test_memory_grows_with_the_batch_of_the_recipe(first):
    small = looked_at(first)["memory"].numbers
    large = looked_at(first, by=RECIPE.model_copy(update={"batch_size": 200}))["memory"].numbers
    assert large["activations"] == pytest.approx(10 * small["activations"], rel=1e-6)
    # At least the images, in float32, and what the first convolution makes of them.
    assert small["activations"] > 20 * 4 * (24 * 24 + 32 * 20 * 20)
    assert small["weights"] == 4 * sum(each.numel() for each in first.parameters())


def test_a_broken_torchvision_is_told(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    package = tmp_path / "torchvision"
    package.mkdir()
    for text, verdict, sentence in [
        ('raise RuntimeError("operator nms does not exist")', "broken", "(operator nms does not"),
        ('__version__ = "9.9"', "fine", "version 9.9; not needed."),
    ]:
        (package / "__init__.py").write_text(text)
        found = {each.check: each for each in machine.examine_machine()}["torchvision"]
        assert (found.verdict, sentence in found.text) == (verdict, True), found.text
    del sys.modules["torchvision"]


def test_a_compiler_is_told_whether_it_is_there_or_not(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    found = {each.check: each for each in machine.examine_machine()}["compiler"]
    assert found.text == (
        "none of no-such-compiler is there; routing runs in PyTorch without compiled kernels, and "
        "torch.compile cannot compile."
    )
    assert found.verdict == "fine"
    # One with arguments is found.
    monkeypatch.setenv("CXX", f"{sys.executable} -O1")
    found = {each.check: each for each in machine.examine_machine()}["compiler"]
    assert found.text == f"{sys.executable}, for the routing kernels and torch.compile."


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "mine")
    run.begin(recipe(epochs=2, seed=7), "abc")
    return run


def test_a_run_is_examined_at_its_last_weights(run, network):
    assert doctor_run(run.folder, seconds=0).subject.endswith("of tiny, before training")
    diseased = copy.deepcopy(network)
    nn.init.constant_(diseased.layers["hidden_2"].weight, torch.nan)
    state = {f"model.{name}": weight for name, weight in diseased.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 0}, run.state_file)
    found = doctor_run(run.folder, seconds=0)
    assert found.subject.endswith(", after epoch 1 of 2")
    assert found.findings[-1].numbers["first"] == "layers.hidden_2.weight"
    save(network, run.model_file)
    write_whole(run.result_file, "{}")
    found = doctor_run(run.folder, seconds=0)
    assert found.subject.endswith(", after training")
    assert {each.check: each.verdict for each in found.findings}["finite"] == "fine"


def test_a_damaged_state_is_told(run):
    run.state_file.write_bytes(b"nonsense")
    text = text_of(lambda: doctor_run(run.folder))
    assert text.startswith(f"{run.state_file} cannot be read (")
    assert text.endswith("; it is damaged: remove it, and the run begins anew.")
