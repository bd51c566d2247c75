"""`torchcaps eval`: what a network gets right, on standard output."""

import json

from cli.command_line import printed


def test_eval_prints_numbers_for_people_and_for_programs(run_folder, call):
    said = printed(call("eval", run_folder))
    assert "accuracy  " in said
    assert " of 12 test images of part-whole (95 % Wilson interval " in said
    out = printed(call("eval", run_folder, "--json"))
    assert out.count("\n") == 1
    found = json.loads(out)
    assert (found["images"], found["split"], found["in_training"]) == (12, "test", 0)
    assert len(found["confusion"]) == 10


def test_eval_writes_a_line_for_every_image(run_folder, call, tmp_path):
    file = tmp_path / "said.jsonl"
    done = call("eval", run_folder, "--predictions", file, "--split", "validation", "--json")
    found, rows = json.loads(done.out), list(map(json.loads, file.read_text().splitlines()))
    assert len(rows) == found["images"] == 4
    assert sum(row["right"] for row in rows) == found["right"]


def test_eval_measures_in_the_same_pass(run_folder, call):
    words = ["--quantise", "11", "--measure", "keys", "--measure", "polarisation"]
    found = json.loads(call("eval", run_folder, *words, "--json").out)
    assert found["quantised"] == 11
    assert sum(row["images"] for row in found["measured"]["keys"]["classes"]) == 12
    # A tree of couplings on the grid: each row of the last iteration is on it.
    assert {row["name"] for row in found["measured"]["polarisation"]["steps"]} >= {"classes"}
    assert found["measured"]["keys"]["units"]["entropy"] == "bit"
    printed = call("eval", run_folder, *words).out
    assert "couplings on 11 levels" in printed
    assert "\nkeys\n" in printed
