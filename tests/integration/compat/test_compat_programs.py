"""Programs written from DAQIRI's documents, run as users run them."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from free_ports import free_port

from daqiri_ophyd.engine import PcapFile

PROGRAMS = Path(__file__).parent / "programs"
Run = Callable[..., tuple[int, str, str]]
Start = Callable[..., subprocess.Popen[str]]


def test_frames_are_sent_and_received_by_two_threads(
    run: Run, tmp_path: Path, loopback: Callable[..., dict[str, Any]]
) -> None:
    config = tmp_path / "loopback.yaml"
    # Below the documented root, next to keys of another program.
    config.write_text(yaml.safe_dump({"daqiri": {"cfg": loopback()}, "bench": {"x": 1}}))
    status, output, errors = run(PROGRAMS / "loopback_bench.py", config, "--count", 1000)
    assert (status, errors) == (0, "")
    assert "received 1000 in order: True flows: [7] stamped: 1000" in output
    assert re.search(r"^camera/rx +1000 ", output, re.MULTILINE)


@pytest.mark.parametrize("own", [[], ["--connect"]], ids=["configured", "connected"])
@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_messages_are_answered_by_another_process(
    start: Start, run: Run, scheme: Literal["udp", "tcp"], own: list[str]
) -> None:
    port = free_port(scheme)
    server = start(PROGRAMS / "echo.py", "server", scheme, port)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n", server.communicate()
    assert run(PROGRAMS / "echo.py", "client", scheme, port, *own) == (
        0,
        "all answered: True\n",
        "",
    )
    output, errors = server.communicate("\n", timeout=60)
    assert (server.returncode, output, errors) == (0, "answered 1400\n", "")


def test_split_packets_are_written_to_files(run: Run, tmp_path: Path) -> None:
    program = PROGRAMS / "split_to_files.py"
    assert run(program, tmp_path) == (0, "written 16\n", "")
    with PcapFile(tmp_path / "frames.pcap") as pcap:
        assert pcap.lengths.tolist() == [106] * 16
        assert not pcap.nanosecond
    payloads = [(tmp_path / f"data_0_{i}").read_bytes() for i in range(16)]
    assert payloads == [bytes([i]) * 64 for i in range(16)]
    if shutil.which("tcpdump") is None:
        pytest.skip("tcpdump is not installed")
    options = ["-Z", "root"] if os.geteuid() == 0 else []
    command = ["tcpdump", "-nn", "-vv", "-r", tmp_path / "frames.pcap", *options]
    shown = subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL)
    assert shown.count("10.0.0.1.4000 > 10.0.0.2.5000: [udp sum ok]") == 16
