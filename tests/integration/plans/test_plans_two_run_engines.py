"""A second RunEngine, on another thread, that uses the same engine."""

import threading

import pytest
from bluesky import plan_stubs as bps
from bluesky import plans as bp
from bluesky.utils import RunEngineInterrupted
from ophyd.sim import det
from ophyd.utils import RedundantStaging
from run_documents import Documents, new_run_engine, until

from daqiri_ophyd import plans

IN_USE = (
    "daq is in use: a plan of another RunEngine of this process has staged it or a part of it. "
    "Wait until that plan has ended."
)


@pytest.fixture
def second():
    with new_run_engine() as engine:
        yield engine


@pytest.fixture
def in_background(run_engine):
    """Run plans of the first RunEngine on a thread."""
    threads, errors = [], []

    def start(plan):
        def run():
            try:
                run_engine(plan)
            except Exception as error:
                errors.append(error)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(60)
    assert not errors


def scan(capture, began, released):
    """Three readings of a capture; the second waits for the test."""
    for point in range(3):
        yield from bps.trigger_and_read([capture])
        if point == 1:
            began.set()
            yield from until(released.is_set)


def staged_run(capture, began, released):
    yield from bps.stage(capture.root, wait=True)
    yield from bps.open_run()
    yield from scan(capture, began, released)
    yield from bps.close_run()
    yield from bps.unstage(capture.root)


@pytest.mark.parametrize("other", ["the same", "another queue's", "the engine", "a plan"])
def test_it_is_refused_and_the_first_scan_ends(
    both, run_engine, second, documents, in_background, other
):
    daq, capture, rest = both
    capture.acquire_time.put(0.05)
    rest.acquire_time.put(0.05)
    plan = {
        "the same": lambda: bp.count([capture]),
        "another queue's": lambda: bp.count([rest]),
        "the engine": lambda: bp.count([daq]),
        "a plan": lambda: plans.capture(capture, 10, acquire_time=1.0),
    }[other]
    began, released = threading.Event(), threading.Event()
    in_background(staged_run(capture, began, released))
    assert began.wait(60)
    theirs = Documents()
    second.subscribe(theirs.take)
    for _ in range(2):
        with pytest.raises(RuntimeError) as raised:
            second(plan())
        assert str(raised.value) == IN_USE
    assert capture.num_packets.get() == 0  # no setting was changed meanwhile
    assert theirs == []
    released.set()
    while not documents.of("stop"):
        pass
    assert documents.stop["exit_status"] == "success"
    assert [row[capture.packets.name] for row in documents.rows()] == [0, 0, 0]


@pytest.mark.files_in_no_document("documents of the second RunEngine are not kept")
def test_it_may_use_the_engine_between_plans_and_after_the_first_has_unstaged_it(
    both, run_engine, second, documents, in_background
):
    _, capture, rest = both
    capture.acquire_time.put(0.05)
    rest.acquire_time.put(0.05)
    began, released = threading.Event(), threading.Event()

    def plan():
        yield from bp.count([capture])
        began.set()
        yield from until(released.is_set)
        yield from bp.count([det])

    in_background(plan())
    assert began.wait(60)
    second(bp.count([rest]))
    released.set()


def test_a_plan_that_is_paused_keeps_the_engine(both, run_engine, second, documents):
    _, capture, rest = both
    capture.acquire_time.put(0.05)
    rest.acquire_time.put(0.05)

    def paused():
        yield from bps.pause()

    with pytest.raises(RunEngineInterrupted):
        run_engine(bp.count([capture], 2, per_shot=lambda *_: (yield from paused())))
    with pytest.raises(RuntimeError, match="daq is in use"):
        second(bp.count([rest]))
    run_engine.abort()
    second(bp.count([rest]))


def test_staging_twice_names_the_device_only(daq, run_engine):
    def twice():
        yield from bps.stage(daq, wait=True)
        yield from bps.stage(daq, wait=True)

    with pytest.raises(RedundantStaging) as raised:
        run_engine(twice())
    assert str(raised.value) == "daq is already staged. Unstage it first."
