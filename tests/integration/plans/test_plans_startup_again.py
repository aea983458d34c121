"""Files of the startup collection that are run again in a session."""

import os
from pathlib import Path

import pytest
from preloaded_processes import run_preloaded

from daqiri_ophyd import profiles
from daqiri_ophyd.devices import make_daq, open_devices
from daqiri_ophyd.engine import DaqiriError

COLLECTION = Path(profiles.__path__[0]) / "startup"

SESSION = """
import gc
import sys
from pathlib import Path

startup, session = Path(sys.argv[1]), {}


def run(*names):
    for name in names:
        exec(compile((startup / name).read_text(), name, "exec"), session)


def take():
    daq = session["daq"]
    daq.receiver.capture.path.put("scan {scan_id}")
    packets = {"count": 100, "size": 64, "rate": 10_000}
    plan = session["capture"](daq.receiver.capture, 100, tx=daq.sender.tx.tx_q0, packets=packets)
    (uid,) = session["RE"](plan)
    return uid


scripts = sorted(path.name for path in startup.glob("[0-9]*.py"))
run(*scripts)
uids = [take()]
engine, catalog = session["RE"], session["catalog"]
for name in scripts:
    run(name)
    uids.append(take())
run(*scripts)
uids.append(take())
assert session["RE"] is engine
assert session["catalog"] is catalog
client = catalog.client
runs = [client[uid].metadata for uid in uids]
print([run["start"]["scan_id"] for run in runs])
print({run["stop"]["exit_status"] for run in runs}, len(client))
print(engine.preprocessors.count(session["plans"].engine_metadata_wrapper))
"""


def test_each_file_and_all_files_again(tmp_path, empty_catalog, udp_profile_port):
    environment = os.environ | {
        "DAQIRI_DATA": str(tmp_path),
        "DAQIRI_CONFIG": str(profiles.path("udp")),
    }
    done = run_preloaded("-c", SESSION, COLLECTION, env=environment)
    lines = done.stdout.splitlines()[-3:]
    assert lines == ["[1, 2, 3, 4, 5, 6, 7]", "{'success'} 7", "1"], done.stderr
    assert "is not in the catalog" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "captures").iterdir()) == [
        f"scan {number}" for number in range(1, 8)
    ]
    assert not list((tmp_path / "captures").rglob("*.jsonl"))


def test_a_socket_that_another_device_of_the_process_has(profile):
    daq, _, _ = profile("udp")
    daq.open()
    other = make_daq(daq.configuration_dict, "other")
    with pytest.raises(DaqiriError) as raised:
        other.open()
    text = str(raised.value)
    assert "Address already in use" in text
    assert text.endswith(
        "That is this process: its device daq is open and has the socket. Close it first; "
        "daqiri_ophyd.devices.open_devices() returns it, also if its variable has another value "
        "now."
    )
    assert open_devices() == [daq]
    for device in open_devices():
        device.close()
    with other.open():
        assert open_devices() == [other]
    assert open_devices() == []
