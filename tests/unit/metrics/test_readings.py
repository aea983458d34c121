"""Counters of engines over openings, resets and engines that do not answer."""

import dataclasses
import os
import subprocess

from hypothesis import given
from hypothesis import strategies as st

from daqiri_ophyd.engine import (
    EngineSnapshot,
    FlowCounters,
    FlowState,
    PortCounters,
    PortState,
    QueueLevels,
    RegionState,
    RxCounters,
    RxQueueState,
    UnreadableEngine,
)
from daqiri_ophyd.metrics._readings import Answer, Readings

OWN = os.getpid()


def engine(received: int, opened: int = 1, pid: int = OWN, free: int = 3) -> EngineSnapshot:
    """An engine with one receive queue."""
    return EngineSnapshot(
        engine="loopback",
        pid=pid,
        opened_ns=opened,
        time_ns=0,
        steady_ns=0,
        ports=(PortState("p", PortCounters(0, 0, 0, 0, 0)),),
        rx=(
            RxQueueState(
                port="p",
                queue="q",
                id=4,
                counters=RxCounters(received, 0, received, 0, 0, 0, 0, {"kernel": 0}),
                levels=QueueLevels(0, 1, 1, 1),
                receive_path="",
            ),
        ),
        tx=(),
        flows=(),
        reorder=(),
        regions=(RegionState("m", free, 8, 64),),
    )


class Engines:
    """Engines that are asked; a test changes them."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.readings = Readings(ask=lambda: list(self.answers))

    def read(self, *answers: Answer, name: str = "daqiri.rx.packets") -> list[float]:
        """Return the values of a metric."""
        self.answers = list(answers)
        found = [s for s in self.readings.read() if s.instrument.name == name]
        return [value for series in found for value in series.values]


def test_counters_go_on_when_an_engine_is_opened_anew() -> None:
    engines = Engines()
    assert engines.read(engine(5)) == [5]
    assert engines.read() == []
    assert engines.read(engine(3, opened=2)) == [8]
    assert engines.read(engine(4, opened=2)) == [9]


def test_two_engines_with_the_same_names_are_one_series() -> None:
    engines = Engines()
    assert engines.read(engine(5), engine(2, opened=2)) == [7]
    assert engines.read(engine(6), engine(3, opened=2)) == [9]
    assert engines.read(engine(3, opened=2)) == [9]
    assert engines.read(engine(1), engine(1, 2), name="daqiri.memory.free.buffers") == [6]


def test_counters_that_were_cleared_do_not_decrease() -> None:
    engines = Engines()
    assert engines.read(engine(5)) == [5]
    assert engines.read(engine(2)) == [7]


def test_an_engine_that_did_not_answer_is_not_counted_twice() -> None:
    engines = Engines()
    assert engines.read(engine(5)) == [5]
    silent = UnreadableEngine(OWN, 0, "does not answer within 2 s")
    assert engines.read(silent) == []
    assert engines.read(silent, name="daqiri.engine.unreadable") == [1]
    assert engines.read(engine(6)) == [6]


def test_processes_are_series_of_their_own_and_are_forgotten_when_they_end() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    engines = Engines()
    assert engines.read(engine(5), engine(2, pid=ended.pid)) == [5, 2]
    assert engines.read(engine(5)) == [5]
    assert engines.read(engine(5), engine(3, opened=9, pid=ended.pid)) == [5, 3]
    own = Readings(OWN, ask=lambda: [engine(5), engine(2, pid=ended.pid)])
    pids = {series.attributes["process.pid"] for series in own.read()}
    assert pids == {str(OWN)}


def test_flows_that_were_removed_are_forgotten() -> None:
    engines = Engines()

    def with_flows(*names: str) -> EngineSnapshot:
        flows = tuple(FlowState("p", name, FlowCounters(packets=2, bytes=9)) for name in names)
        return dataclasses.replace(engine(5), flows=flows)

    kept = len(engines.read(with_flows("always"))) + len(engines.readings._totals)
    for number in range(100):
        assert engines.read(with_flows("always", f"f{number}"), name="daqiri.flow.packets") == [
            2,
            2,
        ]
    engines.read(with_flows("always"))
    assert 1 + len(engines.readings._totals) == kept


def test_attributes_and_time_of_the_first_opening() -> None:
    readings = Readings(ask=lambda: [engine(5, opened=2_500_000_000)])
    (series,) = [s for s in readings.read() if s.instrument.name == "daqiri.rx.packets"]
    assert series.created == 2.5
    assert series.attributes == {
        "process.pid": str(OWN),
        "daqiri.engine": "loopback",
        "daqiri.interface.name": "p",
        "daqiri.port.id": "0",
        "daqiri.queue.id": "4",
        "daqiri.queue.name": "q",
        "network.io.direction": "receive",
    }


def test_a_reading_is_used_for_so_long() -> None:
    asked: list[int] = []

    def ask() -> list[Answer]:
        asked.append(1)
        return [engine(len(asked))]

    readings = Readings(ask=ask)
    assert readings.read(1e6) is readings.read(1e6)
    readings.read()
    assert len(asked) == 2


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=3, unique_by=lambda e: e[0]
        )
    )
)
def test_a_series_is_the_sum_of_all_increases(readings: list[list[tuple[int, int]]]) -> None:
    """Each reading: the engines that are open, and by how much each has increased."""
    engines = Engines()
    totals: dict[int, int] = {}
    seen: set[int] = set()
    expected = 0
    for opened in readings:
        open_now = {number for number, _ in opened}
        # One that is closed does not come back.
        usable = [(n, more) for n, more in opened if n not in seen - set(totals)]
        for number, more in usable:
            totals[number] = totals.get(number, 0) + more
            expected += more
        seen |= open_now
        totals = {n: value for n, value in totals.items() if n in open_now}
        got = engines.read(*(engine(totals[n], opened=n + 1) for n, _ in usable))
        assert got == ([expected] if usable else [])


def test_snapshots_are_not_changed_by_readings() -> None:
    snapshot = engine(5)
    before = dataclasses.asdict(snapshot)
    Readings(ask=lambda: [snapshot]).read()
    assert dataclasses.asdict(snapshot) == before
