"""The demonstration, as run by a new user."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from preloaded_processes import Preloaded, run_preloaded
from waiting import wait_for_command

from daqiri_ophyd.catalog import Catalog
from daqiri_ophyd.cli._stimulus import udp_stimulus
from daqiri_ophyd.documents import read_sidecar
from daqiri_ophyd.engine import LINKTYPE_ETHERNET, LINKTYPE_RAW, ethernet, write_pcap

COMMAND = [sys.executable, "-m", "daqiri_ophyd"]
# Commands take their time on a busy machine; this ends one that hangs.
pytestmark = pytest.mark.timeout(900)
PACKETS = 4_000
CLIENT = """
version: 1
stream_type: socket
master_core: 0
memory_regions:
- {{name: buffers, kind: host, num_bufs: 64, buf_size: 2048}}
interfaces:
- name: client
  address: 127.0.0.1
  socket_config: {{mode: client, remote_addr: "{address}"}}
  tx:
    queues:
    - {{name: out, id: 0, cpu_core: any, batch_size: 8, memory_regions: [buffers]}}
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process."""
    return run_preloaded("-m", "daqiri_ophyd", *arguments, cwd=cwd)


def packets_seen_by(tool: list[str], file: str) -> int:
    """Count the packets that a network analyser finds in a file."""
    lines = subprocess.run([*tool, file], capture_output=True, text=True, check=True).stdout
    return len(lines.splitlines())


@pytest.mark.usefixtures("udp_profile_port")
@pytest.mark.parametrize("profile", ["loopback", "udp"])
def test_demo_sends_captures_stores_reads_back_and_replays(profile: str, tmp_path: Path) -> None:
    words = ["demo", "--profile", profile, "--packets", str(PACKETS), "--json"]
    if profile == "loopback":  # as a new user does, with nothing imported
        command = [*COMMAND, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150)
    else:
        done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["sent"] == result["received"] == PACKETS
    assert result["dropped"] == 0
    assert result["replay"]["sent"] == result["replay"]["received"] == PACKETS
    assert {"p50", "p99"} <= result["lateness_ns"].keys()
    assert {"p50", "p99"} <= result["replay"]["gap_error_ns"].keys()
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    # Ethernet, IPv4 and UDP headers around 958 bytes; sockets have no Ethernet.
    assert result["bytes"] == PACKETS * (1000 if profile == "loopback" else 986)
    for tool in (["tcpdump", "-n", "-r"], ["tshark", "-n", "-r"]):
        if shutil.which(tool[0]) is None:
            pytest.skip(f"{tool[0]} is not installed")
        assert sum(packets_seen_by(tool, file) for file in result["files"]) == PACKETS


@pytest.mark.usefixtures("made_catalog")
def test_a_capture_of_the_command_is_replayed_by_the_command(tmp_path: Path) -> None:
    assert run("demo", "--packets", "1000", cwd=tmp_path).returncode == 0
    replayed = run("replay", "-1", "--data", "daqiri-demo", "--json", cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["sent"] == 1000
    captured = run(
        "capture", "loopback", "--send", str(first_capture(tmp_path / "daqiri-demo")), "--json",
        "--picture", "again.png", cwd=tmp_path,
    )  # fmt: skip
    assert captured.returncode == 0, captured.stderr
    result = json.loads(captured.stdout)
    assert result["received"] > 0
    assert (tmp_path / "again.png").exists()


def test_commands_use_the_catalog_that_a_session_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames_sent = udp_stimulus(20, 60, [5500])
    write_pcap(tmp_path / "in.pcap", frames_sent, np.arange(20) * 1000, LINKTYPE_ETHERNET)
    captures = tmp_path / "daqiri-data" / "captures"
    with Catalog.open(tmp_path / "shared", readable=[captures]) as session:
        captured = run(
            "capture", "loopback", "--send", "in.pcap", "--catalog", "shared", "--json",
            cwd=tmp_path,
        )  # fmt: skip
        assert captured.returncode == 0, captured.stderr
        uid = json.loads(captured.stdout)["run"]
        assert list(session.client) == [uid]
        monkeypatch.setenv("TILED_API_KEY", session.api_key or "")
        replayed = run("replay", uid[:8], "--catalog", session.uri, "--json", cwd=tmp_path)
        assert replayed.returncode == 0, replayed.stderr
        assert json.loads(replayed.stdout)["sent"] == 20
        refused = run("replay", uid[:8], "--catalog", session.uri, "--data", "no", cwd=tmp_path)
        assert refused.returncode == 1 and "not below a readable directory" in refused.stderr


@pytest.mark.usefixtures("made_catalog")
def test_ctrl_c_ends_a_capture_with_its_file_complete(tmp_path: Path) -> None:
    process = Preloaded(*COMMAND[1:], "capture", "loopback", "--seconds", "100", cwd=tmp_path)
    try:
        wait_for_command(process, lambda: [*tmp_path.glob("daqiri-data/captures/**/*.pcap")])
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert messages.endswith("error: no packet arrived that the queue captures\n")
    file = first_capture(tmp_path / "daqiri-data")
    assert file.with_name(file.name + ".json").exists()
    assert packets_seen_by(["tcpdump", "-n", "-r"], str(file)) == 0


@pytest.mark.usefixtures("made_catalog")
@pytest.mark.usefixtures("udp_profile_port")
@pytest.mark.parametrize("profile", ["loopback", "udp"])
def test_ctrl_c_ends_the_demo_with_its_files_complete(profile: str, tmp_path: Path) -> None:
    # A hundred seconds of packets, in a process group of its own: a terminal's Ctrl-C reaches the
    # sending process, too.
    process = subprocess.Popen(
        [*COMMAND, "demo", "--profile", profile, "--packets", "100000", "--interval-us", "1000"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    data = tmp_path / "daqiri-demo"
    try:
        files = partial(data.glob, "captures/**/*.pcap")
        wait_for_command(process, lambda: any(file.stat().st_size > 10_000 for file in files()))
        os.killpg(process.pid, signal.SIGINT)
        _, messages = process.communicate()
        assert process.returncode == 1, messages
        assert "interrupted" in messages
        assert "Traceback" not in messages
        with pytest.raises(ProcessLookupError):  # no process is left
            os.killpg(process.pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    file = first_capture(data)
    packets = read_sidecar(file).packets
    assert 0 < packets < 100_000
    assert packets_seen_by(["tcpdump", "-n", "-r"], str(file)) == packets


def test_ctrl_c_ends_a_transmission(tmp_path: Path) -> None:
    # The second packet is due in an hour.
    record = struct.Struct("=IIII")
    datagram = ethernet.udp_frames(
        (1, 100), src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:00:02", src_ip="127.0.0.1",
        dst_ip="127.0.0.1", src_port=4000, dst_port=5000,
    ).tobytes()[14:]  # fmt: skip
    size = len(datagram)
    packets = [record.pack(at, 0, size, size) + datagram for at in (0, 3600)]
    header = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, LINKTYPE_RAW)
    (tmp_path / "slow.pcap").write_bytes(header + b"".join(packets))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        (tmp_path / "client.yaml").write_text(
            CLIENT.format(address=f"udp://127.0.0.1:{receiver.getsockname()[1]}")
        )
        process = subprocess.Popen(
            [*COMMAND, "send", "client.yaml", "slow.pcap"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for_command(process, lambda: select.select([receiver], [], [], 0)[0])
            assert len(receiver.recv(2048)) == 100
            process.send_signal(signal.SIGINT)
            _, messages = process.communicate()
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 1
    assert "interrupted" in messages
    assert "Traceback" not in messages


def first_capture(data: Path) -> Path:
    """Return one of the capture files of a data directory."""
    return sorted(data.glob("captures/**/*.pcap"))[0]


def test_failures_say_why_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where a directory is wanted")
    failed = run("demo", "--output", "blocked/here", cwd=tmp_path)
    assert failed.returncode == 1
    assert "blocked" in failed.stderr
    assert "Traceback" not in failed.stderr
    unknown = run("replay", "--data", "empty", "nosuchrun", cwd=tmp_path)
    assert unknown.returncode == 1
    assert unknown.stderr == f"error: There is no catalog in {tmp_path}/empty/catalog.\n"
    assert "Traceback" not in unknown.stderr


@pytest.mark.usefixtures("jungfrau_port")
def test_demo_of_frames_scans_stores_and_compares_images(tmp_path: Path) -> None:
    done = run("demo", "--profile", "frames", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["frames"] == 80
    assert result["positions"] == list(range(60, 961, 60))
    assert 0 < result["complete"] < 80
    assert result["missing_packets"] >= 80 - result["complete"]
    plan = result["plan"]
    assert plan["packets"] == sum(plan[name] for name in plan if name != "packets")
    assert plan["malformed"] == 0
    picture = Path(result["picture"]).read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 50_000
    (file,) = result["files"]
    assert Path(file).is_file()
    refused = run("demo", "--profile", "frames", "--packets", "5", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--packets and --interval-us are for loopback and udp" in refused.stderr
