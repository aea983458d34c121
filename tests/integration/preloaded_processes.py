"""Python programs in processes of their own that start with the large packages imported.

Importing Bluesky and Tiled takes seconds of a processor, which a test pays for nothing unless the
start of an interpreter is what it tests. The processes are forked from a server that each test
process starts once; a server runs no engine and no event loop. A process is in the network
namespace of the thread that starts it, and looks for shared libraries in its working directory
first.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from multiprocessing import forkserver, get_context, reduction
from pathlib import Path
from typing import Any

from quick_catalogs import collect_cycles_seldom, keep_what_catalogs_share

__all__ = ["Preloaded", "enter_namespaces", "run_preloaded"]

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["preloaded_packages"])


def _start_server() -> None:
    import pytest  # here, since each process imports this module

    # The dynamic loader reads it once, when the server starts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", ".", prepend=os.pathsep)
        patch.setenv("PYTHONPATH", f"{Path(__file__).parent}", prepend=os.pathsep)
        forkserver.ensure_running()


class _Descriptor:
    """A file descriptor that a process gets a copy of."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _own, (reduction.DupFd(self.number),)


def _own(copy: Any) -> int:
    return copy.detach()


def _run(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    streams: tuple[int, int, int],
    network: int,
    leads_session: bool,
) -> None:
    if leads_session:
        os.setsid()
    if not os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(network, 0) != 0:
            raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")
    os.close(network)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)
    if environment.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the server began with nohup
    if "tiled.server.app" in sys.modules:
        keep_what_catalogs_share()
    collect_cycles_seldom()
    try:
        _run_program(arguments)
    finally:
        atexit._run_exitfuncs()  # noqa: SLF001 - a child of multiprocessing leaves them out
        gc.collect()


def _run_program(arguments: list[str]) -> None:
    if arguments[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        arguments = arguments[2:]
    match arguments:
        case ["-c", code, *_]:
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case ["-m", module, *_]:
            sys.argv = [module, *arguments[2:]]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [program, *_]:
            sys.argv = arguments
            sys.path.insert(0, str(Path(program).parent))
            runpy.run_path(program, run_name="__main__")


class Preloaded:
    """What ``python`` does with such arguments, by the names of `subprocess.Popen`.

    Parameters
    ----------
    *arguments
        Those of ``python``: ``-W error`` or nothing; ``-c`` and a program, ``-m`` and a module,
        or a file; then the program's own.
    cwd, env, start_new_session
        As for `subprocess.Popen`.
    stdout, stderr
        The descriptor of a file; by default `communicate` returns what is printed.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = False,
    ) -> None:
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        self.stdin = open(write_in, "w")
        self.stdout = open(read_out)
        self._errors = tempfile.TemporaryFile("w+")
        streams = (
            read_in,
            write_out if stdout is None else stdout,
            self._errors.fileno() if stderr is None else stderr,
        )
        network = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._process = _CONTEXT.Process(
            target=_run,
            args=(
                list(map(str, arguments)),
                cwd or Path.cwd(),
                dict(os.environ if env is None else env),
                tuple(map(_Descriptor, streams)),
                _Descriptor(network),
                start_new_session,
            ),
            daemon=True,  # at the latest, it ends with the tests
        )
        _start_server()
        self._process.start()
        for descriptor in (read_in, write_out, network):
            os.close(descriptor)
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def is_stopped(self) -> bool:
        """Whether a signal has stopped all its threads."""
        return all(state == "T" for _, state, _ in _threads_of(self.pid))

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 200) -> int:
        """Return the exit code; the streams are closed then."""
        self._process.join(timeout)
        if self.returncode is None:
            threads = "; ".join(map(" ".join, _threads_of(self.pid)))
            state = threads or "gone, and its end was not told"
            raise subprocess.TimeoutExpired(f"a preloaded process: {state}", timeout)
        for stream in (self.stdin, self.stdout, self._errors):
            stream.close()
        return self.returncode

    def communicate(self, given: str = "", timeout: float = 60) -> tuple[str, str]:
        """Return what is printed until it ends, apart from what was returned or read before.

        It is killed when the time is over.
        """
        if self.stdout.closed:
            return "", ""
        late = threading.Event()
        timer = threading.Timer(timeout, lambda: (late.set(), self.kill()))
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended, and its errors say why
                self.stdin.write(given)
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
            printed = self.stdout.read()
            self._process.join()
        finally:
            timer.cancel()
        self._errors.seek(0)
        errors = self._errors.read()
        self.wait()
        if late.is_set():
            raise subprocess.TimeoutExpired("a preloaded process", timeout, printed, errors)
        return printed, errors


def _threads_of(process: int) -> list[tuple[str, str, str]]:
    """Name, state and place in the kernel of each thread: a dying one waits for a busy disk."""
    threads = []
    for thread in Path(f"/proc/{process}/task").glob("*"):
        with contextlib.suppress(OSError):
            stat = (thread / "stat").read_text()
            name, _, rest = stat.partition(") ")
            threads.append((name.partition("(")[2], rest[0], (thread / "wchan").read_text()))
    return threads


def run_preloaded(
    *arguments: object, given: str = "", timeout: float = 200, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, like `subprocess.run` with its output captured."""
    process = Preloaded(*arguments, **options)
    printed, errors = process.communicate(given, timeout)
    assert process.returncode is not None
    return subprocess.CompletedProcess(
        list(map(str, arguments)), process.returncode, printed, errors
    )


def enter_namespaces(*, user: int, mounts: bool = False) -> None:
    """Become another user in a namespace, as with ``unshare``; with mounts of this process only."""
    clone_newns, clone_newuser = 0x00020000, 0x10000000
    own_user, own_group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(clone_newuser | clone_newns * mounts) != 0:
        raise OSError(ctypes.get_errno(), "a namespace cannot be made")
    Path("/proc/self/uid_map").write_text(f"{user} {own_user} 1")
    if mounts:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"0 {own_group} 1")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
