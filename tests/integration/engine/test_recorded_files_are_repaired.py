"""Files of a real recorder under ``daqiri-ophyd pcap check`` and ``repair``."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daqiri_ophyd.cli import _main
from daqiri_ophyd.documents import sidecar_path
from daqiri_ophyd.engine import Engine, PcapFile

Frames = Callable[..., NDArray[np.uint8]]
Build = Callable[..., dict[str, Any]]
WaitUntilIdle = Callable[[Engine], None]


def run(*arguments: str | Path) -> int:
    return _main._run(["pcap", *map(str, arguments)])


@pytest.mark.parametrize("nanosecond", [True, False])
def test_from_the_recorder_to_a_repaired_file(
    loopback: Build,
    made_frames: Frames,
    tmp_path: Path,
    wait_until_idle: WaitUntilIdle,
    capsys: pytest.CaptureFixture[str],
    nanosecond: bool,
) -> None:
    path = tmp_path / "run_000000.pcap"
    with Engine.open(loopback()) as engine:
        rx, tx = engine.ports[0].rx[0], engine.ports[0].tx[0]
        with rx.record(tmp_path, "run", nanosecond=nanosecond):
            tx.send(made_frames(500))
            wait_until_idle(engine)
            assert run("check", path) == 0
            assert "a recorder is writing it" in capsys.readouterr().out
            assert run("repair", path) == 1
            assert "is being written by a recorder" in capsys.readouterr().err
    assert run("check", path) == 0
    whole, said = path.read_bytes(), sidecar_path(path).read_text()
    assert run("repair", path) == 0
    assert (path.read_bytes(), sidecar_path(path).read_text()) == (whole, said)

    path.write_bytes(whole[:-7])
    assert run("check", path) == 1
    assert run("repair", path) == 0
    assert run("check", path) == 0
    with PcapFile(path) as pcap:
        assert (len(pcap), pcap.torn_bytes) == (499, 0)
        last = int(pcap.timestamps[-1])
        cut = len(whole) - 7 - pcap.data.size
    assert json.loads(sidecar_path(path).read_text()) == json.loads(said) | {
        "packets": 499,
        "bytes": int(json.loads(said)["bytes"]) * 499 // 500,
        "t_last_ns": last,
        "t_first_ns": json.loads(sidecar_path(path).read_text())["t_first_ns"],
        "torn_bytes": cut,
    }
    lines = subprocess.run(
        ["tshark", "-n", "-r", path], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(lines) == 499
