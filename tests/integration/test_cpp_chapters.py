"""Programs written from the API guide alone, one for each of its chapters: compiled as C++17 and
C++20 against the installed library, and run. Where this build lacks a part, they say which.
"""

import io
import os
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import obstore
import pytest
from free_ports import free_port
from object_servers import BUCKET, moto_server
from obstore.store import S3Store

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
      columns:
        second: {bit_offset: 344, bit_width: 8}
        each: {bit_offset: 344, bit_width: 8, from: packets}
        total: {bit_offset: 344, bit_width: 8, from: sum}
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

# Flows that transform what is sent, and bytes by which it grows.
OUTER = (
    "outer_eth_src: '02:00:00:00:00:11', outer_eth_dst: '02:00:00:00:00:12', "
    "outer_ipv4_src: 198.51.100.1, outer_ipv4_dst: 198.51.100.2"
)
TUNNELS = {
    "vxlan": ("type: vxlan, vni: 4711", 14 + 20 + 8 + 8),
    "nvgre": ("type: nvgre, tni: 4712", 14 + 20 + 8),
    "gre of frames": ("type: gre, gre_protocol: 0x6558", 14 + 20 + 4),
    "gre of packets": ("type: gre", 20 + 4),
}
TRANSFORMS = {
    "a tag": ("{type: vlan_push, vlan_id: 100, pcp: 3}", "{type: vlan_pop}", 4),
    "two tags": (
        "{type: vlan_push, vlan_id: 100}, {type: vlan_push, vlan_id: 200, ethertype: 0x88A8}",
        "{type: vlan_pop}, {type: vlan_pop}",
        8,
    ),
} | {
    name: (
        f"{{type: tunnel_encap, tunnel: {{{keys}, {OUTER}}}}}",
        f"{{type: tunnel_decap, tunnel: {{{keys}}}}}",
        overhead,
    )
    for name, (keys, overhead) in TUNNELS.items()
}


def soon(text: str) -> str:
    """Let a receive queue hand over bursts that are not full."""
    return text.replace("memory_regions: [rx]", "timeout_us: 1000, memory_regions: [rx]")


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def programs(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all programs, as C++17; as C++20 they compile as well."""
    folder = tmp_path_factory.mktemp("chapters")
    (library,) = prefix.rglob("libdaqiri.so")
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", f"-I{prefix}/include"]
    link = [f"-L{library.parent}", "-ldaqiri", f"-Wl,-rpath,{library.parent}"]

    def compile(standard: int, *arguments: str | Path) -> None:
        command = ["g++", f"-std=c++{standard}", *flags, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def precompile(standard: int) -> None:
        """What all include takes most of the time of each."""
        (folder / f"{standard}").mkdir()
        header = folder / f"{standard}" / "program.h"
        header.write_text(f'#include "{SOURCES}/program.h"\n')
        compile(standard, header, "-o", f"{header}.gch")

    def build(source: Path) -> None:
        for standard, to in (17, ["-o", folder / source.stem, *link]), (20, ["-fsyntax-only"]):
            compile(standard, "-include", folder / f"{standard}" / "program.h", source, *to)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(precompile, (17, 20)))
        list(pool.map(build, CHAPTERS))
    return folder


@pytest.fixture
def start(programs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Start:
    """Start a program; it is ended with the test."""

    def start(
        name: str, *arguments: str | Path, network: Any | None = None
    ) -> subprocess.Popen[str]:
        begin = partial(
            subprocess.Popen,
            [programs / name, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        process = begin() if network is None else network.call(begin)

        def end() -> None:
            process.kill()
            process.communicate()

        request.addfinalizer(end)
        return process

    return start


class Way:
    """The path of frames from the sender to the receiver of a raw stream."""

    # Where packets go through the kernel.
    network: Any | None = None
    # More sessions than may share the interface.
    shared = True
    # Others receive what is sent, too.
    heard_by_others = False

    def __call__(self, text: str) -> str:
        """Return a configuration for loopback as one for this way."""
        return text


class Cable(Way):
    """Engine ``packet`` on both ends of a cable."""

    def __init__(self, path: str, cable: Any) -> None:
        self._path = path
        self.network = cable
        self.shared = self.heard_by_others = path != "af_xdp"

    def __call__(self, text: str) -> str:
        text = text.replace("loopback: sw\n", "").replace("address: loopback", "address: far")
        text = text.replace("  rx:\n", f"  rx:\n    receive_path: {self._path}\n")
        text = text.replace("  tx:\n", "- name: sender\n  address: near\n  tx:\n")
        # On one core: a cable of the kernel's keeps the order of each core's frames.
        core = min(os.sched_getaffinity(0))
        return text.replace(
            "{name: tx, id: 0, cpu_core: any", f'{{name: tx, id: 0, cpu_core: "{core}"'
        )


class DpdkRing(Way):
    """A device of DPDK that receives what it sends; the engine is the only change."""

    shared = False

    def __call__(self, text: str) -> str:
        return text.replace("loopback: sw", "engine: dpdk").replace(
            "address: loopback", "address: net_ring0"
        )


def in_one_port(name: str, prefix: Path) -> Way:
    """Return a way on which a port receives what it sends."""
    if name == "loopback":
        return Way()
    if not list(prefix.rglob("daqiri_engine_dpdk.so")):
        pytest.skip("needs engine dpdk: libdpdk-dev, and a build with its module")
    return DpdkRing()


@pytest.fixture(params=["loopback", "dpdk"])
def port(request: pytest.FixtureRequest, prefix: Path) -> Way:
    """A port that receives what it sends."""
    return in_one_port(request.param, prefix)


@pytest.fixture(
    params=[
        "loopback",
        "dpdk",
        pytest.param("af_packet", marks=pytest.mark.root),
        pytest.param("af_xdp", marks=pytest.mark.root),
    ]
)
def way(request: pytest.FixtureRequest, prefix: Path) -> Way:
    """A port that receives what it sends, or two ports on a cable."""
    if request.param in ("loopback", "dpdk"):
        return in_one_port(request.param, prefix)
    if request.param == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    return Cable(request.param, request.getfixturevalue("cable"))


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for a program; return its output."""
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


def test_frames_are_sent_and_received(
    start: Start, config: Callable[[str], Path], port: Way
) -> None:
    printed = ended(start("send_and_receive", config(port(WHOLE))))
    assert printed.endswith("done\n")
    assert re.search(r"^camera/rx +3200 ", printed, re.MULTILINE)
    # The last may be received before the sender has counted them.
    row = re.search(r"^camera/tx +3200 +(\d+) +\d+ +(\d+) ", printed, re.MULTILINE)
    assert row is not None
    assert sum(map(int, row.groups())) == 3200


def test_headers_and_data_are_split(
    start: Start, config: Callable[[str], Path], tmp_path: Path, way: Way
) -> None:
    alone = [] if way.shared else ["alone"]
    process = start("header_data_split", config(way(SPLIT)), tmp_path, *alone, network=way.network)
    printed = ended(process)
    assert re.search(r"daqiri \d+\.\d+\.\d+, abi \d+: done", printed)
    # All that share an interface receive what comes from it.
    received = 40 if way.heard_by_others else 32
    assert re.search(rf"^camera/rx +{received} ", printed, re.MULTILINE)
    assert (tmp_path / "split.pcap").stat().st_size == 24 + 8 * (16 + 42 + 64)
    for i in range(8):
        assert (tmp_path / f"packet_group_0_{i}").read_bytes() == bytes([ord("a") + i]) * 64


def test_bursts_are_written_to_files(
    start: Start, config: Callable[[str], Path], tmp_path: Path, port: Way
) -> None:
    ended(start("files", config(port(WHOLE)), tmp_path))
    for i in range(8):
        assert (tmp_path / f"now_{i}").read_text() == f"packet {i}"
        assert (tmp_path / f"later_{i}").read_text() == f"packet {i}"
    assert (tmp_path / "all.pcap").stat().st_size == 24 + 2 * 8 * (16 + 42 + 8)


def test_packets_are_reordered(start: Start, config: Callable[[str], Path], port: Way) -> None:
    assert ended(start("reorder", config(port(REORDER)))).endswith("done\n")


@pytest.mark.parametrize("text", [WHOLE, CAPACITY])
def test_flows_come_and_go(
    start: Start, config: Callable[[str], Path], text: str, way: Way
) -> None:
    process = start("dynamic_flows", config(way(soon(text))), network=way.network)
    assert ended(process).endswith("done\n")


@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
def test_tags_and_tunnels(
    start: Start, config: Callable[[str], Path], transforms: tuple[str, str, int], way: Way
) -> None:
    sent, received, overhead = transforms
    text = way(soon(WHOLE)).replace(
        "action: {type: queue, id: 0}", f"actions: [{received}, {{type: queue, id: 0}}]"
    )
    text += f"\n    flows:\n    - {{name: out, id: 8, actions: [{sent}]}}\n"
    process = start("transforms", config(text), str(overhead), network=way.network)
    assert ended(process).endswith("done\n")


def test_queues_share_the_packets(start: Start, config: Callable[[str], Path], way: Way) -> None:
    queue = next(line for line in WHOLE.splitlines() if "{name: rx, id: 0, cpu" in line)
    others = [queue.replace("name: rx, id: 0", f"name: rx{i}, id: {i}") for i in (1, 2, 3)]
    text = WHOLE.replace(queue, "\n".join([queue, *others])).replace(
        "action: {type: queue, id: 0}}",
        "action: {type: queue, ids: [0, 1, 2, 3]}}\n"
        "    - {name: one, id: 8, match: {udp_dst: 5001}, action: {type: queue, id: 1}}",
    )
    # Buffers for all: with several queues, none waits.
    text = text.replace(
        "name: rx, kind: host, num_bufs: 256", "name: rx, kind: host, num_bufs: 4096"
    )
    text = text.replace(
        "batch_size: 8, memory_regions: [tx]", "batch_size: 64, memory_regions: [tx]"
    )
    process = start("multi_queue", config(way(soon(text))), network=way.network)
    assert ended(process).endswith("done\n")


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
    # The engine is running without a peer.
    stdout = processes[first].stdout
    assert stdout
    assert "ready\n" in iter(stdout.readline, "")
    processes[second] = start("sockets", second, *arguments)
    for role, process in processes.items():
        printed = ended(process)
        assert f"{role}: {MESSAGES} sent and received" in printed
        if role == first == "server":
            assert "after a wait for the peer" in printed


def test_what_this_build_lacks_is_named(start: Start, config: Callable[[str], Path]) -> None:
    printed = ended(start("rdma", config(ROCE)), NOT_IN_THIS_BUILD)
    assert "not supported: " in printed
    assert "ibverbs" in printed


def test_packets_are_uploaded(
    start: Start, config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with moto_server(tmp_path) as server:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        assert "done" in ended(start("s3", config(WHOLE), server.address, BUCKET))
        store = S3Store(BUCKET, **server.options)
        for i in range(8):
            assert obstore.get(store, f"run/packet_{i}").bytes() == b"data"
        assert obstore.get(store, "run/burst").bytes() == 8 * b"data"
        index = np.load(io.BytesIO(obstore.get(store, "run/burst.npy").bytes()))
        assert index["offset"].tolist() == list(range(0, 32, 4))
        assert index["flow"].tolist() == 8 * [7]
