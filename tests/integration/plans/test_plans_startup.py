"""The startup collection, in a session and as a queue server lists it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from daqiri_ophyd import profiles

COLLECTION = Path(profiles.__path__[0]) / "startup"

SESSION = """
import sys
from pathlib import Path

for script in sorted(Path(sys.argv[1]).glob("[0-9][0-9]-*.py")):
    exec(compile(script.read_text(), script, "exec"))
packets = {"count": 100, "size": 64, "rate": 1000}
assert (data / "catalog" / "server.json").exists()  # before the first plan
RE.md["proposal"] = "42"
RE(capture(daq.port0.capture, 100, tx=daq.port0.tx.tx_q0, packets=packets))
uid = catalog.client[-1].metadata["start"]["uid"]
RE(replay(daq.port0.tx.tx_q0, uid, detector=daq.port0.capture))
RE(capture_scan(daq.port0.capture, motor1, 0, 1, 2, tx=daq.port0.tx.tx_q0, packets=packets))
runs = catalog.client
print([runs[i].metadata["start"]["plan_name"] for i in (-3, -2, -1)])
RE(count([readiness]))
print(runs[-1]["primary"]["readiness_state"].read()[0] in ("ok", "warn", "fail"))
print(runs[-3].metadata["start"]["replay_of"] == uid)
"""

NEXT = """
import sys
from pathlib import Path

for script in sorted(Path(sys.argv[1]).glob("[0-9][0-9]-*.py")):
    exec(compile(script.read_text(), script, "exec"))
RE(count([readiness]))
print(RE.md["proposal"], catalog.client[-1].metadata["start"]["scan_id"])
"""


def test_a_session(tmp_path):
    script = tmp_path / "session.py"
    script.write_text(SESSION)
    environment = os.environ | {"DAQIRI_DATA": str(tmp_path / "data")}
    done = subprocess.run(
        [sys.executable, str(script), str(COLLECTION)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["True", "True"]
    assert "['capture', 'replay', 'capture_scan']" in done.stdout
    assert len(list((tmp_path / "data" / "captures").rglob("*.pcap"))) == 4
    script.write_text(NEXT)
    done = subprocess.run(
        [sys.executable, str(script), str(COLLECTION)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout.splitlines()[-1] == "42 5", done.stderr


def test_what_a_queue_server_lists(tmp_path):
    pytest.importorskip("bluesky_queueserver", reason="needs the extra qserver")
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("qserver-list-plans-devices")),
            *("--startup-dir", str(COLLECTION), "--file-dir", str(tmp_path)),
        ],
        env=os.environ | {"DAQIRI_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    listed = yaml.safe_load((tmp_path / "existing_plans_and_devices.yaml").read_text())
    plans, devices = listed["existing_plans"], listed["existing_devices"]
    assert {"capture", "capture_scan", "configure_flows", "replay", "timed_tx"} <= set(plans)
    assert "catalog" not in {p["name"] for p in plans["verify_replay"]["parameters"]}
    capture = {parameter["name"]: parameter for parameter in plans["capture"]["parameters"]}
    assert capture["detector"]["annotation"]["devices"] == {"Captures": ["daq.port0.capture"]}
    assert capture["tx"]["annotation"]["devices"] == {"Queues": ["daq.port0.tx.tx_q0"]}
    assert capture["on_drop"]["default"] == "'fail'"
    port = devices["daq"]["components"]["port0"]["components"]
    assert port["capture"]["is_flyable"]
    assert port["tx"]["components"]["tx_q0"]["is_flyable"]
    assert devices["readiness"]["is_readable"]
    assert not (tmp_path / "data" / "captures").exists()  # listing opens no engine
