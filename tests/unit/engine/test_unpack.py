"""Captures that are not plain classic pcap: compressed, pcapng, damaged."""

import gzip
import re
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

from daqiri_ophyd.cli._pcap_file import examine, repair
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


def interface(link_type: int = 1, snap_length: int = 262144) -> bytes:
    resolution = struct.pack("<HHBxxxHH", 9, 1, 9, 0, 0)
    return block(1, struct.pack("<HHI", link_type, 0, snap_length) + resolution)


def pcapng(packets: list[bytes] = PACKETS, link_types: tuple[int, ...] = (1,)) -> bytes:
    """Section header, an interface per link type in ns, packets on the last one."""
    out = [block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))]
    out += [interface(kind) for kind in link_types]
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


HEAD = len(pcapng([]))
# Offset after each packet's block.
ENDS = [len(pcapng(PACKETS[:n])) for n in range(len(PACKETS) + 1)]


@pytest.mark.parametrize(
    "size", [ENDS[-1] - 500, ENDS[-1] - 1, ENDS[-2] + 1, ENDS[-2] + 8, ENDS[5] + 11, HEAD + 3]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_torn_pcapng_file_is_read_up_to_the_tear(tmp_path: Path, pack, size: int) -> None:
    path, copy = tmp_path / "cut.pcapng", tmp_path / "copy.pcap"
    path.write_bytes(pack(pcapng()[:size]))
    count = sum(end <= size for end in ENDS) - 1
    with PcapFile(path) as pcap:
        assert [view.tobytes() for view in pcap] == PACKETS[:count]
        assert pcap.timestamps.tolist() == TIMES[:count]
        assert (pcap.whole_bytes, pcap.torn_bytes) == (ENDS[count], size - ENDS[count])
    found = examine(path)
    torn = f"the block at byte {ENDS[count]} is torn: only {size - ENDS[count]:,} bytes of it exist"
    assert (found.code, found.problems, found.needs_copy) == (1, [torn], True)
    with pytest.raises(ValueError, match="give --output to repair a copy"):
        repair(path, None)
    assert repair(path, copy) == [f"{count:,} whole packets written to {copy}", f"left out: {torn}"]
    assert examine(copy).problems == []
    with PcapFile(copy) as pcap:
        assert [view.tobytes() for view in pcap] == PACKETS[:count]
        assert pcap.timestamps.tolist() == TIMES[:count]


def test_a_whole_pcapng_file_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "whole.pcapng"
    path.write_bytes(pcapng())
    with PcapFile(path) as pcap:
        assert (pcap.whole_bytes, pcap.torn_bytes) == (ENDS[-1], 0)
    assert examine(path).problems == []


@pytest.mark.parametrize("zeros", [1, 8, 5000, 100_003])
def test_zeros_that_a_crash_left_after_pcapng_blocks(tmp_path: Path, zeros: int) -> None:
    path = tmp_path / "zeros.pcapng"
    path.write_bytes(pcapng() + bytes(zeros))
    with PcapFile(path) as pcap:
        assert [view.tobytes() for view in pcap] == PACKETS
        assert (pcap.whole_bytes, pcap.torn_bytes) == (ENDS[-1], zeros)


def test_a_torn_pcapng_file_of_the_other_byte_order(tmp_path: Path) -> None:
    def big(kind: int, body: bytes) -> bytes:
        size = 12 + len(body)
        return struct.pack(">II", kind, size) + body + struct.pack(">I", size)

    path = tmp_path / "big.pcapng"
    packet = big(6, struct.pack(">IIIII", 0, 0, 1000, 60, 60) + bytes(60))
    head = big(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
    head += big(1, struct.pack(">HHI", 1, 0, 0))
    path.write_bytes(head + 10 * packet + packet[:-7])
    with PcapFile(path) as pcap:
        assert len(pcap) == 10
        assert (pcap.whole_bytes, pcap.torn_bytes) == (len(head) + 10 * 92, 85)


def test_pcapng_damaged_before_its_end(tmp_path: Path) -> None:
    path, saved = tmp_path / "damaged.pcapng", tmp_path / "saved.pcap"
    content = bytearray(pcapng())
    content[ENDS[100] + 4 : ENDS[100] + 8] = struct.pack("<I", 3)
    path.write_bytes(content)
    with pytest.raises(
        InvalidParameterError,
        match=r"damaged.pcapng: libpcap reports: .*near byte \d+, after 100 packets.*"
        r"editcap -F nsecpcap IN OUT",
    ):
        PcapFile(path)
    subprocess.run(["editcap", "-F", "nsecpcap", path, saved], capture_output=True)
    with PcapFile(saved) as pcap:
        assert [view.tobytes() for view in pcap] == PACKETS[:100]


def remedy_of(path: Path) -> list[list[str]]:
    """The commands of the message about a file."""
    with pytest.raises(InvalidParameterError, match="libpcap reports: ") as raised:
        PcapFile(path)
    text = str(raised.value).split("packets); ")[1]
    return [command.split() for command in re.findall(r"(?:tshark|editcap) [^,(]*", text)]


def test_the_remedy_for_several_link_types_works(tmp_path: Path) -> None:
    path = tmp_path / "two.pcapng"
    one = struct.pack("<IIIII", 1, 0, 0, 60, 60) + bytes(60)
    path.write_bytes(pcapng() + interface(113) + block(6, one))
    commands = remedy_of(path)
    names = {"IN": path, "ONE.pcapng": tmp_path / "one.pcapng", "OUT": tmp_path / "out.pcap"}
    assert [command[0] for command in commands] == ["tshark", "editcap"]
    for command in commands:
        full = [str(names.get(word, word)) for word in command]
        subprocess.run(full, check=True, capture_output=True)
    assert_reads(names["OUT"], ())


def test_the_remedy_for_several_snap_lengths_works(tmp_path: Path) -> None:
    path, out = tmp_path / "two.pcapng", tmp_path / "out.pcap"
    more = struct.pack("<IIIII", 1, TIMES[-1] >> 32, TIMES[-1] & 0xFFFFFFFF, 60, 60) + bytes(60)
    path.write_bytes(pcapng() + interface(1, 100) + block(6, more))
    (command,) = remedy_of(path)
    names = {"IN": path, "OUT": out}
    full = [str(names.get(word, word)) for word in command]
    subprocess.run(full, check=True, capture_output=True)
    with PcapFile(out) as pcap:
        assert [view.tobytes() for view in pcap] == [*PACKETS, bytes(60)]


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
