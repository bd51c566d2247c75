"""A native library is built once, found again when it is whole, and done without where it cannot
be had. The tests build a small one."""

import contextlib
import ctypes
import fcntl
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from error_text import text_of
from torchcaps.ops.convolution import winograd
from torchcaps.ops.fused.tiles import made_of, vote_like
from torchcaps.ops.native import build, distance, dynamic, em
from torchcaps.types import Capsules, VoteMap

SOURCE = """
struct Team { void *run, *index, *size, *most; };
extern "C" __attribute__((visibility("default"))) long torchcaps_job_size() { return %d; }
extern "C" __attribute__((visibility("default"))) void torchcaps_use_team(Team) {}
"""
ANNOUNCED = "building the native kernels, once, which takes some ten seconds; see {}"

# Calls the real compiler and writes down its process; with $STUCK it leaves half a file and stays.
COMPILER = """#!{python}
import os, pathlib, sys, time
arguments = sys.argv[1:]
if "-o" in arguments:
    with open({log!r}, "a") as log:
        log.write(str(os.getpid()) + "\\n")
    if os.environ.get("STUCK"):
        pathlib.Path(arguments[arguments.index("-o") + 1]).write_bytes(b"half")
        time.sleep(600)
    time.sleep(0.3)
os.execv({real!r}, [{real!r}, *arguments])
"""


@pytest.fixture
def cache(tmp_path, monkeypatch, caplog):
    """An empty cache, a small source, and a process that has not asked yet."""
    monkeypatch.setenv("TORCHCAPS_CACHE", str(tmp_path / "cache"))
    for name in ("TORCHCAPS_NATIVE", "CXX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "source.cpp").write_text(SOURCE % 7)
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    forget(monkeypatch)
    caplog.set_level(logging.INFO, logger="torchcaps")
    return tmp_path / "cache" / "native"


def forget(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(build, "_once", build._Once())


def answer():
    found = build.library()
    return found and found.torchcaps_job_size()


def refused(caplog, level="WARNING"):
    """All that is said of a library that is not there, the last of it at this level."""
    assert build.library() is None
    assert caplog.records[-1].levelname == level
    return caplog.messages


def libraries(cache):
    return sorted(path.name for path in cache.glob("*.so"))


def test_it_is_built_once_and_found_again(real, cache, monkeypatch, caplog):
    assert answer() == 7
    assert answer() == 7
    announced, line = caplog.records[0], caplog.messages[1]
    assert announced.levelname == "WARNING"
    assert announced.getMessage() == ANNOUNCED.format(cache)
    assert line.startswith("built the native kernels in ")
    assert line.endswith(f" s, in {cache}")
    (name,) = libraries(cache)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE((cache / name).stat().st_mode) == 0o600
    forget(monkeypatch)
    monkeypatch.setattr(build, "_build", None)
    assert answer() == 7
    assert build.available()
    assert len(caplog.messages) == 2


@pytest.mark.slow
def test_a_build_is_announced_on_stderr_and_only_when_there_is_one(real, cache):
    program = f"""
import pathlib
from torchcaps.ops.native import build
build.FOLDER = pathlib.Path({str(build.FOLDER)!r})
def through_the_command_line():
    from torchcaps.cli.application import app
    app.command("build")(lambda: print(build.library().torchcaps_job_size()))
    app(["build"])
"""

    def printed_by(ask):
        words = [sys.executable, "-c", program + ask]
        found = subprocess.run(words, capture_output=True, text=True, check=True)
        return found.stdout, found.stderr

    line = ANNOUNCED.format(cache) + "\n"
    assert printed_by("build.library()") == ("", line)
    assert printed_by("through_the_command_line()") == ("7\n", "")
    shutil.rmtree(cache)
    assert printed_by("through_the_command_line()") == ("7\n", line)


def test_the_key_is_of_all_that_a_library_depends_on(real, cache, monkeypatch):
    command = build._compiler()
    keys = [build._key(command), build._key([*command[:-1], "-march=x"])]
    monkeypatch.setattr(build, "_cpu", lambda: "another")
    keys.append(build._key(command))
    monkeypatch.setattr(build.torch, "__version__", "0.0")
    keys.append(build._key(command))
    (build.FOLDER / "source.cpp").write_text(SOURCE % 8)
    keys.append(build._key(command))
    (build.FOLDER / "header.hpp").write_text("")
    keys.append(build._key(command))
    assert len(set(keys)) == len(keys) == 6


def test_a_new_source_is_built_beside_the_old(real, cache, monkeypatch):
    assert answer() == 7
    (build.FOLDER / "source.cpp").write_text(SOURCE % 8)
    forget(monkeypatch)
    assert answer() == 8
    assert len(libraries(cache)) == 2


@pytest.mark.parametrize("how", ["short", "empty", "changed"])
def test_what_is_damaged_is_built_anew(real, cache, monkeypatch, how):
    assert answer() == 7
    (name,) = libraries(cache)
    whole = (cache / name).read_bytes()
    broken = {"short": whole[:-100], "empty": b"", "changed": whole[:999] + b"x" + whole[1000:]}
    # A file of its own: this process has the old one open.
    (cache / name).unlink()
    (cache / name).write_bytes(broken[how])
    forget(monkeypatch)
    assert answer() == 7
    (again,) = libraries(cache)
    assert again.startswith(name.partition("-")[0])
    assert build._digest(cache / again) in again


@pytest.fixture
def compiler(real, cache, tmp_path, use_compiler):
    """A slow compiler; gives the file that names the processes in which it was called."""
    log = tmp_path / "log"
    log.touch()
    use_compiler(COMPILER.format(python=sys.executable, log=str(log), real=real))
    return log


def forked(call):
    """Start a process that ends with 0 if `call` gives true; it may take half a minute."""
    child = os.fork()
    if not child:
        signal.alarm(30)
        ended = 1
        with contextlib.suppress(BaseException):
            ended = not call()
        os._exit(ended)
    return child


def test_four_processes_at_once_build_one(cache, compiler):
    children = [forked(lambda: answer() == 7) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(compiler.read_text().splitlines()) == 1
    assert len(libraries(cache)) == 1


def test_an_interrupted_build_leaves_nothing_that_is_loaded(cache, compiler, monkeypatch):
    monkeypatch.setenv("STUCK", "1")
    stuck = forked(answer)
    until = time.monotonic() + 30
    while not [path for path in cache.glob(".*.so") if path.read_bytes() == b"half"]:
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(stuck, signal.SIGKILL)
    os.waitpid(stuck, 0)
    # It outlives the process that called it.
    os.kill(int(compiler.read_text()), signal.SIGKILL)
    (half,) = cache.glob(".*.so")
    monkeypatch.delenv("STUCK")
    assert answer() == 7
    assert not half.exists()
    assert len(libraries(cache)) == 1


def test_a_fork_while_another_thread_builds_does_not_wait_for_it(real, cache):
    with build._once.lock:
        child = forked(lambda: answer() == 7)
    assert os.waitpid(child, 0)[1] == 0


WHY = "no native kernels, PyTorch routes instead: "
ANOTHER = "name another compiler in CXX, or another folder in TORCHCAPS_CACHE"


@pytest.mark.parametrize("name", [None, "", "  "])
def test_without_a_compiler_one_line_says_so(cache, monkeypatch, caplog, tmp_path, name):
    monkeypatch.setenv("PATH", str(tmp_path))
    if name is not None:
        monkeypatch.setenv("CXX", name)
    assert build.library() is None
    assert not build.available()
    assert refused(caplog, "INFO") == [
        f"{WHY}no C++ compiler is on the PATH (c++, g++, clang++); install one, or name it in CXX"
    ]
    assert not cache.exists()


@pytest.mark.parametrize("name", ["no-such-compiler -O1", 'g++ "-O1'])
def test_a_compiler_that_is_not_there_or_that_nobody_can_read(cache, monkeypatch, caplog, name):
    monkeypatch.setenv("CXX", name)
    assert refused(caplog, "INFO") == [f"{WHY}CXX names {name!r}, which is not there"]


def test_a_compiler_that_fails(real, cache, caplog):
    (build.FOLDER / "source.cpp").write_text("this is no C++")
    _, line = refused(caplog)
    assert line.startswith(f"{WHY}{real} failed: ")
    assert "this" in line
    assert "\n" not in line
    assert libraries(cache) == []
    assert not list(cache.glob(".*.so"))


def test_the_variable_turns_it_off(cache, monkeypatch, caplog):
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")
    assert build.library() is None
    assert not build.available()
    assert caplog.messages == []
    assert not cache.exists()


def test_a_compiler_whose_words_are_in_no_encoding(cache, caplog, use_compiler):
    path = use_compiler(
        "#!/bin/sh\ncase $* in *--version*) exit 0;; esac\nprintf '\\377' >&2\nexit 1\n"
    )
    assert refused(caplog)[-1] == f"{WHY}{path} failed: \ufffd"


def test_a_compiler_that_takes_too_long(cache, compiler, monkeypatch, caplog):
    monkeypatch.setattr(build, "_key", lambda command: "key")
    monkeypatch.setattr(build, "SECONDS", 0.2)
    monkeypatch.setenv("STUCK", "1")
    assert refused(caplog)[-1] == f"{WHY}{os.environ['CXX']} took more than 0 s"
    assert not list(cache.glob(".*.so"))


def test_a_folder_from_which_nothing_is_loaded(real, cache, monkeypatch, caplog):
    def refuse(path):
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(build.ctypes, "CDLL", refuse)
    said = refused(caplog)[-1]
    assert said.startswith(f"{WHY}{cache}/")
    assert said.endswith(
        f".so cannot be loaded (failed to map segment from shared object), so it is removed; "
        f"{ANOTHER}"
    )


def test_nothing_is_built_where_no_program_may_lie(real, cache, monkeypatch, caplog):
    monkeypatch.setattr(build.os, "ST_NOEXEC", 8, raising=False)
    monkeypatch.setattr(build.os, "statvfs", lambda path: SimpleNamespace(f_flag=9))
    assert refused(caplog) == [
        f"{WHY}{cache} is mounted noexec; name another folder in TORCHCAPS_CACHE"
    ]


def test_a_folder_of_somebody_else(real, cache, monkeypatch, caplog):
    cache.mkdir(parents=True)
    owner = cache.stat().st_uid
    if owner == 0:
        owner = 65534
        os.chown(cache, owner, -1)
    else:
        monkeypatch.setattr(build.os, "geteuid", lambda: owner + 1)
    assert f"belongs to user {owner}, neither root nor you; name another" in refused(caplog)[-1]


def test_a_program_that_asks_for_a_kernel_where_there_is_none(monkeypatch):
    monkeypatch.setenv("TORCHCAPS_NATIVE", "0")
    votes = dynamic.Given(
        *_votes(), dynamic.How(1, False, False, "none", "none", "none", stops=False)
    )
    assert text_of(lambda: dynamic.mixed(votes)) == (
        "a program asks for the native kernel dynamic, but there is no native library here; was it "
        "exported where there is one? Install a C++ compiler, or export it anew after "
        'use_backend(model, "plain").'
    )


def _votes():
    vote_map = VoteMap(Capsules(torch.ones(1, 2, 3)), torch.ones(2, 4, 5, 3))
    return made_of(vote_map, vote_like(vote_map)), None, None


@pytest.mark.parametrize(
    "operator",
    [dynamic.mixed, distance.measured, em.fit, em.assign, winograd.convolve, winograd.kernels],
    ids=lambda x: x.forward.name(),
)
def test_an_operator_runs_on_processors_alone(operator):
    for each in filter(None, (operator.forward, operator.backward)):
        keys = ("CPU", "CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        assert [key for key in keys if has(each.name().partition(".")[0], key)] == ["CPU"]


def test_a_cache_that_cannot_be_written(real, cache, monkeypatch, caplog, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHCAPS_CACHE", str(tmp_path / "file"))
    assert refused(caplog) == [
        f"{WHY}{tmp_path}/file/native cannot be made (File exists); name a folder in "
        f"TORCHCAPS_CACHE"
    ]


def test_a_folder_that_others_can_write_to_is_not_used(real, cache, caplog):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    # Everything is slower than it need be, until somebody mends it.
    assert refused(caplog) == [
        f"{WHY}others can write to {cache}, and may have left something in it; name a new folder "
        f"in TORCHCAPS_CACHE that only you can write to"
    ]
    assert not any(cache.iterdir())


@pytest.fixture
def reachable():
    """A folder that others may look into; those of pytest are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize(
    ("above", "home", "is_used"),
    [(0o777, 0o755, False), (0o775, 0o755, False), (0o1777, 0o755, True), (0o777, 0o700, True)],
    ids=["others", "group", "sticky", "below a closed folder"],
)
def test_a_folder_that_others_could_swap_is_not_used(
    real, cache, monkeypatch, caplog, reachable, above, home, is_used
):
    """Who may write to a folder above the cache may rename it, and put another in its place between
    the check of a library and its load."""
    shared = reachable / "home" / "shared"
    shared.mkdir(parents=True)
    shared.chmod(above)
    shared.parent.chmod(home)
    monkeypatch.setenv("TORCHCAPS_CACHE", str(shared / "cache"))
    assert answer() == (7 if is_used else None)
    assert is_used or f"others can write to {shared}, and may" in caplog.messages[-1]


def test_no_folder_that_is_made_is_open_to_a_group(real, cache, monkeypatch, tmp_path):
    monkeypatch.delenv("TORCHCAPS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    before = os.umask(0o002)
    try:
        folder = build._folder()
    finally:
        os.umask(before)
    for each in (folder, folder.parent, folder.parent.parent):
        assert not each.stat().st_mode & 0o077


def test_a_link_to_the_cache_is_followed_once(real, cache, monkeypatch, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("TORCHCAPS_CACHE", str(tmp_path / "link"))
    assert build._folder() == (tmp_path / "real" / "native").resolve()


def test_a_library_that_others_could_write_is_not_loaded(real, cache, monkeypatch):
    assert answer() == 7
    (name,) = libraries(cache)
    (cache / name).chmod(0o666)
    key = name.partition("-")[0]
    assert build._load(cache, key) is None
    forget(monkeypatch)
    assert answer() == 7
    assert build._is_private(cache / name)


@pytest.mark.parametrize("by", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_planted_library_is_not_loaded(real, cache, monkeypatch, tmp_path, by):
    """Whoever could once write here may have left a link, in a folder that is closed by now."""
    victim = tmp_path / "victim.so"
    (tmp_path / "other.cc").write_text(SOURCE % 8)
    made = [real, "-shared", "-fPIC", str(tmp_path / "other.cc"), "-o", str(victim)]
    subprocess.run(made, check=True)
    victim.chmod(0o600)
    cache.mkdir(parents=True, mode=0o700)
    key = build._key(build._compiler())
    planted = cache / f"{key}-{build._digest(victim)}.so"
    by(victim, planted)
    assert build._load(cache, key) is None
    assert answer() == 7
    assert victim.exists()


@pytest.mark.parametrize("what", ["link", "hard link", "pipe"])
def test_a_planted_lock_is_not_opened(real, cache, monkeypatch, caplog, tmp_path, what):
    monkeypatch.setattr(build, "_key", lambda command: "key")
    cache.mkdir(parents=True, mode=0o700)
    victim, lock = tmp_path / "thesis", cache / "key.lock"
    victim.write_text("years of work")
    by = {"link": lock.symlink_to, "hard link": lock.hardlink_to, "pipe": lambda _: os.mkfifo(lock)}
    by[what](victim)
    child = forked(lambda: build.library() is None)
    assert os.waitpid(child, 0)[1] == 0
    assert refused(caplog) == [
        f"{WHY}{lock} should be a lock, but is a link or no ordinary file; somebody else may have "
        f"put it there: look at it, remove it, and name a new folder in TORCHCAPS_CACHE."
    ]
    assert victim.read_text() == "years of work"


BROKEN = {
    "garbage": 'pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_bytes(b"no library")',
    "another library": f"os.execv({{real!r}}, [{{real!r}}, *{['-shared', '-xc++', os.devnull]}, "
    "sys.argv[-2], sys.argv[-1]])",
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_a_broken_compiler_makes_is_not_kept(
    real, cache, monkeypatch, caplog, use_compiler, how
):
    broken = BROKEN[how].format(real=real)
    use_compiler(
        f"#!{sys.executable}\nimport os, pathlib, sys\nif '-o' in sys.argv:\n    {broken}\n"
    )
    monkeypatch.setattr(build, "_key", lambda command: "key")
    said = refused(caplog)[-1]
    assert said.startswith(f"{WHY}{cache}/key-")
    assert ".so cannot be loaded (" in said
    assert said.endswith(f"), so it is removed; {ANOTHER}")
    assert libraries(cache) == []
    # Once the compiler is mended, all is well.
    monkeypatch.delenv("CXX")
    forget(monkeypatch)
    assert answer() == 7


def test_a_build_on_a_machine_under_load_is_waited_for():
    """111 s were seen, where it takes ten alone."""
    assert build.SECONDS >= 5 * 111


def test_who_builds_too_long_is_not_waited_for(real, cache, monkeypatch, caplog):
    monkeypatch.setattr(build, "_key", lambda command: "key")
    monkeypatch.setattr(build, "SECONDS", 0.1)
    cache.mkdir(parents=True, mode=0o700)
    with (cache / "key.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert refused(caplog, "INFO") == [f"{WHY}another process holds {cache}/key.lock"]


def test_the_users_cache_folder_is_the_default(cache, monkeypatch, tmp_path):
    monkeypatch.delenv("TORCHCAPS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert build._folder() == tmp_path / "xdg" / "torchcaps" / "native"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert build._folder() == tmp_path / "home" / ".cache" / "torchcaps" / "native"


@pytest.mark.parametrize(
    ("kernel", "size"),
    [
        (distance, "torchcaps_distance_job_size"),
        (dynamic, "torchcaps_job_size"),
        (em, "torchcaps_em_job_size"),
        (winograd, "torchcaps_winograd_job_size"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
@pytest.mark.usefixtures("kernels")
def test_both_sides_know_the_same_fields(kernel, size):
    assert ctypes.sizeof(kernel._Job) == getattr(build.library(), size)()
