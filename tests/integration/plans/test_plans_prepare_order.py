"""Calls of prepared captures in an unusual order, and devices that share a stream with them."""

import pytest
from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, RunEngineInterrupted

from daqiri_ophyd import plans
from daqiri_ophyd.catalog import capture_files
from daqiri_ophyd.devices import CaptureError, CaptureTrigger

from .conftest import collect, fly, packets, prepare_captures, settings

NAME = "daq_port0_capture"


def motion():
    yield from bps.null()


def test_a_flight_that_was_not_kicked_off_is_not_complete(daq, run_engine, send):
    capture = daq.port0.capture

    def flight():
        yield from prepare_captures(capture)
        yield from fly([capture], lambda: send(daq, 10))

    run_engine(bpp.stage_wrapper(bpp.run_wrapper(flight()), [capture]))
    capture.stage()
    with pytest.raises(CaptureError, match=f"{NAME}: no fly scan to complete; kick it off first"):
        capture.complete()
    capture.prepare(CaptureTrigger(packets_per_file=10))
    with pytest.raises(CaptureError, match="no fly scan to complete"):
        capture.complete()
    capture.unstage()


def test_a_stream_is_declared_after_prepare(daq, run_engine, send):
    capture = daq.port0.capture
    before = settings(capture)

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from bps.declare_stream(capture, name="primary", collect=True)
        yield from prepare_captures(capture)
        yield from bps.kickoff(capture, wait=True)
        send(daq, 10)
        yield from collect(capture)

    with pytest.raises(CaptureError, match="stream was declared before prepare"):
        run_engine(plan())
    assert settings(capture) == before


def test_readings_do_not_count_as_rows_of_a_shared_stream(both, run_engine, documents, send_to):
    """One of two captures takes a dark file before both fly."""
    daq, first, second = both

    @bpp.stage_decorator([first, second])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(first, second)
        yield from bps.trigger(first, group="dark")
        send_to(daq, 5000, 10)
        yield from bps.wait("dark")
        yield from bps.create("dark")
        yield from bps.read(first)
        yield from bps.save()
        yield from fly([first, second], lambda: [send_to(daq, p, 10) for p in (5000, 5001)])

    run_engine(plan())
    assert [file.name[-11:-5] for file in documents.files("dark")] == ["000000"]
    names = [(file.parent.name, file.name[-11:-5]) for file in documents.files("primary")]
    assert sorted(number for _, number in names) == ["000000", "000001"]
    assert documents.stop["num_events"] == {"dark": 1, "primary": 1}


def test_a_new_directory_for_each_run_of_one_of_two(both, run_engine, documents, send_to):
    daq, first, second = both
    first.path.put("{uid}")
    run_engine.subscribe(daq.run_started, "start")

    @bpp.stage_decorator([first, second])
    def plan():
        yield from prepare_captures(first, second, files=2)
        for _ in range(2):
            yield from bps.open_run()
            yield from fly([first, second], lambda: [send_to(daq, p, 20) for p in (5000, 5001)])
            yield from bps.close_run()

    run_engine(plan())
    assert [stop["num_events"] for stop in documents.of("stop")] == [{"primary": 2}] * 2
    assert packets(documents.files()) == 80


def test_a_capture_that_has_failed_does_not_fly_again_unprepared(both, run_engine, send_to):
    daq, first, second = both
    second.timeout.put(0.3)

    @bpp.stage_decorator([first, second])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(first, second, files=2)
        yield from bps.declare_stream(first, second, name="primary", collect=True)
        with pytest.raises(FailedStatus):
            yield from fly([first, second], lambda: [send_to(daq, p, 20) for p in (5000,)])
        second.stop()
        yield from bps.kickoff_all(first, second, wait=True)

    text = "rest_capture: its latest flight failed. Prepare it, and what shares its stream, again"
    with pytest.raises(Exception, match=text):
        run_engine(plan())
    assert not any(capture.prepared for capture in (first, second))


def test_renamed_counters_are_read_from_the_files(daq, run_engine, catalog, send):
    capture = daq.port0.capture
    capture.packets.name = "frames"

    @bpp.stage_decorator([capture])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(capture)
        yield from fly([capture], lambda: send(daq, 10))

    (uid,) = run_engine(plan())
    run = catalog.client[uid]
    assert run["primary"].read()["frames"].values.tolist() == [10]
    assert packets(capture_files(run)) == 10


@pytest.mark.parametrize("given", [None, [], "capture", [None]])
def test_what_is_not_a_capture_is_refused(run_engine, given):
    with pytest.raises(TypeError, match="detector is .*accepted are a capture"):
        run_engine(plans.capture_during(given, motion()))


def test_a_capture_of_other_files_than_another_is_refused_before_it_starts(both, run_engine):
    _, first, second = both

    def plan(*captures):
        yield from prepare_captures(first, files=3)
        yield from prepare_captures(second, files=4)
        yield from plans.capture_during(captures, motion())

    for captures in [(first, second), (first, first)]:
        staged = bpp.stage_wrapper(bpp.run_wrapper(plan(*captures)), [first, second])
        with pytest.raises(ValueError, match="equal numbers of rows.*, each.*frames_capture: 3"):
            run_engine(staged)
    assert not list((first.files, second.files)[0])


def test_numbers_that_an_engine_cannot_count_are_refused(daq):
    capture = daq.port0.capture
    with pytest.raises(TypeError, match="num_packets is inf; accepted is an integer"):
        capture.num_packets.put(float("inf"))
    with pytest.raises(ValueError, match="num_packets is 9223372036854775808; accepted are 64 bit"):
        capture.num_packets.put(1 << 63)
    with pytest.raises(TypeError, match="capture_deadtime is 1000.*; accepted is a number"):
        capture.deadtime.put(10**400)


def test_a_pause_in_the_last_collection(both, run_engine, documents, send_to):
    """The RunEngine cancels it while it waits for the indices of several captures."""
    daq, first, second = both
    paused = []

    def pause(msg):
        if msg.command == "collect" and not paused and len(second.files) == 2:
            paused.append(msg)
            loop = run_engine.loop
            loop.call_soon(lambda: loop.create_task(run_engine._request_pause_coro()))

    def send():
        yield from bps.null()
        if not daq.port0.flows.images.packets.get():
            send_to(daq, 5000, 20)
            send_to(daq, 5001, 20)

    @bpp.stage_decorator([first, second])
    @bpp.run_decorator()
    def plan():
        yield from prepare_captures(first, second, files=2)
        yield from plans.capture_during([first, second], send(), flush_period=60)

    run_engine.msg_hook = pause
    with pytest.raises(RunEngineInterrupted):
        run_engine(plan())
    run_engine.resume()
    assert documents.stop["num_events"] == {"primary": 2}
    assert len(documents.files()) == 4


def test_one_of_two_that_is_prepared_again_counts_rows_anew(
    both, run_engine, documents, send_to, caplog
):
    """The rows of the other continue, so that its next files are in no row."""
    daq, first, second = both

    def send():
        for port in (5000, 5001):
            send_to(daq, port, 10)

    @bpp.stage_decorator([first, second])
    @bpp.run_decorator()
    def plan(again):
        yield from prepare_captures(first, second)
        yield from fly([first, second], send)
        yield from prepare_captures(*again)
        yield from bps.kickoff_all(first, second, wait=True)
        send()
        yield from collect(first, second)

    run_engine(plan(both[1:]))
    assert documents.stop["num_events"] == {"primary": 2}
    # The plan fails in Bluesky, which gets no documents of the other.
    with pytest.raises(RuntimeError, match="rest_capture_files"):
        run_engine(plan([first]))
    assert documents.stop["exit_status"] == "fail"
    assert "rest_capture: 1 files are in no document" in caplog.text
