"""What Python makes of any bytes: a configuration, a pcap file and its repair, metadata, frames.

pytest runs the saved inputs of the C++ targets and mutations of them. A fuzzer goes on from there,
with the extra ``fuzz``: ``python tests/fuzz/test_python_targets.py pcap native/fuzz/corpus/pcap``.
"""

import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daqiri_ophyd.cli import _pcap_file
from daqiri_ophyd.documents import SidecarError, read_sidecar, sidecar_path
from daqiri_ophyd.engine import (
    ConfigError,
    DaqiriError,
    InvalidParameterError,
    PcapFile,
    ethernet,
    load_config,
)

CORPUS = Path(__file__).parents[2] / "native" / "fuzz" / "corpus"
SCRATCH = tempfile.TemporaryDirectory(prefix="daqiri-fuzz-")


def scratch(name: str, data: bytes) -> Path:
    path = Path(SCRATCH.name) / name
    path.write_bytes(data)
    return path


def config(data: bytes) -> None:
    """A configuration is refused with its problems, or comes back the same from YAML and dict."""
    path = scratch("a.yaml", data)
    try:
        read = load_config(path)
    except ConfigError as error:
        assert str(error)
        assert error.report.errors
        return
    assert load_config(read.to_yaml()) == read
    assert load_config(read.to_dict()) == read


def pcap(data: bytes) -> None:
    """A file is rejected, or its packets are in it one after the other, and payloads in them."""
    path = scratch("a.pcap", data)
    try:
        file = PcapFile(path)
    except DaqiriError as error:
        assert str(path) in str(error)
        return
    with file:
        ends = file.offsets + file.lengths
        assert (file.offsets[1:] == ends[:-1] + 16).all()
        assert (ends[-1] if len(file) else 24) + file.torn_bytes == len(data)
        if file.link_type in (1, 101):
            at, sizes = ethernet.udp_payload(file)
            inside = (at >= file.offsets) & (at + sizes <= ends)
            assert inside[sizes >= 0].all()
        # Lengths are limited to that of the file, so that a matrix of them is small enough.
        if len(file) * len(data) < 1 << 22:
            rows = file.gather()
            assert rows.shape == (len(file), max(file.lengths, default=0))
            assert all(
                np.array_equal(row[:size], packet)
                for row, size, packet in zip(rows, file.lengths, file[:], strict=True)
            )


def repair(data: bytes) -> None:
    """
    A file is repaired to its first whole records, in place or as a copy, or left as it is.

    The last byte says whether there are metadata, which agree or not.
    """
    with tempfile.TemporaryDirectory(dir=SCRATCH.name) as folder:
        path, copy = Path(folder) / "a.pcap", Path(folder) / "copy.pcap"
        path.write_bytes(data)
        if data and data[-1] % 4 == 0:
            sidecar_path(path).write_text(json.dumps(METADATA | {"packets": data[-1]}))
        before = _pcap_file.examine(path)
        assert before.code == (2 if before.unreadable else 1 if before.problems else 0)
        try:
            done = _pcap_file.repair(path, None)
        except ValueError as error:
            assert path.read_bytes() == data
            if before.unreadable:
                return
            assert "give --output" in str(error)
            done = _pcap_file.repair(path, copy)
            path = copy
        assert bool(done) == bool(before.problems)
        check_repaired(path, data, before)
        assert _pcap_file.repair(path, None) == []


def check_repaired(path: Path, data: bytes, before: _pcap_file.Examination) -> None:
    after = _pcap_file.examine(path)
    assert after.problems == []
    assert before.pcap is not None and after.pcap is not None
    assert after.pcap.torn_bytes == 0
    for name in ("offsets", "lengths", "wire_lengths", "timestamps"):
        assert np.array_equal(getattr(after.pcap, name), getattr(before.pcap, name))
    assert np.array_equal(after.pcap.data, before.pcap.data[: after.pcap.data.size])
    if not before.pcap.wrapping:
        assert path.read_bytes() == data[: before.whole_bytes]


def sidecar(data: bytes) -> None:
    """Metadata are refused with the file's name, or read."""
    path = scratch("b.pcap.json", data)
    try:
        assert read_sidecar(path.with_suffix("")) is not None
    except SidecarError as error:
        assert str(path) in str(error)


def steering(data: bytes) -> None:
    """A payload is within its frame."""
    if not data:
        return
    rows = np.frombuffer(data, np.uint8)[None, :]
    for link_type in (1, 101):
        at, sizes = ethernet.udp_payload(rows, link_type=link_type)
        assert sizes[0] == -1 or 0 <= at[0] <= at[0] + sizes[0] <= len(data)
    with pytest.raises(InvalidParameterError):
        ethernet.udp_payload(rows, link_type=data[0] + 400)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (config, pcap, repair, sidecar, steering)
}
METADATA = {"packets": 3, "bytes": 300, "t_first_ns": 1, "t_last_ns": 2, "dropped": 0}


def saved(name: str) -> list[bytes]:
    if name == "sidecar":
        return [json.dumps(METADATA).encode(), b"{}", b"[", b"\xff", b'{"packets": 1e999}']
    name = {"repair": "append"}.get(name, name)
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def mutated(data: bytes, chance: random.Random) -> bytes:
    mutable = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(mutable))
        mutable[at : at + chance.choice((0, 1, 4))] = chance.randbytes(chance.choice((0, 1, 4)))
    return bytes(mutable)


@pytest.mark.parametrize("name", TARGETS)
def test_saved_inputs_and_mutations_of_them(name: str) -> None:
    inputs = saved(name)
    assert inputs
    chance = random.Random(name)
    for data in inputs + [mutated(chance.choice(inputs), chance) for _ in range(300)]:
        TARGETS[name](data)


if __name__ == "__main__":
    import atheris

    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, atheris.instrument_func(target))
    atheris.Fuzz()
