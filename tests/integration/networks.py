"""Network namespaces, for tests of all parts; needs no other package than pytest."""

import contextlib
import ctypes
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from waiting import wait_for


def lacks(what: str, why: object) -> NoReturn:
    """Fail, or skip where the environment says that there are no networks (`.ci/gpu` does)."""
    if os.environ.get("DAQIRI_TESTS_WITHOUT_NETWORKS"):
        pytest.skip(f"needs {what}: {why}")
    pytest.fail(
        f"needs {what}: {why}. Where there can be none, skip such tests: "
        "DAQIRI_TESTS_WITHOUT_NETWORKS=1"
    )


def in_user_namespace() -> bool:
    """Whether root is that of a user namespace, without privileges on the host."""
    return "4294967295" not in Path("/proc/self/uid_map").read_text()


class Network:
    """A network namespace, in which a thread runs what it is given; its threads and sockets too."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        try:
            self.call(self._enter)
        except OSError as error:
            self.close()
            lacks("network namespaces", error)
        self.thread_id = self.call(threading.get_native_id)
        self.up("lo")

    @staticmethod
    def _enter() -> None:
        clone_newnet = 0x40000000
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(clone_newnet) != 0:
            raise OSError(ctypes.get_errno(), "a network namespace cannot be made")

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._thread.submit(function, *arguments).result(50)

    def run(self, command: str) -> None:
        self.call(partial(subprocess.run, command.split(), check=True))

    def up(self, *links: str) -> None:
        """Set links up, and wait until they carry, and take packets to their addresses.

        The kernel does the rest at some later time; until then it throws away what is sent, and
        tells the sender of success.
        """
        for link in links:
            self.run(f"ip link set {link} up")
        wait_for(lambda: all(self._carries(link) for link in links))

    def without_ipv6(self, *links: str) -> None:
        """Let the kernel send nothing of its own on links."""
        for link in links:
            self.call(Path(f"/proc/sys/net/ipv6/conf/{link}/disable_ipv6").write_text, "1")

    def add_tap(self, name: str) -> None:
        """Make a tap for programs to come, with several queues, on which the kernel is silent."""
        if not Path("/dev/net/tun").exists():
            lacks("/dev/net/tun", "modprobe tun")
        self.run(f"ip tuntap add {name} mode tap multi_queue")
        self.without_ipv6(name)

    def _carries(self, link: str) -> bool:
        shown = partial(subprocess.run, check=True, capture_output=True, text=True)
        said = self.call(shown, ["ip", "-o", "link", "show", link]).stdout
        if "NO-CARRIER" in said or "qdisc noop " in said:
            return False
        # Also of addresses with nodad: the kernel looks at them later.
        of_link = ["ip", "-6", "-o", "addr", "show", "dev", link, "scope", "global", "tentative"]
        return not self.call(shown, of_link).stdout

    def close(self) -> None:
        self._thread.shutdown()


def enlarge_buffer(of: socket.socket, option: int) -> None:
    """Let a socket have 256 MiB (``SO_RCVBUF``, ``SO_SNDBUF``), or the most without privilege."""
    force = {socket.SO_SNDBUF: 32, socket.SO_RCVBUF: 33}
    try:
        of.setsockopt(socket.SOL_SOCKET, force[option], 256 << 20)
    except PermissionError:  # root of a user namespace only
        of.setsockopt(socket.SOL_SOCKET, option, 256 << 20)


def packet_statistics(wire: socket.socket) -> tuple[int, int]:
    """Frames that a packet socket has seen since the last call, and those it had no space for."""
    sol_packet, statistics = 263, 6
    seen, dropped = struct.unpack("II", wire.getsockopt(sol_packet, statistics, 8))
    return seen, dropped


@pytest.fixture
def networks() -> Iterator[Callable[[], Network]]:
    """Make network namespaces that last as long as the test."""
    if shutil.which("ip") is None:
        lacks("the program ip", "install iproute2")
    with contextlib.ExitStack() as made:

        def make() -> Network:
            network = Network()
            made.callback(network.close)
            return network

        yield make


@pytest.fixture
def card(networks: Callable[[], Network]) -> Callable[..., Network]:
    """Make a namespace with a veth pair, ``near`` and ``far``, whose ends have so many queues."""

    def make(queues: int = 1, mtu: int = 9000) -> Network:
        network = networks()
        shape = f"mtu {mtu} numtxqueues {queues} numrxqueues {queues}"
        network.run(f"ip link add near {shape} type veth peer name far {shape}")
        network.without_ipv6("near", "far")
        network.up("near", "far")
        return network

    return make


@pytest.fixture
def cable(card: Callable[..., Network]) -> Network:
    """A namespace with a veth pair, ``near`` and ``far``, that only tests send on."""
    return card()


def link_counts(network: Network, interface: str) -> dict[str, int]:
    """The kernel's own counters of an interface: of received frames, and of sent ones."""
    shown = partial(subprocess.run, check=True, capture_output=True, text=True)
    command = ["ip", "-json", "-s", "-s", "link", "show", interface]
    stats = json.loads(network.call(shown, command).stdout)[0]["stats64"]
    return {
        "received": stats["rx"]["packets"],
        "dropped": stats["rx"]["dropped"],
        "sent": stats["tx"]["packets"],
        "refused": stats["tx"]["dropped"],
    }


def xdp_frames_by_queue(network: Network) -> dict[int, int]:
    """Frames that XDP programs of ``far`` have seen, by receive queue of the device."""
    command = ["ethtool", "-S", "far"]
    show = partial(subprocess.run, command, check=True, capture_output=True, text=True)
    lines = re.findall(r"rx_queue_(\d+)_xdp_packets: (\d+)", network.call(show).stdout)
    return {int(queue): int(count) for queue, count in lines if int(count)}


@pytest.fixture(scope="session")
def has_af_xdp() -> None:
    """Skip where the kernel has no AF_XDP with frames in several pieces."""
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 6):
        pytest.skip(f"needs Linux 6.6, and this is {os.uname().release}")
    if in_user_namespace():
        pytest.skip("needs CAP_BPF on the host")
    try:
        socket.socket(44, socket.SOCK_RAW).close()
    except OSError as error:
        pytest.skip(f"needs AF_XDP: {error}")
