"""`torchcaps check`: a line a file, and exit code 2 where one is damaged."""

import json
import shutil


def test_every_file_of_a_run_has_a_line(call, trained):
    done = call("check", trained)
    assert done.code == 0
    assert "state.ckpt" in done.out
    assert {line.split()[-1] for line in done.out.splitlines()} == {"whole"}


def test_a_damaged_file_is_told(call, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text("{}")
    done = call("check", tmp_path / "run", "--json")
    assert done.code == 2
    assert json.loads(done.out)["whole"] is False
    assert "result.json is damaged: remove it" in call("check", tmp_path / "run").out
