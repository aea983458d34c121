"""Engine dpdk in several processes: killed ones leave nothing, none takes packets of another."""

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from networks import Network
from waiting import eventually, wait_for

from daqiri_ophyd.engine import Engine, InvalidParameterError, engine_facts

from .dpdk_process import frames

Config = dict[str, Any]
Build = Callable[..., Config]
Networks = Callable[[], Network]

PROCESS = Path(__file__).with_name("dpdk_process.py")
IN_ITS_OWN_PIDS = ("unshare", "--pid", "--fork", "--kill-child")
TAP = "net_tap0,iface=dtap0"
# Longest time until a process answers, s.
LONGEST = 60


@pytest.fixture
def on(dpdk: Build) -> Callable[[str], Config]:
    """The configuration ``dpdk``, on another device."""

    def build(device: str) -> Config:
        config = dpdk()
        config["interfaces"][0]["address"] = device
        return config

    return build


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where DPDK would keep files of processes that this test starts."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    return tmp_path / "dpdk"


def need_taps() -> None:
    """Skip where the kernel has none."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        pytest.skip(f"needs /dev/net/tun (modprobe tun): {error}")


@pytest.fixture
def taps() -> None:
    need_taps()


class Process:
    """A process with an engine; `said` is ``open``, or why not."""

    def __init__(self, network: Network, config: Config, *before: str) -> None:
        pipe = subprocess.PIPE
        command = [*before, sys.executable, str(PROCESS), json.dumps(config)]
        start = partial(subprocess.Popen, command, stdin=pipe, stdout=pipe, text=True)
        self.running: subprocess.Popen[str] = network.call(start)
        self.said = ""

    def begin(self) -> None:
        """Wait until it has opened its engine, or not."""
        self.said = self._line()

    def _line(self) -> str:
        # Nothing is in the buffer: it says one line at a time.
        assert self.running.stdout is not None
        if not select.select([self.running.stdout], [], [], LONGEST)[0]:
            pytest.fail(f"the process with an engine has not answered within {LONGEST} s")
        return self.running.stdout.readline().strip()

    def received(self) -> int:
        """Return how many packets it has received."""
        assert self.running.stdin is not None
        self.running.stdin.write("\n")
        self.running.stdin.flush()
        return int(self._line())

    def kill(self) -> None:
        self.running.send_signal(signal.SIGKILL)
        self.running.wait(60)

    def end(self) -> None:
        """Let it close its engine."""
        self.running.communicate(timeout=60)
        assert self.running.returncode == 0


@contextlib.contextmanager
def process(network: Network, config: Config, *before: str) -> Iterator[Process]:
    started = Process(network, config, *before)
    with started.running:
        try:
            started.begin()
            yield started
        finally:
            started.running.kill()


def refusal(network: Network, config: Config, *before: str) -> str:
    with process(network, config, *before) as refused:
        refused.end()
        return refused.said


def send(network: Network, interface: str, count: int) -> None:
    """Send frames of the flow as the kernel does."""
    with network.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.bind((interface, 0))
        for frame in frames(count):
            sender.send(frame.tobytes())


def locks(network: Network) -> list[str]:
    """Return names that processes of the engine hold in a network."""
    unix = Path(f"/proc/{os.getpid()}/task/{network.thread_id}/net/unix")
    return re.findall(r"@(daqiri-ophyd/\S+)", network.call(unix.read_text))


def interfaces(network: Network) -> set[str]:
    return {name for _, name in network.call(socket.if_nameindex)}


def free_hugepages() -> int:
    return sum(
        int(p.read_text()) for p in Path("/sys/kernel/mm/hugepages").glob("*/free_hugepages")
    )


def receives(network: Network, receiver: Process, interface: str | None) -> bool:
    """Whether packets arrive; the process sends its own unless there is an interface."""
    if interface is not None:
        send(network, interface, 1)
    return receiver.received() > 0


@pytest.mark.root
@pytest.mark.parametrize(("device", "interface"), [("net_ring0", None), (TAP, "dtap0")])
def test_a_killed_process_leaves_nothing(
    device: str,
    interface: str | None,
    on: Callable[[str], Config],
    networks: Networks,
    folder: Path,
) -> None:
    if device == TAP:
        need_taps()
    network = networks()
    # As of a process that was killed while it started DPDK.
    (folder / "daqiri").mkdir(parents=True)
    # Of another program.
    (folder / "rte").mkdir()
    before = free_hugepages()

    def is_clean() -> bool:
        return (
            [each.name for each in folder.iterdir()] == ["rte"]
            and interfaces(network) == {"lo"}
            and not locks(network)
            and free_hugepages() >= before
        )

    for end in (Process.kill, Process.end):
        with process(network, on(device)) as receiver:
            assert receiver.said == "open"
            if interface is not None:
                network.up(interface)
                assert locks(network) == [f"daqiri-ophyd/tap/{interface}"]
            wait_for(partial(receives, network, receiver, interface))
            assert [each.name for each in folder.iterdir()] == ["rte"]
            end(receiver)
        # Hugepages may be those of other programs.
        assert eventually(is_clean), (list(folder.iterdir()), interfaces(network), locks(network))


@pytest.mark.root
def test_the_socket_of_a_killed_server_is_made_anew(
    on: Callable[[str], Config], networks: Networks, tmp_path: Path
) -> None:
    if "vhost" not in engine_facts()["dpdk"]["drivers"].split(", "):
        pytest.skip("needs the driver net_vhost of DPDK")
    network, path = networks(), tmp_path / "vhost.sock"
    config = on(f"net_vhost0,iface={path}")
    with process(network, config) as first:
        assert first.said == "open"
        assert "which another device or program serves" in refusal(network, config)
        first.kill()
    assert path.is_socket()
    assert refusal(network, config) == "open"
    assert not path.exists()


@pytest.mark.root
def test_processes_have_rings_of_their_own(on: Callable[[str], Config], networks: Networks) -> None:
    network = networks()
    with (
        process(network, on("net_ring0")) as first,
        process(network, on("net_ring0")) as second,
    ):
        for each in (first, second):
            assert each.said == "open"
            wait_for(partial(receives, network, each, None))


def attached(name: str, flags: int) -> int:
    """Attach to a tap, as another program."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    tunsetiff, iff_tap, iff_no_pi = 0x400454CA, 0x2, 0x1000
    request = struct.pack("16sH22x", name.encode(), iff_tap | iff_no_pi | flags)
    fcntl.ioctl(descriptor, tunsetiff, request)
    return descriptor


@pytest.mark.root
def test_a_tap_belongs_to_one_process(
    on: Callable[[str], Config], networks: Networks, taps: None
) -> None:
    network = networks()
    shared = "would share network interface 'dtap0' with another device or program"
    with process(network, on(TAP)) as first:
        assert first.said == "open"
        assert shared in refusal(network, on("net_tap1,iface=dtap0"))
        assert refusal(network, on("net_tap0,iface=dtap1")) == "open"
        # Another network has another interface of that name.
        assert refusal(networks(), on(TAP)) == "open"
        # What was refused has changed nothing.
        network.up("dtap0")
        wait_for(partial(receives, network, first, "dtap0"))
        first.kill()
        assert refusal(network, on(TAP)) == "open"


@pytest.mark.root
def test_a_tap_of_another_program_is_left_alone(
    on: Callable[[str], Config], networks: Networks, taps: None
) -> None:
    network = networks()
    iff_multi_queue = 0x100
    other = network.call(attached, "dtap0", iff_multi_queue)
    try:
        assert "would share network interface 'dtap0'" in refusal(network, on(TAP))
    finally:
        os.close(other)
    other = network.call(attached, "dtap0", 0)
    try:
        said = refusal(network, on(TAP))
        assert "a tap that has one queue only; give it another name (iface=), or remove" in said
    finally:
        os.close(other)
    assert "'lo', which is no tap" in refusal(network, on("net_tap0,iface=lo"))
    # Made for programs to come.
    network.run("ip tuntap add dev dtap0 mode tap multi_queue")
    assert refusal(network, on(TAP)) == "open"
    assert "dtap0" in interfaces(network)


def on_far(on: Callable[[str], Config], number: int = 0) -> Config:
    config = on(f"net_af_packet{number},iface=far,framesz=16384,blocksz=65536")
    for region in config["memory_regions"]:
        region["buf_size"] = 16384
    return config


@pytest.mark.root
def test_each_process_gets_all_packets_of_an_interface(
    on: Callable[[str], Config], cable: Network
) -> None:
    count = 200
    with process(cable, on_far(on)) as first, process(cable, on_far(on)) as second:
        assert (first.said, second.said) == ("open", "open")
        send(cable, "near", count)
        for each in (first, second):
            assert eventually(lambda each=each: each.received() >= count)
            assert each.received() == count


@pytest.mark.root
def test_packet_sockets_of_one_group_are_refused(
    on: Callable[[str], Config], cable: Network
) -> None:
    shared = "of network interface 'far') with another device"
    both = on_far(on)
    second = json.loads(json.dumps(both["interfaces"][0]))
    second.update(name="port1", address=second["address"].replace("packet0", "packet1"))
    del second["rx"]["flows"]
    both["interfaces"].append(second)
    assert shared in refusal(cable, both)
    # The group has the number of the process: each of these is the first of its container.
    with process(cable, on_far(on), *IN_ITS_OWN_PIDS) as first:
        assert first.said == "open"
        assert shared in refusal(cable, on_far(on), *IN_ITS_OWN_PIDS)


def without(capability: str) -> tuple[str, ...]:
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    return ("setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}")


@pytest.mark.root
@pytest.mark.parametrize(
    ("device", "capability", "use"),
    [
        (TAP, "net_admin", "a network interface of its own (net_tap)"),
        ("net_af_packet0,iface=far", "net_raw", "packet sockets (net_af_packet)"),
    ],
)
def test_a_missing_privilege_is_named(
    device: str, capability: str, use: str, on: Callable[[str], Config], cable: Network
) -> None:
    if device == TAP:
        need_taps()
    name = f"CAP_{capability.upper()}"
    expected = (
        f"interface 'port0': device '{device}' needs {name}, for {use}; grant it: "
        f"AmbientCapabilities={name} of systemd, or `setcap cap_{capability}+ep`"
    )
    assert refusal(cable, on(device), *without(capability)).startswith(expected)
    assert interfaces(cable) == {"lo", "near", "far"}
    # Root of a user namespace has it, on its own networks only.
    as_root = ("unshare", "--user", "--map-root-user")
    if subprocess.run([*as_root, "true"], check=False, capture_output=True).returncode == 0:
        assert refusal(cable, on(device), *as_root).startswith(expected)


@pytest.mark.root
def test_a_kernel_without_taps_is_named(on: Callable[[str], Config], networks: Networks) -> None:
    if not Path("/dev/net").is_dir():
        pytest.skip("needs the folder /dev/net, to hide it")
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "sh")
    assert "/dev/net/tun: No such file or directory; as root: modprobe tun" in refusal(
        networks(), on(TAP), *hidden
    )


def test_a_memif_without_its_server_is_named(on: Callable[[str], Config], tmp_path: Path) -> None:
    missing = tmp_path / "missing.sock"
    given = f"net_memif0,socket={missing}"
    with pytest.raises(InvalidParameterError) as refused:
        Engine.open(on(given))
    assert f"finds no server at socket '{missing}' (an abstract name" in str(refused.value)
    assert "Connection refused; start the other program first" in str(refused.value)
    with pytest.raises(InvalidParameterError) as refused:
        Engine.open(on(given + ",socket-abstract=no"))
    assert f"finds no server at socket '{missing}': No such file" in str(refused.value)
