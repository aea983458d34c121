"""Commands that are ended by SIGTERM, by SIGHUP, or with their terminal."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalog_servers import KEY, FacilityServer
from preloaded_processes import Preloaded, run_preloaded
from waiting import wait_for_command

from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.cli import _main
from daqiri_ophyd.cli._stimulus import udp_stimulus
from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import PcapFile, write_pcap

COMMAND = [sys.executable, "-m", "daqiri_ophyd"]
NOT_BEFORE = 100  # packets
# Commands take their time on a busy machine; this ends one that hangs.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def commands_may_be_hung_up() -> Iterator[None]:
    """With ``nohup make test``, SIGHUP is ignored, which commands would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def stimulus(tmp_path: Path) -> Path:
    """Packets for a minute, and another one an hour later."""
    times = np.append(np.arange(60_000) * 1_000_000, 3_660_000_000_000)
    path = tmp_path / "stimulus.pcap"
    write_pcap(path, udp_stimulus(len(times), 100, [5000]), times, link_type=1)
    return path


def start(*arguments: str | Path, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, *arguments], cwd=cwd, text=True, **options)


def captured(data: Path) -> list[Path]:
    """Capture files with some packets in them."""
    least = 24 + NOT_BEFORE * 158
    return [f for f in data.glob("captures/**/*.pcap") if f.stat().st_size > least]


def require_complete_run(data: Path, reason: str) -> None:
    """The aborted run is in the catalog, with a complete file and its metadata."""
    with Catalog.open(data / "catalog", readable=[data / "captures"]) as catalog:
        run = catalog.client[-1]
        assert run.metadata["stop"]["exit_status"] == "abort"
        assert run.metadata["stop"]["reason"] == reason
        (file,) = capture_files(run)
    sidecar = read_sidecar(file)
    assert sidecar is not None
    with PcapFile(file) as pcap:
        assert (len(pcap), pcap.torn_bytes) == (sidecar.packets, 0)
    assert sidecar.packets > NOT_BEFORE
    assert not list(file.parent.glob(".*"))


@pytest.mark.usefixtures("made_catalog")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_capture_with_file_and_run_complete(
    tmp_path: Path,
    stimulus: Path,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    process = Preloaded(*COMMAND[1:], "capture", "loopback", "--send", stimulus, cwd=tmp_path)
    data = tmp_path / "daqiri-data"
    try:
        wait_for_command(process, lambda: captured(data))
        process.send_signal(number)
        process.send_signal(number)  # as systemd and shells may
        _, messages = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number
    assert f"ended by {number.name}; the captured files are complete" in messages
    assert "Traceback" not in messages
    require_complete_run(data, f"ended by {number.name}")
    monkeypatch.chdir(tmp_path)
    assert _main._run(["replay", "-1", "--speed", "1000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] > NOT_BEFORE


@pytest.mark.usefixtures("made_catalog")
def test_a_terminal_that_is_closed_ends_a_capture_with_file_and_run_complete(
    tmp_path: Path, stimulus: Path
) -> None:
    terminal, end = pty.openpty()
    # The leader of a new session, with this terminal.
    process = subprocess.Popen(
        ["setsid", "--ctty", *COMMAND, "capture", "loopback", "--send", stimulus],
        cwd=tmp_path, stdin=end, stdout=end, stderr=end,
    )  # fmt: skip
    os.close(end)
    data = tmp_path / "daqiri-data"
    try:
        wait_for_command(process, lambda: captured(data))
        os.close(terminal)
        process.wait()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGHUP
    require_complete_run(data, "ended by SIGHUP")


def test_a_second_ctrl_c_ends_the_wait_for_a_server_that_does_not_answer(
    tmp_path: Path, stimulus: Path
) -> None:
    """The run remains for recovery."""
    data = tmp_path / "daqiri-data"
    server = FacilityServer(tmp_path / "server", data / "captures")
    server.start()
    there = ["--catalog", server.uri]
    environment = {**os.environ, "TILED_API_KEY": KEY}
    process = start(
        "capture", "loopback", "--send", stimulus, *there,
        cwd=tmp_path, env=environment, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for_command(process, lambda: captured(data))
        server.process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        for line in process.stderr:
            if "Waiting for run " in line:
                break
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate()
        assert process.returncode == 1
        assert "interrupted; the captured files are complete" in messages
        assert "Traceback" not in messages
        (journal,) = (data / "backup").glob("*.unfinished.jsonl")
        uid = journal.name.partition(".")[0]
        assert f"Run {uid} is not stored in the catalog" in messages
        server.process.send_signal(signal.SIGCONT)
        command = ["-m", "daqiri_ophyd", "catalog", "recover", *there, "--json"]
        done = run_preloaded(*command, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[uid]["reason"] == "it had ended, and is stored now"
        with Catalog.connect(server.uri, KEY, readable=[data / "captures"]) as catalog:
            run = catalog.client[uid]
            assert run.metadata["stop"]["reason"] == "interrupted from the keyboard"
            assert len(capture_files(run)) == 1
    finally:
        process.kill()
        process.wait()
        server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_transmission_in_a_gap_that_was_announced(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "slow.pcap"
    write_pcap(path, udp_stimulus(2, 100, [5000]), np.array([0, 3_600_000_000_000]), link_type=1)
    process = start("send", "loopback", path, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "sending 2 packets of slow.pcap over 3600.0 s through port0, queue tx_q0\n"
        )
        assert process.stderr.readline() == (
            "packet 1 is sent 3,600 s after the one before it; --max-gap shortens such gaps\n"
        )
        process.send_signal(number)
        _, messages = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number
    # The first one leaves after 0.2 s; the gap is announced by the thread that sends, at its begin.
    sums_up = r"interrupted; [01] of 2 packets were sent"
    assert re.fullmatch(rf"error: ({sums_up}|ended by {number.name})\n", messages)


def test_a_command_in_the_background_of_a_script_ends_by_sigterm(tmp_path: Path) -> None:
    """A shell ignores SIGINT for those; SIGHUP that is ignored, as by nohup, stays ignored."""
    script = 'trap \'\' INT HUP; exec "$0" "$@"'
    process = subprocess.Popen(
        ["sh", "-c", script, *COMMAND, "stats", "loopback", "--json", "--interval", "0.1"],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGTERM
