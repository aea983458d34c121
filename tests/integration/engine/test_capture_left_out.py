"""What ``capture`` prints of packets that it leaves out."""

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from waiting import wait_for_command

from daqiri_ophyd.engine import PcapFile

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]
Frames = Callable[..., NDArray[np.uint8]]


def captured(
    cable: Any, folder: Path, choice: list[str], sent: list[bytes], *options: str
) -> tuple[str, str]:
    """Capture what is sent while it runs; return stdout and stderr."""
    command = [sys.executable, "-m", "daqiri_ophyd", "capture", "far", *choice, *options]
    pipes = partial(subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = cable.call(pipes, [*command, "-o", str(folder)])
    try:
        wait_for_command(process, lambda: any((folder / "captures").rglob(".*.part")))

        def send() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
                wire.bind(("near", 0))
                for frame in sent:
                    assert wire.send(frame) == len(frame)

        cable.call(send)
        text, problem = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, problem
    return text, problem


def fragments(frame: bytes) -> list[bytes]:
    """The frame as two fragments."""
    head, payload = bytearray(frame[:34]), frame[34:]
    cut = len(payload) // 16 * 8
    pieces = []
    for flags, piece in ((0x2000, payload[:cut]), (cut // 8, payload[cut:])):
        head[16:18] = struct.pack(">H", 20 + len(piece))
        head[20:22] = struct.pack(">H", flags)
        pieces.append(bytes(head) + piece)
    return pieces


def over_ipv6(frame: bytes) -> bytes:
    udp = frame[34:]
    return frame[:12] + struct.pack(">HIHBB", 0x86DD, 6 << 28, len(udp), 17, 64) + bytes(32) + udp


def with_priority(frame: bytes) -> bytes:
    return frame[:12] + b"\x81\0\xa0\0" + frame[12:]


def test_filtered_packets_and_fragments_are_printed(
    cable: Any, made_frames: Frames, tmp_path: Path
) -> None:
    plain = [row.tobytes() for row in made_frames(20)]
    others = [row.tobytes() for row in made_frames(10, dst_port=5001)]
    wanted = [*plain, *map(with_priority, plain), *map(over_ipv6, plain)]
    cut = [fragment for frame in plain for fragment in fragments(frame)]
    choice = ["--udp-port", "5000", "--packets", "80"]
    text, problem = captured(cable, tmp_path, choice, [*others, *cut, *wanted])
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "dropped 0" in lines
    assert "left out 30 (filtered 30)" in lines
    assert "datagrams arrived in fragments: only the first fragment has ports" in problem
    (file,) = (tmp_path / "captures").rglob("*.pcap")
    with PcapFile(file) as pcap:
        assert [bytes(packet) for packet in pcap] == [*cut[::2], *wanted]
    shown = subprocess.run(
        [sys.executable, "-m", "daqiri_ophyd", "pcap", "info", str(file)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "left out 30 (filtered 30)" in [" ".join(line.split()) for line in shown.splitlines()]


def test_without_fragments_there_is_no_message(
    cable: Any, made_frames: Frames, tmp_path: Path
) -> None:
    plain = [row.tobytes() for row in made_frames(20)]
    others = [row.tobytes() for row in made_frames(10, dst_port=5001)]
    choice = ["--udp-port", "5000", "--packets", "20"]
    text, problem = captured(cable, tmp_path, choice, [*others, *plain], "--json")
    result = json.loads(text)
    assert (result["received"], result["dropped"], result["left_out"]) == (20, 0, 10)
    assert (result["dropped_by_reason"], result["left_out_by_reason"]) == ({}, {"filtered": 10})
    assert "fragments" not in problem
