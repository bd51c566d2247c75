"""Studies as jobs. There is no Slurm here: submitit's local executor starts processes instead."""

import json
import os
import signal
import sys
from types import SimpleNamespace

import pytest

from error_text import text_of
from study_line import LINE, Lines, kill_all, until
from torchcaps.study import read_records
from torchcaps.study.ledger import Ledger
from torchcaps.study.on_slurm import _Job, _read, _who
from torchcaps.study.pool import run_study
from torchcaps.study.settings import Settings

LOCAL = f"from torchcaps.study import on_slurm; on_slurm.CLUSTER = 'local'; {LINE}"
ON = ("--jobs", "2", "--on", "slurm:partition=none,timeout_min=30")


def run_on(place, study, folder):
    return run_study(study(), Settings(folder / "runs", folder / "e", on=place))


def test_options_of_jobs_are_read():
    assert _read("partition=gpu,timeout_min=60") == {"partition": "gpu", "timeout_min": 60}
    assert _read("") == {}


@pytest.mark.parametrize("content", [b"", b"1", b"[1]", b"\xff", b"[" * 10_000])
def test_a_job_that_was_killed_as_it_said_who_it_is_names_no_cell(tmp_path, content):
    (tmp_path / "slurm").mkdir()
    _who(tmp_path, "7").write_bytes(content)
    assert _Job(SimpleNamespace(job_id="7"), Ledger(tmp_path))._cell() is None


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (
            "slurm:gpu",
            "--on slurm:NAME=VALUE,… takes options of a job, for example slurm:partition=",
        ),
        ("slurm:timeout_min=1h", "timeout_min must be whole minutes, 1 or more, but came as '1h'."),
        (
            f"slurm:timeout_min={'9' * 5000}",
            f"timeout_min must be whole minutes, 1 or more, but came as '{'9' * 99}….",
        ),
    ],
)
def test_bad_options_are_a_sentence(study, tmp_path, place, says):
    assert text_of(lambda: run_on(place, study, tmp_path)).startswith(says)


def test_without_submitit_the_extra_is_named(study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert text_of(lambda: run_on("slurm", study, tmp_path)) == (
        "--on slurm needs submitit, which comes with the extra [slurm]: pip install "
        "'torchcaps[slurm]'."
    )


@pytest.mark.cluster
def test_without_slurm_the_login_node_is_named(study, tmp_path):
    assert text_of(lambda: run_on("slurm", study, tmp_path)) == (
        "--on slurm must be called where jobs are submitted, and there is no `srun` here; log in "
        "to the cluster's login node."
    )


@pytest.mark.cluster
def test_a_job_that_slurm_does_not_take_is_a_sentence(study, tmp_path, monkeypatch):
    for name, says in (("srun", ""), ("sbatch", "echo invalid partition: nope >&2; exit 1")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    said = text_of(lambda: run_on("slurm:partition=nope", study, tmp_path))
    assert said.startswith("Slurm took no job (")
    assert "invalid partition: nope" in said
    assert said.endswith("right, and does the queue take so many --jobs?")


@pytest.mark.cluster
def test_an_option_that_no_job_has_is_a_sentence(study, tmp_path, monkeypatch):
    monkeypatch.setattr("torchcaps.study.on_slurm.CLUSTER", "local")
    said = text_of(lambda: run_on("slurm:partitoin=gpu", study, tmp_path))
    assert said.startswith("these are not all options of a job: partitoin; they are those of")


@pytest.mark.cluster
def test_a_job_that_is_killed_and_a_study_that_is_killed_go_on(lines, tmp_path):
    """The line is killed and its jobs work on; then one of those is killed too."""
    study = lines.start(*ON, code=LOCAL)
    until(lambda: len(lines.rows()) == 2 and all(lines.rows().values()))
    os.kill(study.pid, signal.SIGKILL)
    study.wait()
    claim = next((tmp_path / "runs").glob("*.claim"))
    os.kill(json.loads(claim.read_text())["process"], signal.SIGKILL)
    kill_all(study)
    lines.assert_end_well(lines.start(*ON, code=LOCAL))
    assert lines.last_epochs() == dict.fromkeys(lines.rows(), 1)


# What says which machine it was and how long it took.
OF_MACHINE = {"command", "made", "device"}


def numbers_of(record):
    fields = record.model_dump(mode="json", exclude=OF_MACHINE)
    for seed in fields["seeds"]:
        del seed["wall_seconds"]
        for row in seed["per_epoch"]:
            del row["seconds"]
    return json.dumps(fields)


@pytest.mark.cluster
def test_jobs_and_processes_give_the_same_record(tmp_path):
    short = (
        'model = "peer_sign_em"\ndata = "sign"\nepochs = 2\nbatch_size = 2000\n'
        "validation_share = 0.0\n[vary]\nseed = [0, 1]\n"
    )
    found = []
    for name, words, code in (("jobs", ON, LOCAL), ("processes", ("--jobs", "2"), LINE)):
        (tmp_path / name).mkdir()
        lines = Lines(tmp_path / name)
        (tmp_path / name / "my.toml").write_text(short)
        process = lines.start(*words, code=code)
        process.communicate(timeout=600)
        lines.end()
        assert process.returncode == 0
        (record,) = read_records(tmp_path / name / "evidence", drafts=True).values()
        found.append(numbers_of(record))
    assert found[0] == found[1]
