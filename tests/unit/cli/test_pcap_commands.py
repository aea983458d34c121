"""``daqiri-ophyd pcap info``, ``check`` and ``repair``, against capinfos and tshark."""

import fcntl
import gzip
import json
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daqiri_ophyd.cli import _main
from daqiri_ophyd.documents import read_sidecar, sidecar_path
from daqiri_ophyd.engine import PcapFile, ethernet

COUNT = 50
T0 = 1_700_000_000_000_000_000
STEP = 1_000_003
SIZE = 16 + 42 + 100
END = 24 + COUNT * SIZE


def write(path: Path, *, magic: int = 0xA1B23C4D, sidecar: bool = False) -> Path:
    rows = ethernet.udp_frames(
        np.arange(COUNT * 100, dtype=np.uint32).astype(np.uint8).reshape(COUNT, 100),
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="10.0.0.1",
        dst_ip="10.0.0.2",
        src_port=4000,
        dst_port=np.where(np.arange(COUNT) < 30, 5500, 5501),
    )
    unit = 1 if magic == 0xA1B23C4D else 1000
    out = [struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 262144, 1)]
    for i, row in enumerate(rows):
        seconds, rest = divmod(T0 + i * STEP, 10**9)
        out += [struct.pack("<IIII", seconds, rest // unit, len(row), len(row)), row.tobytes()]
    path.write_bytes(b"".join(out))
    if sidecar:
        said = {
            "packets": COUNT,
            "bytes": COUNT * 142,
            "t_first_ns": T0,
            "t_last_ns": T0 + (COUNT - 1) * STEP,
            "dropped": 3,
            "dropped_by_reason": {"ring_full": 3},
            "link_type": 1,
            "nanosecond": unit == 1,
            "queue": "port0/q",
            "clock": "CLOCK_REALTIME",
            "torn_bytes": 0,
        }
        sidecar_path(path).write_text(json.dumps(said))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = _main._run(["pcap", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Any]:
    code, out, _ = run(capsys, *arguments, "--json")
    return code, json.loads(out)


def capinfos(path: Path) -> dict[str, str]:
    done = subprocess.run(
        ["capinfos", "-M", "-T", "-m", "-Q", "-c", "-d", "-u", "-E", "-a", "-e", "-S", path],
        capture_output=True,
        text=True,
        check=True,
    )
    names, values = (line.split(",") for line in done.stdout.strip().splitlines())
    return {n.strip('"'): v.strip('"') for n, v in zip(names, values, strict=True)}


def test_info_agrees_with_capinfos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.pcap", sidecar=True)
    code, found = run_json(capsys, "info", path)
    assert code == 0
    found = found[str(path)]
    other = capinfos(path)
    assert found["packets"] == int(other["Number of packets"]) == COUNT
    assert found["bytes"] == int(other["Data size (bytes)"])
    assert found["duration_s"] == pytest.approx(float(other["Capture duration (seconds)"]))
    # capinfos prints seconds, with as many digits as the file has.
    assert found["t_first_ns"] == T0 == int(other["Start time"].replace(".", ""))
    assert found["t_last_ns"] == int(other["End time"].replace(".", ""))
    assert found["packets_per_s"] == pytest.approx(COUNT / (STEP * (COUNT - 1) / 1e9))
    assert (found["link_type"], found["nanosecond"], found["in_order"]) == (1, True, True)
    assert found["metadata"]["dropped_by_reason"] == {"ring_full": 3}
    common = {"protocol": "UDP", "src": "10.0.0.1", "src_port": 4000, "dst": "10.0.0.2"}
    assert found["flows"] == [
        {**common, "dst_port": 5500, "packets": 30, "bytes": 30 * 142},
        {**common, "dst_port": 5501, "packets": 20, "bytes": 20 * 142},
    ]


def test_info_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.pcap", sidecar=True)
    path.write_bytes(path.read_bytes()[:-10])
    code, text, _ = run(capsys, "info", path, "--flows", "1")
    assert code == 0
    assert "2023-11-14T22:13:20.000000000Z" in text
    assert "1 (Ethernet)" in text
    assert f"{SIZE - 10} bytes at the end" in text
    assert "3 (ring_full 3)" in text
    assert "10.0.0.2 5500" in text
    assert "10.0.0.2 5501" not in text


def test_info_of_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "a.pcap.gz"
    packed.write_bytes(gzip.compress(write(tmp_path / "a.pcap").read_bytes()))
    empty, usb = tmp_path / "empty.pcap", tmp_path / "usb.pcap"
    empty.write_bytes((tmp_path / "a.pcap").read_bytes()[:24])
    usb.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 189))
    code, found = run_json(capsys, "info", packed, empty, usb)
    assert code == 0
    assert found[str(packed)]["wrapping"] == ["gzip"]
    assert found[str(packed)]["packets"] == COUNT
    assert found[str(empty)]["t_first_ns"] == -1
    assert found[str(empty)]["flows"] == []
    assert found[str(usb)]["flows"] is None
    assert run(capsys, "info", packed, empty, usb)[0] == 0
    code, _, error = run(capsys, "info", tmp_path / "missing.pcap")
    assert code == 1
    assert "missing.pcap: No such file" in error


def test_sound_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        write(tmp_path / "a.pcap", sidecar=True),
        write(tmp_path / "b.pcap", magic=0xA1B2C3D4, sidecar=True),
        write(tmp_path / "c.pcap"),
    ]
    before = [path.stat() for path in paths]
    assert run(capsys, "check", *paths)[0] == 0
    code, out, _ = run(capsys, "repair", *paths)
    assert code == 0
    assert out.count("sound, not changed") == 3
    assert [p.stat().st_mtime_ns for p in paths] == [s.st_mtime_ns for s in before]
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"\x01", f"byte {END} is torn: only 1 bytes"),
        (struct.pack("<IIII", 1, 2, 500, 500) + b"x" * 499, f"byte {END} is torn: only 515 bytes"),
        (bytes(70_000), f"70,000 bytes of zeros from byte {END} on"),
    ],
)
@pytest.mark.parametrize("sidecar", [True, False])
def test_a_torn_file_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tail: bytes, said: str, sidecar: bool
) -> None:
    path = write(tmp_path / "a.pcap", sidecar=sidecar)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    code, out, error = run(capsys, "check", path)
    assert code == 1
    assert said in error
    code, found = run_json(capsys, "check", path)
    assert (code, found[str(path)]["state"]) == (1, "repairable")
    code, out, _ = run(capsys, "repair", path)
    assert code == 0
    assert said in out
    assert path.read_bytes() == whole
    note = json.loads((tmp_path / "a.pcap.repair.jsonl").read_text())
    assert (note["cut_bytes"], note["cut_at_byte"]) == (len(tail), END)
    assert note["packets_kept"] == COUNT
    if sidecar:
        assert json.loads(sidecar_path(path).read_text())["torn_bytes"] == len(tail)
        corrected = read_sidecar(path)
        assert corrected is not None
        assert (corrected.packets, corrected.dropped) == (COUNT, 3)
    assert run(capsys, "check", path)[0] == 0
    assert int(capinfos(path)["Number of packets"]) == COUNT
    subprocess.run(["tshark", "-n", "-r", path], capture_output=True, check=True)


def test_metadata_that_disagrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.pcap", sidecar=True)
    content = json.loads(sidecar_path(path).read_text()) | {"packets": 49, "queue": "other"}
    sidecar_path(path).write_text(json.dumps(content))
    stat = path.stat()
    code, _, error = run(capsys, "check", path)
    assert code == 1
    assert f"has packets = 49, the file has {COUNT}" in error
    assert run(capsys, "repair", path)[0] == 0
    assert json.loads(sidecar_path(path).read_text()) == content | {"packets": COUNT}
    assert path.stat().st_mtime_ns == stat.st_mtime_ns

    sidecar_path(path).write_text("{")
    assert run(capsys, "check", path)[0] == 1
    code, out, _ = run(capsys, "repair", path)
    assert code == 0
    assert "a.pcap.json.unusable" in out
    assert not sidecar_path(path).exists()
    assert run(capsys, "check", path)[0] == 0


def test_damage_is_repaired_in_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.pcap", sidecar=True)
    content = bytearray(path.read_bytes())
    at = 24 + 10 * SIZE
    content[at + 8 : at + 12] = b"\xff" * 4
    path.write_bytes(content)
    code, _, error = run(capsys, "check", path)
    assert code == 1
    assert f"the record at byte {at} claims 4294967295 bytes" in error
    code, _, error = run(capsys, "repair", path)
    assert code == 1
    assert "give --output" in error
    assert path.read_bytes() == content
    copy = tmp_path / "copy.pcap"
    code, out, _ = run(capsys, "repair", path, "--output", copy)
    assert code == 0
    assert "10 whole packets written" in out
    assert copy.read_bytes() == content[:at]
    corrected = read_sidecar(copy)
    assert corrected is not None
    assert (corrected.packets, corrected.dropped) == (10, 3)
    assert run(capsys, "check", copy)[0] == 0
    code, _, error = run(capsys, "repair", path, "--output", copy)
    assert code == 1
    assert "File exists" in error
    assert run(capsys, "repair", path, copy, "--output", tmp_path / "other.pcap")[0] == 2


def test_a_torn_file_within_gzip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = write(tmp_path / "a.pcap").read_bytes()
    packed = tmp_path / "a.pcap.gz"
    packed.write_bytes(gzip.compress(whole + b"torn"))
    assert run(capsys, "check", packed)[0] == 1
    code, _, error = run(capsys, "repair", packed)
    assert code == 1
    assert "is gzip; give --output" in error
    assert run(capsys, "repair", packed, "--output", tmp_path / "b.pcap")[0] == 0
    assert (tmp_path / "b.pcap").read_bytes() == whole


def test_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = write(tmp_path / "a.pcap")
    other = tmp_path / "notes.txt"
    other.write_text("hello world, this is text")
    for path in (other, tmp_path / "missing.pcap"):
        code, _, error = run(capsys, "check", sound, path)
        assert code == 2
        assert path.name in error
        assert run(capsys, "repair", path)[0] == 1
    code, found = run_json(capsys, "check", sound, other)
    assert code == 2
    assert [f["state"] for f in found.values()] == ["sound", "unreadable"]
    code, found = run_json(capsys, "repair", sound, other)
    assert code == 1
    assert (found["done"], list(found["failed"])) == ({str(sound): []}, [str(other)])


def test_a_file_that_is_being_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.pcap")
    torn = path.read_bytes() + b"torn"
    path.write_bytes(torn)
    with path.open("rb") as recorder:
        fcntl.flock(recorder, fcntl.LOCK_EX)
        code, out, _ = run(capsys, "check", path)
        assert code == 0
        assert "a recorder is writing it" in out
        code, _, error = run(capsys, "repair", path)
        assert code == 1
        assert "is being written by a recorder" in error
    assert path.read_bytes() == torn
    assert run(capsys, "repair", path)[0] == 0
    with PcapFile(path) as pcap:
        assert (len(pcap), pcap.torn_bytes) == (COUNT, 0)


def test_one_bad_file_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path / "good.pcap", sidecar=True)
    deep = write(tmp_path / "deep.pcap")
    sidecar_path(deep).write_text("[" * 100_000)
    pipe = tmp_path / "pipe.pcap"
    os.mkfifo(pipe)
    code, found = run_json(capsys, "check", good, deep, pipe)
    assert code == 2
    assert [found[str(f)]["state"] for f in (good, deep, pipe)] == [
        "sound",
        "repairable",
        "unreadable",
    ]
    code, found = run_json(capsys, "info", good, deep, pipe)
    assert code == 1
    assert list(found) == [str(good)]
    code, found = run_json(capsys, "repair", good, deep, pipe)
    assert code == 1
    assert list(found["failed"]) == [str(pipe)]
    assert sidecar_path(deep).with_name("deep.pcap.json.unusable").exists()


def test_a_count_that_is_none_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.pcap", sidecar=True)
    content = json.loads(sidecar_path(path).read_text()) | {"torn_bytes": "x"}
    sidecar_path(path).write_text(json.dumps(content))
    path.write_bytes(path.read_bytes()[:-10])
    assert run(capsys, "repair", path)[0] == 0
    assert json.loads(sidecar_path(path).read_text())["torn_bytes"] == SIZE - 10
    assert run(capsys, "check", path)[0] == 0


def test_what_a_killed_recorder_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.pcap")
    part = tmp_path / ".a.pcap.json.part"
    part.write_text(" " * 3000)
    with part.open() as held:
        # Its recorder runs.
        fcntl.flock(held, fcntl.LOCK_EX)
        code, found = run_json(capsys, "check", path)
        assert (code, found[str(path)]["being_written"]) == (0, True)
        assert run(capsys, "repair", path)[0] == 1
    code, found = run_json(capsys, "check", path)
    assert code == 1
    assert found[str(path)]["being_written"] is False
    assert found[str(path)]["problems"] == [
        "its recorder was killed, so its losses are not known: .a.pcap.json.part is left"
    ]
    content = path.read_bytes()
    code, found = run_json(capsys, "repair", path)
    assert (code, found["done"][str(path)]) == (
        0,
        [".a.pcap.json.part, which its recorder left, is removed"],
    )
    assert not part.exists()
    assert path.read_bytes() == content
    assert run(capsys, "check", path)[0] == 0


def test_a_damaged_length_in_a_file_of_any_snap_length_is_no_torn_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.pcap")
    data = bytearray(path.read_bytes() + bytes(range(1, 251)) * 2000)
    struct.pack_into("<I", data, 16, 0xFFFFFFFF)
    struct.pack_into("<I", data, 24 + SIZE + 8, 100_000_000)
    path.write_bytes(data)
    code, _, text = run(capsys, "repair", path)
    assert code != 0
    assert "--output" in text
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("beside", [".a.pcap.json.part", "a.pcap.repair.jsonl"])
def test_a_repair_writes_through_no_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], beside: str
) -> None:
    path = write(tmp_path / "a.pcap", sidecar=True)
    path.write_bytes(path.read_bytes() + b"torn")
    content, metadata = path.read_bytes(), sidecar_path(path).read_bytes()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / beside).symlink_to(precious)
    code, _, error = run(capsys, "repair", path)
    assert code == 1
    assert f"{tmp_path / beside} is a link, which repairs do not follow" in error
    assert precious.read_text() == "precious"
    assert (path.read_bytes(), sidecar_path(path).read_bytes()) == (content, metadata)
    (tmp_path / beside).unlink()
    (tmp_path / f".b{beside[2:]}" if beside[0] == "." else tmp_path / f"b{beside[1:]}").symlink_to(
        precious
    )
    assert run(capsys, "repair", path, "--output", tmp_path / "b.pcap")[0] == 1
    assert precious.read_text() == "precious"
    assert not (tmp_path / "b.pcap").exists()


def test_unusable_metadata_is_not_written_through_a_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.pcap")
    sidecar_path(path).write_text("{")
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "a.pcap.json.unusable").symlink_to(precious)
    assert run(capsys, "repair", path)[0] == 0
    assert precious.read_text() == "precious"
    assert (tmp_path / "a.pcap.json.unusable").read_text() == "{"
    assert not (tmp_path / "a.pcap.json.unusable").is_symlink()


def test_control_characters_of_metadata_are_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.pcap", sidecar=True)
    said = json.loads(sidecar_path(path).read_text()) | {
        "queue": "\x1b]0;OWNED\x07[/red]",
        "clock": "\x9b31m\nq",
        "run": {"uid": "\x1b[2J", "plan_name": ["\x9bplan"], "scan_id": None},
        "detector": {"name": "\x1b[9m"},
        "dropped_by_reason": {"\x1b[5m": 3},
    }
    sidecar_path(path).write_text(json.dumps(said))
    code, out, _ = run(capsys, "info", path)
    assert code == 0
    assert r"\x1b]0;OWNED\x07[/red]" in out
    assert r"\x9b31m" in out
    assert r"3 (\x1b[5m 3)" in out
    assert not {"\x1b", "\x07", "\x9b"} & set(out)
    odd = write(tmp_path / "a\x1b[31m.pcap")
    _, out, _ = run(capsys, "check", odd)
    assert r"a\x1b[31m.pcap: sound" in out
    code, _, error = run(capsys, "check", tmp_path / "b\x1b.pcap")
    assert code == 2
    assert "\x1b" not in error


def test_the_hint_for_repair_is_one_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = write(tmp_path / "torn.pcap")
    torn.write_bytes(torn.read_bytes() + b"x")
    packed = tmp_path / "packed.pcap.gz"
    packed.write_bytes(gzip.compress(torn.read_bytes()))
    _, _, error = run(capsys, "check", torn)
    assert "pcap repair FILE..." in error
    assert "--output" not in error
    _, _, error = run(capsys, "check", packed)
    assert f"daqiri-ophyd pcap repair --output COPY.pcap {packed}" in error
    assert "FILE..." not in error
    _, _, error = run(capsys, "check", torn, packed, tmp_path / "missing.pcap")
    assert "FILE..." in error
    assert "--output" in error
