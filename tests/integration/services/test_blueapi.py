"""The startup collection in blueapi, by the commands of the guide."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from daqiri_ophyd.catalog import capture_files

pytest.importorskip("blueapi", reason="needs the extra blueapi")

from .conftest import Service, wait_for

CAPTURE, TX = "daq.port0.capture", "daq.port0.tx.tx_q0"
PACKETS = {"count": 100, "size": 64, "rate": 1000}


class Blueapi:
    """blueapi as seen by its clients."""

    def __init__(self, service: Service, url: str) -> None:
        self.service = service
        self._client = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        return self._client.get(path).raise_for_status().json()

    def submit(self, name: str, **parameters: Any) -> httpx.Response:
        task = {"name": name, "params": parameters, "instrument_session": "cm12345-1"}
        return self._client.post("/tasks", json=task)

    def begin(self, name: str, **parameters: Any) -> str:
        task_id = self.submit(name, **parameters).raise_for_status().json()["task_id"]
        self._client.put("/worker/task", json={"task_id": task_id}).raise_for_status()
        return task_id

    def outcome(self, task_id: str) -> dict[str, Any]:
        """Wait for the end of a task."""

        def ended() -> dict[str, Any] | None:
            task = self.get(f"/tasks/{task_id}")
            return task if task["is_complete"] else None

        return wait_for(ended, self.service.logs())["outcome"]

    def run(self, name: str, **parameters: Any) -> Any:
        """Run a plan that completes; return its result."""
        outcome = self.outcome(self.begin(name, **parameters))
        assert outcome["outcome"] == "success", outcome
        return outcome["result"]

    def abort(self, reason: str) -> None:
        state = {"new_state": "ABORTING", "reason": reason}
        self._client.put("/worker/state", json=state).raise_for_status()
        wait_for(lambda: self.get("/worker/state") == "IDLE", self.service.logs())

    def is_open(self) -> bool:
        try:
            environment = self.get("/environment")
        except httpx.TransportError:
            return False
        assert environment["error_message"] is None, environment
        return environment["initialized"]


@pytest.fixture(scope="module")
def blueapi(serve, free_port) -> Iterator[Blueapi]:
    port = str(free_port())
    service = serve("blueapi", {"8000": port})
    (config,) = service.blocks("yaml")
    (service.home / "config.yaml").write_text(config)
    (command,) = [line for line in service.commands("blueapi") if line.endswith(" serve")]
    process = service.start(command)
    blueapi = Blueapi(service, f"http://localhost:{port}")

    def ready() -> bool:
        assert process.poll() is None, service.logs()
        return blueapi.is_open()

    try:
        wait_for(ready, service.logs())
        yield blueapi
    finally:
        blueapi.close()


def test_plans_and_devices_of_the_collection_are_offered(blueapi):
    plans = {plan["name"]: plan["schema"] for plan in blueapi.get("/plans")["plans"]}
    assert set(plans) == {
        *("capture", "capture_scan", "configure", "configure_flows", "count", "fly_scan"),
        *("record", "replay", "timed_tx", "verify_replay"),
    }
    assert set(plans["replay"]["required"]) == {"tx", "run"}
    assert set(plans["fly_scan"]["required"]) == {"detector", "motor", "start", "stop"}
    assert set(plans["configure"]["required"]) == {"device", "settings"}
    devices = {device["name"] for device in blueapi.get("/devices")["devices"]}
    assert devices == {"daq", "motor1", "motor2", "readiness"}


NESTED = """
from daqiri_ophyd.profiles import blueapi


def twice():
    yield from blueapi.count([])
    yield from blueapi.count([])


for plan in (blueapi.count([]), blueapi._stored(twice)(), blueapi.count([])):
    print([message.args[1] for message in plan if message.command == "subscribe"].count("all"))
"""


def test_plans_in_a_plan_are_stored_once(tmp_path, empty_catalog):
    shutil.copytree(empty_catalog, tmp_path / "catalog")
    done = subprocess.run(
        [sys.executable, "-c", NESTED],
        env=os.environ | {"DAQIRI_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["1", "1", "1"], done.stderr


def test_the_commands_of_the_guide_capture_replay_and_scan(blueapi):
    service = blueapi.service
    for command in service.commands("blueapi"):
        if "controller run" in command:
            service.run(command)
    (python,) = service.blocks("python")
    (service.home / "scan.py").write_text(python)
    printed = service.run("python scan.py")
    client = service.catalog.client
    wait_for(lambda: client[-1].metadata["start"]["plan_name"] == "capture_scan", service.logs())
    scanned, replayed, captured = (client[-i].metadata["start"] for i in (1, 2, 3))
    assert [run["plan_name"] for run in (captured, replayed, scanned)] == [
        *("capture", "replay", "capture_scan")
    ]
    assert scanned["uid"] in printed
    assert replayed["replay_of"] == captured["uid"]
    assert service.packets(captured["uid"]) == service.packets(replayed["uid"]) == [100]
    assert service.packets(scanned["uid"]) == [100, 100, 100]
    assert captured["instrument_session"] == "cm12345-1"
    assert "daqiri" in captured  # the description of the engine in any run of the collection


def test_a_run_is_replayed_by_scan_id_by_number_and_by_uid(blueapi):
    service = blueapi.service
    sending = {"tx": TX, "packets": PACKETS}
    captured = blueapi.run("capture", detector=CAPTURE, num_packets=100, md={"id": 7}, **sending)
    start, _ = service.documents(captured)
    assert start["id"] == 7
    for run in (-1, start["scan_id"], captured):
        uid = blueapi.run("replay", tx=TX, run=run, detector=CAPTURE)
        assert service.documents(uid)[0]["replay_of"] == captured
        assert service.contents(uid) == service.contents(captured)
    compared = blueapi.run("verify_replay", tx=TX, run=captured[:8], detector=CAPTURE)
    assert compared["identical"] == compared["sent"] == compared["captured"] == 100


def test_settings_are_changed_by_a_plan(blueapi):
    service = blueapi.service
    settings = {"num_packets": 40, "path": "scan {scan_id}"}
    assert blueapi.run("configure", device=CAPTURE, settings=settings) == {
        "num_packets": 0,
        "path": "{date:%Y/%m/%d}/{unique}",
    }
    uid = blueapi.run("capture", detector=CAPTURE, num_packets=100, tx=TX, packets=PACKETS)
    start, _ = service.documents(uid)
    (file,) = capture_files(service.stored(uid))
    assert file.parent.name == f"scan {start['scan_id']}"
    restored = {"num_packets": 0, "path": "{date:%Y/%m/%d}/{unique}"}
    blueapi.run("configure", device=CAPTURE, settings=restored)
    outcome = blueapi.outcome(blueapi.begin("configure", device=CAPTURE, settings={"packets": 1}))
    assert "daq_port0_capture has no setting 'packets'; accepted are" in outcome["message"]


def test_packets_are_captured_while_a_motor_moves(blueapi):
    uid = blueapi.run("fly_scan", detector=CAPTURE, motor="motor1", start=0, stop=1)
    assert blueapi.service.packets(uid) == [0]
    assert blueapi.service.documents(uid)[0]["motors"] == ["motor1"]


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        ("capture", {}, "The capture has no limit. Give num_packets or acquire_time."),
        ("capture", {"num_packets": 5, "timeout": 0.5}, "no progress for 0.5 s: 0 of 5 packets"),
        ("replay", {"tx": TX, "run": "no-such-run"}, "Run 'no-such-run' is not in the catalog"),
    ],
)
def test_the_outcome_says_why_a_plan_failed(blueapi, name, parameters, why):
    outcome = blueapi.outcome(blueapi.begin(name, detector=CAPTURE, **parameters))
    assert outcome["outcome"] == "error"
    assert why in outcome["message"]


def test_a_device_of_another_kind_is_refused(blueapi):
    answer = blueapi.submit("capture", detector="motor1", num_packets=1)
    assert answer.status_code == 422
    assert "Device motor1 (ophyd.sim.SynAxis) is not of type" in answer.json()["detail"][0]["msg"]


def test_what_was_captured_before_an_abort_is_kept(blueapi):
    service = blueapi.service
    known = set(service.data.rglob("*.pcap"))
    runs = len(service.catalog.client)
    blueapi.begin("capture", detector=CAPTURE, tx=TX, packets={**PACKETS, "count": 20_000})

    def written() -> bool:
        return any(
            file.stat().st_size > 100 * (16 + 106)
            for file in set(service.data.rglob("*.pcap")) - known
        )

    wait_for(written, service.logs())
    blueapi.abort("beam lost")
    wait_for(lambda: len(service.catalog.client) > runs, service.logs())
    uid = service.catalog.client[-1].metadata["start"]["uid"]
    _, stop = service.documents(uid)
    assert (stop["exit_status"], stop["reason"]) == ("abort", "beam lost")
    (packets,) = service.packets(uid)
    assert 100 < packets < 20_000
    assert blueapi.run("verify_replay", tx=TX, run=uid, detector=CAPTURE)["captured"] == packets


def test_the_server_ends_when_it_is_told_to(blueapi):
    blueapi.service.close_catalog()
    (process,) = blueapi.service._processes
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        pytest.fail(blueapi.service.logs())
