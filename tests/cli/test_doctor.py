"""`torchcaps doctor`: a verdict each, and one sentence when it cannot look."""

import json


def test_doctor_examines_what_is_to_be_trained(call):
    words = ["--model", "mitterreiter_5x16", "--data", "tiny", "--seconds", 1]
    done = call("doctor", *words)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mitterreiter_5x16 on 40 training images of tiny, before training\n")
    done = call("doctor", *words, "--option", "weight_std=0.00001", "--json")
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    found = json.loads(done.out)
    assert found["subject"].startswith("mitterreiter_5x16 (weight_std=1e-05) on ")
    verdicts = {row["check"]: row["verdict"] for row in found["findings"]}
    assert (verdicts["scores"], verdicts["pixels"]) == ("broken", "fine")


def test_doctor_takes_a_recipe_as_train_does(call, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('model = "mitterreiter_5x16"\ndata = "tiny"\n')
    done = call("doctor", "--recipe", recipe, "--set", "loss=cross_entropy", "--seconds", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mitterreiter_5x16 on 40 training images of tiny, before training\n")


def test_doctor_examines_a_run(run_folder, call):
    done = call("doctor", run_folder, "--seconds", 1)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].endswith(" of tiny, after training")
