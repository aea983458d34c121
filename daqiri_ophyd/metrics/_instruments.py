"""The metrics of an engine: names, units, attributes, and where their values are in a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..engine import LATENESS_BOUNDS_NS, EngineSnapshot, UnreadableEngine
from ..ship import ShipperSnapshot

__all__ = ["INSTRUMENTS", "Instrument", "Measurement", "measure"]

Attributes = tuple[tuple[str, str], ...]

_REORDER_DROPS = ("duplicate", "late", "early", "malformed", "left_out", "no_buffer")
_FRAMES = ("complete", "incomplete", "lost", "skipped")


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric.

    Parameters
    ----------
    name : str
        In the style of OpenTelemetry, with dots.
    unit : str
        Unit in UCUM; a text in braces is what is counted.
    kind : {"counter", "gauge", "histogram"}
        Counters never decrease while their engine is open.
    description : str
        One sentence.
    """

    name: str
    unit: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of a metric.

    Parameters
    ----------
    instrument : Instrument
        The metric.
    attributes : tuple of (str, str)
        Names and values of its attributes.
    values : tuple of int or float
        One value; of a histogram: counts up to each of `LATENESS_BOUNDS_NS`, then all.
    """

    instrument: Instrument
    attributes: Attributes
    values: tuple[float, ...]


def _counter(name: str, unit: str, description: str) -> Instrument:
    return Instrument(name, unit, "counter", description)


def _gauge(name: str, unit: str, description: str) -> Instrument:
    return Instrument(name, unit, "gauge", description)


_RX_PACKETS = _counter("daqiri.rx.packets", "{packet}", "Packets that arrived in a receive queue.")
_RX_BYTES = _counter("daqiri.rx.bytes", "By", "Bytes of packets that arrived in a receive queue.")
_TX_PACKETS = _counter("daqiri.tx.packets", "{packet}", "Packets that a transmit queue sent.")
_TX_BYTES = _counter("daqiri.tx.bytes", "By", "Bytes of packets that a transmit queue sent.")
_DROPPED = _counter(
    "daqiri.dropped.packets", "{packet}", "Packets that a queue dropped, by reason."
)
_TRUNCATED = _counter(
    "daqiri.rx.truncated.packets", "{packet}", "Packets that were cut to the size of their buffer."
)
_LATE = _counter(
    "daqiri.tx.late.packets",
    "{packet}",
    "Packets whose launch time had passed when they were submitted.",
)
_LATENESS = Instrument(
    "daqiri.tx.lateness", "s", "histogram", "Time from the launch time of packets to their launch."
)
_HELD = _gauge("daqiri.queue.held.packets", "{packet}", "Packets that are in a queue.")
_RING = _gauge("daqiri.queue.ring.bursts", "{burst}", "Bursts in the ring of a queue.")
_RING_SIZE = _gauge("daqiri.queue.ring.capacity", "{burst}", "Bursts that fit into the ring.")
_BURSTS_FREE = _gauge("daqiri.queue.free.bursts", "{burst}", "Free bursts of a queue.")
_LOST = _counter(
    "daqiri.port.lost.packets",
    "{packet}",
    "Packets of a port's network interface that were lost before the engine, by reason.",
)
_FLOW_PACKETS = _counter("daqiri.flow.packets", "{packet}", "Packets that a flow matched.")
_FLOW_BYTES = _counter("daqiri.flow.bytes", "By", "Bytes of packets that a flow matched.")
_FRAME = _counter(
    "daqiri.frames",
    "{frame}",
    "Frames of a reorder plan: complete, incomplete, lost (not delivered), or skipped (no packet "
    "came).",
)
_MISSING = _counter(
    "daqiri.frames.missing.packets", "{packet}", "Packets missing in incomplete frames."
)
_UNTAKEN = _counter("daqiri.frames.untaken", "{frame}", "Frames that no receiver read.")
_REORDER_DROPPED = _counter(
    "daqiri.reorder.dropped.packets", "{packet}", "Packets that a reorder plan left out, by reason."
)
_FREE = _gauge("daqiri.memory.free.buffers", "{buffer}", "Free buffers of a memory region.")
_BUFFERS = _gauge("daqiri.memory.buffers", "{buffer}", "Buffers of a memory region.")
_OPENED = _gauge("daqiri.engine.opened", "s", "Time when the engine was opened, since the epoch.")
_SHIPPED = _counter("daqiri.ship.files", "{file}", "Files that a process uploaded to a store.")
_SHIPPED_BYTES = _counter("daqiri.ship.bytes", "By", "Bytes of files that a process uploaded.")
_UNSENT = _gauge("daqiri.ship.unsent.files", "{file}", "Files that are not in their store yet.")
_UNSENT_BYTES = _gauge("daqiri.ship.unsent.bytes", "By", "Bytes that are not in their store yet.")
_UNSENT_AGE = _gauge("daqiri.ship.unsent.age", "s", "Age of the oldest file that is not there yet.")
_FAILING = _gauge("daqiri.ship.failing", "{store}", "Stores whose latest upload failed.")
_UNREADABLE = _gauge("daqiri.engine.unreadable", "{engine}", "Engines that do not answer.")

INSTRUMENTS = tuple(each for each in globals().values() if isinstance(each, Instrument))
"""All metrics."""

LATENESS_LABELS = (*(repr(ns / 1e9) for ns in LATENESS_BOUNDS_NS), "+Inf")
"""Upper bounds of the histogram of lateness, s, as text."""


def measure(
    engine: EngineSnapshot | UnreadableEngine | ShipperSnapshot,
) -> Iterator[Measurement]:
    """Yield the measurements of an engine, or of uploads.

    Parameters
    ----------
    engine : EngineSnapshot, UnreadableEngine or ShipperSnapshot
        As `ask_engines` or `running_shippers` returns it.
    """
    if isinstance(engine, ShipperSnapshot):
        store = (("process.pid", str(engine.pid)), ("daqiri.store", engine.bucket))
        state = engine.state
        yield Measurement(_SHIPPED, store, (state.shipped,))
        yield Measurement(_SHIPPED_BYTES, store, (state.shipped_bytes,))
        yield Measurement(_UNSENT, store, (state.unsent,))
        yield Measurement(_UNSENT_BYTES, store, (state.unsent_bytes,))
        yield Measurement(_UNSENT_AGE, store, (state.oldest_s,))
        yield Measurement(_FAILING, store, (int(bool(state.error)),))
        return
    if isinstance(engine, UnreadableEngine):
        yield Measurement(_UNREADABLE, (("process.pid", str(engine.pid)),), (1,))
        return
    common = (("process.pid", str(engine.pid)), ("daqiri.engine", engine.engine))
    numbers = {state.port: str(number) for number, state in enumerate(engine.ports)}

    def of_port(port: str, *others: tuple[str, str]) -> Attributes:
        if not port:  # of a plan with flows of several
            return (*common, *others)
        name = (("daqiri.interface.name", port), ("daqiri.port.id", numbers[port]))
        return (*common, *name, *others)

    yield Measurement(_OPENED, common, (engine.opened_ns / 1e9,))
    for state in engine.ports:
        yield from _by_reason(_LOST, of_port(state.port), state.counters.by_reason)
    for rx in engine.rx:
        queue = of_port(rx.port, *_queue(rx, "receive"))
        yield Measurement(_RX_PACKETS, queue, (rx.counters.received,))
        yield Measurement(_RX_BYTES, queue, (rx.counters.received_bytes,))
        yield Measurement(_TRUNCATED, queue, (rx.counters.truncated,))
        yield from _of_queue(rx, queue)
    for tx in engine.tx:
        queue = of_port(tx.port, *_queue(tx, "transmit"))
        yield Measurement(_TX_PACKETS, queue, (tx.counters.sent,))
        yield Measurement(_TX_BYTES, queue, (tx.counters.sent_bytes,))
        yield Measurement(_LATE, queue, (tx.counters.late,))
        yield Measurement(_LATENESS, queue, tx.lateness_counts)
        yield from _of_queue(tx, queue)
    for flow in engine.flows:
        named = of_port(flow.port, ("daqiri.flow.name", flow.flow))
        yield Measurement(_FLOW_PACKETS, named, (flow.counters.packets,))
        yield Measurement(_FLOW_BYTES, named, (flow.counters.bytes,))
    for plan in engine.reorder:
        named = of_port(plan.port, ("daqiri.reorder.plan", plan.plan))
        for state in _FRAMES:
            of_state = (*named, ("daqiri.frame.state", state))
            yield Measurement(_FRAME, of_state, (getattr(plan.counters, state),))
        yield Measurement(_MISSING, named, (plan.counters.missing,))
        yield Measurement(_UNTAKEN, named, (plan.counters.untaken,))
        drops = {reason: getattr(plan.counters, reason) for reason in _REORDER_DROPS}
        yield from _by_reason(_REORDER_DROPPED, named, drops)
    for region in engine.regions:
        named = (*common, ("daqiri.memory.region", region.name))
        yield Measurement(_FREE, named, (region.free,))
        yield Measurement(_BUFFERS, named, (region.buffers,))


def _queue(state: Any, direction: str) -> Attributes:
    return (
        ("daqiri.queue.id", str(state.id)),
        ("daqiri.queue.name", state.queue),
        ("network.io.direction", direction),
    )


def _of_queue(state: Any, queue: Attributes) -> Iterator[Measurement]:
    yield Measurement(_HELD, queue, (state.counters.held,))
    yield Measurement(_RING, queue, (state.levels.ring,))
    yield Measurement(_RING_SIZE, queue, (state.levels.ring_capacity,))
    yield Measurement(_BURSTS_FREE, queue, (state.levels.bursts_free,))
    yield from _by_reason(_DROPPED, queue, state.counters.dropped)


def _by_reason(
    instrument: Instrument, attributes: Attributes, counts: Mapping[str, int]
) -> Iterator[Measurement]:
    for reason, count in counts.items():
        yield Measurement(instrument, (*attributes, ("daqiri.drop.reason", reason)), (count,))
