"""The native library: a few C++ files, compiled at their first use and kept for the next process.

It has a plain C interface, so no header of PyTorch is needed and a build takes seconds. It is kept
in $TORCHCAPS_CACHE, else in the user's cache folder, under a name that says what it was made of
(source, compiler, flags, CPU, PyTorch) and what it holds (a digest), so that a file cut short or
changed is seen and made anew. A build has a name of its own until it is whole, and a lock lets one
process build while others wait. What others could have written is not loaded.

Without a compiler, or with TORCHCAPS_NATIVE=0, there is no library and PyTorch does the work; one
line of the log says why.

A build is announced by one warning of the logger "torchcaps", which Python prints to stderr unless
somebody configures it: a process that is silent for seconds looks as if it hung.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from torchcaps._paths import own_file
from torchcaps.errors import TorchcapsError
from torchcaps.ops.constant import constant

# All sources and headers in here.
FOLDER = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
# No -ffast-math: what is not finite must leave as not finite.
FLAGS = (
    *("-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
)
# Of a build, and of waiting for another process that builds; under load two minutes were seen.
SECONDS = 600.0

log = logging.getLogger("torchcaps")


class Unavailable(Exception):
    """Why there is no library; never leaves this file."""


class NoFolder(Unavailable):
    """No folder keeps a library safely, which the user can mend in a minute."""


class BuildFailed(Unavailable):
    """The user was told of a build, and waited for it."""


class _Once:
    """What this process found, in one thread at a time."""

    def __init__(self) -> None:
        self.asked = False
        self.found: ctypes.CDLL | None = None
        self.lock = threading.Lock()
        self.is_fork = False

    def forked(self) -> None:
        """Forget threads: in a forked child no thread of the parent exists but one: neither the one
        that held the lock nor those that OpenMP would wait for."""
        self.lock, self.is_fork = threading.Lock(), True
        if self.found is not None:
            self.found.torchcaps_use_team(_Team())


_once = _Once()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _once.forked())


def library() -> ctypes.CDLL | None:
    """Give the library, built if need be; None where there is none. Asked once, then remembered."""
    if os.environ.get("TORCHCAPS_NATIVE") == "0":
        return None
    if _once.asked:
        return _once.found
    with _once.lock:
        if not _once.asked:
            try:
                _once.found = _library()
            except (TorchcapsError, Unavailable, OSError, subprocess.SubprocessError) as error:
                can_be_mended = isinstance(error, TorchcapsError | BuildFailed | NoFolder)
                level = logging.WARNING if can_be_mended else logging.INFO
                why = " ".join(str(error).split())[:500]
                log.log(level, "no native kernels, PyTorch routes instead: %s", why)
            _once.asked = True
    return _once.found


@constant
def available() -> bool:
    """Say whether native kernels can run; the first question may take the seconds of a build."""
    return library() is not None


def call(kernel: str, job: Any, *arguments: ctypes.c_int64) -> None:
    """Have a kernel do its job, with the workspace that it asks for."""
    found = planned(kernel, job, *arguments)
    workspace = torch.empty(job.workspace_size, dtype=torch.float32)
    job.workspace = workspace.data_ptr()
    getattr(found, f"torchcaps_{kernel}")(ctypes.byref(job), *arguments)


def planned(kernel: str, job: Any, *arguments: ctypes.c_int64) -> ctypes.CDLL:
    """Let a kernel write into its job what workspace it asks for."""
    found = library()
    if found is None:
        raise TorchcapsError(
            f"a program asks for the native kernel {kernel}, but there is no native library "
            f"here; was it exported where there is one? Install a C++ compiler, or export "
            f'it anew after use_backend(model, "plain").'
        )
    getattr(found, f"torchcaps_{kernel}_plan")(ctypes.byref(job), *arguments)
    return found


def _library() -> ctypes.CDLL:
    if os.name != "posix":
        raise Unavailable(f"they are not made for {platform.system()}")
    command = _compiler()
    folder = _folder()
    key = _key(command)
    try:
        return _kept(command, folder, key)
    except OSError as error:  # as where no lock is given, or no program may lie
        raise NoFolder(
            f"{folder} cannot be used ({error}); name another folder in TORCHCAPS_CACHE"
        ) from error


def _kept(command: list[str], folder: Path, key: str) -> ctypes.CDLL:
    found = _load(folder, key)
    if found is None:
        with _alone(folder / f"{key}.lock"):
            # Another process may have built it while this one waited.
            found = _load(folder, key)
            if found is None:
                _build(command, folder, key)
                found = _load(folder, key)
    if found is None:
        raise Unavailable(f"what was just built in {folder} is gone or not ours")
    return found


def _compiler() -> list[str]:
    """Say how the compiler is called, with the flag that asks for the vectors of this CPU."""
    for name, *rest in compiler_names():
        path = shutil.which(name)
        if path is not None:
            flag = "-mcpu" if platform.machine() in ("aarch64", "arm64") else "-march"
            return [path, *rest, *FLAGS, f"{flag}=native"]
    if chosen := _chosen():
        raise Unavailable(f"CXX names {chosen!r}, which is not there")
    raise Unavailable(
        f"no C++ compiler is on the PATH ({', '.join(COMPILERS)}); install one, or name it in CXX"
    )


def compiler_names() -> list[list[str]]:
    """Give the compilers to look for, each with its arguments: that of CXX, or the usual ones."""
    chosen = _chosen()
    if not chosen:
        return [[name] for name in COMPILERS]
    try:
        return [shlex.split(chosen)]
    except ValueError:  # a quote without its end
        return [[chosen]]


def _chosen() -> str:
    return os.environ.get("CXX", "").strip()


def _folder() -> Path:
    """Say where libraries are kept: a folder that nobody else can write to."""
    chosen = os.environ.get("TORCHCAPS_CACHE")
    try:
        base = Path(chosen or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise NoFolder("there is no home folder; name a folder in TORCHCAPS_CACHE") from error
    folder = (base if chosen else base / "torchcaps").absolute() / "native"
    try:
        # `parents=True` would make those above as the umask has it, open to a group perhaps.
        for each in (*reversed(folder.parents), folder):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise NoFolder(
            f"{folder} cannot be made ({error.strerror}); name a folder in TORCHCAPS_CACHE"
        ) from error
    # Links are followed once, here: nobody can point them elsewhere between a check and a load.
    folder = folder.resolve()
    open_to_others = None if _is_private(folder) else folder
    open_to_others = open_to_others or _swappable(folder)
    if open_to_others is not None:
        owner = open_to_others.stat().st_uid
        if owner not in (0, os.geteuid()):
            raise NoFolder(
                f"{open_to_others} belongs to user {owner}, neither root nor you; name another "
                f"folder in TORCHCAPS_CACHE"
            )
        raise NoFolder(
            f"others can write to {open_to_others}, and may have left something in it; name a new "
            f"folder in TORCHCAPS_CACHE that only you can write to"
        )
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise NoFolder(f"{folder} is mounted noexec; name another folder in TORCHCAPS_CACHE")
    return folder


def _is_private(path: Path) -> bool:
    status = path.lstat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def _swappable(folder: Path) -> Path | None:
    """Give a folder above this one in which somebody else could put another in its place, or None.

    Nobody renames what is not theirs in a sticky folder, and nobody else reaches what lies below a
    folder that is closed to them.
    """
    found: Path | None = None
    for above in folder.parents:
        status = above.stat()
        if status.st_uid not in (0, os.geteuid()):
            return above
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            found = above
        elif not status.st_mode & 0o011:
            found = None
    return found


def _key(command: list[str]) -> str:
    """Hash all that a library depends on."""
    version = subprocess.run(
        [*command[: -len(FLAGS) - 1], "--version"], capture_output=True, timeout=60, check=True
    )
    parts = [path.read_bytes() for path in _files("*.[ch]pp")]
    parts += ["\0".join(command).encode(), version.stdout, _cpu().encode()]
    parts.append(torch.__version__.encode())
    return hashlib.sha256(b"\0\0".join(parts)).hexdigest()[:20]


def _files(pattern: str) -> list[Path]:
    return sorted(FOLDER.glob(pattern))


def _cpu() -> str:
    """Give what the compiler sees when it is asked for the vectors of this CPU."""
    parts = [platform.machine(), platform.processor()]
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")
        known = ("vendor_id", "model", "flags", "Features", "CPU ")
        parts += [line for line in first.splitlines() if line.startswith(known)]
    except OSError:
        pass
    return "\n".join(parts)


def _load(folder: Path, key: str) -> ctypes.CDLL | None:
    """Give a library of this key that is whole, or None; what is not whole is removed."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        # A link was planted by somebody who could once write here.
        status = path.lstat()
        if not _is_private(path) or not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            continue
        if path.stem != f"{key}-{_digest(path)}":
            path.unlink(missing_ok=True)
            continue
        try:
            found = ctypes.CDLL(str(path))
            found.torchcaps_use_team(_Team() if _once.is_fork else _team())
        except (OSError, AttributeError) as error:
            # A broken compiler may call garbage a library; the next process builds it anew.
            path.unlink(missing_ok=True)
            raise BuildFailed(
                f"{path} cannot be loaded ({error}), so it is removed; name another compiler in "
                f"CXX, or another folder in TORCHCAPS_CACHE"
            ) from error
        return found
    return None


class _Team(ctypes.Structure):
    """How to run something in the threads that PyTorch's operators run in."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("run", "index", "size", "most"))


def _team() -> _Team:
    """Find the threads of the OpenMP that PyTorch has loaded, if that is GNU's or calls itself so;
    else none, and a call starts threads of its own."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads")
    try:
        loaded = ctypes.CDLL(None)
        return _Team(*(ctypes.cast(getattr(loaded, name), ctypes.c_void_p) for name in names))
    except (OSError, AttributeError):
        return _Team()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _build(command: list[str], folder: Path, key: str) -> None:
    """One process at a time does this for a key; what an interrupted one left is removed."""
    for left in folder.glob(f".{key}.*"):
        left.unlink(missing_ok=True)
    whole = folder / f".{key}.{os.getpid()}.so"
    started = time.perf_counter()
    log.warning("building the native kernels, once, which takes some ten seconds; see %s", folder)
    try:
        done = subprocess.run(
            [*command, *map(str, _files("*.cpp")), "-o", str(whole)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
        if done.returncode:
            raise BuildFailed(f"{command[0]} failed: {done.stderr.strip() or done.returncode}")
        whole.chmod(0o600)
        whole.replace(folder / f"{key}-{_digest(whole)}.so")
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{command[0]} took more than {SECONDS:.0f} s") from error
    finally:
        whole.unlink(missing_ok=True)
    log.info("built the native kernels in %.1f s, in %s", time.perf_counter() - started, folder)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time. A process that ends, however it ends, gives the lock back."""
    import fcntl  # not on Windows

    until = time.monotonic() + SECONDS
    with own_file(path, "a lock", "name a new folder in TORCHCAPS_CACHE") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Unavailable(f"another process holds {path}") from None
                time.sleep(0.05)
        yield
