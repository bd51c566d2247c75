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
    assert json.loads(done.out) == {"variants": [variant], "differences": []}
    assert done.err == f"drawn in {plot}\n"
    assert plot.read_text().startswith("<?xml")
    assert_one_sentence(
        call("compare", out, "--plot", tmp_path / "means.txt"),
        f"the picture must end in .svg or .png, but is {tmp_path / 'means.txt'}.",
    )
    done = call("compare", out)
    assert done.out.splitlines()[1].startswith("peer_sign_em  2 ")


def test_a_folder_of_runs_is_taken_for_no_run_and_a_run_for_no_folder_of_runs(call, tmp_path):
    out = tmp_path / "many"
    for seed in (0, 1):
        run = out / f"s{seed}"
        assert call(*TRAIN, "--seed", seed, "--out", run).code == 0
    sentence = f"{out} is no run, but a folder of 2; name one of them, as {out / 's0'}."
    assert_one_sentence(call("eval", out), sentence)
    assert_one_sentence(call("train", "--init-from", out, "--out", tmp_path / "x"), sentence)
    done = call(*TRAIN, "--seeds", "0-1", "--out", out / "s0")
    assert_one_sentence(
        done,
        f"{out / 's0'} is a run, where several seeds or values need a folder of runs; choose "
        f"another.",
    )
    assert not any(each.is_dir() for each in (out / "s0").iterdir())


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
