"""Frames of packets that scapy builds and Wireshark dissects: VITA-49 and eCPRI."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from instrument_profiles import plan_in
from scapy.fields import BitField, IntField, LongField, ShortField
from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import Engine
from daqiri_ophyd.simulate import INSTRUMENTS

Config = dict[str, Any]
FRAMES = 4


class Vrt(Packet):
    """An IF data packet of VITA 49 with a stream identifier and a count of samples."""

    name = "VRT"
    fields_desc = [
        BitField("type", 1, 4),
        BitField("class_id", 0, 1),
        BitField("trailer", 0, 1),
        BitField("reserved", 0, 2),
        BitField("tsi", 0, 2),
        BitField("tsf", 3, 2),
        BitField("packet_count", 0, 4),
        ShortField("words", 0),
        IntField("stream", 1),
        LongField("samples", 0),
    ]


class Ecpri(Packet):
    """An IQ data message of eCPRI."""

    name = "eCPRI"
    fields_desc = [
        BitField("revision", 1, 4),
        BitField("reserved", 0, 3),
        BitField("another", 0, 1),
        BitField("type", 0, 8),
        ShortField("size", 0),
        ShortField("pc_id", 7),
        ShortField("seq_id", 0),
    ]


def vrt(number: int, samples: bytes) -> Packet:
    words = (16 + len(samples)) // 4
    return Vrt(packet_count=number % 16, words=words, samples=512 * number) / Raw(samples)


def ecpri(number: int, samples: bytes) -> Packet:
    return Ecpri(size=4 + len(samples), seq_id=number % 65536) / Raw(samples)


def framed(packet: Packet, port: int, number: int) -> Packet:
    """A frame; every third one has an option of IP, so that its payload begins later."""
    ip = IP(src="192.0.2.1", dst="192.0.2.2")
    if number % 3 == 0:
        ip.options = [IPOption_Router_Alert()]
    ethernet = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    return ethernet / ip / UDP(sport=4000, dport=port) / packet


def dissected(frames: list[Packet], port: int, protocol: str, fields: list[str], at: Path) -> Any:
    """What Wireshark says of each packet; nothing of it may be wrong."""
    capture = at / "packets.pcap"
    wrpcap(str(capture), frames)
    command = ["tshark", "-r", capture, "-d", f"udp.port=={port},{protocol}", "-T", "fields"]
    command += ["-E", "separator=,", *(f"-e{protocol}.{each}" for each in fields)]
    # The coding of the samples is the vendor's, not that of O-RAN.
    command += ["-e_ws.malformed", "--disable-protocol", "oran_fh_cus"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return [line.split(",") for line in told.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "build", "protocol", "fields", "told"),
    [
        (
            "vita49",
            vrt,
            "vrt",
            ["type", "seq", "len", "sid", "ts_frac_sample"],
            lambda n: ["1", f"{n % 16}", "260", "0x00000001", f"{512 * n}"],
        ),
        (
            "ecpri",
            ecpri,
            "ecpri",
            ["revision", "type", "size", "pcid", "seqid"],
            lambda n: ["1", "0x00", "4100", "0x0007", f"0x{n % 65536:04x}"],
        ),
    ],
)
def test_standard_packets_of_scapy_become_frames(
    name: str,
    build: Callable[[int, bytes], Packet],
    protocol: str,
    fields: list[str],
    told: Callable[[int], list[str]],
    loopback: Callable[..., Config],
    tmp_path: Path,
) -> None:
    instrument = INSTRUMENTS[name]
    per_frame = instrument.packets_per_frame
    random = np.random.default_rng(49)
    sent = random.integers(-(2**15), 2**15, (FRAMES, *instrument.shape)).astype(">i2")
    parts = sent.reshape(FRAMES * per_frame, -1)
    # From the last frame of all numbers of 16 bits on, for those that have as many.
    numbers = np.arange(len(parts)) + 65536 - per_frame
    order = np.argsort(np.arange(len(parts)) + random.random(len(parts)) * 3)
    lost = per_frame + 5
    frames = [
        framed(build(int(numbers[i]), parts[i].tobytes()), instrument.port, int(i))
        for i in order
        if i != lost
    ]
    wanted = [[*told(int(numbers[i])), ""] for i in order if i != lost]
    assert dissected(frames, instrument.port, protocol, fields, tmp_path) == wanted

    plan = plan_in(yaml.safe_load(profiles.path(name).read_text())["daqiri"]["cfg"])
    region = {"kind": "host", "num_bufs": 512, "buf_size": 8192}
    regions = [{"name": name, **region} for name in ("rx_buffers", "tx_buffers")]
    regions.append({"name": plan["memory_region"], **region, "num_bufs": 8, "buf_size": 1 << 16})
    config = loopback(regions=regions)
    rx = config["interfaces"][0]["rx"]
    rx["flows"][0] |= {"id": plan["flow_ids"][0], "match": {"udp_dst": instrument.port}}
    rx["reorder_configs"] = [plan]

    def received(engine: Engine) -> Iterator[Any]:
        (port,) = engine.ports
        made = port.reorder[plan["name"]]
        with made.frames(timeout=30.0) as taken:
            assert port.tx[0].send([bytes(frame) for frame in frames]) == len(frames)
            for _ in range(FRAMES):
                frame = next(taken)
                yield frame.data.copy(), np.flatnonzero(~frame.valid).tolist()
        counters = made.counters()
        assert counters.packets == counters.placed == len(frames)

    with Engine.open(config) as engine:
        for (data, missing), image, i in zip(received(engine), sent, range(FRAMES), strict=True):
            assert missing == ([lost % per_frame] if i == 1 else [])
            image.reshape(per_frame, -1)[missing] = 0
            np.testing.assert_array_equal(data, image)
