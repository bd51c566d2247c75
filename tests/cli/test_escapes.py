"""What libraries say on the way is shown as text, whatever a name in it holds."""

import logging
import shutil
import warnings


def test_a_name_in_a_log_line_steers_no_terminal(trained, tmp_path, call, caplog):
    folder = tmp_path / "\x1b[31mred"
    shutil.copytree(trained, folder)
    done = call(
        *("train", "--init-from", folder, "--data", "tiny", "--epochs", 1),
        *("--option", "bias=true", "--out", tmp_path / "run"),
    )
    assert done.code == 0, done.err
    (said,) = (each for each in caplog.messages if "made new" in each)
    assert said.startswith(f"{tmp_path}/\\x1b[31mred/model.safetensors: ")
    assert "\x1b" not in caplog.text


def test_a_warning_steers_no_terminal(call):
    call("--version")
    said = warnings.formatwarning("a\x1b[2Jb", UserWarning, "\x1bfile.py", 3, line="x = 1")
    assert said == "\\x1bfile.py:3: UserWarning: a\\x1b[2Jb\n  x = 1\n"


def test_so_does_no_line_of_another_logger(call, caplog):
    call("--version")
    logging.getLogger("lightning.pytorch.x").warning("%s is there", "a\x1b[2J\nb")
    assert caplog.messages == ["a\\x1b[2J\nb is there"]
