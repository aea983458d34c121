"""`capture` records at once, and stores the run when Bluesky and the catalog are there."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from free_ports import free_port
from preloaded_processes import run_preloaded
from waiting import wait_for

from daqiri_ophyd import profiles
from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.cli._stimulus import numbered_payloads, udp_stimulus
from daqiri_ophyd.engine import PcapFile, ethernet, write_pcap

COMMAND = [sys.executable, "-m", "daqiri_ophyd"]
PACKETS = 300
PAYLOADS = numbered_payloads(PACKETS, 100)

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def port() -> int:
    return free_port("udp")


@pytest.fixture
def config(tmp_path: Path, port: int) -> Path:
    """The profile `udp`, at a port of its own."""
    document = yaml.safe_load(profiles.path("udp").read_text())
    for interface in document["daqiri"]["cfg"]["interfaces"]:
        for key in interface["socket_config"].keys() & {"local_addr", "remote_addr"}:
            interface["socket_config"][key] = f"udp://127.0.0.1:{port}"
    path = tmp_path / "udp.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `capture`, and wait until it listens."""
    started: list[subprocess.Popen[str]] = []

    def start_one(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [*COMMAND, "capture", *arguments, "--json"],
                cwd=tmp_path,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                **options,
            )  # fmt: skip
        )
        assert started[-1].stderr is not None
        assert started[-1].stderr.readline().startswith("listening on ")
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def stored_by(folder: Path) -> Catalog:
    """Return the catalog of the command that ran in a folder."""
    data = folder / "daqiri-data"
    return Catalog.open(data / "catalog", readable=[data / "captures"])


def send(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for payload in PAYLOADS:
            sender.sendto(payload.tobytes(), ("127.0.0.1", port))


def require_as_sent(files: list[Path]) -> float:
    """Return when the first packet arrived, s."""
    (file,) = files
    with PcapFile(file) as pcap:
        offsets, lengths = ethernet.udp_payload(pcap)
        assert (len(pcap), set(lengths.tolist())) == (PACKETS, {100})
        for offset, payload in zip(offsets.tolist(), PAYLOADS, strict=True):
            assert pcap.data[offset : offset + 100].tobytes() == payload.tobytes()
        return float(pcap.timestamps[0]) / 1e9


@pytest.mark.usefixtures("made_catalog")
def test_packets_are_captured_before_the_run_begins(
    tmp_path: Path, start: Start, config: Path, port: int
) -> None:
    process = start(config, "--packets", str(PACKETS), "--on-drop", "fail")
    send(port)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    result = json.loads(output)
    assert (result["received"], result["dropped"]) == (PACKETS, 0)
    with stored_by(tmp_path) as catalog:
        run = catalog.client[result["run"]]
        files = capture_files(run)
        begun = run.metadata["start"]["time"]
        rows = run["primary"].read()
    assert require_as_sent(files) < begun
    (name,) = (name for name in rows if name.endswith("_packets"))
    assert rows[name].sum() == PACKETS


@pytest.mark.usefixtures("made_catalog")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_capture_that_is_ended_before_its_run_begins_is_stored(
    tmp_path: Path, start: Start, config: Path, port: int, number: signal.Signals
) -> None:
    process = start(config, "--seconds", "1000")
    send(port)
    process.send_signal(number)
    output, messages = process.communicate(timeout=200)
    assert process.returncode == (0 if number == signal.SIGINT else 128 + number), messages
    result = json.loads(output)
    assert (result["received"], result["dropped"]) == (PACKETS, 0)
    with stored_by(tmp_path) as catalog:
        run = catalog.client[-1]
        assert run.metadata["stop"]["exit_status"] == "success"
        require_as_sent(capture_files(run))


@pytest.mark.usefixtures("made_catalog")
def test_a_capture_without_limit_ends_with_ctrl_c(
    tmp_path: Path, start: Start, config: Path, port: int
) -> None:
    """Once Bluesky runs the plan, and then what arrives after Ctrl-C is not captured."""
    process = start(config)
    send(port)
    with stored_by(tmp_path) as catalog:
        # The plan runs.
        wait_for(lambda: len(catalog.client) == 1)
        process.send_signal(signal.SIGINT)
        output, messages = process.communicate(timeout=200)
        assert process.returncode == 0, messages
        result = json.loads(output)
        assert result["received"] == PACKETS
        run = catalog.client[result["run"]]
        assert run.metadata["stop"]["exit_status"] == "success"
        assert run.metadata["start"]["plan_name"] == "capture"
        require_as_sent(capture_files(run))
        assert run["primary"].read()["daq_receiver_capture_packets"].sum() == PACKETS


@pytest.mark.usefixtures("made_catalog")
def test_packets_after_ctrl_c_are_not_captured(
    tmp_path: Path, start: Start, config: Path, port: int
) -> None:
    process = start(config)
    send(port)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == "\n"
    assert process.stderr.readline().startswith("ends as soon as")
    # The file is complete.
    wait_for(lambda: list((tmp_path / "daqiri-data" / "captures").rglob("*.pcap.json")))
    send(port)
    output, _ = process.communicate(timeout=200)
    assert json.loads(output)["received"] == PACKETS


@pytest.mark.usefixtures("made_catalog")
def test_a_capture_without_packets_is_a_failure(tmp_path: Path, start: Start, config: Path) -> None:
    process = start(config, "--seconds", "0.1")
    output, messages = process.communicate(timeout=200)
    assert process.returncode == 1
    assert json.loads(output)["received"] == 0
    assert messages.endswith("no packet arrived that the queue captures\n")
    with stored_by(tmp_path) as catalog:
        assert catalog.client[-1].metadata["stop"]["exit_status"] == "success"


@pytest.mark.usefixtures("made_catalog")
@pytest.mark.parametrize("limit", [[], ["--seconds", "1000"], ["--packets", "1000"]])
def test_a_capture_fails_after_the_time_without_packets(
    tmp_path: Path, start: Start, config: Path, port: int, limit: list[str]
) -> None:
    process = start(config, "--timeout", "0.5", *limit)
    send(port)
    output, messages = process.communicate(timeout=200)
    assert process.returncode == 1
    assert f"no packet for 0.5 s, after {PACKETS} packets" in messages
    result = json.loads(output)
    assert result["received"] == PACKETS
    assert f"after {PACKETS} packets; --timeout 0 waits" in result["problem"]
    with stored_by(tmp_path) as catalog:
        run = catalog.client[-1]
        assert result["run"] == run.metadata["start"]["uid"]
        assert result["files"] == list(map(str, capture_files(run)))
        assert run.metadata["stop"]["exit_status"] == "fail"
        require_as_sent(capture_files(run))


def test_packets_of_a_run_that_cannot_be_stored_stay_on_disk(
    tmp_path: Path, start: Start, config: Path, port: int
) -> None:
    nowhere = f"http://127.0.0.1:{free_port('tcp')}"
    process = start(config, "--packets", str(PACKETS), "--catalog", nowhere)
    send(port)
    output, messages = process.communicate(timeout=200)
    assert process.returncode == 1
    assert nowhere in messages
    result = json.loads(output)
    assert (result["run"], result["received"]) == ("", PACKETS)
    assert nowhere in result["problem"]
    assert f"{PACKETS} packets that were captured are in {tmp_path}" in messages
    require_as_sent(list((tmp_path / "daqiri-data" / "captures").rglob("*.pcap")))


def test_signals_end_a_capture_whose_catalog_does_not_open(
    tmp_path: Path, start: Start, config: Path, port: int
) -> None:
    """Another process has the directory, and its server does not start."""
    folder = tmp_path / "daqiri-data" / "catalog"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(config, "--seconds", "1000")
        send(port)
        for _ in range(1000):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
                break
        _, messages = process.communicate(timeout=200)
    # The latest signal may come while the interpreter ends.
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert f"{PACKETS} packets that were captured are in {tmp_path}" in messages
    require_as_sent(list((tmp_path / "daqiri-data" / "captures").rglob("*.pcap")))


@pytest.mark.usefixtures("made_catalog")
def test_messages_that_cannot_be_written_end_no_capture(tmp_path: Path, config: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "capture", config, "--seconds", "0.1", "--json"],
            cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=full, timeout=200,
        )  # fmt: skip
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["files"]) == 1


def test_nothing_is_left_of_a_capture_without_packets_that_cannot_be_stored(
    tmp_path: Path, start: Start, config: Path
) -> None:
    process = start(config, "--packets", "1", "--catalog", f"http://127.0.0.1:{free_port('tcp')}")
    assert process.wait(200) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [config]


@pytest.mark.usefixtures("made_catalog")
def test_nothing_is_left_of_a_capture_whose_file_to_send_is_none(
    tmp_path: Path, start: Start
) -> None:
    (tmp_path / "notes.pcap").write_text("not a capture, but long enough to have a header")
    process = start("loopback", "--send", "notes.pcap")
    output, messages = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "notes.pcap" in messages
    result = json.loads(output)
    assert (result["received"], result["files"]) == (0, [])
    assert "notes.pcap" in result["problem"]
    captures = tmp_path / "daqiri-data" / "captures"
    assert [path for path in captures.rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("made_catalog")
def test_all_queues_are_captured_in_files_of_their_own(tmp_path: Path) -> None:
    stimulus = tmp_path / "stimulus.pcap"
    packets = udp_stimulus(200, 100, [5500, 5501])
    write_pcap(stimulus, packets, np.arange(200) * 1000, link_type=1)
    command = ["-m", "daqiri_ophyd", "capture", "loopback", "--queue", "all"]
    done = run_preloaded(*command, "--send", stimulus, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("listening on ")
    result = json.loads(done.stdout)
    assert result["received"] == 200
    assert len(result["files"]) == 2


@pytest.mark.usefixtures("made_catalog")
def test_a_run_that_is_not_in_the_catalog_is_a_failure_with_all_files(
    tmp_path: Path, config: Path, port: int, start: Start
) -> None:
    (tmp_path / "daqiri-data" / "catalog" / "storage.duckdb").write_bytes(b"no database" * 100)
    process = start(
        config, "--packets", str(PACKETS), env=os.environ | {"TILED_RETRY_TIMEOUT": "1"}
    )
    send(port)
    output, messages = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "the run is not in the catalog; the captured files are complete" in messages
    result = json.loads(output)
    require_as_sent([Path(file) for file in result["files"]])
    assert result["problem"].startswith("the run is not in the catalog")


@pytest.mark.usefixtures("made_catalog")
def test_a_capture_whose_output_is_closed_is_stored(tmp_path: Path, config: Path) -> None:
    command = ["bash", "-c", '"$@" >&-', "bash", *COMMAND]
    done = subprocess.run(
        [*command, "capture", config, "--seconds", "0.1"],
        cwd=tmp_path, text=True, stderr=subprocess.PIPE, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1
    # On a busy machine it says that it waits for the catalog.
    first, *others, last = (line.split()[0] for line in done.stderr.splitlines())
    assert (first, last) == ("listening", "error:")
    assert set(others) <= {"Waiting"}


@pytest.mark.parametrize("option", ["--data", "--catalog"])
def test_a_directory_whose_name_is_not_utf_8_is_rejected(
    tmp_path: Path, config: Path, option: str
) -> None:
    done = subprocess.run(
        [*COMMAND, "capture", config, "--seconds", "0.1", option, os.fsdecode(b"d\xff")],
        cwd=tmp_path, text=True, capture_output=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1
    assert r"d\udcff" in done.stderr
    assert "Choose a directory" in done.stderr or "choose another" in done.stderr


@pytest.mark.usefixtures("made_catalog")
def test_a_picture_is_a_png_in_a_new_directory(tmp_path: Path, config: Path) -> None:
    done = run_preloaded(
        *COMMAND[1:], "capture", config, "--seconds", "0.1", "--picture", "new/rate.svg",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.stderr.endswith("no packet arrived that the queue captures\n")
    assert (tmp_path / "new" / "rate.svg").read_bytes().startswith(b"\x89PNG")


def test_a_queue_that_does_not_exist_is_bad_usage(tmp_path: Path, config: Path) -> None:
    found = subprocess.run(
        [*COMMAND, "capture", config, "--packets", "1", "--queue", "rx_q7"],
        cwd=tmp_path, text=True, capture_output=True, timeout=200,
    )  # fmt: skip
    assert found.returncode == 2
    assert "'rx_q7' is not a receive queue; accepted are 'rx_q0'" in found.stderr
    assert not (tmp_path / "daqiri-data").exists()
