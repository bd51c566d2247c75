"""What a word of a command line may be: whatever came, it is a value or a sentence."""

import pytest

DIGITS, BRACKETS = "9" * 5000, "[" * 3000
TRAIN = ["train", "--model", "capsnet", "--data", "part-whole"]


@pytest.mark.parametrize(
    "words",
    [
        [*TRAIN, "--seeds", DIGITS],
        [*TRAIN, "--seeds", f"0-{DIGITS}"],
        [*TRAIN, "--seeds", "0-4000000000"],
        [*TRAIN, "--option", f"iterations=1,{DIGITS}"],
        [*TRAIN, "--option", f"iterations=1,{BRACKETS}"],
        [*TRAIN, "--set", f"prune_to={DIGITS}"],
        [*TRAIN, "--set", f"milestones={BRACKETS}"],
        [*TRAIN, "--image-size", f"{DIGITS}x3"],
        [*TRAIN, "--time-budget", f"{DIGITS}h"],
        ["estimate", "--model", "capsnet", "--image", f"1x{DIGITS}x28"],
        ["eval", "RUN", "--quantise", DIGITS],
        ["dictionary", "RUN", "--levels", DIGITS],
    ],
    ids=lambda words: f"{words[0]} {words[-2]} {words[-1][:14]}",
)
def test_a_number_of_thousands_of_digits_is_told(call, tmp_path, words):
    out = ["--out", tmp_path / "run"] if words[0] == "train" else []
    done = call(*words, *out)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert len(done.err) < 2000
    assert not (tmp_path / "run").exists()
