"""`torchcaps predict`: a line a picture."""

import json

import torch
from PIL import Image

from cli.command_line import assert_one_sentence, printed, tiny, well


def test_predict_prints_a_line_a_picture(run_folder, call, picture):
    done = well(call("predict", run_folder, picture, picture))
    first, second = done.out.splitlines()
    assert first == second
    assert first.startswith(f"{picture}: ")
    assert done.err == (
        "scores are lengths of class capsules: each says how likely its class is there, by itself; "
        "they are no softmax and need not sum to one\n"
    )


def test_predict_speaks_json_and_draws(run_folder, call, picture, tmp_path):
    drawn = tmp_path / "drawn.svg"
    found = json.loads(printed(call("predict", run_folder, picture, "--json", "--picture", drawn)))
    assert found["path"] == str(picture)
    assert found["class"] in tiny("train", None).class_names
    assert found["class"] == found["classes"][int(torch.tensor(found["scores"]).argmax())]
    assert drawn.read_text().startswith("<?xml")


def test_predict_says_what_it_did_to_a_picture(run_folder, call, tmp_path):
    file = tmp_path / "wide.png"
    Image.new("RGB", (48, 24), "red").save(file)
    assert_one_sentence(call("predict", run_folder, file), "or let --resize stretch it.")
    done = well(call("predict", run_folder, file, "--resize", "--json"))
    sentence = f"{file}: stretched from 24 × 48 to 24 × 24 pixels, which changes its proportions"
    assert done.err == f"{sentence}, colours made grey.\n"
    assert json.loads(done.out)["notes"] == [done.err.rstrip("\n")]
