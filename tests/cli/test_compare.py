"""`torchcaps compare` and `torchcaps train --seeds`."""

import json

TRAIN = ["train", "--model", "peer_sign_em", "--data", "sign", "--epochs", 1]
TRAIN += ["--set", "batch_size=4000"]


def test_seeds_are_trained_and_compared(call, tmp_path):
    out = tmp_path / "many"
    done = call(*TRAIN, "--seeds", "0,3", "--out", out)
    assert (done.code, "one seed" in done.err) == (0, False)
    (variant,) = json.loads(done.out)["variants"]
    assert (variant["variant"], variant["seeds"]) == ("peer_sign_em", [0, 3])
    # The same line trains nothing again, and compare says the same.
    assert json.loads(call(*TRAIN, "--seeds", "0,3", "--out", out).out)["variants"] == [variant]
    plot = tmp_path / "means.svg"
    done = call("compare", out, "--plot", plot, "--json")
    assert json.loads(done.out) == {"variants": [variant], "differences": []}
    assert done.err == f"drawn in {plot}\n"
    assert plot.read_text().startswith("<?xml")
    done = call("compare", out)
    assert done.out.splitlines()[1].startswith("peer_sign_em  2 ")
