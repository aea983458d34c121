"""An engine that receives, sends late and assembles frames, whose metrics are read."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_camera import BYTES, PACKETS, loopback, numbered_packets

from daqiri_ophyd.engine import Engine

Config = dict[str, Any]

COMMAND = [sys.executable, "-m", "daqiri_ophyd", "metrics"]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only engines of the test are found."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def config() -> Config:
    """A camera on loopback, with a queue whose id is not its position, and a flow with a name."""
    config = loopback(buffers=256)
    (camera,) = config["interfaces"]
    for side in ("rx", "tx"):
        camera[side]["queues"][0]["id"] = 3
    camera["rx"]["flows"][0] |= {"name": "pixels", "action": {"type": "queue", "id": 3}}
    return config


@pytest.fixture
def send() -> Callable[[Engine, int, int], int]:
    """Send frames, with a launch time for each packet; returns the number of packets."""

    def frames(engine: Engine, first: int, count: int) -> int:
        port = engine.ports[0]
        images = np.repeat(np.arange(first, first + count), PACKETS)
        packets = numbered_packets(images, np.tile(np.arange(PACKETS), count), 0, BYTES)
        begin = port.now() + 1_000_000
        port.tx[0].send(packets, launch_times=[begin + 1000 * i for i in range(len(packets))])
        return len(packets)

    return frames
