"""Runs stored by Bluesky's own TiledWriter, without a call of this package."""

import subprocess
import sys

SCRIPT = """
import logging, os, sys
from pathlib import Path

from bluesky import RunEngine
from bluesky import plans as bp

from daqiri_ophyd import profiles
from daqiri_ophyd.devices import make_daq

ours = sorted(name for name in sys.modules if name.startswith(("tiled", "bluesky_tiled")))
assert not ours, ours  # importing devices costs none of it

from bluesky_tiled_plugins import TiledWriter
from tiled.client import from_uri
from tiled.server.simple import SimpleTiledServer

folder = Path(sys.argv[1])
with (
    SimpleTiledServer(folder / "server", readable_storage=[folder]) as server,
    make_daq(profiles.path("loopback"), directory=folder / "captures") as daq,
):
    client = from_uri(server.uri)
    RE = RunEngine({}, context_managers=[])
    RE.subscribe(TiledWriter(client))
    capture = daq.port0.capture
    capture.acquire_time.put(0.01)
    (uid,) = RE(bp.count([capture], 2))
    print(len(client[uid]["primary"].base["daq_port0_capture_files"].read()))
"""


def test_a_stock_writer_stores_captures(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "2"
