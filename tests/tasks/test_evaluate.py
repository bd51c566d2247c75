"""Evaluation: counted by hand, whatever the batch size, with a line for every image."""

import csv
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from error_text import text_of
from laid_images import Unchecked
from laid_runs import Channels, lay_run, small_network, tiny_images
from torchcaps._paths import write_whole
from torchcaps._printable import printable
from torchcaps.data import SOURCES, ImageSet, load, resized
from torchcaps.data.image_set import hold_out
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model
from torchcaps.tasks import evaluate, evaluate_file, figures, write_predictions
from torchcaps.tasks.trained import Trained, open_trained
from torchcaps.train import accuracy
from torchcaps.train.class_curves import temperature
from torchcaps.train.class_measures import class_measures
from torchcaps.train.seeds import HOLD_OUT, seed_of
from torchcaps.types import Output

NAMES = ("red", "green", "blue")


def of_several(pixels, labels, judged_by="top"):
    """Images that show two objects each."""
    return Unchecked(pixels, labels, NAMES, judged_by)


def painted(scores, labels, names=NAMES):
    pixels = torch.tensor(scores)[:, :, None, None]
    return ImageSet("painted", pixels, torch.tensor(labels), names)


# Right, right, green taken for blue, blue taken for red.
FOUR = painted([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.0, 0.3, 0.6], [0.5, 0.25, 0.25]], [0, 1, 1, 2])


tiny = tiny_images(40)


@pytest.fixture(autouse=True, scope="module")
def _leaky():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "leaky", lambda split, root: tiny("train").take(LEAK[split]))
        yield


# Two of the four test images are training images.
LEAK = {"train": torch.arange(20), "test": torch.tensor([3, 25, 30, 7])}


@pytest.fixture
def run(tmp_path):
    return lay_run(tmp_path / "mine", {"training_images": 36}, seed=7, batch_size=5)


@pytest.mark.parametrize("is_last", [True, False])
def test_a_run_is_opened_in_the_layout_that_it_was_trained_in(tmp_path, is_last):
    run = lay_run(tmp_path, {}, channels_last=is_last)
    weights = [
        part.weight
        for part in open_trained(run.folder).model.modules()
        if isinstance(part, nn.Conv2d) and part.weight.shape[1] > 1
    ]
    assert weights
    for weight in weights:
        assert weight.is_contiguous() is not is_last


def test_answers_are_counted():
    numbers = evaluate(Channels().train(), FOUR).numbers()
    assert (numbers["images"], numbers["right"], numbers["accuracy"]) == (4, 2, 0.5)
    assert numbers["confusion"] == [[1, 0, 0], [0, 1, 1], [1, 0, 0]]
    red, green, blue = numbers["classes"]
    assert (red["images"], red["found"], red["said"]) == (1, 1, 2)
    assert (green["images"], green["found"], green["said"]) == (2, 1, 1)
    assert (blue["images"], blue["found"], blue["said"]) == (1, 0, 1)
    assert green["mean_score_there"] == pytest.approx(0.5)
    assert green["mean_score_not_there"] == pytest.approx((0.1 + 0.25) / 2)
    assert numbers["mean_score_there"] == pytest.approx((0.9 + 0.7 + 0.3 + 0.25) / 4)
    assert numbers["scores_are"] == "lengths"
    # 2 of 4, by the formula: (0.5 + z²/8 ± z sqrt(1/16 + z²/64)) / (1 + z²/4).
    assert numbers["interval"] == pytest.approx((0.15004, 0.84996), abs=1e-5)


def test_every_image_keeps_its_group():
    groups = ("ann", "bob", "ann", "cleo")
    assert evaluate(Channels(), replace(FOUR, groups=groups)).groups == groups
    assert evaluate(Channels(), FOUR).groups is None


def test_a_network_that_always_says_the_commonest_class_is_called_constant():
    """84.9 % of 90, 12 and 4 images beside a chance of 33.3 % was read as good."""
    labels = [0] * 4 + [1] * 12 + [2] * 90
    found = evaluate(Channels(), painted([[0.1, 0.2, 0.9]] * 106, labels))
    numbers = json.loads(json.dumps(found.numbers()))
    assert numbers["commonest"] == {"class": "blue", "share": 90 / 106}
    assert numbers["constant"] == "blue"
    first, accuracy, line, *_ = found.text().splitlines()
    assert first == "constant: it says 'blue' of every image"
    assert accuracy.startswith("accuracy  84.91%: 90 of 106 images")
    assert line == "to beat   84.91%, which always saying 'blue' would give"


def test_where_objects_share_an_image_one_answer_is_a_set_of_classes():
    """Two highest scores of each image, always the same two: right for half of them."""
    pixels = torch.tensor([[0.9, 0.8, 0.1]] * 4)[:, :, None, None]
    labels = torch.tensor([[0, 1], [1, 0], [1, 2], [0, 2]])
    found = evaluate(Channels(), of_several(pixels, labels))
    assert (found.commonest, found.accuracy) == (("red and green", 0.5), 0.5)
    assert found.constant == "red and green"


def test_the_margin_loss_is_that_of_the_lengths():
    # By hand: 0, then 0.2² + 0.5·0.1², 0.6² + 0.5·0.5², 0.65² + 0.5·(0.4² + 0.15²).
    each = [0.0, 0.04 + 0.005, 0.36 + 0.125, 0.4225 + 0.5 * (0.16 + 0.0225)]
    found = evaluate(Channels(), FOUR, batch_size=3)
    assert found.loss == pytest.approx(sum(each) / 4, abs=1e-6)
    assert found.loss_is == "margin loss"


@pytest.mark.parametrize(
    ("scores_are", "loss_is", "loss"),
    [
        ("logits", "cross-entropy", torch.nn.functional.cross_entropy),
        (
            "independent_logits",
            "binary cross-entropy",
            lambda x, y: (
                nn.functional.binary_cross_entropy_with_logits(
                    x, nn.functional.one_hot(y, 3).float(), reduction="sum"
                )
                / len(y)
            ),
        ),
    ],
)
def test_the_loss_fits_the_scores(scores_are, loss_is, loss):
    found = evaluate(Channels(scores_are), FOUR)
    expected = loss(FOUR.images[:, :, 0, 0], FOUR.labels)
    assert (found.loss_is, found.loss) == (loss_is, pytest.approx(float(expected), abs=1e-6))


def test_several_objects_are_right_together_or_not_at_all():
    pixels = torch.tensor([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8]])[:, :, None, None]
    found = evaluate(Channels(), of_several(pixels, torch.tensor([[1, 0], [0, 1]])))
    numbers = found.numbers()
    assert (numbers["right"], numbers["confusion"]) == (1, None)
    assert [row["found"] for row in numbers["classes"]] == [2, 1, 0]


# The first shows two objects, the second one, and neither is told to the network.
@pytest.mark.parametrize("batch_size", [1, 2, 3])
@pytest.mark.parametrize(("judged_by", "right"), [("top", [True, False]), ("set", [False, True])])
def test_several_objects_do_not_depend_on_the_batch(judged_by, right, batch_size):
    pixels = torch.tensor([[0.4, 0.3, 0.1], [0.9, 0.4, 0.1]])[:, :, None, None]
    images = of_several(pixels, torch.tensor([[0, 1], [0, 0]]), judged_by)
    found = evaluate(Channels(), images, batch_size=batch_size)
    assert found.right.tolist() == right
    assert found.numbers()["judged_by"] == judged_by


@pytest.mark.parametrize(
    "name", ["mitterreiter_5x16", "gamma_capsnet", "efficient_capsnet", "gu_convnet_cr", "resnet18"]
)
def test_the_batch_size_changes_nothing(name):
    torch.manual_seed(0)
    model = create_model(name, image=(1, 24, 24)).train()
    # Running statistics that differ from those of any batch.
    model(tiny("train").pixels(slice(0, 8)))
    images = tiny("test")
    whole = evaluate(model, images)
    for batch_size in (1, 5):
        found = evaluate(model, images, batch_size=batch_size)
        assert torch.equal(found.right, whole.right)
        assert torch.allclose(found.scores, whole.scores, atol=1e-5)
        assert found.loss == pytest.approx(whole.loss, rel=1e-5)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5])
def test_a_batch_without_images_is_told(batch_size):
    words = f"batch_size must be a whole number of images from 1, but came as {batch_size}."
    for judge in (evaluate, accuracy):
        assert text_of(lambda judge=judge: judge(Channels(), FOUR, batch_size=batch_size)) == words


def test_a_run_is_evaluated_on_the_test_images_of_its_data(run, network):
    found = evaluate_file(run.folder)
    assert (found.data, found.split, len(found.right)) == ("part-whole", "test", 12)
    expected = network(tiny("test").pixels(slice(0, 12))).scores
    assert torch.allclose(found.scores, expected, atol=1e-5)
    assert found.numbers()["in_training"] == 0
    saved = evaluate_file(run.model_file, data="tiny")
    assert torch.allclose(saved.scores, found.scores, atol=1e-5)


def test_validation_images_are_those_that_the_run_held_out(run):
    found = evaluate_file(run.folder, split="validation")
    rest, held = tiny("train").hold_out(share=0.1, seed=seed_of(7, HOLD_OUT))
    assert torch.equal(found.labels, held.labels)
    assert found.numbers()["in_training"] == 0
    trained_on = evaluate_file(run.folder, split="train")
    assert torch.equal(trained_on.labels, rest.labels)
    assert trained_on.seen is None
    assert len(evaluate_file(run.model_file, data="tiny", split="train").right) == 40


def test_images_that_changed_since_training_are_told(run):
    def digests(**other):
        known = {split: tiny(split, None).digest() for split in ("train", "test")} | other
        write_whole(run.result_file, json.dumps({"training_images": 36, "digests": known}))

    digests()
    assert not evaluate_file(run.folder).changed
    assert len(evaluate_file(run.folder, split="validation").right) == 4
    digests(train="another", test="another")
    for split in ("validation", "train"):
        assert text_of(lambda split=split: evaluate_file(run.folder, split=split)) == (
            f"{run.folder} was trained on other images of tiny than there are now, so which were "
            f"held out is not known; put them back as they were, or take --split test."
        )
    found = evaluate_file(run.folder)
    assert found.numbers()["changed_since_training"]
    assert "these are other images than the run was tested on; some may" in found.text()
    # Other data are nothing that the run ever had.
    assert not evaluate_file(run.folder, data="leaky").changed


def test_classes_of_other_names_are_told_apart(run, monkeypatch):
    names = tiny("train").class_names
    digests = {split: tiny(split, None).digest() for split in ("train", "test")}
    write_whole(run.result_file, json.dumps({"class_names": names, "digests": digests}))
    swapped = (names[1], names[0], *names[2:])

    def other(split, root):
        return replace(tiny(split, root), class_names=swapped)

    monkeypatch.setitem(SOURCES, "other", other)
    monkeypatch.setitem(
        SOURCES, "new", lambda split, root: other(split, root).take(torch.arange(9))
    )
    # The same images under other names are those that it knows.
    assert evaluate_file(run.folder, data="other").class_names == swapped
    assert text_of(lambda: evaluate_file(run.folder, data="new")) == (
        f"{run.folder} knows class 0 as {names[0]!r}, but of part-whole that is {names[1]!r}, and "
        f"what is right goes by the number; give the classes the same names, or name "
        f"{run.model_file}, which knows no names."
    )
    assert evaluate_file(run.model_file, data="new").class_names == swapped


def test_test_images_that_were_trained_on_are_counted(run):
    found = evaluate_file(run.model_file, data="leaky")
    assert found.seen.tolist() == [True, False, False, True]
    found = replace(evaluate(Channels(), FOUR), seen=torch.tensor([False, True, False, True]))
    numbers = found.numbers()
    assert (numbers["in_training"], numbers["accuracy_without_them"]) == (2, 0.5)
    assert numbers["accuracy"] == 0.5
    assert found.text().endswith(
        "2 of these images are among the training images, pixel for pixel; accuracy on the others: "
        "50.00%"
    )
    found = replace(found, seen=torch.tensor([True, False, False, False]))
    assert found.numbers()["accuracy_without_them"] == pytest.approx(1 / 3)
    found = replace(found, seen=torch.ones(4, dtype=torch.bool))
    assert found.numbers()["accuracy_without_them"] is None
    assert found.text().endswith("pixel for pixel; all are")


def test_validation_images_that_were_trained_on_are_counted(run, monkeypatch):
    """Those of a run are looked for among what it trained on, and there were two copies of one."""
    rest, held = hold_out(40, share=0.1, seed=seed_of(7, HOLD_OUT))
    index = torch.arange(40)
    index[held[2]], index[rest[4]] = rest[9], rest[8]
    monkeypatch.setitem(SOURCES, "tiny", lambda split, root: tiny("train", root).take(index))
    found = evaluate_file(run.folder, split="validation")
    assert found.seen.tolist() == [False, False, True, False]
    assert found.text().endswith(
        f"1 of these images are among the training images, pixel for pixel; accuracy on the "
        f"others: {found.right[[0, 1, 3]].double().mean():.2%}"
    )


@pytest.mark.parametrize("name", ["fashion-mnist", "affnist"])
def test_whoever_has_the_test_images_alone_has_them_judged(run, monkeypatch, name):
    """Training images of affNIST are another download, too many to compare with: not asked for."""

    def test_images_alone(split, root):
        if split == "train":
            assert name != "affnist"
            raise TorchcapsError("there is no train-images-idx3-ubyte.gz.")
        return tiny(split, root)

    monkeypatch.setitem(SOURCES, name, test_images_alone)
    found = evaluate_file(str(run.folder), data=name)
    assert (found.seen, found.split, len(found.right)) == (None, "test", 12)
    assert "in_training" not in found.numbers()


def test_the_text_says_what_the_numbers_are():
    text = evaluate(Channels(), FOUR).text()
    lines = text.splitlines()
    assert lines[0] == (
        "accuracy  50.00%: 2 of 4 images of painted (95 % Wilson interval 15.00% to 85.00%)"
    )
    assert lines[1] == "to beat   50.00%, which always saying 'green' would give"
    # Wilson: 1 of 1 from 20.65 %, 1 of 2 from 9.45 %. 50 − sqrt(79.35² + 40.55²) / 3 = 20.3.
    assert lines[2] == "classes   balanced accuracy  50.00% (95 % interval 20.30% to 79.70%)"
    assert lines[3].startswith("          macro F1           44.44% (95 % interval ")
    # Only blue is ranked wrongly, below one of three others.
    assert lines[4].startswith("          AUROC              88.89% (")
    assert lines[5].startswith("          average precision  83.33% (")
    assert lines[6] == "right     where the highest score is that of the class"
    assert lines[7].endswith(", margin loss")
    assert "they are no softmax and need not sum to one" in lines[8]
    assert "mean 0.537 for classes that are there" in lines[9]
    words = [re.split(" {2,}", line.strip()) for line in lines[11:]]
    assert words[0] == ["class", "found [95 %]", "of", "specificity", "AUROC", "mistaken most for"]
    assert words[1] == ["red", "100.0% [20.7, 100.0]", "1", "66.7% [20.8, 93.9]", "100.0%"]
    assert words[2][:3] == ["green", "50.0% [9.5, 90.5]", "2"]
    assert words[2][-1] == "blue (1)"


def test_intervals_are_of_groups_where_images_have_some():
    found = evaluate(Channels(), replace(FOUR, groups=("p", "p", "q", "r")))
    assert found.measures == class_measures(
        Output(found.scores, "lengths"), FOUR.labels, FOUR.class_names, groups=found.groups
    )
    # As unlike as three groups of 2, 1 and 1 images are, not four images; half are right.
    low, high = found.interval
    assert 0 <= low <= found.accuracy == 0.5 <= high <= 1
    assert f"(95 % interval over groups {low:.2%} to {high:.2%})" in found.text()
    assert found.numbers()["measures"]["accuracy"]["interval"] == pytest.approx((low, high))
    alone = evaluate(Channels(), replace(FOUR, groups=("p",) * 4)).text()
    assert "2 of 4 images of painted (no interval: all images are of one group)" in alone
    assert "  balanced accuracy  50.00% (no interval: all images are of one group)" in alone


def test_what_an_absent_class_leaves_undefined_is_said():
    found = evaluate(Channels(), FOUR.take(torch.tensor([0, 1, 2])))
    assert (
        "classes   balanced accuracy, macro F1, AUROC and average precision  –: no image is of the "
        "class 'blue'"
    ) in found.text().splitlines()
    row = next(line for line in found.text().splitlines() if line.split()[:1] == ["blue"])
    assert row.split()[1:3] == ["–", "0"]
    several = evaluate(Channels(), of_several(FOUR.images, torch.tensor([[0, 1]] * 4)))
    assert several.numbers()["measures"]["classes"] == []
    assert "average precision  –: an image may show several objects" in several.text()
    assert "specificity" not in several.text()


def test_a_class_without_images_has_no_share():
    found = evaluate(Channels(), FOUR.take(torch.tensor([0])))
    assert found.numbers()["classes"][2]["mean_score_there"] is None
    assert "–" in found.text()
    json.dumps(found.numbers(), allow_nan=False)


def test_predictions_as_json_lines(tmp_path):
    write_predictions(evaluate(Channels(), FOUR), tmp_path / "mine.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "mine.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert [row["label"] for row in rows] == ["red", "green", "green", "blue"]
    assert [row["predicted"] for row in rows] == ["red", "green", "blue", "red"]
    assert [row["right"] for row in rows] == [True, True, False, False]
    assert torch.equal(torch.tensor([row["scores"] for row in rows]), FOUR.images[:, :, 0, 0])
    assert [file.name for file in tmp_path.iterdir()] == ["mine.jsonl"]


@pytest.mark.parametrize("name", ["said.csv", "said.jsonl"])
def test_names_that_are_no_utf8_are_written_with_backslashes(tmp_path, name):
    found = evaluate(Channels(), FOUR)
    names = ("caf\udce9", *found.class_names[1:])
    write_predictions(replace(found, class_names=names), str(tmp_path / name))
    assert "caf\\" in (tmp_path / name).read_text(encoding="utf-8")


def test_predictions_as_csv(tmp_path):
    names = ("red, dark", "green", "blue")
    images = painted(FOUR.images[:, :, 0, 0].tolist(), FOUR.labels.tolist(), names)
    write_predictions(evaluate(Channels(), images), tmp_path / "mine.csv")
    with (tmp_path / "mine.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["index", "label", "predicted", "right", *(f"score {name}" for name in names)]
    assert rows[3][:4] == ["3", "blue", "red, dark", "False"]
    assert [float(score) for score in rows[3][4:]] == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("-2+3", "'-2+3"),
        # Where a table is parted at semicolons.
        ("red;=1+1", "red;'=1+1"),
        ("a\x1b[2J\tb\rc", "a\\x1b[2J\\tb\\rc"),
        ("\t=1+1", "\\t=1+1"),
        *((plain, plain) for plain in ("-1.5", "+", "two\u200dfold", "a=b", "Käse", "'=1'")),
    ],
)
def test_a_name_in_predictions_is_no_formula_and_steers_no_terminal(tmp_path, name, written):
    files = ("=1.png", "-2.png", "3", f"{name}/4.png")
    found = replace(evaluate(Channels(), FOUR), class_names=(name, "green", "blue"), files=files)
    write_predictions(found, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head[5] == f"score {written}"
    assert [row[2] for row in rows] == [written, "green", "green", "blue"]
    assert [row[1] for row in rows][:3] == ["'=1.png", "'-2.png", "3"]
    write_predictions(found, tmp_path / "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text(encoding="utf-8")
    assert next(json.loads(line)["label"] for line in text.splitlines()) == name
    for shown in (text, (tmp_path / "a.csv").read_text(encoding="utf-8")):
        assert printable(shown, keep="\n") == shown


def test_a_control_beyond_ascii_is_escaped_in_json_lines(tmp_path):
    """It begins a command to a terminal as ESC [ does."""
    found = replace(evaluate(Channels(), FOUR), class_names=("a\x9b2J", "grün", "blue"))
    write_predictions(found, tmp_path / "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text(encoding="utf-8")
    assert "\x9b" not in text
    assert '"grün"' in text
    assert json.loads(text.splitlines()[0])["label"] == "a\x9b2J"


def test_several_classes_are_joined(tmp_path):
    pixels = torch.tensor([[0.9, 0.1, 0.8]])[:, :, None, None]
    found = evaluate(Channels(), of_several(pixels, torch.tensor([[1, 0]])))
    write_predictions(found, tmp_path / "mine.jsonl")
    row = json.loads((tmp_path / "mine.jsonl").read_text())
    assert (row["label"], row["predicted"], row["right"]) == ("red+green", "red+blue", False)


def test_another_number_of_classes_is_told(network):
    images = ImageSet("mine", torch.rand(3, 1, 24, 24), torch.tensor([0, 1, 0]), ("a", "b"))
    sentence = "classes apart, but mine has 2; show it the data it was trained on."
    assert text_of(lambda: evaluate(network, images)) == f"the network tells 10 {sentence}"
    two = painted([[0.1, 0.2, 0.3]], [1], ("a", "b"))
    assert text_of(lambda: evaluate(Channels(), two)) == (
        "the network tells 3 classes apart, but painted has 2; show it the data it was trained on."
    )


def test_scores_that_are_not_finite_are_told():
    class Broken(Channels):
        def forward(self, image):
            out = super().forward(image)
            return Output(out.scores / (out.scores[:, :1] - 0.5), "lengths")

    assert text_of(lambda: evaluate(Broken(), FOUR, batch_size=3)) == (
        "the scores of image 3 of painted are not finite, so nothing can be said of them; "
        "torchcaps doctor tells in which layer it begins."
    )


def state_of(network, epoch, *, is_whole=True):
    """The part of a state that a network is read from."""
    return {
        "state_dict": {f"model.{name}": weight for name, weight in network.state_dict().items()},
        "epoch": epoch,
        "loops": {"fit_loop": {"epoch_loop.batch_progress": {"is_last_batch": is_whole}}},
    }


def stop(run, state):
    """Leave of a run what there is before its end."""
    run.result_file.unlink()
    run.model_file.unlink()
    torch.save(state, run.state_file)


def test_of_which_epoch_the_weights_are_is_told(run):
    run.write_metrics([{"epoch": epoch, "seconds": 1.0} for epoch in range(1, 21)])
    write_whole(run.result_file, json.dumps({"training_images": 36, "best_epoch": 7}))
    found = evaluate_file(run.folder)
    assert "\nweights   of epoch 7 of 20, the lowest validation loss\n" in found.text()
    assert found.numbers()["kept"] == "epoch 7 of 20, the lowest validation loss"
    assert "kept" not in evaluate_file(run.model_file, data="tiny").numbers()


def test_a_stopped_run_is_evaluated_at_its_last_state(run, network):
    expected = evaluate_file(run.folder)
    assert "weights" not in expected.text()
    run.result_file.unlink()
    run.model_file.unlink()
    for epoch, is_whole, words in [(2, True, "after epoch 3 of 3"), (0, False, "within epoch 1")]:
        torch.save(state_of(network, epoch, is_whole=is_whole), run.state_file)
        found = evaluate_file(run.folder)
        assert torch.equal(found.scores, expected.scores)
        assert found.numbers()["stopped"].startswith(words)
        (line,) = [line for line in found.text().splitlines() if line.startswith("weights")]
        assert line == (
            f"weights   {found.stopped}: the run is not finished; the command that began it "
            f"continues it"
        )


def test_a_stopped_run_knows_its_training_images_and_so_what_was_held_out(tmp_path, network):
    run = lay_run(tmp_path / "mine", seed=7, seen=tiny("train").digest())
    torch.save(state_of(network, 0), run.state_file)
    _, held = tiny("train").hold_out(share=0.1, seed=seed_of(7, HOLD_OUT))
    assert torch.equal(evaluate_file(run.folder, split="validation").labels, held.labels)
    about = json.loads(run.environment_file.read_text()) | {"training_images": "others"}
    run.write(run.environment_file, json.dumps(about))
    assert text_of(lambda: evaluate_file(run.folder, split="validation")).startswith(
        f"{run.folder} was trained on other images of tiny than there are now"
    )


@pytest.mark.parametrize("about", [{}, {"training_images": 5}], ids=str)
def test_a_stopped_run_that_does_not_say_what_it_was_trained_on_is_told(run, network, about):
    stop(run, state_of(network, 0))
    run.write(run.environment_file, json.dumps(about))
    why = "'training_images' is no text" if about else "'training_images' is missing"
    said = text_of(lambda: evaluate_file(run.folder))
    assert said.startswith(f"{run.environment_file} cannot be read ({why});")


def test_a_stopped_run_whose_state_is_damaged_is_not_evaluated(run, network):
    """torch.load does not look at the checksums of the archive it reads."""
    stop(run, state_of(network, 0))
    content = bytearray(run.state_file.read_bytes())
    with zipfile.ZipFile(run.state_file) as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
    content[largest.header_offset + 200] ^= 1
    run.state_file.write_bytes(content)
    text = text_of(lambda: evaluate_file(run.folder))
    assert "does not fit); it is damaged: remove it" in text
    known = {run.state_file.name: ["0" * 64]}
    (run.folder / "digests.json").write_text(json.dumps(known))
    text = text_of(lambda: evaluate_file(run.folder))
    assert "state.ckpt is damaged or was edited: its SHA-256" in text


def test_remembered_data_that_moved_are_told(run, tmp_path):
    about = json.loads(run.environment_file.read_text()) | {"root": str(tmp_path / "gone")}
    run.write(run.environment_file, json.dumps(about))
    sentence = (
        f"{run.folder} was begun on the data in {tmp_path / 'gone'}, which is not there now; name "
        f"the folder where they are: --root FOLDER on the command line, root= in Python."
    )
    assert text_of(lambda: evaluate_file(run.folder)) == sentence
    assert len(evaluate_file(run.folder, root=tmp_path).right) == 12
    # Other data lie elsewhere.
    assert len(evaluate_file(run.folder, data="leaky").right) == 4
    (tmp_path / "gone").mkdir()
    assert len(evaluate_file(run.folder).right) == 12
    assert text_of(lambda: evaluate_file(run.folder, data="mnist")).startswith(
        f"mnist is looked for where the data of {run.folder} are, since no root is named (--root "
        f"FOLDER on the command line, root= in Python): t10k-images-idx3-ubyte or t10k-"
    )
    assert text_of(lambda: evaluate_file(run.folder, data="mnist", root=tmp_path)).startswith(
        "t10k-images-idx3-ubyte or t10k-images-idx3-ubyte.gz is not in"
    )


def test_a_run_is_shown_images_in_the_size_it_was_trained_on(tmp_path):
    network = small_network(image=(1, 24, 20))
    run = lay_run(tmp_path, {"digests": {}}, network=network, image_size=(24, 20))
    for data in (None, "leaky"):
        found = open_trained(run.folder).images("test", data=data)
        assert found.image_shape == (1, 24, 20)
        assert torch.equal(
            found.images, resized(load(data or "tiny", split="test"), (24, 20)).images
        )
    assert len(evaluate_file(run.folder).right) == 12


def test_a_run_on_windows_is_shown_the_middle(tmp_path):
    shown = {"image_size": (30, 30), "crop": (24, 20)}
    run = lay_run(tmp_path, {}, network=small_network(image=(1, 24, 20)), **shown)
    found = open_trained(run.folder).images("test")
    whole = resized(load("tiny", split="test"), (30, 30))
    assert torch.equal(found.batch(slice(2)).pixels, whole.pixels(slice(2))[:, :, 3:27, 5:25])


def test_a_run_is_evaluated_where_its_recipe_tests_it(tmp_path):
    digests = {"train": tiny("train").digest(), "test": load("leaky", split="test").digest()}
    run = lay_run(tmp_path, {"digests": digests}, test_data="leaky", validation_share=0.25)
    found = evaluate_file(run.folder)
    assert len(found.right) == 4
    assert not found.changed
    # All four are images of "tiny" that the run was trained on, two of "leaky".
    assert found.seen.tolist() == [True] * 4
    assert evaluate_file(run.folder, data="leaky").seen.tolist() == [True, False, False, True]
    assert len(evaluate_file(run.folder, data="tiny").right) == 12
    assert len(evaluate_file(run.folder, split="validation").right) == 10


def test_a_grid_moves_the_couplings_and_a_fine_one_hardly(network):
    images = load("tiny", split="test")
    plain = evaluate(network, images).scores
    coarse, fine = (evaluate(network, images, levels=k).scores for k in (2, 100_001))
    torch.testing.assert_close(fine, plain, rtol=0, atol=1e-3)
    assert not torch.allclose(coarse, plain, atol=1e-3)
    # By hand: the network sees couplings that are rounded to tenths.
    by_hand = network(
        images.batch(torch.arange(len(images))).pixels, couple=lambda c: (c * 10).round() / 10
    ).scores
    ours = evaluate(network, images, levels=[11] * 4).scores
    torch.testing.assert_close(ours, by_hand, rtol=0, atol=1e-6)


def test_what_has_no_couplings_is_measured_in_other_ways():
    images = load("tiny", split="test")
    plain = create_model("convnet_avg", image=(1, 24, 24)).eval()
    assert evaluate(plain, images, measurements=["calibration"]).measured["calibration"]


def test_predictions_name_the_file_of_each_image(tmp_path):
    files = ("red/1.png", "red/\udcff.png", "green/2.png", "blue/3.png")
    found = evaluate(Channels(), replace(FOUR, files=files))
    write_predictions(found, tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["file"] for row in rows] == [files[0], "red/\\udcff.png", *files[2:]]
    write_predictions(found, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        header, first, *_ = csv.reader(file)
    assert header[:5] == ["index", "file", "label", "predicted", "right"]
    assert first[:5] == ["0", "red/1.png", "red", "red", "True"]


def test_pictures_are_drawn_and_their_numbers_lie_beside_them(tmp_path, monkeypatch):
    for name in ("MOST_CURVES", "MOST_CLASSES", "MOST_DIMENSIONS"):
        monkeypatch.setattr(figures, name, 1)
    network = small_network("rem_dr")
    lay_run(tmp_path / "run", {}, network=network, model="rem_dr", data="tiny")
    names = ["confusion", "reliability", "roc", "precision-recall", "parts"]
    found = evaluate_file(tmp_path / "run", figures=tmp_path / "drawn")
    files = {file.name for file in (tmp_path / "drawn").iterdir()}
    drawn = {f"{name}{end}" for name in names for end in (".svg", ".pdf")}
    assert drawn | {"numbers.json"} <= files
    numbers = json.loads((tmp_path / "drawn/numbers.json").read_text())
    assert (numbers["confusion"], numbers["left_out"]) == (found.confusion.tolist(), {})
    # That of images held out of training, whatever the test images are.
    held = evaluate_file(tmp_path / "run", split="validation")
    of_held = temperature(Output(held.scores, held.scores_are), held.labels)
    assert numbers["temperature"] == of_held
    assert len(numbers["calibration_error"]) == 2


def test_capsules_that_see_the_whole_map_are_spread_over_it():
    """With unit matrices, no squash and no bias capsule i is the sum of its map over places p, so
    that p has the share x_ip · u_i / |u_i| of its length."""
    network = small_network("efficient_capsnet").eval()
    network.primary.squash = "none"
    torch.nn.init.ones_(network.primary.projection.weight)
    torch.nn.init.zeros_(network.primary.projection.bias)
    pixels = torch.rand(3, *network.image, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = network(pixels, keep="last")
        said, x = out.scores.argmax(-1), network.backbone(pixels).unflatten(1, (16, 8))
        u = x.sum((-2, -1))
        share = (x * (u / u.norm(dim=-1, keepdim=True))[..., None, None]).sum(2)
        coupling = out.trace[0].routed.steps[-1].coupling[torch.arange(3), :, said]
        places = (coupling[..., None, None] * share).sum(1)
        found = figures._places(Trained(network, Path(), None), pixels, out, said)
    assert found.shape[1] > 1
    torch.testing.assert_close(found, places.clamp(min=0))
    torch.testing.assert_close(places.sum((-2, -1)), (coupling * u.norm(dim=-1)).sum(-1))


def test_what_cannot_be_drawn_is_said_and_where_nothing_was_held_out_there_is_no_temperature(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(figures, "MOST_CURVES", 1)
    network = small_network("convnet_avg")
    fields = {"model": "convnet_avg", "data": "tiny", "validation_share": 0.0}
    lay_run(tmp_path / "run", {}, network=network, **fields)
    evaluate_file(tmp_path / "run", figures=tmp_path / "drawn")
    numbers = json.loads((tmp_path / "drawn/numbers.json").read_text())
    assert "temperature" not in numbers
    assert numbers["left_out"]["parts"].startswith("the trace is empty")
    assert numbers["left_out"]["dimensions"].startswith("the network has no class capsules")
