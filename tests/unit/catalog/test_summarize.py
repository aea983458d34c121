import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.catalog import NotPcapError, summarize
from daqiri_ophyd.documents import FileSummary, SidecarError, sidecar_path

MICRO, NANO = 0xA1B2C3D4, 0xA1B23C4D


def pcap(
    records: list[tuple[int, int, int, int | None]],
    *,
    order: str = "<",
    magic: int = NANO,
    snap_length: int = 262144,
) -> bytes:
    """A file of records (seconds, fraction, captured bytes, bytes on the wire)."""
    out = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap_length, 1)]
    for sec, frac, captured, wire in records:
        out.append(struct.pack(order + "IIII", sec, frac, captured, wire or captured))
        out.append(bytes([0xA5]) * captured)
    return b"".join(out)


def summary_of(path: Path, records, unit: int) -> FileSummary:
    if not records:
        return FileSummary(path, 0, 0)
    times = [sec * 10**9 + frac * unit for sec, frac, *_ in records]
    total = sum(wire or captured for *_, captured, wire in records)
    return FileSummary(path, len(records), total, times[0], times[-1])


FORMATS = [(order, magic) for order in "<>" for magic in (MICRO, NANO)]


@pytest.mark.parametrize(("order", "magic"), FORMATS)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 100, 200_000])
def test_packets_of_one_length(tmp_path, order, magic, count):
    records = [(1_700_000_000 + i, i % 1000, 64, None) for i in range(count)]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(records, order=order, magic=magic))
    assert summarize(path) == summary_of(path, records, 1 if magic == NANO else 1000)


lengths = st.lists(
    st.tuples(st.sampled_from([0, 1, 60, 61, 1514]), st.integers(1, 60)), max_size=12
).map(lambda runs: [length for length, times in runs for _ in range(times)])


@given(lengths, st.sampled_from(FORMATS), st.data())
def test_runs_of_lengths_and_a_torn_end(tmp_path_factory, sizes, form, data):
    order, magic = form
    records = [
        (data.draw(st.integers(1, 2**32 - 1)) if i in (0, len(sizes) - 1) else i, i, n, n + i % 3)
        for i, n in enumerate(sizes)
    ]
    path = tmp_path_factory.mktemp("pcap") / "a.pcap"
    whole = pcap(records, order=order, magic=magic)
    unit = 1 if magic == NANO else 1000
    path.write_bytes(whole)
    assert summarize(path) == summary_of(path, records, unit)
    if records:
        torn = data.draw(st.integers(1, 16 + sizes[-1]), label="torn bytes")
        path.write_bytes(whole[:-torn])
        assert summarize(path) == summary_of(path, records[:-1], unit)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(tmp_path_factory, body):
    path = tmp_path_factory.mktemp("pcap") / "a.pcap"
    path.write_bytes(pcap([]) + body)
    try:
        summary = summarize(path)
    except NotPcapError:
        return
    assert summary.packets <= len(body) // 16


def test_wire_length_counts(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([(1, 0, 96, 9000)] * 40))
    assert (summarize(path).packets, summarize(path).bytes) == (40, 360_000)


def test_tcpdump_reads_the_same(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([(1_700_000_000, i, 60 + i % 2, None) for i in range(50)]))
    done = subprocess.run(
        ["tcpdump", "-nn", "-tt", "--nano", "-r", path], capture_output=True, text=True, timeout=30
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("\t")]
    summary = summarize(path)
    assert len(lines) == summary.packets == 50
    assert lines[-1].startswith("1700000000.000000049") and summary.t_last_ns % 10**9 == 49


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a pcap file: 0 bytes"),
        (b"\xd4\xc3", "not a pcap file: 2 bytes"),
        (b"hello world, this is text", "begins with 0x6c6c6568, accepted are 0xa1b2c3d4"),
        (pcap([])[:20], "20 bytes, and its header alone has 24"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "libpcap reports: unknown file format"),
        (pcap([(0, 0, 8, None)]) + b"\xff" * 40, "record at byte 48 claims 4294967295 bytes"),
    ],
)
def test_not_pcap(tmp_path, content, message):
    path = tmp_path / "a.pcap"
    path.write_bytes(content)
    with pytest.raises(NotPcapError, match=message) as raised:
        summarize(path)
    assert str(path) in str(raised.value)


def test_long_packets_of_a_file_that_announces_them(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([(1, 2, 300_000, None)], snap_length=400_000))
    assert summarize(path).bytes == 300_000


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        summarize(tmp_path / "a.pcap")
    sidecar_path(tmp_path / "a.pcap").write_text("{}")
    with pytest.raises(FileNotFoundError):
        summarize(tmp_path / "a.pcap")


@pytest.mark.parametrize("count", [0, 3])
def test_a_raw_file_is_summarized_by_its_index(tmp_path, count):
    path = tmp_path / "a.raw"
    path.write_bytes(bytes(100 * count))
    with pytest.raises(NotPcapError, match=r"a\.raw cannot be read without its index"):
        summarize(path)
    columns = [("offset", "<u8"), ("length", "<u4"), ("flow", "<u4"), ("timestamp", "<u8")]
    index = np.zeros(count, columns)
    index["length"] = 100
    index["timestamp"] = 7 + np.arange(count)
    np.save(tmp_path / "a.raw.npy", index)
    wanted = FileSummary(path, 3, 300, 7, 9) if count else FileSummary(path, 0, 0)
    assert summarize(path) == wanted
    np.save(tmp_path / "a.raw.npy", np.zeros(3))
    with pytest.raises(NotPcapError):
        summarize(path)


def test_metadata_file_comes_first(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([(1, 0, 60, None)]))
    said = {"packets": 1, "bytes": 60, "t_first_ns": 10**9, "t_last_ns": 10**9, "dropped": 12}
    sidecar_path(path).write_text(json.dumps(said))
    assert summarize(path) == FileSummary(path, **said)
    sidecar_path(path).write_text("{}")
    with pytest.raises(SidecarError, match="packets is missing"):
        summarize(path)


def test_no_descriptor_is_left(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([(1, 0, 60, None)] * 1000))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        summarize(path)
    assert len(os.listdir("/proc/self/fd")) == before
