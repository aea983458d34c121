"""The startup collection, in a session."""

import os
import subprocess
import sys
from pathlib import Path

from preloaded_processes import run_preloaded

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
    done = run_preloaded("-c", NEXT, COLLECTION, env=environment)
    assert done.stdout.splitlines()[-1] == "42 5", done.stderr
