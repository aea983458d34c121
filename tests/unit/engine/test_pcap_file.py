import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daqiri_ophyd.engine import (
    DaqiriError,
    GenericFailureError,
    InvalidParameterError,
    PcapFile,
    write_pcap,
)


def pcap_bytes(
    packets: list[bytes],
    *,
    magic: int = 0xA1B23C4D,
    order: str = "<",
    link_type: int = 1,
    cut: int | None = None,
) -> bytes:
    word = np.dtype(f"{order}u4")
    header = np.array([magic, 0, 0, 0, 262144, link_type], word)
    header[1] = np.array([2, 4], f"{order}u2").view(word)[0]
    out = [header.tobytes()]
    for i, packet in enumerate(packets):
        stored = packet if cut is None else packet[:cut]
        stamp = np.array([1_700_000_000 + i, 123_456 + i, len(stored), len(packet)], word)
        out += [stamp.tobytes(), stored]
    return b"".join(out)


PACKETS = [bytes([i]) * size for i, size in enumerate((60, 1, 0, 1500, 9000))]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanosecond", [True, False])
def test_a_file_as_arrays(tmp_path: Path, order: str, nanosecond: bool) -> None:
    magic = 0xA1B23C4D if nanosecond else 0xA1B2C3D4
    path = tmp_path / "some.pcap"
    path.write_bytes(pcap_bytes(PACKETS, magic=magic, order=order, link_type=101))
    with PcapFile(path) as pcap:
        assert len(pcap) == len(PACKETS)
        assert pcap.link_type == 101
        assert pcap.nanosecond is nanosecond
        assert pcap.torn_bytes == 0
        assert pcap.snap_length == 262144
        assert [view.tobytes() for view in pcap] == PACKETS
        assert [view.tobytes() for view in pcap[::-2]] == PACKETS[::-2]
        assert pcap[-1].tobytes() == PACKETS[-1]
        assert pcap.lengths.tolist() == pcap.wire_lengths.tolist() == [len(p) for p in PACKETS]
        unit = 1 if nanosecond else 1000
        assert pcap.timestamps.tolist() == [
            (1_700_000_000 + i) * 10**9 + (123_456 + i) * unit for i in range(len(PACKETS))
        ]
        rows = pcap.gather()
        assert rows.shape == (len(PACKETS), 9000)
        for row, packet in zip(rows, PACKETS, strict=True):
            assert row.tobytes() == packet.ljust(9000, b"\0")
        for number in (len(PACKETS), -len(PACKETS) - 1):
            with pytest.raises(IndexError, match=f"packet {number} of 5"):
                pcap[number]


def test_packets_lie_in_the_map(tmp_path: Path) -> None:
    path = tmp_path / "some.pcap"
    path.write_bytes(pcap_bytes(PACKETS))
    pcap = PcapFile(path)
    view = pcap[3]
    assert np.shares_memory(view, pcap.data)
    assert view.__array_interface__["data"] == pcap[3].__array_interface__["data"]
    for array in (view, pcap.data, pcap.offsets, pcap.lengths, pcap.timestamps):
        with pytest.raises(ValueError, match="read-only|WRITEABLE"):
            array.setflags(write=True)
    lengths = pcap.lengths
    pcap.close()
    pcap.close()
    with pytest.raises(InvalidParameterError, match="is closed"):
        pcap[0]
    with pytest.raises(InvalidParameterError, match="is closed"):
        pcap.gather()
    del pcap
    gc.collect()
    assert view.tobytes() == PACKETS[3]
    assert lengths.sum() == sum(map(len, PACKETS))


def test_cut_packets_tell_both_lengths(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap_bytes(PACKETS, cut=96))
    with PcapFile(path) as pcap:
        assert pcap.lengths.tolist() == [60, 1, 0, 96, 96]
        assert pcap.wire_lengths.tolist() == [60, 1, 0, 1500, 9000]


@pytest.mark.parametrize("torn", [1, 15, 16, 20, 8999 + 16])
def test_a_torn_record_is_left_out(tmp_path: Path, torn: int) -> None:
    whole = pcap_bytes(PACKETS)
    path = tmp_path / "torn.pcap"
    path.write_bytes(whole[: len(whole) - 9016 + torn])
    with PcapFile(path) as pcap:
        assert len(pcap) == 4
        assert pcap.torn_bytes == torn


def test_a_file_without_packets(tmp_path: Path) -> None:
    path = tmp_path / "none.pcap"
    path.write_bytes(pcap_bytes([]))
    with PcapFile(path) as pcap:
        assert len(pcap) == 0
        assert pcap.gather().shape == (0, 0)
        assert list(pcap) == list(pcap[:]) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\xa1", b"PK\x03\x04" + bytes(40), b"\x0a\x0d\x0d\x0a" + bytes(40), pcap_bytes([])[:23]],
)
def test_what_is_no_pcap_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(InvalidParameterError, match=r"other"):
        PcapFile(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(GenericFailureError, match=r"cannot read .*missing.pcap: No such file"):
        PcapFile(tmp_path / "missing.pcap")
    with pytest.raises(GenericFailureError, match="directory"):
        PcapFile(tmp_path)


def test_as_tcpdump_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "some.pcap"
    path.write_bytes(pcap_bytes([p for p in PACKETS if p]))
    run = subprocess.run(
        ["tcpdump", "-r", str(path), "-nn", "-e", "-tt", "--nano"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    with PcapFile(path) as pcap:
        stamps = [int(line.split()[0].replace(".", "")) for line in lines if line[0].isdigit()]
        assert stamps == pcap.timestamps.tolist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    packets=st.lists(st.binary(max_size=40), max_size=6),
    order=st.sampled_from("<>"),
    magic=st.sampled_from([0xA1B23C4D, 0xA1B2C3D4]),
)
def test_mutated_files_are_read_or_refused(
    tmp_path: Path, data: st.DataObject, packets: list[bytes], order: str, magic: int
) -> None:
    content = bytearray(pcap_bytes(packets, order=order, magic=magic))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path / "mutated.pcap"
    path.write_bytes(content)
    try:
        pcap = PcapFile(path)
    except DaqiriError as error:
        assert "mutated.pcap" in str(error)
        return
    ends = pcap.offsets + pcap.lengths
    assert (pcap.offsets >= 40).all()
    assert (ends <= len(content)).all()
    assert (pcap.offsets[1:] == ends[:-1] + 16).all()
    end = int(ends[-1]) if len(pcap) else 24
    assert end + pcap.torn_bytes == len(content)
    assert [view.tobytes() for view in pcap] == [
        bytes(content[o : o + n]) for o, n in zip(pcap.offsets, pcap.lengths, strict=True)
    ]
    assert pcap.gather().sum() == sum(int(view.sum()) for view in pcap)


MANY = [bytes([1 + i % 255]) * 1000 for i in range(2000)]


def test_a_file_that_is_cut_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(pcap_bytes(MANY))
    pcap = PcapFile(path)
    last = pcap[1500:]
    pcap.verify()
    os.truncate(path, 5000)
    assert pcap[0].tobytes() == MANY[0]
    # Missing parts are read as zeros.
    assert not pcap[1500].any()
    message = r"cut\.pcap was cut from 2032024 to 5000 bytes .* open it again"
    for use in (
        pcap.verify,
        pcap.gather,
        last.gather,
        last.to_columns,
        lambda: pcap.select(udp_dst=5),
        pcap[3:].verify,
    ):
        with pytest.raises(GenericFailureError, match=message):
            use()
    with PcapFile(path) as again:
        assert again.gather().shape == (4, 1000)
    # Pages replaced by zeros are not taken for file content, even if the file grows again.
    path.write_bytes(pcap_bytes(MANY))
    with pytest.raises(GenericFailureError, match=r"cut\.pcap.* open it again"):
        pcap.gather()


def test_a_file_that_is_cut_while_it_is_indexed(tmp_path: Path) -> None:
    """In a separate process: it would end with a bus error."""
    path = tmp_path / "cut.pcap"
    content = pcap_bytes(MANY)
    path.write_bytes(content)
    script = """
import faulthandler, sys
faulthandler.enable()
from daqiri_ophyd.engine import DaqiriError, PcapFile
for attempt in range(300):
    try:
        with PcapFile(sys.argv[1]) as pcap:
            pcap.gather()
    except DaqiriError:
        pass
    if attempt == 150:
        faulthandler.enable()
"""
    process = subprocess.Popen([sys.executable, "-c", script, path], stderr=subprocess.PIPE)
    while process.poll() is None:
        os.truncate(path, 100)
        path.write_bytes(content)
    assert process.stderr is not None
    assert (process.returncode, process.stderr.read()) == (0, b"")
    process.stderr.close()


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    with pytest.raises(InvalidParameterError, match="not a regular file"):
        PcapFile(pipe)


def test_an_array_of_packets_is_written_as_a_file(tmp_path):
    path = tmp_path / "made.pcap"
    packets = np.arange(12, dtype=np.uint8).reshape(3, 4)
    times = np.array([0, 999_999_999, 5_000_000_001])
    write_pcap(path, packets, times, 101)
    with PcapFile(path) as pcap:
        assert (pcap.link_type, pcap.nanosecond) == (101, True)
        assert pcap.timestamps.tolist() == times.tolist()
        assert [bytes(pcap[i]) for i in range(3)] == [row.tobytes() for row in packets]


def test_what_is_no_array_of_packets_is_not_written(tmp_path):
    for packets, times in ((np.zeros((2, 4)), np.arange(2)), (np.zeros((2, 4), "u1"), [1])):
        with pytest.raises(InvalidParameterError, match=r"uint8 of shape \(n, length\)"):
            write_pcap(tmp_path / "made.pcap", packets, np.asarray(times), 1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_whose_name_is_not_utf_8_is_read(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"d\xff.pcap")
    write_pcap(path, np.zeros((3, 60), np.uint8), np.arange(3), link_type=1)
    with PcapFile(path) as pcap:
        assert len(pcap) == 3
    path.write_bytes(b"not a capture, but long enough for a header")
    with pytest.raises(InvalidParameterError, match=r"d\\udcff\.pcap: not a pcap file"):
        PcapFile(path)
