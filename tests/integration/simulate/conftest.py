"""Profiles of instruments, on loopback and on a free UDP port."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml
from free_ports import free_ports
from instrument_profiles import framed, plan_in
from numpy.typing import NDArray

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import Port, ReorderCounters
from daqiri_ophyd.simulate import INSTRUMENTS, Chunk, Instrument

Config = dict[str, Any]

# Longer than the time without packets after which numbers may begin anew.
PAUSE_NS = 400_000_000
# Elements in a packet of those instruments whose packets differ.
ELEMENTS = {"gige-vision": 1464, "gige-vision-mono12p": 5968}


def patient(config: Config) -> Config:
    """For busy machines: only later packets close a frame."""
    plan_in(config)["timeout_us"] = 0
    return config


@pytest.fixture(params=sorted(INSTRUMENTS))
def instrument(request: pytest.FixtureRequest) -> Instrument:
    return INSTRUMENTS[request.param]


@pytest.fixture
def udp_config(instrument: Instrument, monkeypatch: pytest.MonkeyPatch) -> tuple[Config, int]:
    """The profile on free ports of 127.0.0.1, and the first of them; also those to send from."""
    count = instrument.streams if instrument.needs_own_ports else 1
    port = free_ports("udp", count)
    text = profiles.path(instrument.name).read_text()
    for stream in reversed(range(count)):
        old, new = (f"127.0.0.1:{first + stream}\n" for first in (instrument.port, port))
        text = text.replace(old, new)
    if count < instrument.streams:
        source = free_ports("udp", instrument.streams)
        for stream in reversed(range(instrument.streams)):
            old, new = (f"udp_src: {each + stream}}}" for each in (instrument.source_port, source))
            assert old in text
            text = text.replace(old, new)
        monkeypatch.setattr(instrument, "source_port", source)
    return patient(yaml.safe_load(text)["daqiri"]["cfg"]), port


@pytest.fixture
def loopback_config(instrument: Instrument) -> Config:
    """The queue, the flows and the plan of the profile, in memory.

    The interfaces of several ports become one, whose flows match these ports.
    """
    config = yaml.safe_load(profiles.path(instrument.name).read_text())["daqiri"]["cfg"]
    receiver = config["interfaces"][0]
    if "reorder_configs" in config:
        plan = plan_in(config)
        ports = {each["name"]: each for each in config["interfaces"]}
        flows = []
        for i, path in enumerate(plan.pop("flows")):
            name, flow = path.split("/")
            port = int(ports[name]["socket_config"]["local_addr"].rpartition(":")[2])
            (found,) = [each for each in ports[name]["rx"]["flows"] if each["name"] == flow]
            flows.append({**found, "name": f"port{i}", "id": i + 1, "match": {"udp_dst": port}})
        plan["flow_ids"] = [flow["id"] for flow in flows]
        receiver["rx"] |= {"flows": flows, "reorder_configs": config.pop("reorder_configs")}
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
    """Send packets as Ethernet frames; where numbers begin anew, after a pause."""

    def send(port: Port, chunk: Chunk) -> None:
        to = instrument.port + np.arange(instrument.streams) * instrument.needs_own_ports
        made = framed(chunk, 50101, to)
        times = None
        if chunk.begins_anew:
            times = [port.now() + PAUSE_NS] * len(made)
        assert port.tx[0].send(made, launch_times=times, timeout=60.0) == len(made)

    return send


class Expected:
    """The expected result of a plan, computed packet by packet."""

    def __init__(self, instrument: Instrument, chunks: list[Chunk], fill: int = 0) -> None:
        each = instrument.packets_per_frame
        data = range(instrument.leaders, each - instrument.trailers)
        self.frames = np.concatenate([chunk.frames for chunk in chunks])
        first = np.cumsum([0, *(len(chunk.frames) for chunk in chunks)])
        order = np.concatenate(
            [c.order + at * each for c, at in zip(chunks, first[:-1], strict=True)]
        )
        self.valid = np.zeros((len(self.frames), len(data)), bool)
        self.late = self.duplicate = self.left_out = 0
        for frame, packet in zip(*np.divmod(order, each), strict=True):
            if packet not in data:
                self.left_out += 1
                continue
            there, place = self.valid[frame], packet - data.start
            if there.all():
                self.late += 1
            elif there[place]:
                self.duplicate += 1
            there[place] = True
        self.sent = len(order)
        self._instrument = instrument

    def counters(self, elements_per_packet: int = 1) -> ReorderCounters:
        complete = int(self.valid.all(axis=1).sum())
        return ReorderCounters(
            packets=self.sent,
            placed=int(self.valid.sum()),
            duplicate=self.duplicate,
            late=self.late,
            early=0,
            malformed=0,
            left_out=self.left_out,
            no_buffer=0,
            complete=complete,
            incomplete=len(self.valid) - complete,
            missing=int((~self.valid).sum()) * elements_per_packet,
            lost=0,
            skipped=0,
            untaken=0,
            restarts=0,
        )

    @property
    def slots(self) -> NDArray[np.bool_]:
        """Whether the packet of each slot is there: those of a stream follow one another."""
        count, streams = len(self.valid), self._instrument.streams
        return self.valid.reshape(count, -1, streams).transpose(0, 2, 1).reshape(count, -1)

    def filled(self, fill: NDArray[Any]) -> NDArray[Any]:
        """Return the frames with ``fill`` where packets are missing, and in gaps of images."""
        sent = self._instrument.in_packets(self.frames).copy()
        elements = sent.shape[1] // self.valid.shape[1]
        elements: int = ELEMENTS.get(self._instrument.name, elements)
        there = np.repeat(self.slots, elements, axis=1)[:, : sent.shape[1]]
        if self._instrument.name == "eiger-12bit":
            # A packet has 4096 bytes; two pixels are in three, which may be of two packets.
            groups = np.repeat(self.slots, 4096, axis=1).reshape(len(sent), -1, 3)
            there = np.repeat(groups.all(axis=2), 2, axis=1)
        sent[~there] = fill
        layout = self._instrument.layout
        if layout is None:
            return sent.reshape(self.frames.shape)
        made = np.full(self.frames.shape, fill)
        made.reshape(len(made), -1)[:, layout.pixels] = sent
        return made


@pytest.fixture
def expected(instrument: Instrument) -> Callable[[list[Chunk]], Expected]:
    def work_out(chunks: list[Chunk]) -> Expected:
        return Expected(instrument, chunks)

    return work_out
