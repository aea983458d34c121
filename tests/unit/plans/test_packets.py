import numpy as np
import pytest

from daqiri_ophyd.plans import packet_source
from daqiri_ophyd.replay import NumberedPackets, PacketArray, ReplayError, schedule

ETHERNET, RAW_IP = 1, 101


def test_a_source_is_taken_as_it_is():
    source = PacketArray(np.zeros((2, 60), np.uint8))
    assert packet_source(source, ETHERNET) is source


@pytest.mark.parametrize(
    ("timing", "interval"), [({}, 0), ({"interval": 2e-6}, 2000), ({"rate": 1e6}, 1000)]
)
def test_numbered_packets(timing, interval):
    source = packet_source({"count": 3, "size": 100, **timing}, ETHERNET)
    assert isinstance(source, NumberedPackets)
    assert schedule(source).tolist() == [0, interval, 2 * interval]
    assert next(source.chunks()).lengths.tolist() == [142] * 3


def test_socket_ports_send_payloads():
    source = packet_source({"count": 3, "size": 100}, RAW_IP)
    assert next(source.chunks()).lengths.tolist() == [100] * 3


def test_addresses():
    source = packet_source(
        {"count": 1, "size": 8, "udp_dst": 0x1234, "ip_dst": "10.0.0.9"}, ETHERNET
    )
    frame = next(source.chunks()).data
    assert frame[36:38].tolist() == [0x12, 0x34]
    assert frame[30:34].tolist() == [10, 0, 0, 9]


@pytest.mark.parametrize(
    ("packets", "text"),
    [
        ({"count": 3}, "lacks size"),
        ({}, "lacks count and size"),
        ({"count": 3, "size": 9, "colour": "red"}, "unknown keys colour"),
        ({"count": 3, "size": 9, "rate": 0}, "rate is 0"),
        ({"count": 3, "size": 9, "rate": 5, "interval": 1}, "both interval and rate"),
        ({"files": ["a.pcap"], "rate": 5}, "unknown keys rate"),
    ],
)
def test_descriptions_that_are_not_clear(packets, text):
    with pytest.raises(ValueError, match=text):
        packet_source(packets, ETHERNET)


def test_files(tmp_path):
    with pytest.raises(ReplayError, match="speed is -1"):
        packet_source({"files": str(tmp_path / "a.pcap"), "speed": -1}, ETHERNET)
