"""`torchcaps compare` and `torchcaps train --seeds`."""

import json

from cli.command_line import assert_one_sentence

TRAIN = ["train", "--model", "peer_sign_em", "--data", "sign", "--epochs", 1]
TRAIN += ["--set", "batch_size=4000"]


def test_seeds_are_trained_and_compared(call, tmp_path):
    out = tmp_path / "many"
    done = call(*TRAIN, "--seeds", "0,3", "--out", out)
    assert done.code == 0
    (variant,) = json.loads(done.out)["variants"]
    assert (variant["variant"], variant["seeds"]) == ("peer_sign_em", [0, 3])
    # The same line trains nothing again, and compare says the same.
    assert json.loads(call(*TRAIN, "--seeds", "0,3", "--out", out).out)["variants"] == [variant]
    plot = tmp_path / "means.svg"
    done = call("compare", out, "--plot", plot, "--json")
    assert json.loads(done.out) == {"variants": [variant]}
    assert done.err == f"drawn in {plot}\n"
    assert plot.read_text().startswith("<?xml")
    done = call("compare", out)
    assert done.out.splitlines()[1].startswith("peer_sign_em  2 ")


def test_bad_words_are_one_sentence(call, tmp_path):
    out = tmp_path / "many"
    assert_one_sentence(
        call(*TRAIN, "--seeds", "4-0", "--out", out), "for example 0-4 or 0,2,5, but came as '4-0'"
    )
    for idle in (["--tensorboard"], ["--workers", 2]):
        done = call(*TRAIN, "--seeds", "0-1", *idle, "--out", out)
        assert_one_sentence(done, f"{idle[0]} is for one run; leave it out, or train seed after")
    assert_one_sentence(
        call(*TRAIN, "--seeds", "0-1", "--seed", 3, "--out", out),
        "--seeds 0-1 names every seed, so --seed 3 would do nothing; leave one out.",
    )
    assert_one_sentence(call("compare", tmp_path), f"{tmp_path} is no run folder and holds none")
    assert not out.exists()
