"""Programs written from the API guide alone, one for each of its chapters: compiled as C++17 and
C++20 against the installed library, and run. Where this build lacks a part, they say which.
"""

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from free_ports import free_port

SOURCES = Path(__file__).parent / "cpp_api"
CHAPTERS = sorted(path for path in SOURCES.glob("*.cpp") if path.stem != "main")
NOT_IN_THIS_BUILD = 3
MESSAGES = 200

LOOPBACK = """
version: 1
master_core: 0
stream_type: raw
loopback: sw
memory_regions:
- {name: rx, kind: host, num_bufs: 256, buf_size: 2048}
- {name: rx_data, kind: host, num_bufs: 256, buf_size: 2048}
- {name: tx, kind: host, num_bufs: 256, buf_size: 2048}
- {name: tx_data, kind: host, num_bufs: 256, buf_size: 512}
interfaces:
- name: camera
  address: loopback
  rx:
    queues:
    - {name: rx, id: 0, cpu_core: any, batch_size: 8, memory_regions: [rx]}
    flows:
    - {name: frames, id: 7, match: {udp_dst: 5000}, action: {type: queue, id: 0}}
  tx:
    queues:
    - {name: tx, id: 0, cpu_core: any, batch_size: 8, memory_regions: [tx]}
"""
WHOLE = "\n".join(line for line in LOOPBACK.splitlines() if "_data" not in line)
SPLIT = LOOPBACK.replace("[rx]", "[rx, rx_data], split_boundary: 42").replace(
    "[tx]", "[tx, tx_data]"
)
CAPACITY = WHOLE.replace("  rx:\n", "  rx:\n    dynamic_flow_capacity: 16\n")
REORDER = WHOLE.replace(
    "interfaces:", "- {name: batches, kind: host, num_bufs: 8, buf_size: 16384}\ninterfaces:"
).replace(
    "  tx:\n",
    """    reorder_configs:
    - name: rx_reorder_0
      reorder_type: cpu
      memory_region: batches
      payload_byte_offset: 42
      flow_ids: [7]
      method:
        seq_packets_per_batch:
          sequence_number: {bit_offset: 336, bit_width: 8}
          packets_per_batch: 8
  tx:
""",
)
ROCE = """
version: 1
master_core: 0
stream_type: socket
memory_regions:
- {name: server_rx, kind: host, num_bufs: 64, buf_size: 2048, access: [local, rdma_write]}
- {name: client_tx, kind: host, num_bufs: 64, buf_size: 2048}
interfaces:
- name: server
  address: 127.0.0.1
  socket_config: {mode: server, local_addr: "roce://127.0.0.1:4791"}
  roce_config: {transport_mode: RC}
  rx: {queues: [{name: rx, id: 0, cpu_core: any, batch_size: 1}]}
  tx: {queues: [{name: tx, id: 0, cpu_core: any, batch_size: 1}]}
- name: client
  address: 127.0.0.1
  socket_config: {mode: client, local_addr: "roce://127.0.0.1"}
  roce_config: {transport_mode: RC}
  rx: {queues: [{name: rx, id: 0, cpu_core: any, batch_size: 1}]}
  tx: {queues: [{name: tx, id: 0, cpu_core: any, batch_size: 1}]}
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def programs(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all programs, as C++17; as C++20 they compile as well."""
    folder = tmp_path_factory.mktemp("chapters")
    (library,) = prefix.rglob("libdaqiri.so")
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{prefix}/include"]
    link = [f"-L{library.parent}", "-ldaqiri", f"-Wl,-rpath,{library.parent}", "-pthread"]

    def build(source: Path) -> None:
        as_17 = ["-std=c++17", source, "-o", folder / source.stem, *link]
        for flags in (as_17, ["-std=c++20", "-fsyntax-only", source]):
            done = subprocess.run(["g++", *warnings, *flags], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build, CHAPTERS))
    return folder


@pytest.fixture
def start(programs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Start:
    """Start a program; it is ended with the test."""

    def start(name: str, *arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [programs / name, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def end() -> None:
            process.kill()
            process.communicate()

        request.addfinalizer(end)
        return process

    return start


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for a program; what it printed."""
    printed = process.communicate(timeout=120)[0]
    assert process.returncode == status, printed
    return printed


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


def test_frames_are_sent_and_received(start: Start, config: Callable[[str], Path]) -> None:
    printed = ended(start("send_and_receive", config(WHOLE)))
    assert printed.endswith("done\n")
    assert re.search(r"^camera/rx +3200 ", printed, re.MULTILINE)
    # The last may be received before their sender has counted them.
    row = re.search(r"^camera/tx +3200 +(\d+) +\d+ +(\d+) ", printed, re.MULTILINE)
    assert row is not None
    assert sum(map(int, row.groups())) == 3200


def test_headers_and_data_are_split(
    start: Start, config: Callable[[str], Path], tmp_path: Path
) -> None:
    printed = ended(start("header_data_split", config(SPLIT), tmp_path))
    assert re.search(r"daqiri \d+\.\d+\.\d+, abi \d+: done", printed)
    assert re.search(r"^camera/rx +32 ", printed, re.MULTILINE)
    assert (tmp_path / "split.pcap").stat().st_size == 24 + 8 * (16 + 42 + 64)
    for i in range(8):
        assert (tmp_path / f"packet_group_0_{i}").read_bytes() == bytes([ord("a") + i]) * 64


def test_bursts_are_written_to_files(
    start: Start, config: Callable[[str], Path], tmp_path: Path
) -> None:
    ended(start("files", config(WHOLE), tmp_path))
    for i in range(8):
        assert (tmp_path / f"now_{i}").read_text() == f"packet {i}"
        assert (tmp_path / f"later_{i}").read_text() == f"packet {i}"
    assert (tmp_path / "all.pcap").stat().st_size == 24 + 2 * 8 * (16 + 42 + 8)


def test_packets_are_reordered(start: Start, config: Callable[[str], Path]) -> None:
    assert ended(start("reorder", config(REORDER))).endswith("done\n")


@pytest.mark.parametrize("text", [WHOLE, CAPACITY])
def test_flows_come_and_go(start: Start, config: Callable[[str], Path], text: str) -> None:
    # Bursts that are not full are handed over, too.
    text = text.replace("memory_regions: [rx]", "timeout_us: 1000, memory_regions: [rx]")
    assert ended(start("dynamic_flows", config(text))).endswith("done\n")


def test_a_configuration_is_built_in_code(start: Start) -> None:
    printed = ended(start("configuration"))
    assert "interfaces[0].rx.flows[1].action" in printed
    assert "9" in printed


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_server_and_a_client_in_one_process(
    start: Start, protocol: Literal["tcp", "udp"]
) -> None:
    printed = ended(start("sockets", "both", protocol, str(free_port(protocol)), str(MESSAGES)))
    assert f"both: {MESSAGES} sent and received" in printed


@pytest.mark.parametrize("first", ["server", "client"])
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_server_and_a_client_in_two_processes(
    start: Start, protocol: Literal["tcp", "udp"], first: str
) -> None:
    second = "client" if first == "server" else "server"
    arguments = (protocol, str(free_port(protocol)), str(MESSAGES))
    processes = {first: start("sockets", first, *arguments)}
    # Its engine runs, and there is nobody yet.
    stdout = processes[first].stdout
    assert stdout
    assert "ready\n" in iter(stdout.readline, "")
    processes[second] = start("sockets", second, *arguments)
    for role, process in processes.items():
        printed = ended(process)
        assert f"{role}: {MESSAGES} sent and received" in printed
        if role == first == "server":
            assert "after a wait for the peer" in printed


@pytest.mark.parametrize(
    ("program", "text", "reason"),
    [
        ("rdma", ROCE, "ibverbs"),
        ("s3", WHOLE, "this build has no S3 client"),
    ],
)
def test_what_this_build_lacks_is_named(
    start: Start, config: Callable[[str], Path], program: str, text: str, reason: str
) -> None:
    arguments = ["http://127.0.0.1:9"] if program == "s3" else []
    printed = ended(start(program, config(text), *arguments), NOT_IN_THIS_BUILD)
    assert "not supported: " in printed
    assert reason in printed
