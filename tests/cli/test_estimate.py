"""`torchcaps estimate`: sentences, or one JSON object."""

import json

import pytest

from cli.command_line import Call, assert_one_sentence


def test_estimate_speaks_in_sentences_and_json(call: Call) -> None:
    words = ["estimate", "--model", "capsnet", "--image", "3x64x48", "--classes", "7"]
    done = call(*words, "--batch-size", 128)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("capsnet for images of 3×64×48, 7 classes: 26,410,752 parameters.")
    numbers = json.loads(call(*words, "--batch-size", 1, "--option", "decoder=false", "--json").out)
    assert (numbers["batch_size"], numbers["image"]) == (1, [3, 64, 48])
    assert numbers["parameters"] < 26_410_752


def test_an_image_that_is_no_size_is_told_in_one_sentence(call: Call) -> None:
    done = call("estimate", "--model", "capsnet", "--image", "64x48")
    assert_one_sentence(done, "--image must be channels, height and width, for example 3x64x48, ")


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("batch_size=64", "--batch-size"),
        ("precision=bfloat16", "--precision"),
        ("n_classes=5", "--classes"),
        ("image=[1,28,28]", "--image"),
        ("model=capsnet", "--model"),
    ],
)
def test_what_the_command_takes_itself_is_no_option(call: Call, option: str, instead: str) -> None:
    done = call("estimate", "--model", "capsnet", "--option", option)
    name = option.partition("=")[0]
    assert_one_sentence(
        done,
        f"--option is for options of the network, but {name} came with it, which estimate takes by "
        f"itself; write {instead} instead.",
    )
