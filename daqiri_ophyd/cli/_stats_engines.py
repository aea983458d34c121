"""Counters and rates of running engines, as tables or JSON."""

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..engine import Engine, EngineSnapshot, RxQueue, UnreadableEngine, ask_engines
from ..ship import ShipperSnapshot, running_shippers
from ._output import out, print_json_line, print_message, print_whole, printable
from ._source import load_source

_Answer = EngineSnapshot | UnreadableEngine | ShipperSnapshot
_TakeSnapshots = Callable[[], list[_Answer]]


def show_engines(
    config: str | None, pid: int | None, interval: float, count: int, as_json: bool
) -> None:
    """Show the engine of a configuration, or running engines, until Ctrl-C or so many updates."""
    with _snapshots_of(config, pid) as take, suppress(KeyboardInterrupt):
        _show(_states(take, interval, count), as_json)


def _show(
    updates: Iterator[list["_State | UnreadableEngine | ShipperSnapshot"]], as_json: bool
) -> None:
    if as_json:
        for states in updates:
            for state in states:
                is_engine = isinstance(state, _State)
                print_json_line(state.report() if is_engine else dataclasses.asdict(state))
    elif out.is_terminal:
        with Live(console=out, auto_refresh=False) as live:
            for states in updates:
                live.update(_tables(states), refresh=True)
    else:
        for states in updates:
            print_whole(_tables(states))


class _State:
    """Snapshot of an engine, with rates since the previous one."""

    def __init__(self, now: EngineSnapshot, before: EngineSnapshot | None) -> None:
        self.now = now
        self._before = before

    def rate(self, side: str, index: int, counter: str) -> float:
        """Return increments per second of a counter of a queue or flow; 0 in the first snapshot."""
        if self._before is None or self._before.steady_ns == self.now.steady_ns:
            return 0.0
        seconds = (self.now.steady_ns - self._before.steady_ns) / 1e9
        parts, parts_before = getattr(self.now, side), getattr(self._before, side)
        if len(parts) != len(parts_before):
            return 0.0
        if side == "flows" and parts[index].flow != parts_before[index].flow:
            return 0.0  # flows were added or removed
        new, old = parts[index].counters, parts_before[index].counters
        return (getattr(new, counter) - getattr(old, counter)) / seconds

    def frame_rate(self, index: int) -> float:
        """Return the frames per second that a reorder plan delivers."""
        return sum(self.rate("reorder", index, each) for each in ("complete", "incomplete"))

    def report(self) -> dict[str, Any]:
        """Return the snapshot with rates, for JSON."""
        document = dataclasses.asdict(self.now)
        for side, packets, size in (
            ("rx", "received", "received_bytes"),
            ("tx", "sent", "sent_bytes"),
            ("flows", "packets", "bytes"),
        ):
            for index, part in enumerate(document[side]):
                part["packets_per_s"] = self.rate(side, index, packets)
                part["bits_per_s"] = 8 * self.rate(side, index, size)
        for index, part in enumerate(document["reorder"]):
            part["frames_per_s"] = self.frame_rate(index)
        return document


_Shown = _State | UnreadableEngine | ShipperSnapshot


@contextmanager
def _snapshots_of(config: str | None, pid: int | None) -> Iterator[_TakeSnapshots]:
    if config is None:
        yield lambda: [s for s in _ask() if pid is None or s.pid == pid]
        return
    with Engine.open(load_source(config)) as engine:
        for port in engine.ports:
            for queue in port.rx:
                threading.Thread(target=_discard, args=(queue,), daemon=True).start()
        yield lambda: [engine.snapshot()]


def _ask() -> list[_Answer]:
    return [*ask_engines(), *running_shippers()]


def _discard(queue: RxQueue) -> None:
    """Receive and release bursts until the queue is closed."""
    for burst in queue.bursts(timeout=None):
        burst.release()


def _states(take: _TakeSnapshots, interval: float, count: int) -> Iterator[list[_Shown]]:
    """Yield the states of all engines every ``interval`` seconds, until none is running."""
    before: dict[tuple[int, int], EngineSnapshot] = {}
    due = time.monotonic()
    for done in itertools.count(1):
        answers = take()
        if not answers:
            if done == 1:
                raise LookupError("no engine is running; start one, or give a configuration")
            print_message("no engine is running anymore")
            return
        yield [
            _State(a, before.get((a.pid, a.opened_ns))) if isinstance(a, EngineSnapshot) else a
            for a in answers
        ]
        if done == count:
            return
        before = {(s.pid, s.opened_ns): s for s in answers if isinstance(s, EngineSnapshot)}
        due += interval
        time.sleep(max(0.0, due - time.monotonic()))


def _tables(states: list[_Shown]) -> Group:
    parts: list[Text | Table] = []
    for state in states:
        if isinstance(state, ShipperSnapshot):
            continue
        if isinstance(state, UnreadableEngine):
            text = f"engine {state.number} of process {state.pid} {state.problem}"
            parts.append(Text(printable(text), style="red"))
            continue
        now = state.now
        parts.append(Text(printable(now.engine), style="bold").append(f", process {now.pid}"))
        if now.rx and now.engine != "loopback":
            parts.append(_port_table(state))
        if now.rx:
            parts.append(_receive_table(state))
        if now.tx:
            parts.append(_transmit_table(state))
        if now.flows:
            parts.append(_flow_table(state))
        if now.reorder:
            parts.append(_reorder_table(state))
        memory = _table("memory region", "free", "buffers", "bytes each")
        for region in now.regions:
            memory.add_row(
                _name(region.name), *map(_number, (region.free, region.buffers, region.buf_size))
            )
        parts.append(memory)
    if uploads := [state for state in states if isinstance(state, ShipperSnapshot)]:
        parts.append(_upload_table(uploads))
    return Group(*parts)


def _upload_table(uploads: list[ShipperSnapshot]) -> Table:
    table = _table("object store", "process", "files", "bytes", "unsent", "bytes", "oldest s", "")
    for each in uploads:
        state = each.state
        table.add_row(
            _name(each.bucket),
            str(each.pid),
            *map(_number, (state.shipped, state.shipped_bytes, state.unsent, state.unsent_bytes)),
            _number(state.oldest_s),
            Text(printable(state.error), style="red"),
        )
    return table


def _port_table(state: _State) -> Table:
    table = _table("port", "lost before engine", "dropped")
    receivers = {queue.port for queue in state.now.rx}
    for port in state.now.ports:
        if port.port not in receivers:
            continue
        table.add_row(
            _name(port.port),
            _number(port.counters.lost_before_engine),
            _drops(port.counters.by_reason),
        )
    return table


def _receive_table(state: _State) -> Table:
    table = _table(
        "receive queue", "packets/s", "Gb/s", "received", "held", "ring", "free bursts", "dropped"
    )
    for index, queue in enumerate(state.now.rx):
        counters, levels = queue.counters, queue.levels
        table.add_row(
            _name(f"{queue.port}/{queue.queue}"),
            _number(state.rate("rx", index, "received")),
            f"{state.rate('rx', index, 'received_bytes') * 8e-9:.3f}",
            _number(counters.received),
            _number(counters.held),
            f"{levels.ring}/{levels.ring_capacity}",
            f"{levels.bursts_free}/{levels.bursts_total}",
            _drops(counters.dropped),
        )
    return table


def _transmit_table(state: _State) -> Table:
    table = _table(
        "transmit queue",
        "packets/s",
        "Gb/s",
        "sent",
        "held",
        "late",
        "p50/p99/max µs",
        "ring",
        "free bursts",
        "dropped",
    )
    for index, queue in enumerate(state.now.tx):
        counters, levels = queue.counters, queue.levels
        late = (queue.lateness_p50, queue.lateness_p99, queue.lateness_max)
        table.add_row(
            _name(f"{queue.port}/{queue.queue}"),
            _number(state.rate("tx", index, "sent")),
            f"{state.rate('tx', index, 'sent_bytes') * 8e-9:.3f}",
            *map(_number, (counters.sent, counters.held, counters.late)),
            "/".join(f"{ns / 1e3:.1f}" for ns in late),
            f"{levels.ring}/{levels.ring_capacity}",
            f"{levels.bursts_free}/{levels.bursts_total}",
            _drops(counters.dropped),
        )
    return table


def _flow_table(state: _State) -> Table:
    table = _table("flow", "packets/s", "Gb/s", "packets", "bytes")
    for index, flow in enumerate(state.now.flows):
        table.add_row(
            _name(f"{flow.port}/{flow.flow}"),
            _number(state.rate("flows", index, "packets")),
            f"{state.rate('flows', index, 'bytes') * 8e-9:.3f}",
            *map(_number, (flow.counters.packets, flow.counters.bytes)),
        )
    return table


def _reorder_table(state: _State) -> Table:
    counts = ("complete", "incomplete", "missing", "lost", "skipped", "untaken")
    table = _table("reorder plan", "frames/s", *counts, "dropped")
    for index, plan in enumerate(state.now.reorder):
        reasons = ("duplicate", "late", "early", "malformed", "left_out", "no_buffer")
        table.add_row(
            _name(f"{plan.port}/{plan.plan}" if plan.port else plan.plan),
            _number(state.frame_rate(index)),
            *(_number(getattr(plan.counters, name)) for name in counts),
            _drops({reason: getattr(plan.counters, reason) for reason in reasons}),
        )
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    # In a narrow terminal, figures go on in the next line: a part of one would mislead.
    table.add_column(first, overflow="fold")
    for column in columns:
        left = column == "dropped"
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _name(text: str) -> Text:
    return Text(printable(text))


def _drops(dropped: Any) -> Text:
    return _name(", ".join(f"{n:,} {reason}" for reason, n in dropped.items() if n) or "none")
