"""Queries to the engines of this user, next to unrelated sockets and files."""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import EngineSnapshot, UnreadableEngine, ask_engines, running_engines

QUEUE: dict[str, Any] = {
    "port": "p",
    "queue": "r",
    "id": 0,
    "received": 10,
    "received_bytes": 1000,
    "delivered": 5,
    "held": 3,
    "bursts": 1,
    "truncated": 0,
    "ring_high_water": 1,
    "dropped": {"kernel": 2},
    "ring": 1,
    "ring_capacity": 64,
    "bursts_free": 7,
    "bursts_total": 8,
    "receive_path": "",
}
HONEST: dict[str, Any] = {
    "engine": "loopback",
    "pid": 7,
    "opened_ns": 1,
    "time_ns": 2,
    "steady_ns": 3,
    "ports": [],
    "rx": [QUEUE],
    "tx": [],
    "flows": [],
    "reorder": [],
    "regions": [{"name": "m", "free": 1, "buffers": 2, "buf_size": 3}],
}

Serve = Callable[[str, Callable[[socket.socket], object]], None]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = tmp_path / "daqiri"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def serve(runtime: Path) -> Iterator[Serve]:
    """Let a socket of this name answer connections by a function."""
    ended = threading.Event()
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve_one(name: str, answer: Callable[[socket.socket], object]) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(runtime / name))
        listener.listen(8)
        listeners.append(listener)

        def loop() -> None:
            with contextlib.suppress(OSError):
                while not ended.is_set():
                    client, _ = listener.accept()
                    with client, contextlib.suppress(OSError):
                        answer(client)

        threads.append(threading.Thread(target=loop))
        threads[-1].start()

    yield serve_one
    ended.set()
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


def text(answer: Any) -> Callable[[socket.socket], object]:
    return lambda client: client.sendall((json.dumps(answer) + "\n").encode())


def dead_pid() -> int:
    """Process id of no process."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_without_a_directory_nothing_runs(runtime: Path) -> None:
    runtime.rmdir()
    assert running_engines() == []


def test_sockets_of_killed_processes_are_removed_and_nothing_else(runtime: Path) -> None:
    pid = dead_pid()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(runtime / f"{pid}.0"))
    with socket.socket(socket.AF_UNIX) as not_listening_yet:
        not_listening_yet.bind(str(runtime / f"{os.getpid()}.0"))
        (runtime / "2024.10").write_text("notes")
        os.mkfifo(runtime / "2024.11")
        (runtime / "2024.12").mkdir()
        (runtime / "2024.13").symlink_to(runtime / "2024.10")
        (runtime / "notes.txt").write_text("kept")
        assert ask_engines() == []
    assert sorted(path.name for path in runtime.iterdir()) == sorted(
        [f"{os.getpid()}.0", "2024.10", "2024.11", "2024.12", "2024.13", "notes.txt"]
    )


def drip(client: socket.socket) -> None:
    pause = threading.Event()
    for _ in range(100):
        client.sendall(b"x")
        pause.wait(0.3)


def flood(client: socket.socket) -> None:
    block = b"x" * (1 << 20)
    while True:
        client.sendall(block)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (text({}), "engine is missing"),
        (text(HONEST | {"rx": [{}]}), "dropped is missing"),
        (lambda client: client.sendall(b"\xff\xfe{}\n"), "not a snapshot"),
        (lambda client: None, "not a snapshot"),
        (drip, "does not answer within 2 s"),
        (flood, "answers with more than 16 MiB"),
    ],
    ids=["empty", "other version", "no text", "nothing", "a byte now and then", "without end"],
)
def test_an_engine_that_cannot_be_read_does_not_hide_the_others(
    serve: Serve, answer: Callable[[socket.socket], object], problem: str
) -> None:
    serve("7.0", text(HONEST))
    serve("8.3", answer)
    serve("9.0", text(HONEST | {"pid": 9}))
    first, odd, last = ask_engines()
    assert isinstance(first, EngineSnapshot)
    assert isinstance(last, EngineSnapshot)
    assert isinstance(odd, UnreadableEngine)
    assert (odd.pid, odd.number) == (8, 3)
    assert problem in odd.problem
    assert running_engines() == [first, last]


def test_names_are_shown_as_they_are(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    named = QUEUE | {"port": "[/red]", "queue": "\x1b[2Jq[b]"}
    region = HONEST["regions"][0] | {"name": "m[/]"}
    serve("7.0", text(HONEST | {"engine": "x[/no]", "rx": [named], "regions": [region]}))
    serve("8.0", text(HONEST | {"steady_ns": "\x1b[31m"}))
    assert _main._run(["stats", "--count", "1"]) == 0
    shown = capsys.readouterr().out
    assert "x[/no], process 7" in shown
    assert r"[/red]/\x1b[2Jq[b]" in shown
    assert "m[/]" in shown
    assert "engine 0 of process 8 has an answer that is not a snapshot" in shown
    assert "\x1b" not in shown


def test_unreadable_engines_are_lines_of_json(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    serve("7.0", text(HONEST))
    serve("8.0", text({}))
    assert _main._run(["stats", "--count", "1", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["rx"][0]["counters"]["received"] == 10
    assert lines[1] == {
        "pid": 8,
        "number": 0,
        "problem": "has an answer that is not a snapshot of an engine of this version: "
        "engine is missing",
    }


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_directory_that_others_can_write_in_is_not_trusted(
    runtime: Path, serve: Serve, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    serve("7.0", text(HONEST))
    runtime.chmod(mode)
    with pytest.raises(PermissionError, match=f"can be written by others .mode {mode:o}"):
        running_engines()
    assert _main._run(["stats", "--count", "1"]) == 1
    error = capsys.readouterr().err
    assert f"{runtime} can be written by others" in error
    assert "XDG_RUNTIME_DIR" in error


def test_a_link_to_a_directory_is_not_followed(runtime: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    runtime.rename(mine)
    runtime.symlink_to(mine)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(mine / f"{dead_pid()}.10"))
    with pytest.raises(PermissionError, match="is not a directory"):
        ask_engines()
    assert len(list(mine.iterdir())) == 1


@pytest.mark.root
def test_a_directory_of_another_user_is_not_trusted(runtime: Path) -> None:
    os.chown(runtime, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to user 65534"):
        ask_engines()


def test_into_a_pipe_nothing_is_cut(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    queue = QUEUE | {"port": "a_port_of_the_detector_in_hutch_2", "queue": "a_queue_of_its_images"}
    serve("7.0", text(HONEST | {"rx": [queue]}))
    assert _main._run(["stats", "--count", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [head] = [line for line in lines if line.startswith("receive queue")]
    assert head.split()[2:] == [
        *("packets/s", "Gb/s", "received", "held", "ring", "free", "bursts", "dropped")
    ]
    assert any(line.startswith(f"{queue['port']}/{queue['queue']} ") for line in lines)
    assert "…" not in "".join(lines)


def test_in_a_narrow_terminal_no_figure_is_cut(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = QUEUE | {"received": 9_876_543_210}
    serve("7.0", text(HONEST | {"rx": [queue]}))
    shown_on = io.StringIO()
    terminal = Console(file=shown_on, width=60, force_terminal=True, highlight=False)
    monkeypatch.setattr("daqiri_ophyd.cli._stats_engines.out", terminal)
    assert _main._run(["stats", "--count", "1"]) == 0
    shown = shown_on.getvalue()
    assert "…" not in shown
    assert "9,876" in shown
