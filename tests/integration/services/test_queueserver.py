"""The startup collection in a queue server with Redis, by the commands of the guide."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from daqiri_ophyd import profiles
from daqiri_ophyd.catalog import capture_files

pytest.importorskip("bluesky_queueserver", reason="needs the extra qserver")

import zmq

from .conftest import Service, wait_for

CAPTURE, TX = "daq.port0.capture", "daq.port0.tx.tx_q0"
PACKETS = {"count": 100, "size": 64, "rate": 1000}
COLLECTION = Path(profiles.__path__[0]) / "startup"


class Queue:
    """A queue server as seen by its clients."""

    def __init__(self, service: Service, address: str) -> None:
        self.service = service
        self._address = address

    def answers(self) -> bool:
        try:
            return self.ask("status")["manager_state"] == "idle"
        except zmq.Again:
            return False

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        # Not by a ZMQCommSendThreads: after an answer, it may take the next one for received, too.
        with zmq.Context() as context, context.socket(zmq.REQ) as client:
            client.linger, client.rcvtimeo = 0, 10_000
            client.connect(self._address)
            client.send_json({"method": method, "params": parameters})
            answer: dict[str, Any] = client.recv_json()
        if not answer.get("success", True):
            raise RuntimeError(answer["msg"])
        return answer

    def wait(self, **wanted: Any) -> None:
        """Wait for a status."""

        def reached() -> bool:
            status = self.ask("status")
            return wanted.items() <= status.items()

        wait_for(reached, f"{wanted}\n{self.ask('status')}\n{self.service.logs()}")

    def add(self, name: str, *args: Any, **kwargs: Any) -> None:
        item = {"name": name, "item_type": "plan", "args": args, "kwargs": kwargs}
        self.ask("queue_item_add", item=item, user="test", user_group="primary")

    def start(self) -> None:
        self.ask("history_clear")
        self.ask("queue_start")

    def results(self) -> list[dict[str, Any]]:
        """Wait for the end; return the results of all plans since `start`, and empty the queue."""
        self.wait(manager_state="idle", running_item_uid=None)
        self.ask("queue_clear")
        return [item["result"] for item in self.ask("history_get")["items"]]

    def runs(self, *names: str) -> list[str]:
        """Wait for the end of plans that completed; return the uids of their runs."""
        results = self.results()
        assert {result["exit_status"] for result in results} == {"completed"}, results
        return [uid for result in results for uid in result["run_uids"]]

    def capture_until(self, packets: int) -> Path:
        """Begin to capture more packets than these, and wait for them; return the file."""
        known = set(self.service.data.rglob("*.pcap"))
        self.add("capture", CAPTURE, tx=TX, packets={**PACKETS, "count": packets + 6000})
        self.start()
        size = packets * (16 + 106)

        def written() -> list[Path]:
            files = set(self.service.data.rglob("*.pcap")) - known
            return [file for file in files if file.stat().st_size > size]

        return wait_for(written, self.service.logs())[0]


@pytest.fixture(scope="module")
def queue(serve, free_port) -> Iterator[Queue]:
    if not shutil.which("redis-server"):
        pytest.skip("needs redis-server")
    redis, control, info = (free_port() for _ in range(3))
    service = serve("Queue server", {"localhost:6379": f"127.0.0.1:{redis}"})
    address = f"tcp://127.0.0.1:{control}"
    service.environment |= {
        "QSERVER_ZMQ_CONTROL_ADDRESS": address,
        "QSERVER_ZMQ_CONTROL_ADDRESS_FOR_SERVER": address,
        "QSERVER_ZMQ_INFO_ADDRESS_FOR_SERVER": f"tcp://127.0.0.1:{info}",
    }
    service.start(
        f"redis-server --bind 127.0.0.1 --port {redis} --dir {service.home} "
        "--save '' --appendonly no --maxmemory 64mb"
    )
    service.start("\n".join(service.commands("mkdir", "collection=", "start-re-manager")))
    queue = Queue(service, address)
    wait_for(queue.answers, f"no answer\n{service.logs()}")
    (command,) = service.commands("qserver environment open")
    service.run(command)
    queue.wait(worker_environment_exists=True)
    yield queue


def test_plans_and_devices_are_listed_without_opening_the_engine(queue):
    listed = yaml.safe_load((queue.service.data / "existing_plans_and_devices.yaml").read_text())
    plans, devices = listed["existing_plans"], listed["existing_devices"]
    assert {
        *("capture", "capture_scan", "configure", "configure_flows", "fly_scan"),
        *("record", "replay", "timed_tx", "verify_replay"),
    } <= set(plans)
    assert "catalog" not in {p["name"] for p in plans["verify_replay"]["parameters"]}
    capture = {parameter["name"]: parameter for parameter in plans["capture"]["parameters"]}
    assert capture["detector"]["annotation"]["devices"] == {"Detectors": [CAPTURE]}
    configure = {parameter["name"]: parameter for parameter in plans["configure"]["parameters"]}
    assert configure["device"]["annotation"] == {"type": "__DEVICE__"}
    assert capture["tx"]["annotation"]["devices"] == {"Queues": [TX]}
    assert capture["on_drop"]["default"] == "'fail'"
    port = devices["daq"]["components"]["port0"]["components"]
    assert port["capture"]["is_flyable"]
    assert port["tx"]["components"]["tx_q0"]["is_flyable"]
    assert devices["readiness"]["is_readable"]
    assert not (queue.service.data / "captures").exists()
    assert not list(COLLECTION.glob("existing*"))  # the package is as it was


def test_forms_offer_the_frame_detectors_of_a_configuration(tmp_path):
    environment = os.environ | {
        "DAQIRI_DATA": str(tmp_path),
        "DAQIRI_CONFIG": str(profiles.path("jungfrau")),
    }
    tool = Path(sys.executable).with_name("qserver-list-plans-devices")
    subprocess.run(
        [tool, "--startup-dir", COLLECTION, "--file-dir", tmp_path, "--file-name", "listed.yaml"],
        env=environment,
        check=True,
        capture_output=True,
        timeout=200,
    )
    listed = yaml.safe_load((tmp_path / "listed.yaml").read_text())["existing_plans"]
    offered = {}
    for name in ("capture", "capture_scan", "record", "fly_scan"):
        (detector,) = [p for p in listed[name]["parameters"] if p["name"] == "detector"]
        offered[name] = next(iter(detector["annotation"]["devices"].values()))
    capture, frames = "daq.receiver.capture", "daq.receiver.frames.images"
    assert offered == {
        "capture": [capture, frames],
        "capture_scan": [capture],
        "record": [frames],
        "fly_scan": [capture, frames],
    }


def test_the_commands_of_the_guide_capture_replay_and_scan(queue):
    service = queue.service
    service.run("\n".join(service.commands("qserver queue")))
    captured, replayed, steps, scanned = queue.runs()
    assert service.packets(captured) == service.packets(replayed) == [100]
    assert service.documents(replayed)[0]["replay_of"] == captured
    assert service.packets(steps) == [100, 100, 100]
    assert service.packets(scanned) == [0, 0]  # nothing is sent
    queue.add("mv", f"{CAPTURE}.acquire_time", 0)
    queue.start()
    assert queue.runs() == []


def test_settings_are_changed_by_a_plan_and_packets_captured_while_a_motor_moves(queue):
    service = queue.service
    queue.add("configure", CAPTURE, {"path": "scan {scan_id}"})
    queue.add("fly_scan", CAPTURE, "motor1", 0, 1)
    queue.add("configure", CAPTURE, {"path": "{date:%Y/%m/%d}/{unique}"})
    queue.start()
    (uid,) = queue.runs()
    start, _ = service.documents(uid)
    assert (start["plan_name"], start["motors"]) == ("fly_scan", ["motor1"])
    (file,) = capture_files(service.stored(uid))
    assert file.parent.name == f"scan {start['scan_id']}"


def test_a_run_is_replayed_by_scan_id_by_number_and_by_uid(queue):
    service = queue.service
    queue.add("capture", CAPTURE, 100, tx=TX, packets=PACKETS, md={"sample": "FeNi"})
    queue.start()
    (captured,) = queue.runs()
    start, _ = service.documents(captured)
    assert start["sample"] == "FeNi"
    queue.add("replay", TX, -1, detector=CAPTURE)
    queue.add("replay", TX, start["scan_id"], detector=CAPTURE)
    queue.add("replay", TX, captured, detector=CAPTURE)
    queue.add("verify_replay", TX, captured[:8], CAPTURE)
    queue.start()
    replayed = queue.runs()
    assert len(replayed) == 4
    for uid in replayed:
        start, stop = service.documents(uid)
        assert start["replay_of"] == captured
        assert stop["exit_status"] == "success"
        assert service.contents(uid) == service.contents(captured)


@pytest.mark.parametrize("option", ["deferred", "immediate"])
def test_a_capture_goes_on_after_a_pause_without_a_loss(queue, option):
    queue.capture_until(packets=500)
    queue.ask("re_pause", option=option)
    queue.wait(manager_state="paused")
    queue.ask("re_resume")
    (uid,) = queue.runs()
    assert queue.service.packets(uid) == [6500]
    assert queue.service.documents(uid)[1]["exit_status"] == "success"


@pytest.mark.parametrize(
    ("option", "end", "in_history", "in_catalog"),
    [
        ("deferred", "re_stop", "stopped", "success"),
        ("immediate", "re_abort", "aborted", "abort"),
    ],
)
def test_what_was_captured_before_the_end_is_kept(queue, option, end, in_history, in_catalog):
    queue.capture_until(packets=500)
    queue.ask("re_pause", option=option)
    queue.wait(manager_state="paused")
    queue.ask(end)
    (result,) = queue.results()
    assert result["exit_status"] == in_history
    (uid,) = result["run_uids"]
    assert queue.service.documents(uid)[1]["exit_status"] == in_catalog
    # All packets sent before the pause are the first ones, and the row has as many.
    (contents,) = queue.service.contents(uid)
    assert len(contents) >= 500
    numbers = [int.from_bytes(packet[42:50], "big") for packet in contents]
    assert numbers == list(range(len(contents)))
    table = queue.service.catalog.client[uid]["primary"].read()
    assert table["daq_port0_capture_packets"].values.tolist() == [len(contents)]
    assert table["daq_port0_capture_dropped"].values.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "why"),
    [
        ("capture", [CAPTURE], {}, "The capture has no limit. Give num_packets or acquire_time."),
        (
            "capture",
            [CAPTURE, 5],
            {"tx": TX},
            "tx is given without packets; sending requires both.",
        ),
        ("capture", [CAPTURE, 5], {"timeout": 0.5}, "no progress for 0.5 s: 0 of 5 packets"),
        ("timed_tx", [TX, {"count": 5}], {}, "packets lacks size; give count and size"),
        ("count", [[TX]], {}, "was triggered with nothing prepared"),
        ("configure", [CAPTURE, {"packet": 5}], {}, "no setting 'packet'; accepted are "),
        ("replay", [TX, "no-such-run"], {}, "Run 'no-such-run' is not in the catalog"),
    ],
)
def test_the_history_says_why_a_plan_failed(queue, name, args, kwargs, why):
    queue.add(name, *args, **kwargs)
    queue.start()
    (result,) = queue.results()
    assert result["exit_status"] == "failed"
    assert why in result["msg"]
    for uid in result["run_uids"]:
        _, stop = queue.service.documents(uid)
        assert stop["exit_status"] == "fail"
        assert why in stop["reason"]


def test_a_device_of_another_kind_is_refused_before_it_is_queued(queue):
    with pytest.raises(RuntimeError, match=f"Input should be '{CAPTURE}'"):
        queue.add("capture", "motor1", 100)


def test_a_destroyed_environment_can_be_opened_again_and_its_run_is_recovered(queue):
    service = queue.service
    file = queue.capture_until(packets=500)
    queue.ask("environment_destroy")
    queue.wait(worker_environment_exists=False, manager_state="idle")
    (result,) = queue.results()
    assert result["exit_status"] == "failed"
    assert result["msg"] == "RE Worker environment was destroyed"
    service.close_catalog()
    queue.ask("environment_open")
    queue.wait(worker_environment_exists=True, manager_state="idle")
    recovered = json.loads(service.run("daqiri-ophyd catalog recover --data ~/daqiri --json"))
    (uid,) = recovered
    assert recovered[uid]["rows"] == 1
    assert all(repair.startswith(f"{file}: ") for repair in recovered[uid]["mended"])
    assert recovered[uid]["problem"] == ""
    assert service.documents(uid)[1]["exit_status"] == "abort"
    (packets,) = service.packets(uid)
    assert packets > 500
    queue.add("replay", TX, uid, detector=CAPTURE, speed=10)
    queue.add("capture", CAPTURE, 100, tx=TX, packets=PACKETS)
    queue.start()
    replayed, captured = queue.runs()
    assert service.packets(replayed) == [packets]
    assert service.packets(captured) == [100]
    # Scan ids continue from the destroyed environment.
    scan_ids = [service.documents(run)[0]["scan_id"] for run in (uid, replayed, captured)]
    assert scan_ids == list(range(scan_ids[0], scan_ids[0] + 3))
