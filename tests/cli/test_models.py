"""`torchcaps models`: the networks by name."""

import json

import pytest
import torch

import torchcaps as tc
from cli.command_line import printed
from registries import as_before
from torchcaps import list_models
from torchcaps.models import MODELS


def test_models_are_listed_with_their_sizes(call):
    lines = printed(call("models")).splitlines()
    assert lines[0] == "capsnet  1×28×28, 10 classes, 8,215,568 parameters"
    assert lines[2].startswith("    routing=dynamic, iterations=3, bias=False, normalise=softmax")
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == list_models()
    (deep,) = [line for line in lines if line.startswith("mitterreiter_5x16 ")]
    assert deep == "mitterreiter_5x16  1×40×40, 10 classes, 2,426,720 parameters"
    rows = json.loads(call("models", "--json").out)
    assert list(rows) == names
    assert (rows["capsnet"]["parameters"], rows["capsnet"]["image"]) == (8_215_568, [1, 28, 28])
    assert rows["capsnet"]["options"]["routing"] == "dynamic"


def test_one_network_explains_its_options(call):
    lines = printed(call("models", "gu_aff_capsnet")).splitlines()
    assert lines[0] == "gu_aff_capsnet  1×40×40, 10 classes, 7,578,688 parameters"
    at = lines.index("--option sharing=all")
    assert lines[at + 1 : at + 3] == [
        "    matrices of its own for each child, one for each type, or one for all",
        "    one of: none, type, all",
    ]
    at = lines.index("--option routing=uniform")
    assert lines[at + 2] == f"    one of: {', '.join(MODELS['gu_aff_capsnet'].routings)}"
    at = lines.index("--option agreement=1.0")
    assert lines[at + 2] == "    one of: a number, learned"
    assert list(json.loads(call("models", "resnet18", "--json").out)) == ["resnet18"]


def test_sizes_are_compared_with_those_that_papers_print(call):
    lines = printed(call("models", "--compare")).splitlines()
    at = lines.index("gu2021 Table 3  ConvNet-Avg, kernel 9, MNIST 40x40")
    assert lines[at + 1] == (
        "    printed 5.30M, ours 5,332,234 (convnet_avg), not equal: Table 1 of the same paper "
        "prints 5.3M, which is met"
    )
    counts = "    printed 0.9M, not counted: counts what pruning leaves, which only training can "
    assert counts in "\n".join(lines)
    assert lines[-1] == "39 of 46 are equal in the digits that are printed."
    rows = json.loads(call("models", "--compare", "--json").out)
    assert len(rows) == 53
    assert rows[0]["ours"] == 35_445_522


def test_a_network_that_looks_at_numbers_while_it_is_made_is_listed(call):
    """On "meta", where there are none, it could not be made."""

    def build(image: tuple[int, int, int], n_classes: int) -> torch.nn.Module:
        widths = [int(each.item()) for each in torch.linspace(2, 4, 3)]
        return torch.nn.Linear(sum(widths), n_classes)

    state = torch.get_rng_state()
    with as_before():
        tc.register_model("looking", build, image=(1, 8, 8), n_classes=2)
        said = printed(call("models", "looking"))
    assert said.startswith("looking  1×8×8, 2 classes, 20 parameters\n")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_network_of_ones_own_is_not_explained_by_our_options(call):
    def build(
        image: tuple[int, int, int] = (1, 8, 8), n_classes: int = 2, width: int = 4
    ) -> torch.nn.Module:
        return torch.nn.Linear(width, n_classes)

    with as_before():
        tc.register_model("mine", build, image=(1, 8, 8), n_classes=2)
        printed = call("models", "mine").out
    assert printed.splitlines()[2:] == ["--option width=4"]


def test_trained_networks_show_their_cards(call):
    cards = printed(call("models", "--pretrained"))
    names = [line.split()[0] for line in cards.splitlines() if not line.startswith(" ")]
    assert names == tc.list_models(pretrained=True)
    one = call("models", "mitterreiter_5x16.part-whole", "--pretrained").out.splitlines()
    assert one[0] == "mitterreiter_5x16.part-whole  206,624 parameters, 832 kB"
    assert one[-2:] == [
        "    tc.create_model('mitterreiter_5x16', pretrained='part-whole')",
        "    torchcaps eval zoo:mitterreiter_5x16.part-whole",
    ]
    (card,) = json.loads(call("models", names[0], "--pretrained", "--json").out).values()
    assert f"{card['right']:,} of {card['images']:,} test images" in cards
    # Of MNIST five networks, one of Fashion-MNIST; CIFAR-10 states no licence.
    assert cards.count("Corinna Cortes; 64 of its test images come along\n") == 5
    assert "Zalando SE; 64 of its test images come along\n" in cards
    assert "the author asks to be cited\n" in cards
    of_model = json.loads(call("models", "mitterreiter_5x16", "--pretrained", "--json").out)
    assert len(of_model) >= 2
    assert {each["model"] for each in of_model.values()} == {"mitterreiter_5x16"}


@pytest.mark.slow
def test_a_trained_network_is_evaluated_to_the_digits_of_its_card(call):
    done = call("eval", "zoo:mitterreiter_5x16.part-whole-uniform", "--json")
    card = call("models", "mitterreiter_5x16.part-whole-uniform", "--pretrained", "--json")
    assert json.loads(done.out)["right"] == next(iter(json.loads(card.out).values()))["right"]


def test_one_may_begin_with_a_trained_network_whose_name_is_said(call, tmp_path):
    words = ["--data", "part-whole", "--epochs", "1", "--out", tmp_path / "run"]
    done = call("train", "--init-from", "zoo:mitterreiter_5x16.part-whole", *words)
    assert done.code == 2
    assert "which network it is must be said: give --model, and its --option." in done.err
