"""Recordings of engine ``dpdk`` have what tshark sees on the same interface at the same time."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpdk_devices import on_device
from live_captures import captured_live
from networks import Network
from packet_bytes import put_on_the_wire

from daqiri_ophyd.engine import Engine, PcapFile, ethernet

from .conftest import loopback_config

pytestmark = pytest.mark.root
MTU = 1500
TAG = bytes.fromhex("81000005")
# Beginnings of IPv4 and UDP headers that contradict their frame, by position.
DAMAGES = [
    (14, "f5"),  # version 15
    (14, "40"),  # a header of no bytes
    (16, "ffff"),  # longer than the frame
    (16, "0001"),  # shorter than its header
    (24, "0000"),  # checksum
    (38, "0000"),  # a datagram of no bytes
    (38, "ffff"),
]


def frames_of_all_kinds() -> list[bytes]:
    """Frames from 14 bytes to those of a full MTU: good, tagged, damaged, cut and unknown.

    Some come twice, and all out of order. Fragments and tags of 0x88a8 are left out: the kernel
    changes them before DPDK's driver gets them.
    """
    chance = random.Random(7)

    def udp(size: int) -> bytes:
        made = ethernet.udp_frames(
            np.frombuffer(chance.randbytes(size), np.uint8)[None],
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=4000,
            dst_port=5000,
        )
        return made[0].tobytes()

    frames = [udp(size) for size in (18, 100, 1000, MTU - 28)]
    frames += [udp(chance.randrange(1, MTU - 28)) for _ in range(80)]
    frames += [f[:12] + TAG * tags + f[12:] for f in frames[:20] for tags in (1, 2)][2:]
    for at, wrong in DAMAGES:
        good = udp(200)
        frames.append(good[:at] + bytes.fromhex(wrong) + good[at + len(wrong) // 2 :])
    frames += [udp(300)[:length] for length in (14, 15, 20, 33, 34, 41, 42, 43, 59, 60, 341)]
    for eth_type in ("0806", "86dd", "88cc", "88b5", "ffff", "0000", "002e"):
        frames.append(bytes(6 * [0xFF]) + bytes(6) + bytes.fromhex(eth_type) + bytes(50))
    frames = [frame for frame in frames if len(frame) <= MTU + 14]
    frames += chance.sample(frames, 40)
    chance.shuffle(frames)
    return frames


@pytest.mark.parametrize("device", ["net_af_packet", "net_tap"])
def test_a_recording_has_what_tshark_sees(
    card: Callable[..., Network], has_dpdk: None, tmp_path: Path, device: str
) -> None:
    network = card(mtu=MTU)
    sender, interface, address = "near", "far", "net_af_packet0,iface=far,framecnt=1024"
    if device == "net_tap":
        network.add_tap("dtap0")
        network.run("ip link set dtap0 up txqueuelen 10000")
        sender, interface, address = "dtap0", "dtap0", "net_tap0,iface=dtap0"
    sent = frames_of_all_kinds()
    config: dict[str, Any] = on_device(loopback_config(), address)
    with network.call(Engine.open, config) as engine:
        (port,) = engine.ports
        seen_file = tmp_path / "seen.pcap"
        with (
            captured_live(network, interface, len(sent), seen_file),
            port.rx[0].record(tmp_path, "run", max_packets=len(sent)) as recorder,
        ):
            before = port.now()
            network.call(put_on_the_wire, sender, sent)
            assert recorder.wait(60)
            after = port.now()
        (file,) = recorder.files()
        counters = port.rx[0].counters()
        assert (counters.received, counters.dropped_total) == (len(sent), 0)
        assert counters.received_bytes == sum(map(len, sent))
    with PcapFile(file.path) as recorded, PcapFile(seen_file) as seen:
        assert [bytes(packet) for packet in recorded] == sent
        assert [bytes(packet) for packet in seen] == sent
        times = recorded.timestamps
        assert before <= times[0]
        assert times[-1] <= after
        assert (np.diff(times.astype(np.int64)) >= 0).all()
        # Packets are read after they have arrived.
        assert (times >= seen.timestamps).all()
