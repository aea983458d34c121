"""Engines of each transport, whose instrument sends numbered packets and images."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from free_ports import free_port
from networks import Network
from numpy.typing import NDArray
from ophyd import Component, Device, DeviceStatus, Kind, Signal
from ophyd.device import Staged
from ophyd.sim import SynAxis
from waiting import wait_for

from daqiri_ophyd.devices import Capture, EngineSignal, FrameDetector, make_daq
from daqiri_ophyd.documents import is_master
from daqiri_ophyd.engine import ethernet

PACKETS, SIZE = 4, 64  # of a trigger, bytes of a packet
SLOTS, SHAPE = 8, (8, 32)  # packets of an image


def payloads(trigger: int) -> NDArray[np.uint8]:
    """The packets of a trigger, which are numbered throughout."""
    found = np.zeros((PACKETS, SIZE), np.uint8)
    numbers = trigger * PACKETS + np.arange(PACKETS)
    found[:, :4] = numbers.astype(">u4").view(np.uint8).reshape(-1, 4)
    return found


def image(trigger: int) -> NDArray[np.uint16]:
    """The image of a trigger."""
    return np.random.default_rng(trigger).integers(0, 1 << 16, SHAPE, np.uint16)


def image_payloads(trigger: int) -> NDArray[np.uint8]:
    """The packets of an image."""
    numbers = (trigger * SLOTS + np.arange(SLOTS)).astype(">u4").view(np.uint8).reshape(-1, 4)
    return np.hstack([numbers, image(trigger).view(np.uint8).reshape(SLOTS, -1)])


# --- Configurations


def region(name: str, num_bufs: int, buf_size: int) -> dict[str, Any]:
    return {"name": name, "kind": "host", "num_bufs": num_bufs, "buf_size": buf_size}


def queue(name: str, number: int, memory: str, **keys: Any) -> dict[str, Any]:
    return {
        "name": name, "id": number, "cpu_core": "any", "batch_size": 8, "memory_regions": [memory],
    } | keys  # fmt: skip


def rx_queue(name: str, number: int = 0) -> dict[str, Any]:
    return queue(name, number, "rx_buffers", timeout_us=500)


def flow(name: str, number: int, queue: int, **match: Any) -> dict[str, Any]:
    action = {"type": "queue", "id": queue}
    return {"name": name, "id": number, "match": match, "action": action}


IMAGES = {
    "name": "images",
    "reorder_type": "cpu",
    "memory_region": "frames",
    "flow_ids": [2],
    "payload_base": "udp_payload",
    "payload_byte_offset": 4,
    "timeout_us": 60_000_000,
    "frame": {"shape": list(SHAPE), "dtype": "uint16"},
    "method": {
        "seq_packets_per_batch": {
            "sequence_number": {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"},
            "packets_per_batch": SLOTS,
        }
    },
}


def configuration(interfaces: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    regions = [("rx_buffers", 2048, 2048), ("tx_buffers", 512, 2048), ("frames", 64, 4096)]
    return {
        "version": 1, "master_core": 0, "stream_type": "raw", "log_level": "error",
        "memory_regions": [region(*one) for one in regions], "interfaces": interfaces,
    } | keys  # fmt: skip


def raw_receiver() -> dict[str, Any]:
    """Queues of packets to port 5000, and of images to port 5001."""
    return {
        "queues": [rx_queue("rx_q0"), rx_queue("rx_q1", 1)],
        "flows": [flow("packets", 1, 0, udp_dst=5000), flow("pixels", 2, 1, udp_dst=5001)],
        "reorder_configs": [IMAGES],
    }


def sender(core: str = "any") -> dict[str, Any]:
    return {"queues": [queue("tx_q0", 0, "tx_buffers", cpu_core=core)]}


def loopback() -> dict[str, Any]:
    port = {"name": "port0", "address": "loopback", "rx": raw_receiver(), "tx": sender()}
    return configuration([port], loopback="sw")


def packet() -> dict[str, Any]:
    """``far`` receives what ``near`` sends, from one core: a cable keeps the order of each core."""
    core = str(min(os.sched_getaffinity(0)))
    receiver: dict[str, Any] = {"name": "receiver", "address": "far", "rx": raw_receiver()}
    receiver["rx"]["flow_isolation"] = True
    return configuration([receiver, {"name": "sender", "address": "near", "tx": sender(core)}])


def sockets(protocol: Any, server: dict[str, Any], names: tuple[str, str]) -> list[dict[str, Any]]:
    """A server, and a client that sends to it."""
    address = f"{protocol}://127.0.0.1:{free_port(protocol)}"
    listens = {"mode": "server", "local_addr": address}
    connects = {"mode": "client", "remote_addr": address}
    if protocol == "tcp":
        connects["retry_connect_s"] = 1
    host = {"address": "127.0.0.1"}
    return [
        {"name": names[0], "socket_config": listens, "rx": server, **host},
        {"name": names[1], "socket_config": connects, "tx": sender(), **host},
    ]


def udp() -> dict[str, Any]:
    packets: dict[str, Any] = {"queues": [rx_queue("rx_q0")]}
    pixels = {"queues": [rx_queue("rx_q1")], "flows": [flow("pixels", 2, 0)]}
    interfaces = [
        *sockets("udp", packets, ("receiver", "sender")),
        *sockets("udp", {**pixels, "reorder_configs": [IMAGES]}, ("camera", "sensor")),
    ]
    return configuration(interfaces, stream_type="socket")


def tcp() -> dict[str, Any]:
    """A stream has no packets of a detector, and so no images."""
    packets: dict[str, Any] = {"queues": [rx_queue("rx_q0")]}
    interfaces = sockets("tcp", packets, ("receiver", "sender"))
    return configuration(interfaces, stream_type="socket")


CONFIGURATIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "loopback": loopback,
    "udp": udp,
    "tcp": tcp,
    "packet": packet,
}


class Instrument(Device):
    """Sends the packets and the image of each trigger; in a scan, triggered after the detectors.

    At a trigger in `held_at` it sends half of them, and waits for `release`.
    """

    number = Component(Signal, value=-1, kind=Kind.hinted)
    signal = Component(Signal, value=0.0, kind=Kind.hinted)

    def __init__(self, bench: "Bench") -> None:
        super().__init__(name="instrument")
        self._bench = bench
        self.next = 0
        self.held_at: set[int] = set()
        self.is_held = False

    def trigger(self) -> DeviceStatus:
        number = self.next
        self.is_held = number in self.held_at
        self._send(slice(None, PACKETS // 2) if self.is_held else slice(None))
        self.number.put(number)
        self.signal.put(self._bench.peak())
        self.next += 1
        status = DeviceStatus(self)
        status.set_finished()
        return status

    def release(self) -> None:
        """Send the other half of the latest trigger."""
        assert self.is_held
        self.next -= 1
        self._send(slice(PACKETS // 2, None))
        self.next += 1
        self.is_held = False

    def send(self, count: int = 1) -> None:
        """Send what belongs to the next triggers, in a fly scan."""
        for _ in range(count):
            self._send(slice(None))
            self.next += 1

    def _send(self, part: slice) -> None:
        first = part.start or 0
        self._bench.send_packets(payloads(self.next)[part])
        if self._bench.frames is not None:
            slots = slice(2 * first, None if part.stop is None else 2 * part.stop)
            self._bench.send_pixels(image_payloads(self.next)[slots])


class Bench:
    """A transport: its engine, capture and frame detector, the instrument, and two motors."""

    def __init__(self, name: str, directory: Path, network: Network | None) -> None:
        self.name = name
        self.directory = directory
        self.daq: Any = make_daq(CONFIGURATIONS[name](), "daq", directory=directory)
        self.daq.open() if network is None else network.call(self.daq.open)
        raw = name in ("loopback", "packet")
        self._receiver = "port0" if name == "loopback" else "receiver"
        self._sender = "port0" if name == "loopback" else "sender"
        port = self.daq.port_device(self._receiver)
        self.capture: Capture = port.rx.rx_q0.capture
        self.frames: FrameDetector | None = None
        if name != "tcp":
            self.frames = (port if raw else self.daq.camera).frames.images
        self._ports = (5000, 5001) if raw else (None, None)
        self.x, self.y = SynAxis(name="x"), SynAxis(name="y")
        self.instrument = Instrument(self)
        self._stream = self.daq.rx_queue(self._receiver, "rx_q0") if name == "tcp" else None
        signals = [one for device in self.recorded for one in device._signals.values()]
        self._kinds = {signal: signal.kind for signal in signals}
        settings = [signal for signal in signals if isinstance(signal, EngineSignal)]
        self._settings = {signal: signal.get() for signal in settings}
        self._placed_before = 0
        self.reset()

    @property
    def is_staged(self) -> bool:
        """Whether a test that failed left it staged."""
        return any(one._staged != Staged.no for one in (self.daq, *self.recorded))

    def reset(self) -> None:
        """Be as new for the next test."""
        for signal, kind in self._kinds.items():
            signal.kind = kind
        for signal, value in self._settings.items():
            signal.put(value)
        self.x.set(0.0)
        self.y.set(0.0)
        self.instrument.held_at.clear()
        self.instrument.is_held = False
        for detector in self.recorded:
            detector.stage_sigs.clear()
        self.capture.reductions = {}
        self.capture.num_packets.put(PACKETS)
        self.before = set(self.data_files())

    @property
    def recorded(self) -> list[Any]:
        """The detectors that record."""
        return [self.capture] if self.frames is None else [self.capture, self.frames]

    @property
    def detectors(self) -> list[Any]:
        """All detectors of a step scan; the instrument is triggered last."""
        return [*self.recorded, self.instrument]

    def peak(self) -> float:
        """A peak at 0.4, which scans can follow."""
        return max(0.0, 1.0 - abs(self.x.position - 0.4))

    def data_files(self) -> Iterator[Path]:
        """All data files below the directory of captures."""
        for pattern in ("*.pcap", "*.h5"):
            found = self.directory.rglob(pattern)
            yield from (path for path in found if not is_master(path))

    def send_packets(self, packets: NDArray[np.uint8]) -> None:
        """Send packets to the capture."""
        if self._stream is None:
            self._send(self._sender, packets, self._ports[0])
            return
        # A stream passes on what has arrived: one message at a time is a packet.
        for message in packets:
            before = self._stream.counters().received_bytes
            self._send(self._sender, message[np.newaxis], None)
            wait_for(partial(self._has_arrived, before + len(message)))

    def _has_arrived(self, size: int) -> bool:
        return self._stream.counters().received_bytes >= size

    def send_pixels(self, packets: NDArray[np.uint8]) -> None:
        """Send packets to the frame detector."""
        self._placed_before = self._placed()
        self._send("sensor" if self.name == "udp" else self._sender, packets, self._ports[1])

    def _send(self, port: str, packets: NDArray[np.uint8], udp_port: int | None) -> None:
        queue = self.daq.tx_queue(port, "tx_q0")
        if udp_port is not None:
            addresses = {"src_mac": "02:00:00:00:00:01", "dst_mac": "02:00:00:00:00:02"}
            addresses |= {"src_ip": "192.0.2.1", "dst_ip": "192.0.2.2"}
            packets = ethernet.udp_frames(packets, src_port=4000, dst_port=udp_port, **addresses)
        assert queue.send(packets) == len(packets)
        assert queue.wait_sent(30.0)

    def _placed(self) -> int:
        """Packets that are in images."""
        if self.frames is None:
            return 0
        plan = self.daq.port(self.frames.port_name).reorder[self.frames.member_name]
        return plan.counters().placed

    def half_has_arrived(self) -> bool:
        """Whether half of what belongs to a trigger has arrived, and waits for the rest."""
        if not self.instrument.is_held:
            return False
        progress = self.capture.progress
        if progress is None or progress.packets % PACKETS != PACKETS // 2:
            return False
        return self.frames is None or self._placed() == self._placed_before + SLOTS // 2


@contextmanager
def cabled() -> Iterator[Network]:
    """A network namespace with a veth pair, ``near`` and ``far``, that only tests send on."""
    network = Network()
    try:
        network.run("ip link add near mtu 9000 type veth peer name far mtu 9000")
        network.without_ipv6("near", "far")
        network.up("near", "far")
        yield network
    finally:
        network.close()


@contextmanager
def opened(directory: Path) -> Iterator[Callable[[str], Bench]]:
    """Make each bench once; they are closed at the end."""
    made: dict[str, Bench] = {}
    with ExitStack() as stack:
        networks: dict[str, Network] = {}

        def make(name: str) -> Bench:
            if name in made and made[name].is_staged:
                made.pop(name).daq.close()
            if name == "packet" and not networks:
                networks[name] = stack.enter_context(cabled())
            if name not in made:
                made[name] = Bench(name, directory / name, networks.get(name))
                stack.callback(made[name].daq.close)
            made[name].reset()
            return made[name]

        yield make
