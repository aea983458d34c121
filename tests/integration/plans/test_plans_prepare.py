"""Prepared captures: the given number of files and packets, and unchanged settings."""

import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus
from run_documents import until

from daqiri_ophyd import plans, profiles
from daqiri_ophyd.devices import CaptureError, CaptureTrigger, EngineStatus, make_daq
from daqiri_ophyd.engine import PcapFile, load_config

from .conftest import collect, fly, kick_off, loopback, packets, prepare, prepare_captures, settings

NAME = "daq_port0_capture"


def test_exactly_so_many_files_of_so_many_packets(daq, run_engine, documents):
    capture, tx = daq.port0.capture, daq.port0.tx.out
    capture.num_packets.put(7)
    capture.roll_seconds.put(5.0)
    before = settings(capture)

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, {"count": 300, "size": 60, "rate": 5000})
        yield from prepare_captures(capture, files=3, size=100)
        yield from kick_off(capture)
        yield from bps.trigger(tx, group="sent")
        yield from collect(capture)
        yield from bps.wait("sent")

    run_engine(plan())
    files = documents.files("primary")
    assert [packets([file]) for file in files] == [100, 100, 100]
    assert documents.stop["num_events"] == {"primary": 3}
    described = documents.descriptor()["configuration"][NAME]["data"]
    assert described[f"{NAME}_num_packets"] == 300
    assert described[f"{NAME}_roll_packets"] == 100
    assert described[f"{NAME}_roll_seconds"] == 0
    assert settings(capture) == before
    assert daq.rx_queue("port0", "frames").counters().held == 0


def test_several_flights_of_one_preparation(daq, run_engine, documents, send):
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=2)
        yield from bps.declare_stream(capture, name="primary", collect=True)
        for _ in range(3):
            yield from bps.kickoff(capture, wait=True)
            send(daq, 20)
            yield from collect(capture)

    run_engine(plan())
    files = documents.files("primary")
    assert [packets([file]) for file in files] == [10] * 6
    assert [file.name[-11:-5] for file in files] == [f"{n:06d}" for n in range(6)]
    data = [d for d in documents.of("stream_datum") if d["stream_resource"]]
    assert max(d["seq_nums"]["stop"] for d in data) == 7


def test_prepared_again_for_another_number(daq, run_engine, documents, send):
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        for number in (1, 2):
            yield from prepare_captures(capture, files=number, size=10 * number)
            yield from kick_off(capture, stream=f"flight{number}")
            send(daq, 10 * number * number)
            yield from collect(capture, stream=f"flight{number}")

    run_engine(plan())
    assert [packets([file]) for file in documents.files("flight1")] == [10]
    assert [packets([file]) for file in documents.files("flight2")] == [20, 20]
    assert capture.num_packets.get() == 0


def test_a_reading_of_a_prepared_capture(daq, run_engine, documents, send):
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture)
        for _ in range(2):
            yield from bps.trigger(capture, group="capture")
            send(daq, 10)
            yield from bps.wait("capture")
            yield from bps.create("primary")
            yield from bps.read(capture)
            yield from bps.save()
        yield from prepare_captures(capture, files=2)
        with pytest.raises(CaptureError, match=f"{NAME} is prepared for 2 files.*reading has one"):
            capture.trigger()

    run_engine(plan())
    assert [row[f"{NAME}_packets"] for row in documents.rows()] == [10, 10]
    assert [packets([file]) for file in documents.files()] == [10, 10]


# --- Start


def test_recording_begins_with_the_first_packet_of_a_flow(make, run_engine, documents, send_to):
    daq = make(start=True)
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, files=2, size=20, start="begin")
        yield from kick_off(capture)
        send_to(daq, 5000, 30)
        yield from until(lambda: capture.progress.left_out == 30)
        assert capture.progress.packets == 0
        send_to(daq, 4999, 1)
        send_to(daq, 5000, 39)
        yield from collect(capture)

    run_engine(plan())
    assert [packets([file]) for file in documents.files()] == [20, 20]
    assert capture.dropped.get() == 0
    assert documents.descriptor()["configuration"][NAME]["data"][f"{NAME}_start_flow"] == "begin"
    assert capture.start_flow.get() == ""


def test_a_start_during_a_pause_is_left_out_and_begins_nothing(
    make, run_engine, documents, send_to
):
    daq = make(start=True)
    capture = daq.port0.capture

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        trigger = CaptureTrigger(packets_per_file=20, start="begin")
        yield from bps.prepare(capture, trigger, wait=True)
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from bps.kickoff(capture, wait=True)
        capture.pause_recording()
        send_to(daq, 4999, 5)
        send_to(daq, 5000, 5)
        yield from until(lambda: capture.progress.left_out == 10)
        capture.resume_recording()
        send_to(daq, 5000, 5)
        send_to(daq, 4999, 5)
        send_to(daq, 5000, 15)
        yield from collect(capture)

    run_engine(plan())
    (file,) = documents.files()
    sidecar = json.loads(Path(f"{file}.json").read_text())
    assert (sidecar["packets"], sidecar["dropped"]) == (20, 0)
    assert sidecar["left_out_by_reason"] == {"paused": 10, "before_start": 5}


def test_a_start_that_does_not_come(make, run_engine, documents, send_to):
    daq = make(start=True)
    capture = daq.port0.capture
    capture.timeout.put(0.3)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, size=20, start="begin")
        yield from fly([capture], lambda: send_to(daq, 5000, 30))

    with pytest.raises(FailedStatus, match=r"waiting for the first packet of flow 'begin', 30 oth"):
        run_engine(plan())
    assert documents.stop["exit_status"] == "fail"
    assert "no progress for 0.3 s: 0 of 20 packets, 0 of 1 files" in documents.stop["reason"]
    assert capture.progress is None and not capture.prepared


def test_a_failure_is_told_before_the_run_can_be_closed(make, run_engine, documents, monkeypatch):
    """A status is done before its callbacks run, on a busy machine long before."""
    monkeypatch.setattr(EngineStatus, "_handle_failure", lambda _: time.sleep(0.5))
    daq = make()
    capture = daq.port0.capture
    capture.timeout.put(0.3)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture, size=20)
        yield from kick_off(capture)
        yield from collect(capture)

    with pytest.raises(FailedStatus, match="0 of 20 packets"):
        run_engine(plan())
    assert documents.stop["exit_status"] == "fail"


# --- Refusals


def test_a_flow_with_id_0_cannot_start_it(captures):
    """Packets that match no flow also have this id."""
    configuration = loopback(start=True)
    configuration["interfaces"][0]["rx"]["flows"][0]["id"] = 0
    with make_daq(configuration, "daq", directory=captures) as daq:
        capture = daq.port0.capture
        before = settings(capture)
        capture.stage()
        with pytest.raises(CaptureError, match="flow 'begin' has id 0, as packets that match no"):
            capture.prepare(CaptureTrigger(packets_per_file=5, start="begin"))
        assert settings(capture) == before
        capture.unstage()


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (3, TypeError, "cannot be prepared with 3; accepted are CaptureTrigger"),
        (
            CaptureTrigger(packets_per_file=5, start="absent"),
            CaptureError,
            "port 'port0' has no flow 'absent'; there are 'images', 'other'",
        ),
        (
            CaptureTrigger(packets_per_file=5, start="other"),
            CaptureError,
            "flow 'other' leads to rest, and 'frames' is recorded",
        ),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(daq, value, error, message):
    capture = daq.port0.capture
    before = settings(capture)
    with pytest.raises(CaptureError, match="is not staged"):
        capture.prepare(CaptureTrigger(packets_per_file=5))
    capture.stage()
    with pytest.raises(error, match=message):
        capture.prepare(value)
    assert settings(capture) == before
    assert not capture.prepared
    capture.unstage()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("queues", "all", "2 queues cannot have an exact number of packets.*a capture for each"),
        ("on_error", "resume", "capture_on_error is 'resume': after an error a file is not full"),
    ],
)
def test_settings_that_do_not_go_with_it(daq, setting, value, message):
    capture = daq.port0.capture
    getattr(capture, setting).put(value)
    capture.stage()
    with pytest.raises(CaptureError, match=message):
        capture.prepare(CaptureTrigger(packets_per_file=5))
    capture.unstage()


def test_reductions_do_not_go_with_it(daq):
    capture = daq.port0.capture
    capture.reductions = {"longest": len}
    capture.stage()
    with pytest.raises(CaptureError, match="reductions are events, and a prepared capture has non"):
        capture.prepare(CaptureTrigger(packets_per_file=5))
    capture.unstage()


def test_a_setting_that_is_changed_after_it(daq):
    capture = daq.port0.capture
    capture.stage()
    capture.prepare(CaptureTrigger(number_of_files=2, packets_per_file=5))
    capture.num_packets.put(3)
    with pytest.raises(CaptureError, match="capture_num_packets is 3 and was prepared as 10"):
        capture.kickoff()
    capture.num_packets.put(10)
    capture.on_error.put("resume")
    with pytest.raises(CaptureError, match="capture_on_error is 'resume'"):
        capture.kickoff()
    capture.unstage()
    assert capture.num_packets.get() == 0


def test_prepare_while_it_records(daq):
    capture = daq.port0.capture
    capture.stage()
    capture.prepare(CaptureTrigger(packets_per_file=5))
    capture.kickoff()
    with pytest.raises(CaptureError, match="is recording; complete that first"):
        capture.prepare(CaptureTrigger(packets_per_file=6))
    capture.unstage()
    assert settings(capture)[f"{NAME}_roll_packets"] == 0


# --- Other engines, other ways


@pytest.mark.parametrize("name", ["loopback", "udp"])
def test_files_of_equally_many_packets_on_each_engine(profile, run_engine, documents, name):
    _, capture, tx = profile(name)

    @bpp.stage_decorator([capture, tx])
    @bpp.run_decorator()
    def plan():
        yield from prepare(tx, {"count": 250, "size": 60, "rate": 5000})
        yield from prepare_captures(capture, files=5, size=50)
        yield from plans.capture_during(capture, bps.null(), tx=tx)

    run_engine(plan())
    assert [packets([file]) for file in documents.files("primary")] == [50] * 5
    (row,) = documents.rows("transmit")
    assert row[f"{tx.name}_sent"] == 250


def test_a_start_on_udp(captures, run_engine, documents):
    """The trigger comes from another sender than the data."""
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    sockets = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
        one.connect(("127.0.0.1", port))
    data, trigger = sockets
    config = yaml.safe_load(profiles.path("udp").read_text().replace("47100", str(port)))
    cfg = config["daqiri"]["cfg"]
    cfg["interfaces"] = cfg["interfaces"][:1]
    cfg["interfaces"][0]["rx"]["flows"] = [
        {
            "name": "begin",
            "id": 3,
            "match": {"udp_src": trigger.getsockname()[1]},
            "action": {"type": "queue", "id": cfg["interfaces"][0]["rx"]["queues"][0]["id"]},
        },
        {
            "name": "data",
            "id": 4,
            "match": {"udp_src": data.getsockname()[1]},
            "action": {"type": "queue", "id": cfg["interfaces"][0]["rx"]["queues"][0]["id"]},
        },
    ]
    cfg["memory_regions"] = cfg["memory_regions"][:1]

    with make_daq(load_config(config), "daq", directory=captures) as daq:
        capture = daq.receiver.capture

        @bpp.stage_decorator([capture])
        @bpp.run_decorator()
        def plan():
            yield from prepare_captures(capture, start="begin")
            yield from kick_off(capture)
            for _ in range(5):
                data.send(b"early")
            yield from until(lambda: capture.progress.left_out == 5)
            trigger.send(b"now")
            for _ in range(9):
                data.send(b"data")
            yield from collect(capture)

        run_engine(plan())
    for one in sockets:
        one.close()
    (file,) = documents.files()
    with PcapFile(file) as stored:
        assert len(stored) == 10
        assert stored[0].tobytes().endswith(b"now")
    sidecar = json.loads(file.with_name(file.name + ".json").read_text())
    assert sidecar["left_out_by_reason"] == {"before_start": 5}
    assert sidecar["dropped"] == 0


def test_a_trigger_info_with_the_packets_that_files_have(daq, run_engine, documents, send):
    capture = daq.port0.capture
    capture.roll_packets.put(10)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        for number in (1, 2):
            info = SimpleNamespace(number_of_events=number, trigger=None)
            yield from bps.prepare(capture, info, wait=True)
        yield from fly([capture], lambda: send(daq, 20))

    run_engine(plan())
    assert [packets([file]) for file in documents.files()] == [10, 10]
    assert capture.roll_packets.get() == 10
