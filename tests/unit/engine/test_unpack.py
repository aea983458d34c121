"""Captures that are not plain classic pcap: compressed, pcapng, damaged."""

import gzip
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daqiri_ophyd.engine import (
    DaqiriError,
    GenericFailureError,
    InvalidParameterError,
    NotSupportedError,
    PcapFile,
)

RNG = np.random.default_rng(7)
PACKETS = [RNG.bytes(int(n)) for n in RNG.integers(60, 1500, 300)]
TIMES = [1_700_000_000_123_456_789 + 1_000_003 * i for i in range(len(PACKETS))]


def classic(packets: list[bytes] = PACKETS, link_type: int = 1) -> bytes:
    out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link_type)]
    for time, packet in zip(TIMES, packets, strict=False):
        out += [struct.pack("<IIII", *divmod(time, 10**9), len(packet), len(packet)), packet]
    return b"".join(out)


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = len(body) + 12
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def pcapng(packets: list[bytes] = PACKETS, link_types: tuple[int, ...] = (1,)) -> bytes:
    """Section header, an interface per link type in ns, packets on the last one."""
    out = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    resolution = struct.pack("<HHBxxxHH", 9, 1, 9, 0, 0)
    out += [block(1, struct.pack("<HHI", kind, 0, 262144) + resolution) for kind in link_types]
    for time, packet in zip(TIMES, packets, strict=False):
        size = len(packet)
        header = struct.pack(
            "<IIIII", len(link_types) - 1, time >> 32, time & 0xFFFFFFFF, size, size
        )
        out.append(block(6, header + packet))
    return b"".join(out)


def assert_reads(path: Path, wrapping: tuple[str, ...]) -> None:
    with PcapFile(path) as pcap:
        assert pcap.wrapping == wrapping
        assert pcap.link_type == 1
        assert pcap.nanosecond
        assert pcap.timestamps.tolist() == TIMES
        assert [view.tobytes() for view in pcap] == PACKETS


@pytest.mark.parametrize(
    ("pack", "wrapping"),
    [
        (bytes, ()),
        (gzip.compress, ("gzip",)),
        (lambda b: gzip.compress(b[:5000]) + gzip.compress(b[5000:]), ("gzip",)),
        (zstandard.compress, ("zstd",)),
        (lambda b: zstandard.compress(b[:5000]) + zstandard.compress(b[5000:]), ("zstd",)),
    ],
)
@pytest.mark.parametrize("inside", [classic, pcapng])
def test_every_wrapping(tmp_path: Path, pack, wrapping, inside) -> None:
    path = tmp_path / "some.pcap"
    path.write_bytes(pack(inside()))
    assert_reads(path, wrapping + (("pcapng",) if inside is pcapng else ()))


def test_nothing_is_left_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    path = tmp_path / "some.pcap.gz"
    path.write_bytes(gzip.compress(pcapng()))
    with PcapFile(path) as pcap:
        assert list(folder.iterdir()) == []
        assert len(pcap) == len(PACKETS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidParameterError):
        PcapFile(path)
    assert list(folder.iterdir()) == []


def test_a_file_that_wireshark_wrote(tmp_path: Path) -> None:
    own, other = tmp_path / "own.pcap", tmp_path / "other.pcapng"
    own.write_bytes(classic())
    subprocess.run(["editcap", "-F", "pcapng", own, other], check=True, capture_output=True)
    assert_reads(other, ("pcapng",))
    assert shutil.which("zstd") is None or not subprocess.run(["zstd", "-q", own]).returncode
    assert_reads(tmp_path / "own.pcap.zst", ("zstd",))


def test_without_zstandard_everything_else_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)  # what import takes for "not there"
    packed, plain = tmp_path / "a.pcap.zst", tmp_path / "a.pcap.gz"
    packed.write_bytes(zstandard.compress(classic()))
    plain.write_bytes(gzip.compress(classic()))
    with pytest.raises(NotSupportedError, match=r"a\.pcap\.zst .* package zstandard .* zstd -d"):
        PcapFile(packed)
    assert_reads(plain, ("gzip",))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_compression_names_file_and_place(tmp_path: Path, pack, damage: str) -> None:
    packed = bytearray(pack(classic()))
    if damage == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
    path = tmp_path / "damaged"
    path.write_bytes(packed)
    with pytest.raises(InvalidParameterError, match=r"damaged: damaged \w+ data near byte [\d,]+"):
        PcapFile(path)


def test_a_pcapng_file_cut_within_a_packet(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcapng"
    path.write_bytes(pcapng()[:-500])
    with pytest.raises(
        InvalidParameterError,
        match=r"cut.pcapng: libpcap reports: .*near byte \d+, after \d+ packets.*editcap",
    ):
        PcapFile(path)


def test_a_pcapng_file_of_several_link_types(tmp_path: Path) -> None:
    path = tmp_path / "two.pcapng"
    path.write_bytes(pcapng(link_types=(101, 1)))
    with pytest.raises(InvalidParameterError, match=r"libpcap reports: .*type 1 .*tshark"):
        PcapFile(path)


def test_no_room_to_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit that a process may set on its own files answers as a full disk does.
    script = (
        "import resource, sys; from daqiri_ophyd.engine import PcapFile\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "PcapFile(sys.argv[1])"
    )
    import sys

    path = tmp_path / "big.pcap.gz"
    path.write_bytes(gzip.compress(classic()))
    run = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert "does not fit in" in run.stderr
    assert "set TMPDIR" in run.stderr


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(["pcapng", "gzip", "zstd"]))
def test_mutated_files_are_read_or_refused(tmp_path: Path, data: st.DataObject, kind: str) -> None:
    make = {
        "pcapng": lambda: pcapng(PACKETS[:5]),
        "gzip": lambda: gzip.compress(classic(PACKETS[:5])),
        "zstd": lambda: zstandard.compress(classic(PACKETS[:5])),
    }
    content = bytearray(make[kind]())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "mutated"
    path.write_bytes(content)
    try:
        with PcapFile(path) as pcap:
            assert len(list(pcap)) == len(pcap)
    except DaqiriError as error:
        assert "mutated" in str(error)
        assert not isinstance(error, GenericFailureError)
