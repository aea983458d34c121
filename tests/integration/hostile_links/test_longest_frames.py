"""The longest frames that an interface may receive: a full MTU, with two VLAN tags."""

import fcntl
import logging
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest
from waiting import wait_for

from daqiri_ophyd.engine import Engine

Config = dict[str, Any]
pytestmark = pytest.mark.root
MTU = 1500
ADDRESSES = bytes.fromhex("020000000002020000000001")
TAGS = bytes.fromhex("88a8000a 8100000b 88b5")
FRAME = ADDRESSES + TAGS + bytes(range(250)) * 6


def make_tap() -> int:
    """Make the device `tap0`; what is written to its descriptor is received."""
    tunsetiff, iff_tap, iff_no_pi = 0x400454CA, 0x0002, 0x1000
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(device, tunsetiff, struct.pack("16sH22x", b"tap0", iff_tap | iff_no_pi))
    return device


def configuration(buffer_size: int, path: str) -> Config:
    queue = {
        "name": "rx0",
        "id": 0,
        "cpu_core": "any",
        "batch_size": 1,
        "memory_regions": ["buffers"],
    }
    region = {"name": "buffers", "kind": "host", "num_bufs": 64, "buf_size": buffer_size}
    rx = {"receive_path": path, "queues": [queue]}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "memory_regions": [region],
        # Another name for each: the log leaves out repeated lines.
        "interfaces": [{"name": f"{path}_{buffer_size}", "address": "tap0", "rx": rx}],
    }


@pytest.mark.parametrize("path", ["af_packet", "af_xdp"])
@pytest.mark.parametrize("buffer_size", [len(FRAME) - 1, len(FRAME)])
def test_buffers_have_space_for_two_tags_or_opening_warns(
    networks: Callable[[], Any],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    path: str,
    buffer_size: int,
) -> None:
    if path == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    assert len(FRAME) == MTU + 22
    network = networks()
    device = network.call(make_tap)
    try:
        network.run("ip link set tap0 up")
        caplog.set_level(logging.WARNING)
        with network.call(Engine.open, configuration(buffer_size, path)) as engine:
            queue = engine.ports[0].rx[0]
            assert os.write(device, FRAME) == len(FRAME)
            if buffer_size == len(FRAME):
                burst = queue.receive(30.0)
                assert burst is not None
                with burst:
                    assert [view.tobytes() for view in burst] == [FRAME]
            wait_for(lambda: queue.counters().received == 1)
            truncated = queue.counters().dropped["truncated"]
    finally:
        os.close(device)
    warned = [text for text in caplog.messages if "dropped as truncated" in text]
    if buffer_size == len(FRAME):
        assert (truncated, warned) == (0, [])
    else:
        assert truncated == 1
        assert "packets of 1521 bytes, and frames of 'tap0' have up to 1522" in warned[0]


def test_a_device_of_dpdk_cuts_no_frame(networks: Callable[[], Any], has_dpdk: None) -> None:
    """Its driver delivers the beginnings of frames that are longer than its ring's, once the MTU
    was raised: the engine counts them. Of the outer tag, it does not tell the type."""
    network = networks()
    device = network.call(make_tap)
    config = configuration(2048, "af_packet")
    config["engine"] = "dpdk"
    (port,) = config["interfaces"]
    port["address"] = "net_af_packet0,iface=tap0"
    del port["rx"]["receive_path"]
    try:
        network.run("ip link set tap0 up")
        with network.call(Engine.open, config) as engine:
            queue = engine.ports[0].rx[0]
            assert os.write(device, FRAME) == len(FRAME)
            burst = queue.receive(30.0)
            assert burst is not None
            with burst:
                [view] = burst
                assert view.tobytes() == ADDRESSES + b"\x81\x00" + FRAME[14:]
            network.run("ip link set tap0 mtu 9000")
            for size in (1981, 1982, 1983, 9014):
                assert os.write(device, ADDRESSES + bytes(size - 12)) == size
            wait_for(lambda: queue.counters().received == 5)
            counters = queue.counters()
    finally:
        os.close(device)
    assert (counters.dropped["truncated"], counters.dropped_total) == (3, 3)
