"""Profiles of instruments, on loopback and on a free UDP port."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml
from free_ports import free_port
from numpy.typing import NDArray

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import Port, ReorderCounters, ethernet
from daqiri_ophyd.simulate import INSTRUMENTS, Chunk, Instrument

Config = dict[str, Any]


def patient(config: Config) -> Config:
    """For busy machines: only later packets close a frame."""
    (plan,) = config["interfaces"][0]["rx"]["reorder_configs"]
    plan["timeout_us"] = 0
    return config


@pytest.fixture(params=sorted(INSTRUMENTS))
def instrument(request: pytest.FixtureRequest) -> Instrument:
    return INSTRUMENTS[request.param]


@pytest.fixture
def udp_config(instrument: Instrument) -> tuple[Config, int]:
    """The profile on a free port of 127.0.0.1, and the port."""
    port = free_port("udp")
    text = profiles.path(instrument.name).read_text()
    text = text.replace(f"127.0.0.1:{instrument.port}", f"127.0.0.1:{port}")
    return patient(yaml.safe_load(text)["daqiri"]["cfg"]), port


@pytest.fixture
def loopback_config(instrument: Instrument) -> Config:
    """The queue, the flows and the plan of the profile, in memory."""
    config = yaml.safe_load(profiles.path(instrument.name).read_text())["daqiri"]["cfg"]
    receiver = config["interfaces"][0]
    del receiver["socket_config"]
    if not any(region["name"] == "tx_buffers" for region in config["memory_regions"]):
        rx = config["memory_regions"][0]
        config["memory_regions"].append({**rx, "name": "tx_buffers", "num_bufs": 512})
    queue = {**receiver["rx"]["queues"][0], "name": "tx_q0", "memory_regions": ["tx_buffers"]}
    del queue["timeout_us"]
    receiver |= {"name": "port0", "address": "loopback", "tx": {"queues": [queue]}}
    return patient(
        config | {"stream_type": "raw", "loopback": "sw", "interfaces": [receiver]},
    )


@pytest.fixture
def send(instrument: Instrument) -> Callable[[Port, Chunk], None]:
    """Send packets as Ethernet frames."""

    def send(port: Port, chunk: Chunk) -> None:
        made = ethernet.udp_frames(
            chunk.packets,
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=50101 + chunk.streams,
            dst_port=instrument.port,
        )
        assert port.tx[0].send(made, timeout=60.0) == len(made)

    return send


class Expected:
    """The expected result of a plan, computed packet by packet."""

    def __init__(self, instrument: Instrument, chunks: list[Chunk], fill: int = 0) -> None:
        each = instrument.packets_per_frame
        self.frames = np.concatenate([chunk.frames for chunk in chunks])
        first = np.cumsum([0, *(len(chunk.frames) for chunk in chunks)])
        order = np.concatenate(
            [c.order + at * each for c, at in zip(chunks, first[:-1], strict=True)]
        )
        self.valid = np.zeros(len(self.frames) * each, bool)
        self.late = self.duplicate = 0
        for packet in order.tolist():
            frame = packet // each
            if self.valid[frame * each : (frame + 1) * each].all():
                self.late += 1
            elif self.valid[packet]:
                self.duplicate += 1
            self.valid[packet] = True
        self.valid = self.valid.reshape(-1, each)
        self.sent = len(order)

    def counters(self, elements_per_packet: int = 1) -> ReorderCounters:
        complete = int(self.valid.all(axis=1).sum())
        return ReorderCounters(
            packets=self.sent,
            placed=int(self.valid.sum()),
            duplicate=self.duplicate,
            late=self.late,
            early=0,
            malformed=0,
            no_buffer=0,
            complete=complete,
            incomplete=len(self.valid) - complete,
            missing=int((~self.valid).sum()) * elements_per_packet,
            lost=0,
            skipped=0,
            untaken=0,
            restarts=0,
        )

    def filled(self, instrument: Instrument, fill: NDArray[Any]) -> NDArray[Any]:
        """Return the frames with ``fill`` where packets are missing."""
        made = self.frames.reshape(len(self.frames), instrument.streams, -1)
        packets = instrument.packets_per_frame // instrument.streams
        parts = made.reshape(len(made), instrument.streams, packets, -1).copy()
        there = self.valid.reshape(len(made), packets, instrument.streams).transpose(0, 2, 1)
        parts[~there] = fill
        return parts.reshape(self.frames.shape)


@pytest.fixture
def expected(instrument: Instrument) -> Callable[[list[Chunk]], Expected]:
    def work_out(chunks: list[Chunk]) -> Expected:
        return Expected(instrument, chunks)

    return work_out
