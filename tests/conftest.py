"""Which tests run here, how hypothesis behaves, and the build that tests of packages share."""

import contextlib
import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "native"
GUESTS = (ROOT / "build" / "vm" / "boot", ROOT / "build" / "guest" / "disk.img")

# The million objects that tests import are no garbage.
gc.set_threshold(100_000, 20, 20)

# Tests assert behaviour, never wall time.
hypothesis.settings.register_profile("daqiri", deadline=None)
hypothesis.settings.load_profile("daqiri")

# Services that run tests set these; help and messages would have colours.
for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
    os.environ.pop(name, None)

# A shell ignores SIGINT for what it runs in the background, and programs started from there would
# inherit that: those that tests interrupt, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")
    parser.addoption(
        "--write", action="store_true", help="write generated pages before they are compared"
    )
    parser.addoption("--wheels", metavar="FOLDER", help="test the wheels of this folder")
    parser.addoption(
        "--dpdk-device",
        metavar="ADDRESS",
        default="net_ring0",
        help="a device that gives back what is sent on it, for tests of engine dpdk",
    )
    parser.addoption("--site", metavar="FOLDER", help="look at the pages of this built site")
    parser.addoption(
        "--guides",
        action="append",
        default=[],
        metavar="PATH",
        help="compile and run the C++ of these guides as well: Markdown or saved text, or folders",
    )


def missing(marker: str, config: pytest.Config) -> str | None:
    """Say what a marked test lacks on this machine, or None."""
    match marker:
        case "root" if os.geteuid() != 0:
            return "needs root"
        case "gpu":
            try:
                import cupy

                if cupy.cuda.is_available():
                    return None
            except ImportError:
                pass
            return "needs cupy and a CUDA device"
        case "vm" if not (shutil.which("qemu-system-x86_64") and all(map(Path.exists, GUESTS))):
            return "needs QEMU, and a kernel and a disk for its guests: run `make vm`"
        case "wheels" if not config.getoption("--wheels"):
            return "needs wheels and mmdebstrap: run `make wheels`"
        case "slow" if not config.getoption("--slow"):
            return "slow: give --slow"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = {
        marker: missing(marker, config) for marker in ("root", "gpu", "vm", "wheels", "slow")
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def open_files() -> int:
    """Count open files, pipes and sockets; of others, which an engine has, Python does not warn."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the folder itself, or closed by a thread
            count += not os.readlink(f"/proc/self/fd/{each}").startswith("anon_inode:")
    return count


def forget_failures() -> None:
    """Clear the variables of the functions that failed, which hold files open."""
    errors, seen = [getattr(sys, "last_value", None)], set()
    while errors:
        error = errors.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            with contextlib.suppress(RuntimeError):  # it runs
                frame.clear()
                frame.f_locals  # noqa: B018 - before Python 3.13, a copy, renewed when it is read
        errors += [error.__context__, error.__cause__, *getattr(error, "exceptions", ())]


@pytest.fixture(autouse=True, scope="module")
def closes_what_it_shares() -> Iterator[None]:
    """Report what the tests of a module leave open in the last of them."""
    before = open_files()
    yield
    if open_files() > before:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def closes_its_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """Report files and sockets that a test leaves open in that test, not in a later one.

    Those that a cycle, or the traceback of a failure, holds would be closed at some later time, and
    Python warns of them then. A collection looks only at what was made since the last one: all
    objects are millions, and half of the tests look.
    """
    before = open_files()
    yield
    if open_files() > before:
        forget_failures()
        request.node.funcargs.clear()  # its own ended before this
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # what the session left open is looked for, too


@pytest.fixture(scope="session")
def alone_in_build() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Prevent other test processes from building in the same folder at the same time."""

    @contextlib.contextmanager
    def alone() -> Iterator[None]:
        folder = os.open(BUILD, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    return alone


@pytest.fixture(scope="session")
def prefix(
    tmp_path_factory: pytest.TempPathFactory,
    alone_in_build: Callable[[], contextlib.AbstractContextManager[None]],
) -> Path:
    """The C++ library as it installs."""
    prefix = tmp_path_factory.mktemp("prefix")
    with alone_in_build():
        for step in (
            ["--build", BUILD, "--target", "daqiri", "daqiri_engines"],
            ["--install", BUILD, "--component", "cpp", "--prefix", prefix],
        ):
            subprocess.run(["cmake", *step], cwd=ROOT, check=True)
    return prefix
