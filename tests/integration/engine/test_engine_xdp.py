"""AF_XDP: frames that it takes from the kernel, frames that it leaves, and obstacles."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from packet_bytes import packets_of
from waiting import eventually

from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import Burst, DaqiriError, Engine, NotSupportedError, RxQueue

Config = dict[str, Any]
Build = Callable[..., Config]
Frames = Callable[..., NDArray[np.uint8]]
Receive = Callable[[RxQueue, int], list[Burst]]

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("has_af_xdp")]
TIMEOUT = 30.0
ETH_P_ALL = 0x0003
NATIVE = "af_xdp native"


@pytest.fixture
def packet(packet: Build) -> Build:
    """The configuration of the same name, with AF_XDP and isolated flows."""

    def build(*, path: str = "af_xdp", isolated: bool = True, **keys: Any) -> Config:
        config = packet(**keys)
        config["interfaces"][0]["rx"] |= {"receive_path": path, "flow_isolation": isolated}
        return config

    return build


def path_of(engine: Engine) -> str:
    return engine.snapshot().rx[0].receive_path


def listener(interface: str) -> socket.socket:
    """Count the frames that the kernel receives from an interface."""
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    rcvbuf_force = 33
    ear.setsockopt(socket.SOL_SOCKET, rcvbuf_force, 8 << 20)
    ear.bind((interface, ETH_P_ALL))
    ear.setblocking(False)
    return ear


def heard(ear: socket.socket) -> list[bytes]:
    frames = []
    while True:
        try:
            frames.append(ear.recv(65536))
        except BlockingIOError:
            return frames


def link(interface: str) -> str:
    command = ["ip", "-d", "link", "show", interface]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def send_on_each_core(frames: list[bytes]) -> None:
    """A kernel device with several queues has one for each core."""
    cores = os.sched_getaffinity(0)
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("near", 0))
            for i, frame in enumerate(frames):
                os.sched_setaffinity(0, {sorted(cores)[i % len(cores)]})
                assert wire.send(frame) == len(frame)
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize("size", [100, 8000])
def test_the_kernel_keeps_what_no_flow_matches(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, size: int
) -> None:
    mine, others = made_frames(20, size), made_frames(30, size, dst_port=5001)
    with (
        cable.call(listener, "far") as ear,
        cable.call(Engine.open, packet()) as engine,
    ):
        assert path_of(engine) == NATIVE
        receiver, sender = engine.ports
        sender.tx[0].send(others)
        sender.tx[0].send(mine)
        bursts = receive_all(receiver.rx[0], 20)
        assert packets_of(bursts) == [row.tobytes() for row in mine]
        kernel: list[bytes] = []
        assert eventually(lambda: len(kernel.extend(heard(ear)) or kernel) == 30)
        assert kernel == [row.tobytes() for row in others]
        counters = receiver.rx[0].counters()
        assert (counters.received, counters.dropped_total) == (20, 0)


def test_without_isolation_the_kernel_gets_nothing(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    with (
        cable.call(listener, "far") as ear,
        cable.call(Engine.open, packet(isolated=False)) as engine,
    ):
        receiver, sender = engine.ports
        sender.tx[0].send(made_frames(20))
        sender.tx[0].send(made_frames(30, dst_port=5001))
        flows = np.concatenate([burst.flow_ids for burst in receive_all(receiver.rx[0], 50)])
        assert sorted(flows) == [0] * 30 + [7] * 20
        assert heard(ear) == []


@pytest.mark.parametrize(
    ("path", "isolated", "found", "offload"),
    [
        ("af_xdp", True, NATIVE, "xdp"),
        ("af_xdp", False, NATIVE, "software"),
        ("af_packet", True, "af_packet", "software"),
    ],
)
def test_devices_tell_what_brings_their_packets(
    cable: Any, packet: Build, path: str, isolated: bool, found: str, offload: str
) -> None:
    with contextlib.closing(make_daq(packet(path=path, isolated=isolated), name="daq")) as daq:
        port = daq.receiver

        def told() -> tuple[Any, Any]:
            configured = port.rx.rx0.read_configuration() | port.flows.data.read_configuration()
            return (
                configured["daq_receiver_rx_rx0_receive_path"]["value"],
                configured["daq_receiver_flows_data_offload"]["value"],
            )

        assert told() == ("", "none")
        assert not daq.is_open
        cable.call(daq.open)
        assert told() == (found, offload)
        assert port.rx.rx0.dropped_malformed.get() == 0


def test_arrival_times_are_those_of_the_program(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    slack = 5_000_000
    with cable.call(Engine.open, packet(rx={"timeout_us": 200_000})) as engine:
        receiver, sender = engine.ports
        begun = receiver.now()
        sender.tx[0].send(made_frames(10))
        assert sender.tx[0].wait_sent(TIMEOUT)
        time.sleep(0.05)
        sender.tx[0].send(made_frames(10))
        assert sender.tx[0].wait_sent(TIMEOUT)
        times = np.concatenate([b.timestamps for b in receive_all(receiver.rx[0], 20)])
        ended = receiver.now()
        assert begun - slack < times.min() <= times.max() < ended + slack
        assert (np.diff(times) >= 0).all()
        assert times[10] - times[9] >= 50_000_000 - slack


def test_queues_of_the_network_card(
    networks: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    network = networks()
    queues = "numtxqueues 4 numrxqueues 4"
    network.run(f"ip link add near mtu 9000 {queues} type veth peer name far mtu 9000 {queues}")
    network.without_ipv6("near", "far")
    network.up("near", "far")
    config = packet()
    with network.call(Engine.open, config) as engine:
        for size in (100, 8000):
            sent = [row.tobytes() for row in made_frames(400, size)]
            network.call(send_on_each_core, sent)
            assert sorted(packets_of(receive_all(engine.ports[0].rx[0], 400))) == sorted(sent)


def test_the_kernel_s_own_xdp_where_the_driver_has_none(
    networks: Any, packet: Build, receive_all: Receive
) -> None:
    network = networks()
    config = packet()
    config["interfaces"].pop()
    config["interfaces"][0]["address"] = "lo"
    config["memory_regions"] = [{**config["memory_regions"][0], "buf_size": 65536, "num_bufs": 512}]
    sizes = [10, 1000, 5000, 40_000]

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            for size in sizes:
                wire.sendto(os.urandom(size), ("127.0.0.1", 5000))

    with network.call(Engine.open, config) as engine:
        assert path_of(engine) == "af_xdp generic"
        network.call(send)
        packets = packets_of(receive_all(engine.ports[0].rx[0], len(sizes)))
        assert [len(packet) - 42 for packet in packets] == sizes
    config["interfaces"][0]["rx"]["receive_path"] = "auto"
    with network.call(Engine.open, config) as engine:
        assert path_of(engine) == "af_packet"


def test_opened_again_and_again(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    for i in range(1, 11):
        with cable.call(Engine.open, packet()) as engine:
            receiver, sender = engine.ports
            sent = made_frames(i, 8000)
            sender.tx[0].send(sent)
            assert packets_of(receive_all(receiver.rx[0], i)) == [row.tobytes() for row in sent]
        assert "xdp" not in cable.call(link, "far")


def test_the_place_is_taken(cable: Any, packet: Build) -> None:
    cable.run("ethtool -K far rxvlan off")
    with cable.call(Engine.open, packet()):
        with pytest.raises(DaqiriError, match=r"attach an XDP program on 'far'.*another program"):
            cable.call(Engine.open, packet())
        with cable.call(Engine.open, packet(path="auto")) as engine:
            assert path_of(engine) == "af_packet"
    with cable.call(Engine.open, packet(path="auto")) as engine:
        assert path_of(engine) == NATIVE


def test_automatic_takes_nothing_that_others_may_need(cable: Any, packet: Build) -> None:
    to_come = packet(path="auto")
    to_come["interfaces"][0]["rx"]["dynamic_flow_capacity"] = 10
    # The last one, while the interface removes VLAN tags from frames.
    for config in (packet(path="auto", isolated=False), to_come, packet(path="auto")):
        with cable.call(Engine.open, config) as engine:
            assert path_of(engine) == "af_packet"
            assert "xdp" not in cable.call(link, "far")


def test_a_filter_is_for_sockets(cable: Any, packet: Build) -> None:
    config = packet()
    config["interfaces"][0]["rx"]["filter"] = "udp"
    with pytest.raises(DaqiriError, match=r"af_xdp does not support rx.filter \('udp'\)"):
        cable.call(Engine.open, config)
    cable.run("ethtool -K far rxvlan off")
    config["interfaces"][0]["rx"]["receive_path"] = "auto"
    with cable.call(Engine.open, config) as engine:
        assert path_of(engine) == "af_packet"


def test_flows_of_the_program_are_fixed_unless_there_is_room_for_others(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    flow = {"name": "late", "match": {"udp_dst": 6000}, "queue": "rx0"}
    with cable.call(Engine.open, packet()) as engine:
        with pytest.raises(NotSupportedError, match=r"'receiver': its XDP program receives only"):
            engine.ports[0].add_flow(flow)
    config = packet()
    config["interfaces"][0]["rx"]["dynamic_flow_capacity"] = 10
    with cable.call(Engine.open, config) as engine:
        receiver, sender = engine.ports
        added = receiver.add_flow(flow)
        sent = made_frames(10, dst_port=6000)
        sender.tx[0].send(sent)
        for burst in receive_all(receiver.rx[0], 10):
            assert (burst.flow_ids == added.id).all()


def test_a_renamed_interface(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        cable.run("ip link set far name elsewhere")
        assert receiver.link().state == "up"
        sender.tx[0].send(made_frames(10))
        receive_all(receiver.rx[0], 10)


def start(cable: Any, config: Config, folder: Path, *before: str) -> subprocess.Popen[str]:
    """Open an engine in a separate process, which then waits."""
    (folder / "config.json").write_text(json.dumps(config))
    script = """
import json, os, sys
from daqiri_ophyd.engine import DaqiriError, Engine
try:
    engine = Engine.open(json.load(open(sys.argv[1])))
except DaqiriError as error:
    print(type(error).__name__, error, flush=True)
else:
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print(engine.snapshot().rx[0].receive_path, flush=True)
    sys.stdin.read()
"""
    return cable.call(
        partial(
            subprocess.Popen,
            [*before, sys.executable, "-c", script, str(folder / "config.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )


def test_a_killed_process_leaves_no_program(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive, tmp_path: Path
) -> None:
    with start(cable, packet(), tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == NATIVE + "\n"
        assert "xdp" in cable.call(link, "far")
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)
        # The child keeps running until its input is closed.
        assert eventually(lambda: "xdp" not in cable.call(link, "far"))
        with cable.call(Engine.open, packet()) as engine:
            receiver, sender = engine.ports
            sender.tx[0].send(made_frames(10))
            receive_all(receiver.rx[0], 10)


def test_without_the_privilege(cable: Any, packet: Build, tmp_path: Path) -> None:
    caps = "-net_admin,-sys_admin"
    command = ("setpriv", f"--bounding-set={caps}", f"--inh-caps={caps}")
    with start(cable, packet(), tmp_path, *command) as process:
        said, _ = process.communicate(timeout=120.0)
    assert said.startswith("NotSupportedError")
    assert "'receiver': rx.receive_path: af_xdp" in said
    assert "Operation not permitted; AF_XDP needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF" in said
    with start(cable, packet(path="auto"), tmp_path, *command) as process:
        said, _ = process.communicate(timeout=120.0)
    assert said == "af_packet\n"


def test_an_interface_that_is_removed_is_told(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    sent = made_frames(10, 8000)
    with cable.call(Engine.open, packet()) as engine:
        receiver, sender = engine.ports
        sender.tx[0].send(sent)
        held = receive_all(receiver.rx[0], 10)
        cable.run("ip link del near")
        assert eventually(lambda: path_of(engine) == NATIVE + ", detached")
        assert receiver.rx[0].receive(0.05) is None
    assert packets_of(held) == [row.tobytes() for row in sent]


def test_the_mtu_changes(
    cable: Any, packet: Build, made_frames: Frames, receive_all: Receive
) -> None:
    for end in ("near", "far"):
        cable.run(f"ip link set {end} mtu 1500")
    with cable.call(Engine.open, packet(log_level="off")) as engine:
        receiver, sender = engine.ports
        for mtu, size in ((1500, 1472), (9000, 8972), (1500, 1472)):
            for end in ("near", "far"):
                cable.run(f"ip link set {end} mtu {mtu}")
            sent = made_frames(100, size)
            sender.tx[0].send(sent)
            assert packets_of(receive_all(receiver.rx[0], 100)) == [row.tobytes() for row in sent]
