"""Links that lose frames: a veth pair whose receiving core cannot keep up."""

import ctypes
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from networks import Network, enlarge_buffer, in_user_namespace, lacks, link_counts

from daqiri_ophyd.engine import PortCounters, ethernet

Config = dict[str, Any]
SO_ATTACH_FILTER = 26
PACKET_QDISC_BYPASS = 20
ETH_P_ALL = 3
LLDP = 0x88CC
PORT = 5000


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):  # struct mmsghdr
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("number", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    )


def send_fast(frame: bytes, count: int, interface: str = "near") -> None:
    """Put a frame on an interface so many times, as fast as one core can."""
    libc = ctypes.CDLL(None, use_errno=True)
    data = ctypes.create_string_buffer(frame, len(frame))
    vector = _Vector(ctypes.addressof(data), len(frame))
    messages = (_Message * 64)()
    for message in messages:
        message.vectors, message.number = ctypes.addressof(vector), 1
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        enlarge_buffer(wire, socket.SO_SNDBUF)
        wire.setsockopt(263, PACKET_QDISC_BYPASS, 1)
        wire.bind((interface, 0))
        for first in range(0, count, 64):
            n = min(64, count - first)
            done = 0
            while done < n:
                sent = libc.sendmmsg(wire.fileno(), messages, n - done, 0)
                done += sent if sent > 0 else 1


class Link:
    """A veth pair, ``near`` and ``far`` (10.9.0.1), whose frames another core receives."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._slow: list[socket.socket] = []

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.network.call(function, *arguments)

    def make(self, queues: int = 1) -> None:
        shape = f"numtxqueues {queues} numrxqueues {queues}"
        self.network.run(f"ip link add near {shape} type veth peer name far {shape}")
        self.network.without_ipv6("near", "far")
        self.network.run("ip address add 10.9.0.1/24 dev far")
        self.network.up("near", "far")

    def remake(self, queues: int = 1) -> None:
        """Remove both ends, and make them anew."""
        self.network.run("ip link delete far")
        self.make(queues)

    def counts(self, interface: str = "far") -> dict[str, int]:
        """The kernel's own counters of received frames, and of sent ones."""
        return link_counts(self.network, interface)

    def receive_on_another_core(self) -> None:
        """Let RPS pass frames to the last core; the sender runs on the first."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            pytest.skip("needs two cores")
        if in_user_namespace():
            pytest.skip("needs CAP_NET_ADMIN on the host, for RPS")
        mask = f"{1 << cores[-1]:x}"
        mask = ",".join(
            mask[max(0, end - 8) : end] for end in range(len(mask) % 8 or 8, len(mask) + 1, 8)
        )
        path = "/sys/class/net/far/queues/rx-0/rps_cpus"
        # A mount of sysfs shows the interfaces of the namespace in which it was made.
        script = f"mount -t sysfs none /sys && echo {mask} > {path} && cat {path}"
        command = ["unshare", "-m", "sh", "-c", script]
        run = partial(subprocess.run, capture_output=True, text=True)
        done = self.call(run, command)
        if done.returncode:
            lacks("RPS", done.stderr)
        self.call(os.sched_setaffinity, 0, {cores[0]})

    def slow_down(self) -> None:
        """Let each received frame take tens of microseconds: 40 sockets with long filters."""
        load = struct.pack("HBBI", 0x28, 0, 0, 0)
        program = ctypes.create_string_buffer(load * 800 + struct.pack("HBBI", 6, 0, 0, 0))
        for _ in range(40):
            slow = self.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._slow.append(slow)
            given = struct.pack("HP", 801, ctypes.addressof(program))
            slow.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, given)
            slow.bind(("far", ETH_P_ALL))

    def flood(self, frame: bytes, count: int) -> int:
        """Send a frame so many times; return how many arrived, by the counters of the near end."""
        before = self.counts("near")
        self.call(send_fast, frame, count)
        after = self.counts("near")
        return sum(after[name] - before[name] for name in ("sent", "refused"))

    def close(self) -> None:
        for slow in self._slow:
            slow.close()


@pytest.fixture
def link(networks: Callable[[], Network]) -> Iterator[Link]:
    """A veth pair in its own namespace, on which only tests send."""
    made = Link(networks())
    made.make()
    yield made
    made.close()


def address_of(interface: str) -> bytes:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        return wire.getsockname()[4]


def backlog_drops() -> int:
    """Frames that the host's backlogs have dropped, of all programs and namespaces."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


@pytest.fixture
def unwanted_only() -> Callable[[PortCounters, int], bool]:
    """Whether so many unwanted frames are all that was counted since the test began.

    Some may count as drops of the backlog, as many as others had: its counter is that of the host.
    """
    before = backlog_drops()

    def check(counters: PortCounters, count: int) -> bool:
        others = min(counters.lost_backlog, backlog_drops() - before)
        return counters == PortCounters(others, 0, others, 0, count - others)

    return check


@pytest.fixture
def datagram(link: Link) -> Callable[..., bytes]:
    """Make a UDP packet for 10.9.0.1, as a frame for ``far``."""

    def make(size: int = 1000) -> bytes:
        made = ethernet.udp_frames(
            (1, size),
            src_mac="02:00:00:00:00:02",
            dst_mac=link.call(address_of, "far"),
            src_ip="10.9.0.2",
            dst_ip="10.9.0.1",
            src_port=4000,
            dst_port=PORT,
        )
        return made[0].tobytes()

    return make


@pytest.fixture
def unwanted() -> bytes:
    """A frame of a protocol that no program here receives (LLDP)."""
    addresses = bytes.fromhex("0180c200000e" + "020000000002")
    return addresses + struct.pack("!H", LLDP) + bytes(46)


@pytest.fixture
def receiver(link: Link, request: pytest.FixtureRequest) -> Callable[..., Config]:
    """A configuration of a port ``receiver`` at ``far``, by its path.

    ``af_packet``, ``af_xdp``, ``udp``, and ``dpdk``: a ``net_af_packet``.
    """
    # Its rings of frames of 2 KiB are locked in memory, which is 8 MiB for users who are not root.
    frames = 1024 if in_user_namespace() else 4096
    addresses = {"dpdk": f"net_af_packet0,iface=far,framecnt={frames}"}

    def build(path: str, local: str = "10.9.0.1", **queue: Any) -> Config:
        if path == "dpdk":
            request.getfixturevalue("has_dpdk")
        port: Config = {
            "name": "receiver",
            "address": local if path == "udp" else addresses.get(path, "far"),
            "rx": {
                "queues": [
                    {
                        "name": "rx0",
                        "id": 0,
                        "cpu_core": "any",
                        "batch_size": 64,
                        "timeout_us": 1000,
                        "memory_regions": ["rx_buffers"],
                        **queue,
                    }
                ]
            },
        }
        if path == "udp":
            address = f"udp://{local}:{PORT}"
            port["socket_config"] = {"mode": "server", "local_addr": address}
        else:
            if path != "dpdk":
                port["rx"]["receive_path"] = path
            port["rx"]["flows"] = [
                {
                    "name": "data",
                    "id": 7,
                    "match": {"udp_dst": PORT},
                    "action": {"type": "queue", "id": 0},
                }
            ]
        regions = [{"name": "rx_buffers", "kind": "host", "num_bufs": 65536, "buf_size": 2048}]
        config = {
            "version": 1,
            "master_core": 0,
            "stream_type": "socket" if path == "udp" else "raw",
            "log_level": "error",
            "memory_regions": regions,
            "interfaces": [port],
        }
        return config | ({"engine": "dpdk"} if path == "dpdk" else {})

    return build
