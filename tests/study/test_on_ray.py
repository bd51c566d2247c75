"""Studies on a Ray cluster of two machines, which are real processes and are really killed."""

import os
import platform
import signal
import sys

import pytest

from error_text import text_of
from study_line import FOUR_SEEDS, LINE, kill_all, until
from torchcaps import __version__
from torchcaps.errors import TorchcapsError
from torchcaps.study import work as module
from torchcaps.study.disk import signed
from torchcaps.study.ledger import Ledger
from torchcaps.study.on_ray import OnNode
from torchcaps.study.pool import run_study
from torchcaps.study.settings import Settings

SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def test_without_ray_the_extra_is_named(study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert text_of(lambda: run_on("ray", study, tmp_path)) == (
        "--on ray needs Ray, which comes with the extra [cluster]: pip install "
        "'torchcaps[cluster]' here and on every machine of the cluster."
    )


def run_on(place, study, folder, **options):
    return run_study(study(), Settings(folder / "runs", folder / "e", on=place, **options))


@pytest.fixture
def node(tmp_path, monkeypatch):
    """What runs on another machine, in this process."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def make(*, n_gpus=0, **options):
        settings = Settings(tmp_path / "runs", tmp_path / "evidence", on="ray", **options)
        return OnNode(settings, 3, ["torchcaps", "study", "run"], n_gpus)

    return make


def test_cells_are_taken_there(study, node, monkeypatch):
    seen = []
    monkeypatch.setattr(module, "fit", lambda recipe, out, **options: seen.append(out))
    monkeypatch.setattr(module, "look_at", lambda run, look, **_: {"accuracy": 50.0})
    monkeypatch.setattr(module, "images_of_others", lambda run, look, **_: None)
    there = node()
    (cell,) = study().cells()
    with signed(there.settings.folder) as sign:
        assert there.serve([cell], sign, __version__) == ""
    assert seen == [there.settings.folder / cell.name]
    assert Ledger(there.settings.folder).state(cell) == "done"
    assert (there.settings.folder / "worker3.log").is_file()


def test_no_cell_is_taken_of_a_folder_that_is_not_seen_or_by_another_version(study, node):
    there = node()
    assert there.serve(study().cells(), ".no-sign", __version__).startswith(
        f"the Ray worker on {platform.node()} does not see {there.settings.folder} as this "
    )
    assert there.serve(study().cells(), ".no-sign", "0.0.1") == (
        f"this is torchcaps 0.0.1, but {platform.node()} has {__version__}; install the same one "
        f"on every machine of the cluster."
    )
    assert not there.settings.folder.exists()


def test_a_worker_imports_what_the_study_was_given(study, node, monkeypatch, tmp_path):
    """A worker is another process, which knew no network of one's own."""
    monkeypatch.setattr(module, "fit", lambda *_, **__: pytest.fail("it was not imported"))
    file = tmp_path / "mine_of_worker.py"
    file.write_text("import torchcaps\nraise torchcaps.TorchcapsError('it was imported')")
    there = node(imports=(file,))
    told = pytest.raises(TorchcapsError, match="it was imported")
    with signed(there.settings.folder) as sign, told:
        there.serve(study().cells(), sign, __version__)


def test_a_worker_without_a_gpu_sees_none(node):
    node(n_gpus=1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    node(n_gpus=0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_paths_do_not_depend_on_where_a_process_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = Settings("runs", "evidence", root="data").for_elsewhere()
    assert (settings.folder, settings.root) == (tmp_path / "runs", tmp_path / "data")
    with signed(settings.folder) as sign:
        assert (settings.folder / sign).is_file()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("ray:10.0.0.1", "--on ray:HOST:PORT takes the address that `ray start --head` prints"),
        ("ray://head:10001", "--on ray:HOST:PORT takes the address that `ray start --head` prints"),
        ("ray:127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1 ("),
    ],
)
def test_an_address_where_no_cluster_is_is_a_sentence(study, tmp_path, place, says):
    assert text_of(lambda: run_on(place, study, tmp_path)).startswith(says)


@pytest.fixture(scope="module")
def ray():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # At 15, as Ray has it, workers beside a busy process take a minute an epoch.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112, as Ray spells it
    import ray

    return ray


@pytest.fixture
def cluster(ray):
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.mark.cluster
def test_a_machine_that_goes_away_loses_no_cell(cluster, lines):
    """Both machines see the folder. One is removed, then every process is killed."""
    second = cluster.add_node(**SMALL)
    words = ("--jobs", "2", "--on", f"ray:{cluster.address}")
    study = lines.start(*words)
    until(lambda: len(lines.rows()) == 2 and all(lines.rows().values()))
    cluster.remove_node(second, allow_graceful=False)
    until(lambda: lines.done())
    third = cluster.add_node(**SMALL)
    until(lambda: len(lines.rows()) >= 3)
    kill_all(study)
    for node in (third, cluster.head_node):
        cluster.remove_node(node, allow_graceful=False)
    before = lines.done()
    cluster.shutdown()
    cluster.__init__(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
    lines.assert_end_well(lines.start("--jobs", "1", "--on", f"ray:{cluster.address}"))
    assert {name: lines.done()[name] for name in before} == before
    assert lines.last_epochs() == dict.fromkeys(lines.rows(), 1)


@pytest.mark.cluster
def test_a_machine_that_does_not_see_the_folder_says_so(cluster, lines):
    """/proc/self/cwd is another folder for each process."""
    words = ("--on", f"ray:{cluster.address}", "--out", "/proc/self/cwd/runs")
    study = lines.start(*words, code=f"import sys; sys.stderr = open('said', 'w'); {LINE}")
    assert study.wait(timeout=600) == 2
    said = (lines.folder / "said").read_text()
    assert "torchcaps: the Ray worker on " in said
    assert "does not see /proc/self/cwd/runs as this machine does, or its disk has no " in said
    assert lines.rows() == {}


@pytest.mark.cluster
def test_told_to_stop_workers_save_their_states(cluster, lines):
    """Ctrl-C here, and training elsewhere saves its state within the epoch that it is at."""
    (lines.folder / "my.toml").write_text(FOUR_SEEDS.replace("epochs = 8", "epochs = 1000"))
    study = lines.start("--on", f"ray:{cluster.address}")
    until(lambda: any(lines.rows().values()))
    study.send_signal(signal.SIGINT)
    assert study.wait(timeout=600) == 130
    assert not list(lines.folder.glob("runs/*.claim"))
    log = (lines.folder / "runs" / "worker0.log").read_text()
    assert "training was told to stop; the same command continues " in log


@pytest.mark.cluster
def test_a_cluster_without_gpus_says_so(cluster, lines):
    words = ("--device", "cuda", "--on", f"ray:{cluster.address}")
    study = lines.start(*words)
    assert study.wait(timeout=600) == 2
    assert lines.rows() == {}
