import numpy as np
import pytest

from daqiri_ophyd.engine import PcapFile
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


def written(path, count):
    payloads = np.arange(count, dtype=np.uint8)[:, np.newaxis].repeat(20, axis=1)
    rows = np.zeros((count, 16 + 20), np.uint8)
    rows[:, 4] = np.arange(count)  # ns
    rows[:, 8] = rows[:, 12] = 20
    rows[:, 16:] = payloads
    header = np.array([0xA1B23C4D, 2 | 4 << 16, 0, 0, 262_144, 1], "<u4")
    times = np.zeros((count, 2), "<u4")
    times[:, 0] = np.arange(count)  # s
    rows[:, :8] = times.view(np.uint8).reshape(count, 8)
    path.write_bytes(header.tobytes() + rows.tobytes())
    return path


def first_bytes(source) -> list[int]:
    return [
        int(chunk.data[offset]) for chunk in source.chunks() for offset in chunk.offsets.tolist()
    ]


def test_files_by_name_by_path_and_in_a_description(tmp_path):
    a, b = written(tmp_path / "a.pcap", 3), written(tmp_path / "b.pcap", 2)
    for packets, expected in (
        (str(a), [0, 1, 2]),
        (a, [0, 1, 2]),
        ([a, str(b)], [0, 1, 2, 0, 1]),
        ({"files": a}, [0, 1, 2]),
        ({"files": [str(a), b]}, [0, 1, 2, 0, 1]),
    ):
        assert first_bytes(packet_source(packets, ETHERNET)) == expected


def test_a_description_has_the_options_of_a_replay(tmp_path):
    file = str(written(tmp_path / "a.pcap", 10))
    source = packet_source(
        {
            "files": [file],
            "between": [1.0, 7.5],
            "packet_range": [2, 9],
            "loops": 2.0,
            "loop_gap": 4,
            "max_gap": 0.5,
            "speed": 2,
        },
        ETHERNET,
    )
    assert first_bytes(source) == [2, 3, 4, 5, 6, 7] * 2
    steps = np.diff(schedule(source)).tolist()
    assert steps == [*[250_000_000] * 5, 2_000_000_000, *[250_000_000] * 5]
    source = packet_source({"files": file, "rewrite": {"mac_dst": "09:00:00:00:00:01"}}, ETHERNET)
    assert first_bytes(source) == [9] * 10


def test_packets_of_a_file_and_arrays(tmp_path):
    with PcapFile(written(tmp_path / "a.pcap", 6)) as pcap:
        assert first_bytes(packet_source(pcap[2:4], ETHERNET)) == [2, 3]
        assert first_bytes(packet_source([pcap[4:], pcap[:1]], ETHERNET)) == [4, 5, 0]
        description = {"files": pcap[1:], "packet_range": [1, None]}
        assert first_bytes(packet_source(description, ETHERNET)) == [2, 3, 4, 5]
    rows = np.arange(60, dtype=np.uint8).reshape(3, 20)
    assert first_bytes(packet_source(rows, RAW_IP)) == [0, 20, 40]


@pytest.mark.parametrize(
    ("packets", "text"),
    [
        (5.0, "packets is a float; accepted are pcap files, packets of a PcapFile"),
        (None, "packets is a NoneType"),
        ([np.zeros(5, np.uint8)], r"packets has a ndarray; .* an array of uint8, \(n, length\)"),
        ([b"abc"], "packets has a bytes"),
        ({"files": 3}, "packets is a int"),
    ],
)
def test_what_is_no_packets_is_named(packets, text):
    with pytest.raises(TypeError, match=text):
        packet_source(packets, ETHERNET)


def test_an_array_of_another_shape_is_named():
    with pytest.raises(
        ValueError, match=r"packets is float64 of shape \(2, 5\); accepted is uint8"
    ):
        packet_source(np.zeros((2, 5)), ETHERNET)


def test_whole_numbers_may_be_written_as_floats():
    """A form, or JSON, has 1e3."""
    source = packet_source({"count": 1e3, "size": 64.0, "udp_dst": 5001.0}, ETHERNET)
    assert next(source.chunks()).lengths.tolist() == [64 + 42] * 1000


@pytest.mark.parametrize(
    ("packets", "text"),
    [
        ({"count": 1.5, "size": 64}, "count is 1.5; accepted is a whole number"),
        ({"count": float("nan"), "size": 64}, "count is nan; accepted is a whole number"),
        ({"count": "10", "size": 64}, "count is '10'; accepted is a number"),
        ({"count": 10, "size": True}, "size is True; accepted is a number"),
        ({"count": 10, "size": 64, "rate": "fast"}, "rate is 'fast'; accepted is a number"),
        ({"files": "a.pcap", "loops": 1.5}, "loops is 1.5; accepted is a whole number"),
        ({"files": "a.pcap", "between": [0, "1"]}, "between is '1'; accepted is a number"),
        ({"files": "a.pcap", "between": 3.0}, "between is 3.0; accepted are two values"),
        ({"files": "a.pcap", "speed": "2"}, "speed is '2'; accepted is a number"),
    ],
)
def test_values_that_are_no_numbers_are_refused_at_once(packets, text):
    with pytest.raises(ValueError, match=text):
        packet_source(packets, ETHERNET)
