"""Devices of DPDK that give back what is sent on them, for tests of packets that a port receives
from itself: ``--dpdk-device`` says which."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from networks import Network, lacks

HERE = Path(__file__).parent

# A test runs in memory, and by a driver of DPDK.
on_dpdk_too = pytest.mark.parametrize("loopback", ["loopback", "dpdk"], indirect=True)


def on_device(config: dict[str, Any], address: str) -> dict[str, Any]:
    """Make a configuration ``loopback: sw`` with one interface one of engine ``dpdk``."""
    for key in ("loopback", "loopback_drops"):
        config.pop(key, None)
    (interface,) = config["interfaces"]
    interface["address"] = address
    config["engine"] = "dpdk"
    return config


def compiled_reflector(folder: Path) -> Path:
    """Compile the program at the other end of a ``net_memif``."""
    if shutil.which("pkg-config") is None or shutil.which("g++") is None:
        pytest.skip("needs g++ and pkg-config")
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libdpdk"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip("needs libdpdk-dev")
    program = folder / "memif_reflector"
    source = HERE / "engine" / "memif_reflector.cpp"
    # The headers of DPDK use what C++20 deprecates.
    command = ["g++", "-std=c++20", "-O1", "-Wno-volatile", source, "-o", program]
    subprocess.run([*command, *found.stdout.split()], check=True)
    return program


@contextlib.contextmanager
def reflected_memif(program: Path, folder: Path) -> Iterator[str]:
    """Give the address of a memif whose server sends back what it receives.

    For one client: DPDK's server may read the memory of a client that has just gone, and crash.
    """
    socket = folder / "memif"
    with subprocess.Popen(
        [program, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin and server.stdout
        assert server.stdout.readline() == b"listens\n"
        yield f"net_memif0,role=client,socket-abstract=no,bsize=9216,socket={socket}"
        server.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        server.kill()


def reflected_tap(network: Network) -> str:
    """Make a network interface that gives back what a ``net_tap`` sends; return its address."""
    _need(network, "ip tuntap add dtap0 mode tap multi_queue", "/dev/net/tun (modprobe tun)")
    _reflect(network, "dtap0")
    # Beyond so many packets that wait for the device, the kernel drops them.
    network.run("ip link set dtap0 up txqueuelen 100000")
    return "net_tap0,iface=dtap0"


def reflected_cable(network: Network) -> str:
    """Let the other end of a cable give back what arrives; return the address of this end."""
    _reflect(network, "far")
    return "net_af_packet0,iface=near,framecnt=65536"


def _reflect(network: Network, interface: str) -> None:
    network.without_ipv6(interface)
    _need(network, f"tc qdisc add dev {interface} clsact", "the queueing discipline clsact")
    # Every frame, also those too short for other classifiers.
    every = ["bpf", "bytecode", "1,6 0 0 4294967295"]
    to = ["action", "mirred", "egress", "redirect", "dev", interface]
    command = ["tc", "filter", "add", "dev", interface, "ingress", "protocol", "all", *every, *to]
    _need(network, command, "cls_bpf and act_mirred of the kernel")


def _need(network: Network, command: str | list[str], what: str) -> None:
    """Run what fails where the host lacks something."""
    arguments = command.split() if isinstance(command, str) else command
    run = partial(subprocess.run, arguments, check=True, capture_output=True, text=True)
    try:
        network.call(run)
    except subprocess.CalledProcessError as error:
        lacks(what, f"{error.stderr.strip()} ({' '.join(arguments)})")
    except FileNotFoundError as error:
        lacks("iproute2", error)
