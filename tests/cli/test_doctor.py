"""`torchcaps doctor`: a verdict each, and one sentence when it cannot look."""

import json

from cli.command_line import printed


def test_doctor_examines_what_is_to_be_trained(call):
    words = ["--model", "mitterreiter_5x16", "--data", "tiny", "--seconds", 1]
    said = printed(call("doctor", *words))
    assert said.startswith("mitterreiter_5x16 on 40 training images of tiny, before training\n")
    out = printed(call("doctor", *words, "--option", "weight_std=0.00001", "--json"))
    assert out.count("\n") == 1
    found = json.loads(out)
    assert found["subject"].startswith("mitterreiter_5x16 (weight_std=1e-05) on ")
    verdicts = {row["check"]: row["verdict"] for row in found["findings"]}
    assert (verdicts["scores"], verdicts["pixels"]) == ("broken", "fine")


def test_doctor_examines_a_run(run_folder, call):
    said = printed(call("doctor", run_folder, "--seconds", 1))
    assert said.splitlines()[0].endswith(" of tiny, after training")
