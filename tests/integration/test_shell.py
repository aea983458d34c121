"""``daqiri-ophyd shell``: sessions on a terminal, and scripts on standard input."""

import copy
import signal
from pathlib import Path

import pytest
import yaml
from preloaded_processes import run_preloaded
from shell_sessions import shell_session

from daqiri_ophyd import profiles
from daqiri_ophyd.catalog import Catalog, capture_files
from daqiri_ophyd.cli import _main, _shell_session
from daqiri_ophyd.devices import make_daq
from daqiri_ophyd.engine import PcapFile, load_config

pytestmark = pytest.mark.usefixtures("made_catalog")


def test_a_session_scans_pauses_and_ends(tmp_path: Path) -> None:
    with shell_session(tmp_path, "loopback") as session:
        assert "its detectors: capture\n" in session.banner
        assert "/browse?path=runs&api_key=" in session.banner
        session.type("source.start()")
        session.type("capture.acquire_time.put(0.2)")
        shown = session.type("RE(bp.scan([capture], motor, -1, 1, 3))")
        rows = [line for line in shown.splitlines() if line.count("|") == 5]
        assert [row.split("|")[3].strip() for row in rows[1:]] == ["-1.000", "0.000", "1.000"]
        counted = [int(row.split("|")[4]) for row in rows[1:]]
        assert counted[1] > counted[0]
        assert "count ['" in session.type("%ct")
        shown = session.type("RE(bp.count([capture], num='many'))")
        assert "TypeError: " in shown and "Traceback" not in shown
        assert "bluesky/plans.py" in session.type("%tb Context")
        session.type("%mov motor 2")
        assert "2.0" in session.type("motor.position")
        session.begin("RE(bp.count([capture], 1000))", "|         1 |")
        session.interrupt("A 'deferred pause' has been requested")
        shown = session.wait()
        assert "RE.resume()" in shown
        assert "Traceback" not in shown
        code, shown = session.end()
    assert code == 0, shown
    assert "the paused plan is aborted" in shown
    assert "Traceback" not in shown
    data = tmp_path / "daqiri-data"
    with Catalog.open(data / "catalog", readable=[data / "captures"]) as catalog:
        runs = [catalog.client[scan_id] for scan_id in (1, 2, 3)]
        assert [run.metadata["start"]["plan_name"] for run in runs] == [
            "scan", "count", "count"
        ]  # fmt: skip
        assert [run.metadata["stop"]["exit_status"] for run in runs] == [
            "success", "success", "abort"
        ]  # fmt: skip
        assert all(run.metadata["start"]["daqiri"]["daq"]["config"] for run in runs)
        files = [capture_files(run) for run in runs]
        assert [len(each) for each in files[:2]] == [3, 1]
        assert [len(PcapFile(file)) for file in files[0]] == counted


def test_a_script_on_standard_input(tmp_path: Path) -> None:
    script = "%mov motor 1\nassert motor.position == 1\nRE(bps.null())\nprint(source)\n"
    command = ["-m", "daqiri_ophyd", "shell", "loopback"]
    done = run_preloaded(*command, cwd=tmp_path, given=script)
    assert done.returncode == 0, done.stderr
    assert "<source: 1000 packets/s at most, not sending; source.start()>" in done.stdout
    assert "Ctrl-D" not in done.stdout
    done = run_preloaded(*command, cwd=tmp_path, given="raise ValueError('not this')\n")
    assert done.returncode == 1
    assert "ValueError: not this" in done.stdout
    assert sorted(path.name for path in (tmp_path / "daqiri-data").iterdir()) == [
        "captures", "catalog", "metadata"
    ]  # fmt: skip


def test_a_session_that_is_ended_by_a_signal(tmp_path: Path) -> None:
    with shell_session(tmp_path, "loopback") as session:
        session.begin("RE(bp.count([motor], 1000, delay=1))", "|         1 |")
        session.signal(signal.SIGTERM)
        code, shown = session.end(with_eof=False)
    assert code == 128 + signal.SIGTERM, shown


def test_a_configuration_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main._run(["shell", "nosuch", "--data", str(tmp_path)]) == 2
    assert "no configuration file 'nosuch'; give a path, one of" in capsys.readouterr().err
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("daqiri: {cfg: {version: 2}}\n")
    assert _main._run(["shell", str(wrong)]) == 2
    assert "version: found '2'" in capsys.readouterr().err


def test_ipython_that_is_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daqiri_ophyd.cli._shell.find_spec", lambda _: None)
    assert _main._run(["shell", "loopback"]) == 1
    assert "pip install ipython" in capsys.readouterr().err


def test_what_a_run_lacks_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    report = _shell_session._LossReport()
    for _ in range(2):
        report("start", {})
        for lost in (3, 0, 1):
            report("event", {"data": {"images_missing_packets": lost, "images_total": 7.0}})
        report("stop", {})
    assert capsys.readouterr().err == "lost: images_missing_packets 4\n" * 2


def test_detectors_of_several_ports(tmp_path: Path) -> None:
    config = yaml.safe_load(profiles.path("jungfrau").read_text())
    receiver, sender = config["daqiri"]["cfg"]["interfaces"]
    other = copy.deepcopy(receiver) | {"name": "other"}
    other["socket_config"]["local_addr"] = "udp://127.0.0.1:50002"
    other["rx"]["flows"][0]["id"] = 2
    other["rx"]["reorder_configs"][0]["flow_ids"] = [2]
    config["daqiri"]["cfg"]["interfaces"] = [receiver, other, sender]
    found = _shell_session._detectors(make_daq(load_config(config), directory=tmp_path))
    assert list(found) == ["other_images", "receiver_images", "other_capture", "receiver_capture"]
    assert {each.on_drop.get() for each in found.values()} == {"flag"}
    assert found["receiver_images"].hints["fields"] == ["daq_receiver_frames_images_total"]
    assert found["receiver_capture"].hints["fields"] == ["daq_receiver_capture_packets"]
