"""`torchcaps estimate`: sentences, or one JSON object."""

import json

from cli.command_line import printed


def test_estimate_speaks_in_sentences_and_json(call):
    words = ["estimate", "--model", "capsnet", "--image", "3x64x48", "--classes", "7"]
    said = printed(call(*words, "--batch-size", 128))
    assert said.startswith("capsnet for images of 3×64×48, 7 classes: 26,410,752 parameters.")
    numbers = json.loads(call(*words, "--batch-size", 1, "--option", "decoder=false", "--json").out)
    assert (numbers["batch_size"], numbers["image"]) == (1, [3, 64, 48])
    assert numbers["parameters"] < 26_410_752
