"""`torchcaps models`: the networks by name."""

import json
import subprocess

from cli.command_line import COMMAND, Call
from torchcaps import list_models


def test_models_are_listed_with_their_sizes(call: Call) -> None:
    done = call("models")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "capsnet  1×28×28, 10 classes, 8,215,568 parameters"
    assert lines[2].startswith("    routing=dynamic, iterations=3, bias=False, normalise=softmax")
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == list_models()
    (deep,) = [line for line in lines if line.startswith("mitterreiter_5x16 ")]
    assert deep == "mitterreiter_5x16  1×40×40, 10 classes, 2,426,720 parameters"


def test_models_speak_json_in_a_process_of_their_own() -> None:
    done = subprocess.run([COMMAND, "models", "--json"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert list(rows) == list_models()
    assert rows["capsnet"]["parameters"] == 8_215_568
    assert rows["capsnet"]["image"] == [1, 28, 28]
    assert rows["capsnet"]["options"]["routing"] == "dynamic"
