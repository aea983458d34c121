"""Field tests of engines that this machine has."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from field_parts import Config, flow, region, rx_queue
from networks import Network
from waiting import wait_for, wait_for_command

from daqiri_ophyd.cli import _main
from daqiri_ophyd.engine import Burst, capabilities
from daqiri_ophyd.field_test import (
    GROUPS,
    REPORT_SCHEMA,
    FieldTest,
    StepResult,
    StepStatus,
    _field_test,
    _record_step,
    _steps,
    _traffic,
)
from daqiri_ophyd.field_test._record_step import capture_folder
from daqiri_ophyd.field_test._report import part_of, write_text
from daqiri_ophyd.field_test._step import StepFailedError

Make = Callable[..., FieldTest]
Report = dict[str, Any]
UDP = 17
GENTLE = ["link", "flow", "unmatched", "timestamps", "timed-send", "split", "gpu", "recorder"]


class Page(HTMLParser):
    """Texts of a page, whose tags have to be closed in order, and which loads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "onload"} & {name for name, _ in attrs}
        assert tag not in ("script", "link", "img", "iframe")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(folder: Path) -> Report:
    """The report of a folder, as JSON; its page has the same steps."""
    report = json.loads((folder / "report.json").read_text())
    jsonschema.validate(report, REPORT_SCHEMA)
    page = Page()
    page.feed((folder / "report.html").read_text())
    page.close()
    assert page.open == []
    for step in report["steps"]:
        assert step["text"] in page.text
    return report


def by_name(report: Report) -> dict[str, Any]:
    return {step["name"]: step for step in report["steps"]}


def run(test: FieldTest) -> Report:
    told: list[StepResult] = []
    with test:
        test.run(told.append)
    report = read(test.report_path.parent)
    assert {step.name for step in told} <= by_name(report).keys()
    assert len(report["steps"]) == len(test.steps)
    return report


def test_every_step_of_a_loopback_has_a_result(loopback: Config, make_test: Make) -> None:
    report = run(make_test(loopback))
    steps = by_name(report)
    assert {step["group"] for step in steps.values()} == GROUPS.keys()
    failed = {n: s["text"] for n, s in steps.items() if s["status"] == "failed"}
    assert {name for name in failed if not name.startswith(("host", "rate"))} == set()
    assert steps["flow port0/detector"]["figures"]["verified"] == 1000
    assert steps["flow port0/monitor"]["figures"]["queues"] == ["rx1"]
    assert steps["rate 64 B, 2 queues"]["figures"]["lanes"] == ["port0/detector", "port0/monitor"]
    assert steps["rate 8192 B, 1 queue"]["text"] == "the links and buffers take up to 2,048 B"
    measured = [s for s in steps.values() if s["group"] == "rate" and s["status"] == "passed"]
    for step in measured:
        assert step["figures"]["lost"] == 0 < step["figures"]["arrived"]
        assert step["figures"]["share_of_link"] is None
    assert steps["recorder"]["figures"]["packets"] == 5000
    assert steps["open"]["figures"]["arrived"] == 320
    assert steps["timestamps"]["figures"]["times"] == 1000
    # 200 packets, 1 ms apart.
    assert steps["timed-send"]["figures"]["seconds"] >= 0.199
    assert sum(bin_[2] for bin_ in steps["timed-send"]["figures"]["lateness"]["histogram"]) == 200
    assert {s["group"] for s in steps.values() if s["status"] == "skipped"} == {
        *("rate", "split", "gpu", "frames")
    }


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_sockets_are_tested(sockets: Callable[[str], Config], make_test: Make, scheme: str) -> None:
    report = run(make_test(sockets(scheme), only=GENTLE))
    steps = by_name(report)
    assert report["counts"]["failed"] == 0
    assert steps["link"]["figures"]["links"] == [["sender", "receiver"]]
    assert steps["flow receiver/any packet"]["status"] == "passed"
    for name in ("recorder", "timestamps"):
        assert steps[name]["status"] == ("passed" if scheme == "udp" else "skipped")
    assert report["result"] == "incomplete"
    assert steps["rate 64 B, 1 queue"]["text"] == "not chosen with --only"


@pytest.mark.root
def test_the_ends_of_a_cable_are_tested(cable: Network, cards: Config, make_test: Make) -> None:
    test = make_test(cards, only=[*GENTLE, "frames", "open"])
    report = cable.call(run, test)
    steps = by_name(report)
    assert {n: s["text"] for n, s in steps.items() if s["status"] == "failed"} == {}
    assert steps["link"]["figures"]["links"] == [["sender", "receiver"]]
    for name in ("plain", "range", "sized", "tagged", "spread"):
        assert steps[f"flow receiver/{name}"]["figures"]["verified"] == 1000
    assert steps["flow receiver/sized"]["figures"]["sent_bytes"] == 414_000
    assert steps["flow receiver/images"]["figures"]["matched"] == 1000
    assert steps["unmatched"]["figures"]["arrived"] == 1000
    assert steps["split"]["figures"]["heads"] == {"receiver/rx1": [42]}
    assert steps["split"]["figures"]["paths"] == {"receiver/rx1": "af_packet"}
    assert steps["frames receiver/images"]["figures"]["wrong"] == 0
    receiver = report["ports"][0]
    assert receiver["driver"] == "veth"
    assert receiver["speed_Mb_per_s"] == "not known"
    addresses = steps["link"]["figures"]["addresses"]
    assert {each["mac"] for each in addresses.values()} == {receiver["mac_address"]}


def received_by(wire: socket.socket) -> Iterator[bytes]:
    for _ in range(10_000):
        try:
            yield wire.recv(9216)
        except BlockingIOError:
            return


@pytest.mark.root
def test_packets_go_to_the_receiving_port_only(
    cable: Network, cards: Config, make_test: Make
) -> None:
    """A third port on a switch sees none: each frame has the receiver's address."""
    cable.run("ip link add br0 type bridge")
    cable.run("ip link add side mtu 9000 type veth peer name plug mtu 9000")
    cable.run("ip link add third mtu 9000 type veth peer name socket mtu 9000")
    for end in ("plug", "socket"):
        cable.run(f"ip link set {end} master br0")
    cable.without_ipv6("br0", "side", "plug", "third", "socket")
    cable.run("ip link set near master br0")
    cable.up("near", "br0", "side", "plug", "third", "socket")
    # The switch learns where the receiver is, as from a port that says something.
    shown = partial(subprocess.run, check=True, capture_output=True, text=True)
    mac = json.loads(cable.call(shown, "ip -json link show far".split()).stdout)[0]["address"]
    cable.run(f"bridge fdb add {mac} dev near master static")
    cards["interfaces"][1]["address"] = "side"
    with cable.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 3 << 8) as wire:
        wire.bind(("third", 3))
        wire.setblocking(False)
        report = cable.call(run, make_test(cards, only=["link", "flow", "unmatched"]))
        assert report["counts"]["failed"] == 0
        assert not [
            frame
            for frame in received_by(wire)
            if frame[:6].hex(":") == mac or (frame[12:14], frame[23]) == (b"\x08\x00", UDP)
        ]


@pytest.mark.root
def test_a_cable_that_is_not_there_fails_by_name(
    cable: Network, cards: Config, make_test: Make
) -> None:
    cable.run("ip link add alone type veth peer name other")
    cable.up("alone", "other")
    cards["interfaces"][1]["address"] = "alone"
    report = cable.call(run, make_test(cards, only=["link", "flow"]))
    steps = by_name(report)
    assert steps["link"]["status"] == "failed"
    assert "no port receives what a port of the configuration sends" in steps["link"]["text"]
    assert steps["flow receiver/plain"]["status"] == "failed"


@pytest.mark.root
def test_a_receiver_that_hears_nobody_fails_by_name(
    cable: Network, cards: Config, make_test: Make
) -> None:
    cable.run("ip link add alone type veth peer name other")
    cable.up("alone", "other")
    deaf = {"name": "deaf", "address": "alone", "rx": {"queues": [rx_queue(0)]}}
    cards["interfaces"].insert(0, deaf)
    report = cable.call(run, make_test(cards, only=["link", "flow"]))
    steps = by_name(report)
    assert report["result"] == "failed"
    assert steps["link"]["text"].startswith("deaf hears no port of the configuration")
    assert steps["link"]["figures"]["links"] == [["sender", "receiver"]]
    assert steps["flow deaf/any packet"]["status"] == "failed"
    assert steps["flow receiver/plain"]["status"] == "passed"


@pytest.mark.root
def test_rates_of_multicast_groups_are_skipped_by_name(
    cable: Network, cards: Config, make_test: Make
) -> None:
    """Multicast groups have other listeners."""
    receiver, sender = cards["interfaces"]
    receiver["rx"] = {
        "queues": receiver["rx"]["queues"][:1],
        "flows": [flow("group", 1, {"ipv4_dst": "239.1.2.3"})],
    }
    test = make_test(cards, only=["flow", "rate"])
    assert test.multicast_groups == ["239.1.2.3"]
    steps = by_name(cable.call(run, test))
    assert steps["flow receiver/group"]["status"] == "passed"
    assert "receiver/group is of multicast group 239.1.2.3" in steps["rate 64 B, 1 queue"]["text"]


def test_times_that_are_missing_fail(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Burst, "timestamps", np.zeros(0, np.int64))
    found = by_name(run(make_test(loopback, only=["timestamps"])))["timestamps"]
    assert found["status"] == "failed"
    assert found["text"] == "1,000 packets arrived with 0 times"


def test_early_packets_are_not_claimed_where_clocks_differ(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_steps, "_earliest", lambda *_: None)
    found = by_name(run(make_test(loopback, only=["timed-send"])))["timed-send"]
    assert found["status"] == "passed"
    assert found["text"].endswith("(worker) (whether early: not compared)")


def test_queues_that_split_nothing_fail(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    loopback["memory_regions"].append(region("heads", buf_size=64))
    loopback["interfaces"][0]["rx"]["queues"][1] = rx_queue(1, "heads", "rx", split_boundary=42)
    found = by_name(run(make_test(loopback, only=["split"])))["split"]
    assert found["figures"]["heads"] == {"port0/rx1": [42]}
    assert list(found["figures"]["regions"]) == ["port0/monitor"]

    def whole(*_: Any) -> Any:
        return "each byte compared", {"heads": {}}

    monkeypatch.setattr(_steps, "_compared", whole)
    found = by_name(run(make_test(loopback, only=["split"], again=True)))["split"]
    assert found["text"] == "port0/rx1: no packet was split"
    assert found["status"] == "failed"


def test_threads_left_behind_fail_whatever_the_descriptors(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([(10, 5), (9, 6)])
    monkeypatch.setattr(_steps, "_left", lambda: next(left))
    found = by_name(run(make_test(loopback, only=["open"])))["open"]
    assert found["status"] == "failed"
    assert found["text"] == "4 rounds left 0 file descriptors and 1 threads behind"


def test_packets_lost_after_opening_fail(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = _traffic.Outcome(offered=64, sent=64, lost=64)
    monkeypatch.setattr(_traffic.Traffic, "run", lambda *_, **__: lost)
    found = by_name(run(make_test(loopback, only=["open"])))["open"]
    assert found["text"].startswith("port0/detector: 64 of 64 packets lost")


@pytest.mark.root
def test_isolation_without_packets_is_not_isolation(
    cable: Network, cards: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards["interfaces"][0]["rx"]["flow_isolation"] = True
    cards["interfaces"][0]["rx"]["flows"] = cards["interfaces"][0]["rx"]["flows"][:1]
    del cards["interfaces"][0]["rx"]["reorder_configs"]
    found = by_name(cable.call(run, make_test(cards, only=["unmatched"])))["unmatched"]
    assert found["text"].startswith("none of 1,000 packets reached a queue")
    monkeypatch.setattr(_steps, "_gentle", lambda *_: _traffic.Outcome(lost=5))
    test = make_test(cards, only=["unmatched"], again=True)
    assert by_name(cable.call(run, test))["unmatched"]["text"] == "no packet was sent"


def test_bytes_are_limited_before_a_capture(loopback: Config, make_test: Make) -> None:
    found = by_name(run(make_test(loopback, only=["recorder"], traffic=2_000_000)))["recorder"]
    assert found["status"] == "skipped"
    assert found["again"]
    assert found["text"].startswith("the step sends 2.6 MB, and 2.0 of 2.0 MB are left")


def test_failed_steps_are_repeated_and_others_kept(
    loopback: Config, make_test: Make, tmp_path: Path
) -> None:
    report = run(make_test(loopback, only=["link", "flow"]))
    for name in ("link", "flow port0/monitor"):
        by_name(report)[name]["status"] = "failed"
    path = tmp_path / "found" / "report.json"
    path.write_text(json.dumps(report))
    test = make_test(loopback, only=["flow"])
    assert (test.done, test.failed) == (1, 2)
    told: list[StepResult] = []
    with test:
        report = test.run(told.append)
    assert "flow port0/monitor" in {step.name for step in told}
    steps = by_name(report)
    assert steps["link"]["status"] == "failed"
    assert steps["flow port0/monitor"]["status"] == "passed"
    assert {step.name for step in told} & {"link", "flow port0/detector"} == set()


@pytest.mark.parametrize(
    ("part", "key", "value", "said"),
    [
        ("host", "name", "elsewhere", "results of another host (name elsewhere, not "),
        ("host", "machine", "s390x", "results of another host (machine s390x, not "),
        ("settings", "seconds", 0.5, "results of --seconds 0.5, not 1; use the same"),
    ],
)
def test_results_of_other_hosts_and_times_are_refused(
    loopback: Config,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    part: str,
    key: str,
    value: Any,
    said: str,
) -> None:
    assert command(loopback, "--only", "host") in (0, 1)
    path = Path("found/report.json")
    report = json.loads(path.read_text())
    report[part][key] = value
    path.write_text(json.dumps(report))
    assert command(loopback, "--only", "link") == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert said in printed
    assert "begin anew with --again without --only" in printed
    # The results of the other steps would be lost.
    assert command(loopback, "--only", "link", "--again") == 2
    assert json.loads(path.read_text()) == report
    assert command(loopback, "--again", "--limit", "1", "--seconds", "0.05") == 1
    assert read(Path("found"))["host"]["name"] != "elsewhere"


def test_no_more_frames_are_sent_than_a_plan_has_buffers(
    loopback: Config, cards: Config, make_test: Make
) -> None:
    plan = cards["interfaces"][0]["rx"]["reorder_configs"][0] | {"flow_ids": [2]}
    loopback["interfaces"][0]["rx"]["reorder_configs"] = [plan]
    loopback["memory_regions"].append(region("frames", 4, 16384))
    found = by_name(run(make_test(loopback, only=["frames"])))["frames port0/images"]
    assert found["text"] == "4 frames of 8 packets, each pixel compared"
    test = make_test(loopback, only=["frames"], again=True, traffic=10_000)
    found = by_name(run(test))["frames port0/images"]
    assert (found["status"], found["again"]) == ("skipped", True)


def test_a_device_of_dpdk_is_tested(cards: Config, make_test: Make) -> None:
    if (state := capabilities()["dpdk"]) != "available":
        pytest.skip(f"{state} (built where libdpdk is found: libdpdk-dev)")
    receiver, sender = cards["interfaces"]
    port = {"name": "port0", "address": "net_ring0", "tx": sender["tx"]}
    port["rx"] = {"queues": receiver["rx"]["queues"][:1], "flows": receiver["rx"]["flows"][:1]}
    config = {**cards, "engine": "dpdk", "interfaces": [port]}
    report = run(make_test(config, only=[*GENTLE, "open"]))
    assert report["host"]["engine"] == "dpdk"
    assert {s["name"]: s["text"] for s in report["steps"] if s["status"] == "failed"} == {}
    assert by_name(report)["link"]["figures"]["links"] == [["port0", "port0"]]
    assert by_name(report)["recorder"]["figures"]["packets"] == 5000


def test_a_slow_receiver_fails_by_the_name_of_the_loss(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    loopback["memory_regions"][0]["num_bufs"] = 256
    loopback["loopback_drops"] = True
    as_fast_as_it_can = _traffic.rows_of

    def slowly(burst: Burst) -> Any:
        time.sleep(0.02)
        return as_fast_as_it_can(burst)

    monkeypatch.setattr(_traffic, "rows_of", slowly)
    report = run(make_test(loopback, only=["flow"]))
    assert report["result"] == "failed"
    found = by_name(report)["flow port0/detector"]
    assert found["status"] == "failed"
    assert "packets lost (port0/rx0 no_packet_buffer" in found["text"]
    assert found["figures"]["lost"] == found["figures"]["losses"]["port0/rx0 no_packet_buffer"]


@pytest.mark.root
def test_a_switch_without_jumbo_frames_fails_by_size(
    cable: Network, cards: Config, make_test: Make
) -> None:
    cable.run("ip link add br0 type bridge")
    cable.run("ip link add side mtu 9000 type veth peer name plug mtu 1500")
    cable.without_ipv6("br0", "side", "plug")
    for end in ("plug", "near"):
        cable.run(f"ip link set {end} master br0")
    cable.up("br0", "side", "plug")
    receiver, sender = cards["interfaces"]
    sender["address"] = "side"
    receiver["rx"] = {
        "queues": receiver["rx"]["queues"][:1],
        "flows": receiver["rx"]["flows"][:1],
    }
    steps = by_name(cable.call(run, make_test(cards, only=["rate"])))
    for size in (64, 512, 1500):
        assert steps[f"rate {size} B, 1 queue"]["status"] == "passed"
    found = steps["rate 4096 B, 1 queue"]
    assert found["status"] == "failed"
    assert found["text"].startswith("packets are lost at every rate: ")
    assert len(found["figures"]["trials"]) <= 8
    assert all(sum(trial["losses"].values()) >= trial["lost"] > 0
               for trial in found["figures"]["trials"])  # fmt: skip


def test_limits_end_a_test_and_the_next_run_goes_on(loopback: Config, make_test: Make) -> None:
    report = run(make_test(loopback, only=["flow"], traffic=300_000))
    first, second = (by_name(report)[f"flow port0/{name}"] for name in ("detector", "monitor"))
    assert first["status"] == "passed"
    assert report["result"] != "passed"
    # What is left is less than the flow's packets.
    sent = sum(each["figures"].get("sent_bytes", 0) for each in (first, second))
    assert sent <= 300_000 + 256
    test = make_test(loopback, only=["flow", "link"])
    report = run(test)
    assert by_name(report)["flow port0/detector"] == first
    assert by_name(report)["link"]["status"] == "passed"
    assert test.left == 0


def test_an_engine_that_cannot_be_opened_fails_by_name(
    sockets: Callable[[str], Config], make_test: Make
) -> None:
    config = sockets("udp")
    for interface in config["interfaces"]:
        made = interface["socket_config"]
        for key in ("local_addr", "remote_addr"):
            if key in made:
                made[key] = made[key].replace("127.0.0.1", "192.0.2.99")
    report = run(make_test(config, only=["open", "flow"]))
    assert "cannot be opened" in by_name(report)["open"]["text"]
    assert by_name(report)["flow receiver/any packet"]["status"] == "failed"


@pytest.fixture
def started(tmp_path: Path, loopback: Config) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, with some steps done."""
    (tmp_path / "cards.yaml").write_text(yaml.safe_dump(loopback))
    words = ["field-test", "cards.yaml", "-o", "found", "--seconds", "0.5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "daqiri_ophyd", *words],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for_command(process, lambda: len(report_of(tmp_path / "found")["steps"]) >= 4)
        yield process
    finally:
        process.kill()
        process.communicate()


def report_of(folder: Path) -> Report:
    """The report of a test that goes on."""
    path = folder / "report.json"
    return json.loads(path.read_text()) if path.exists() else {"steps": []}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_test_that_was_ended_leaves_a_report_and_goes_on(
    started: subprocess.Popen[str],
    tmp_path: Path,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started.send_signal(number)
    _, said = started.communicate(timeout=100)
    expected = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
    assert started.returncode == expected[number], said
    left = read(tmp_path / "found")
    assert left["result"] == "incomplete"
    assert left["interrupted"] is (number != signal.SIGKILL)
    if left["interrupted"]:
        # None, if it came between two steps.
        ended = [each for each in left["steps"] if each["status"] == "interrupted"]
        assert left["counts"].get("interrupted", 0) == len(ended) <= 1
        left["steps"] = [each for each in left["steps"] if each not in ended]
        assert "steps are left; the same command does them; report: found/report.html" in said
        assert leftovers(tmp_path / "found") == []
    monkeypatch.chdir(tmp_path)
    words = ["field-test", "cards.yaml", "-o", "found", "--seconds", "0.5", "--only", "timestamps"]
    assert _main._run(words) == 0
    printed = capsys.readouterr()
    assert f"{len(left['steps'])} done before" in printed.err
    report = read(tmp_path / "found")
    assert report["steps"][: len(left["steps"])] == left["steps"]
    assert report["started"] == left["started"]
    assert by_name(report)["timestamps"]["status"] == "passed"
    assert leftovers(tmp_path / "found") == []


def leftovers(folder: Path) -> list[str]:
    """What is in a folder besides the report."""
    return sorted({each.name for each in folder.iterdir()} - {"report.html", "report.json"})


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_signals_after_the_first_change_nothing(
    started: subprocess.Popen[str], tmp_path: Path, first: signal.Signals
) -> None:
    started.send_signal(first)
    # Of several that wait, Python handles that with the lowest number first.
    wait_for(lambda: send(started, first) or report_of(tmp_path / "found")["interrupted"])
    others = itertools.cycle([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    wait_for(lambda: send(started, next(others)))
    _, said = started.communicate(timeout=100)
    assert "Traceback" not in said
    assert started.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[first], said
    report = read(tmp_path / "found")
    assert report["interrupted"]
    assert [s["status"] for s in report["steps"]].count("interrupted") <= 1
    assert leftovers(tmp_path / "found") == []


def send(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Send a signal to a process; return whether it has ended."""
    if process.poll() is None:
        process.send_signal(number)
        return False
    return True


def test_an_interrupted_capture_is_removed(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: Any) -> None:
        assert leftovers(tmp_path / "found") != []
        raise KeyboardInterrupt

    monkeypatch.setattr(_record_step, "_payloads", interrupt)
    with make_test(loopback, only=["recorder"]) as test, pytest.raises(KeyboardInterrupt):
        test.run(lambda _: None)
    assert by_name(read(tmp_path / "found"))["recorder"]["status"] == "interrupted"
    assert leftovers(tmp_path / "found") == []


def test_what_a_killed_test_left_is_removed_and_captures_of_failed_steps_stay(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "found"
    capture_folder(folder).mkdir(parents=True)
    (capture_folder(folder) / "field_000000.pcap").write_bytes(b"part")
    for name in ("report.json", "report.html"):
        part_of(folder / name).write_text("part")
    monkeypatch.setattr(_record_step, "_payloads", lambda *_: np.zeros((0, 512), np.uint8))
    for number in (1, 2):
        found = by_name(run(make_test(loopback, only=["recorder"])))["recorder"]
        assert found["status"] == "failed"
        assert found["text"].endswith(f"which stay in {folder / f'capture-{number}'}")
    monkeypatch.undo()
    assert by_name(run(make_test(loopback, only=["recorder"])))["recorder"]["status"] == "passed"
    assert leftovers(folder) == ["capture-1", "capture-2"]
    assert list((folder / "capture-1").glob("*.pcap"))


def test_who_is_told_of_results_may_end_the_test(
    loopback: Config, make_test: Make, tmp_path: Path
) -> None:
    def end(result: StepResult) -> None:
        raise RuntimeError(result.name)

    with make_test(loopback, only=["link"]) as test, pytest.raises(RuntimeError, match="host"):
        test.run(end)
    report = read(tmp_path / "found")
    assert report["interrupted"]
    assert [s["name"] for s in report["steps"]] == ["host"]


def run_command(tmp_path: Path, loopback: Config, redirected: str) -> tuple[int, str]:
    """Run the command with its output redirected by a shell; return its status and messages."""
    (tmp_path / "cards.yaml").write_text(yaml.safe_dump(loopback))
    words = f"{sys.executable} -m daqiri_ophyd field-test cards.yaml -o found --only link"
    shell = f"{words} --only flow --seconds 0.05 {redirected}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=tmp_path, text=True, stderr=subprocess.PIPE, timeout=200
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("redirected", ["| head -1", "| true", "2>&1 | head -3", "--json | true"])
def test_a_closed_pipe_ends_the_command_as_others(
    loopback: Config, tmp_path: Path, redirected: str
) -> None:
    status, said = run_command(tmp_path, loopback, redirected)
    assert status == 1
    assert "Traceback" not in said
    assert "error" not in said
    if "--json" in redirected:
        assert by_name(read(tmp_path / "found"))["link"]["status"] == "passed"
    else:
        assert read(tmp_path / "found")["interrupted"]


def test_a_full_disk_of_the_output_is_named(loopback: Config, tmp_path: Path) -> None:
    status, said = run_command(tmp_path, loopback, "> /dev/full")
    assert status == 1
    assert "standard output cannot be written (No space left on device)" in said
    assert read(tmp_path / "found")["interrupted"]


def test_chosen_steps_are_done_again_and_the_others_kept(
    loopback: Config, make_test: Make, tmp_path: Path
) -> None:
    before = by_name(run(make_test(loopback, only=["link", "flow", "timestamps"])))
    test = make_test(loopback, only=["flow"], again=True)
    assert test.left == 2
    told: list[StepResult] = []
    with test:
        test.run(told.append)
    report = read(tmp_path / "found")
    done = {each.name for each in told if each.status is not StepStatus.SKIPPED}
    assert done == {"flow port0/detector", "flow port0/monitor"}
    for name in ("link", "timestamps"):
        assert by_name(report)[name] == before[name]
    assert [step["name"] for step in report["steps"]] == [step.name for step in test.steps]


def test_without_names_all_steps_are_done_again(loopback: Config, make_test: Make) -> None:
    run(make_test(loopback, only=["link"]))
    with make_test(loopback, again=True) as test:
        assert (test.done, test.left) == (0, len(test.steps))


def test_the_time_limit_cuts_a_trial(loopback: Config, make_test: Make) -> None:
    test = make_test(loopback, only=["rate", "recorder"], seconds=60.0, limit=1.5)
    report = run(test)
    steps = [s for s in report["steps"] if s["text"] != "not chosen with --only"]
    assert {(s["group"], s["status"], s["again"]) for s in steps} <= {
        ("rate", "skipped", True),
        ("rate", "skipped", False),  # of a size that does not fit
        ("recorder", "skipped", True),
    }
    assert "the time limit of 1.5 s was reached" in steps[0]["text"]
    assert test.left > 0


def test_steps_that_are_skipped_do_not_write_the_report(
    loopback: Config, make_test: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[Path] = []

    def write(path: Path, text: str) -> None:
        written.append(path)
        write_text(path, text)

    monkeypatch.setattr(_field_test, "write_text", write)
    with make_test(loopback, limit=0) as test:
        test.run(lambda _: None)
    report = read(tmp_path / "found")
    assert len(report["steps"]) == len(test.steps)
    assert {step["status"] for step in report["steps"]} == {"skipped"}
    # Before and after the steps.
    assert written.count(test.report_path) == 2


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_a_server_at_any_address_is_tested(
    sockets: Callable[[str], Config], make_test: Make, scheme: str
) -> None:
    config = sockets(scheme)
    server, client = (each["socket_config"] for each in config["interfaces"])
    server["local_addr"] = server["local_addr"].replace("127.0.0.1", "0.0.0.0")  # noqa: S104
    steps = by_name(run(make_test(config, only=["link", "flow"])))
    assert steps["link"]["figures"]["links"] == [["sender", "receiver"]]
    assert steps["link"]["figures"]["addresses"] == {
        "receiver/any packet": {"to": client["remote_addr"]}
    }
    assert steps["flow receiver/any packet"]["status"] == "passed"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command on a configuration, into the folder ``found``."""
    monkeypatch.chdir(tmp_path)

    def run_on(config: Config, *words: str) -> int:
        Path("cards.yaml").write_text(yaml.safe_dump(config))
        return _main._run(["field-test", "cards.yaml", "-o", "found", *words])

    return run_on


def test_a_line_for_each_step_and_the_report_as_json(
    loopback: Config, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(loopback, "--only", "link", "--only", "flow") == 0
    printed = capsys.readouterr()
    assert "ports: port0 (loopback); packets go to these only" in printed.err
    assert "passed   flow port0/detector" in printed.out
    assert command(loopback, "--only", "link", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == read(Path("found"))
    assert command(loopback, "--only", "timestamps", "--again", "--json") == 0
    steps = by_name(json.loads(capsys.readouterr().out))
    assert {steps[name]["status"] for name in ("link", "flow port0/detector")} == {"passed"}


def test_configurations_with_one_side_are_refused(
    loopback: Config, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = loopback["interfaces"]
    sender = port.pop("tx")
    assert command(loopback) == 2
    assert "only receives (port0)" in capsys.readouterr().err
    del port["rx"]
    port["tx"] = sender
    assert command(loopback) == 2
    assert "only sends (port0)" in capsys.readouterr().err
    assert not Path("found").exists()


def test_sockets_that_do_not_meet_are_refused(
    sockets: Callable[[str], Config],
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = sockets("udp")
    server, client = (each["socket_config"] for each in config["interfaces"])
    for remote in ("udp://127.0.0.1:9", "udp://192.0.2.7:5000"):
        client["remote_addr"] = remote
        assert command(config) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"(receiver listens at {server['local_addr']}, sender sends to {remote})" in said
        server["local_addr"] = "udp://0.0.0.0:5000"


def test_results_of_other_configurations_and_files_are_kept(
    loopback: Config, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(loopback, "--only", "link") == 0
    before = Path("found/report.json").read_bytes()
    loopback["memory_regions"][0]["num_bufs"] *= 2
    assert command(loopback, "--only", "link") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "results of another configuration, cards.yaml" in said
    assert Path("found/report.json").read_bytes() == before


def changed(report: Report, *keys: Any, value: Any) -> str:
    place: Any = report
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(report)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: "[1", "is no JSON document"),
        (lambda _: "", "is no JSON document"),
        (lambda _: "\x00", "is no JSON document"),
        (lambda _: "[" * 100_000, "is no JSON document"),
        (lambda _: "{}", "is no report of a field test"),
        (lambda _: "[1]", "is no report of a field test"),
        (lambda _: "null", "is no report of a field test"),
        (lambda _: '"daqiri-ophyd field-test"', "is no report of a field test"),
        (lambda r: json.dumps(r)[:-100], "is no JSON document"),
        (lambda r: changed(r, "schema_version", value=99), "schema_version 99"),
        (lambda r: changed(r, "steps", value={}), "$.steps: {} is not of type 'array'"),
        (lambda r: changed(r, "steps", 0, value=3), "$.steps[0]: 3 is not of type 'object'"),
        (lambda r: changed(r, "steps", 0, "status", value="x"), "$.steps[0].status: 'x'"),
        (lambda r: changed(r, "steps", 0, "figures", value=[]), "$.steps[0].figures"),
        (lambda r: changed(r, "steps", 2, "figures", "ports", value=[1]), "figures.ports[0]"),
        (lambda r: changed(r, "steps", 2, "figures", "addresses", value=1), "figures.addresses"),
        (lambda r: changed(r, "steps", 0, "figures", "losses", value=1), "figures.losses"),
        (lambda r: changed(r, "steps", 0, "figures", "trials", value=1), "figures.trials"),
        (lambda r: changed(r, "steps", 0, "extra", value=1), "'extra' was unexpected"),
        (lambda r: changed(r, "configuration", value="x"), "$.configuration"),
        (lambda r: changed(r, "configuration", "sha256", value=7), "$.configuration.sha256"),
        (lambda r: changed(r, "settings", "seconds", value=float("nan")), "found NaN"),
        (lambda r: changed(r, "settings", "seconds", value=10**400), "$.settings.seconds"),
        (lambda r: changed(r, "host", value=None), "$.host"),
        (lambda r: changed(r, "started", value=1), "$.started"),
    ],
)
def test_other_contents_of_the_report_are_refused_by_name(
    loopback: Config,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    known_report: Report,
    change: Callable[[Report], str],
    said: str,
) -> None:
    path = Path("found/report.json")
    path.parent.mkdir()
    text = change(known_report)
    path.write_text(text)
    assert command(loopback) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"found/report.json {said}" in printed or (
        "found/report.json is" in printed and said in printed
    )
    assert "choose another folder with --output, or begin anew with --again" in printed
    assert path.read_text() == text


@pytest.fixture
def known_report(loopback: Config, make_test: Make, tmp_path: Path) -> Report:
    """A report of the test of `loopback`, without any step that sends."""
    with make_test(loopback, folder=tmp_path / "known", limit=0, seconds=1.0) as test:
        report = test.run(lambda _: None)
    return json.loads(json.dumps(report))


def test_figures_of_rates_are_complete(
    loopback: Config,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    known_report: Report,
) -> None:
    rate = next(s for s in known_report["steps"] if s["group"] == "rate")
    rate["figures"] = {"packets_per_s": 5.0}
    Path("found").mkdir()
    Path("found/report.json").write_text(json.dumps(known_report))
    assert command(loopback) == 2
    assert "'size' is a dependency of 'packets_per_s'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "said", "fix"),
    [
        (lambda path: path.mkdir(), "is a folder, not a file", "or remove it"),
        (os.mkfifo, "is a named pipe, not a file", "or begin anew with --again"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device", "or begin anew with --again"),
        (
            lambda path: (path.touch(), os.truncate(path, 10**10)),
            "has 10,000 MB; reports have at most 67",
            "or begin anew with --again",
        ),
    ],
)
def test_only_files_of_the_size_of_a_report_are_read(
    loopback: Config,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], Any],
    said: str,
    fix: str,
) -> None:
    path = Path("found/report.json")
    path.parent.mkdir()
    make(path)
    assert command(loopback) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"found/report.json {said}" in printed
    assert fix in printed


def test_a_report_of_anything_is_replaced_by_beginning_anew(
    loopback: Config, make_test: Make, tmp_path: Path
) -> None:
    folder = tmp_path / "found"
    folder.mkdir()
    os.mkfifo(folder / "report.json")
    with make_test(loopback, again=True, limit=0) as test:
        test.run(lambda _: None)
    assert read(folder)["result"] == "incomplete"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", ""], "'--output' / '-o': found ''; accepts a folder"),
        (["-o", "cards.yaml"], "'--output' / '-o': found 'cards.yaml', which is no folder"),
        (["--only", "speed"], "'--only': found 'speed'; accepts host, open, link, flow"),
        (["--only", ""], "'--only': found ''; accepts host, open, link, flow"),
    ],
)
def test_values_of_options_are_refused_by_name(
    loopback: Config,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    assert command(loopback, *words) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert sorted(map(str, Path().iterdir())) == ["cards.yaml"]


def test_texts_of_devices_cannot_change_the_terminal_or_the_page(
    loopback: Config,
    command: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: Any) -> Any:
        raise StepFailedError("card \x1b[31m\u202e\npassed   all", {"ports": []})

    monkeypatch.setattr(_steps, "_link", fail)
    assert command(loopback, "--only", "link") == 1
    escaped = r"card \x1b[31m\u202e\npassed   all"
    assert f"failed   link                   {escaped}" in capsys.readouterr().out
    assert escaped in Path("found/report.html").read_text()


def test_two_tests_do_not_share_a_folder(loopback: Config, make_test: Make, tmp_path: Path) -> None:
    with make_test(loopback), pytest.raises(OSError, match="another field test uses it"):
        make_test(loopback)
    make_test(loopback).close()


def test_a_folder_that_cannot_be_made_is_named(
    loopback: Config, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("found").write_text("a file")
    assert command(loopback, "-o", "found/deeper") == 1
    assert "found/deeper: Not a directory" in capsys.readouterr().err


@pytest.mark.root
def test_a_full_disk_ends_the_test_and_keeps_the_report(
    loopback: Config, make_test: Make, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        report = run(make_test(loopback, folder=disk, only=["link", "recorder"]))
        assert "MB free" in by_name(report)["recorder"]["text"]
        free = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize))
        with (
            make_test(loopback, folder=disk, only=["flow"]) as test,
            pytest.raises(OSError, match="No space left") as error,
        ):
            test.run(lambda _: None)
        assert error.value.filename == str(disk / "report.json")
        assert read(disk) == report
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
