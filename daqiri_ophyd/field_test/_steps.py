"""The steps of a field test."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..engine import Lateness, NetworkConfig, RxQueueConfig
from ..host import Status, check_host, engine_traits
from ._bench import Bench
from ._facts import limits_of_port, port_facts
from ._frames import size_of
from ._frames_step import check_frames
from ._lanes import Lane
from ._published import published_rate
from ._record_step import check_recorder
from ._search import rate_without_loss
from ._step import StepFailedError, StepSkippedError
from ._traffic import Outcome

__all__ = ["GROUPS", "Step", "steps_of"]

GROUPS = {
    "host": "host checks for the configuration",
    "open": "opening and closing, and what is left behind",
    "link": "state of each port, and which port hears which",
    "flow": "packets of each flow arrive in its queue, with its id",
    "unmatched": "packets that no flow matches",
    "rate": "highest rate without loss, by size of packets and number of queues",
    "timestamps": "receive times",
    "timed-send": "launch times",
    "split": "packets in several memory regions",
    "gpu": "packets in GPU memory",
    "recorder": "a capture, read back",
    "frames": "frames of each reorder plan",
}
"""Groups of steps, and what they test, in the order of the test."""

SIZES = (64, 512, 1500, 4096, 8192)
# Of the packets of flows, and others that are not measured.
_SMALL = 256
_GENTLE = 20_000
_PACKETS = 1000
_ROUNDS = 5
_TIMED = 200
_TIMED_GAP_NS = 1_000_000
# How far readings of one clock, one after the other, may be apart.
_CLOCK_NS = 1_000_000
_OVERHEAD_ON_WIRE = 24  # preamble, frame check sequence, gap (IEEE 802.3)

Found = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """A step.

    Parameters
    ----------
    name, group : str
        Name, and one of `GROUPS`.
    run : callable
        Returns one line and figures; raises `StepFailedError` or `StepSkippedError`.
    own_engine : bool
        Whether the shared engine has to be closed.
    """

    name: str
    group: str
    run: Callable[[Bench], Found]
    own_engine: bool = False


def steps_of(config: NetworkConfig) -> list[Step]:
    """Return the steps for a configuration, in their order."""
    steps = [
        Step("host", "host", _host, own_engine=True),
        Step("open", "open", _open, own_engine=True),
        Step("link", "link", _link),
    ]
    for interface in config.interfaces:
        names = [flow.name for flow in interface.rx.flows]
        if interface.rx.queues and not names:
            names = [""]
        for flow in names:
            title = f"flow {interface.name}/{flow or 'any packet'}"
            steps.append(Step(title, "flow", partial(_flow, interface.name, flow)))
    steps.append(Step("unmatched", "unmatched", _unmatched))
    for queues in _queue_counts(config):
        for size in SIZES:
            title = f"rate {size} B, {queues} queue{'s' * (queues > 1)}"
            steps.append(Step(title, "rate", partial(_rate, size, queues)))
    steps += [
        Step("timestamps", "timestamps", _timestamps),
        Step("timed-send", "timed-send", _timed_send),
        Step("split", "split", _split),
        Step("gpu", "gpu", _gpu),
        Step("recorder", "recorder", check_recorder),
    ]
    plans = [f"{i.name}/{p.name}" for i in config.interfaces for p in i.rx.reorder_configs]
    plans += [plan.name for plan in config.reorder_configs]
    if not plans:
        steps.append(Step("frames", "frames", _no_frames))
    steps += [Step(f"frames {name}", "frames", partial(check_frames, name)) for name in plans]
    return steps


def _queue_counts(config: NetworkConfig) -> list[int]:
    """Return 1, 2, 4 ... up to the number of receive queues."""
    queues = sum(len(i.rx.queues) for i in config.interfaces)
    return [1 << n for n in range(queues.bit_length()) if 1 << n <= max(1, queues)]


def _host(bench: Bench) -> Found:
    report = check_host(bench.config.to_dict(), folder=bench.folder)
    counts = ", ".join(f"{n} {s}" for s in reversed(Status) if (n := report.count(s)))
    figures = {
        "checks": [
            {"check": each.check, "status": str(each.status), "found": each.found}
            for each in report.results
        ]
    }
    failures = [r for r in report.results if r.status is Status.FAIL]
    if failures:
        first = failures[0]
        raise StepFailedError(f"{counts}; {first.check}: {first.found}", figures)
    return counts, figures


def _open(bench: Bench) -> Found:
    before: tuple[int, int] | None = None
    arrived = 0
    for round_number in range(_ROUNDS):
        bench.budget.require()
        bench.require_open()
        engine = bench.engine
        if bench.links and (lanes := [e for e in bench.lanes if not e.assembled]):
            outcome = bench.traffic(lanes[:1], _fitting(bench, lanes[:1], _SMALL)).run(packets=64)
            if outcome.faults:
                raise StepFailedError(f"{lanes[0].name}: {outcome.faults}", outcome.to_dict())
            arrived += outcome.arrived
        bench.close()
        for port in engine.ports:
            for queue in port.rx:
                rx = queue.counters()
                if rx.received != rx.delivered + rx.held + rx.dropped_total:
                    raise StepFailedError(
                        f"{port.name}/{queue.name}: counters do not balance: {rx}"
                    )
            for queue in port.tx:
                tx = queue.counters()
                if tx.submitted != tx.sent + tx.held + tx.dropped_total:
                    raise StepFailedError(
                        f"{port.name}/{queue.name}: counters do not balance: {tx}"
                    )
        del engine
        # Libraries keep what they open first.
        if round_number == 0:
            before = _left()
    after = _left()
    assert before is not None  # noqa: S101 - there is a first round
    figures: dict[str, Any] = {"rounds": _ROUNDS, "descriptors": [before[0], after[0]]}
    figures |= {"threads": [before[1], after[1]], "arrived": arrived}
    if after[0] > before[0] or after[1] > before[1]:
        raise StepFailedError(
            f"{_ROUNDS - 1} rounds left {max(0, after[0] - before[0])} file descriptors and "
            f"{max(0, after[1] - before[1])} threads behind",
            figures,
        )
    packets = f"all {arrived:,} packets arrived" if arrived else "without packets"
    return f"{_ROUNDS} times; {packets}, counters balanced, nothing left behind", figures


def _left() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def _link(bench: Bench) -> Found:
    bench.require_open()
    ports = port_facts(bench.engine)
    links = bench.links
    figures: dict[str, Any] = {"ports": ports, "links": [list(link) for link in links]}
    wrong = [f"{p['port']} is {p['state']}" for p in ports if p["state"] in ("down", "removed")]
    if wrong:
        raise StepFailedError("; ".join(wrong), figures)
    figures["addresses"] = {lane.name: _addresses(bench, lane) for lane in bench.lanes}
    if not links:
        raise StepFailedError("no port receives what a port of the configuration sends", figures)
    if deaf := bench.deaf:
        raise StepFailedError(
            f"{', '.join(deaf)} {'hears' if len(deaf) == 1 else 'hear'} no port of the "
            "configuration; check cable, switch and addresses",
            figures,
        )
    used = {name for link in links for name in link}
    unused = [port["port"] for port in ports if port["port"] not in used]
    text = ", ".join(f"{a} to {b}" if a != b else f"{a} to itself" for a, b in links)
    return text + (f"; not used: {', '.join(unused)}" if unused else ""), figures


def _fitting(bench: Bench, lanes: list[Lane], wanted: int) -> int:
    """Return a size of packets that all lanes can have, near a wanted one."""
    size = max(size_of(lane, wanted) for lane in lanes)
    return min(size, max(bench.largest(lanes), min(size_of(lane, 1) for lane in lanes)))


def _gentle(bench: Bench, lanes: list[Lane], **options: Any) -> Outcome:
    traffic = bench.traffic(lanes, _fitting(bench, lanes, _SMALL))
    return traffic.run(**{"packets": _PACKETS, "rate": _GENTLE * len(lanes), **options})


def _flow(receiver: str, flow: str, bench: Bench) -> Found:
    name = f"{receiver}/{flow}"
    if not bench.links:
        bench.open_lanes()
    bench.require_heard(receiver)
    if name in bench.left_out:
        raise StepSkippedError(bench.left_out[name])
    lane = next(e for e in bench.lanes if (e.receiver, e.flow) == (receiver, flow))
    counted = bench.engine.port(receiver).flow(flow) if flow else None
    before = counted.counters().packets if counted else 0
    outcome = _gentle(bench, [lane])
    matched = counted.counters().packets - before if counted else outcome.arrived
    figures = outcome.to_dict() | {"matched": matched, "queues": list(lane.rx_queues)}
    figures["addresses"] = _addresses(bench, lane)
    if lane.stream:
        matched = outcome.arrived
    if lane.assembled:
        # A plan takes the packets; the counters of the flow have them.
        kept = ("offered", "sent", "sent_bytes", "matched", "queues", "addresses")
        figures = {key: figures[key] for key in kept}
        if matched < outcome.offered:
            raise StepFailedError(
                f"{matched:,} of {outcome.offered:,} packets were matched", figures
            )
        return f"{matched:,} packets matched; a reorder plan takes them", figures
    if outcome.faults:
        raise StepFailedError(outcome.faults, figures)
    if matched < outcome.offered:
        raise StepFailedError(
            f"the flow counted {matched:,} of {outcome.offered:,} packets", figures
        )
    where = f"in {', '.join(lane.rx_queues)}" + (f" with id {lane.flow_id}" if flow else "")
    return f"{outcome.arrived:,} packets {where}, each byte compared", figures


def _addresses(bench: Bench, lane: Lane) -> dict[str, Any]:
    """Return where packets of a lane go."""
    receiver = bench.engine.port(lane.receiver)
    if lane.header is None:
        made = bench.engine.port(lane.sender).config.socket_config
        return {"to": (made and made.remote_addr) or receiver.address}
    header = lane.header
    to = {"port": lane.receiver, "mac": receiver.mac_address}
    if header.ecpri is not None:
        return to | {"ecpri": list(header.ecpri)}
    return to | {"ipv4": header.dst_ip, "udp": header.dst_port, "vlan_tags": header.tags}


def _unmatched(bench: Bench) -> Found:
    bench.open_lanes()
    sender, receiver = bench.links[0]
    interface = bench.engine.port(receiver)
    if interface.config.socket_config is not None:
        raise StepSkippedError("a socket only receives packets to its own address")
    if not interface.flows:
        raise StepSkippedError(f"{receiver} has no flows; every packet arrives")
    if bench.engine.port(sender).config.tx.flows:
        raise StepSkippedError(f"flows of {sender} change the packets that it sends")
    lane = bench.stray_lane(sender, receiver)
    if lane is None:
        raise StepSkippedError(f"the flows of {receiver} match any packet")
    outcome = _gentle(bench, [lane])
    figures = outcome.to_dict()
    isolated = interface.config.rx.flow_isolation
    if outcome.damaged or outcome.misplaced:
        raise StepFailedError(outcome.faults, figures)
    if not outcome.sent:
        raise StepFailedError("no packet was sent", figures)
    if isolated and outcome.arrived:
        raise StepFailedError(
            f"{outcome.arrived:,} packets reached a queue despite flow_isolation", figures
        )
    if isolated:
        return f"none of {outcome.sent:,} packets reached a queue (flow_isolation)", figures
    if outcome.faults:
        raise StepFailedError(outcome.faults, figures)
    return f"{outcome.arrived:,} packets arrived without a flow id", figures


def _rate(size: int, queues: int, bench: Bench) -> Found:
    known = bench.open_lanes()
    lanes = _spread([lane for lane in known if not lane.group], queues)
    if not lanes:
        if grouped := next((lane for lane in _spread(known, queues) if lane.group), None):
            raise StepSkippedError(
                f"flow {grouped.name} is of multicast group {grouped.group}, to which others may "
                "listen"
            )
        raise StepSkippedError(
            f"no flows lead to {queues} queue{'s' * (queues > 1)}, each to its own"
        )
    if (most := bench.largest(lanes)) < size:
        raise StepSkippedError(f"the links and buffers take up to {most:,} B")
    for lane in lanes:
        if size_of(lane, size) != size:
            raise StepSkippedError(f"packets of flow {lane.name} have {size_of(lane, size):,} B")
    found = rate_without_loss(bench.traffic(lanes, size), bench.seconds)
    figures: dict[str, Any] = {
        "size": size,
        "queues": queues,
        "lanes": [lane.name for lane in lanes],
        "trials": found.trials,
    }
    figures["published_Gb_per_s"] = published_rate(bench.config, size, queues)
    if found.best is None:
        raise StepFailedError(f"packets are lost at every rate: {found.last_losses}", figures)
    best = found.best
    figures |= best.to_dict() | {"limited_by": "sender" if found.by_sender else "loss"}
    figures |= _ratios(bench, lanes, best, size)
    text = f"{best.packet_rate:,.0f} packets/s, {best.gbps:.3f} Gb/s"
    text += f", limited by {'the sender' if found.by_sender else 'losses'}"
    if not found.by_sender:
        figures["first_losses"] = found.trials[0]["losses"]
    return text, figures


def _spread(lanes: list[Lane], queues: int) -> list[Lane]:
    """Return lanes that reach so many receive queues, none of them twice; empty: there are none."""
    found: dict[int, list[Lane]] = {0: []}
    for lane in sorted(lanes, key=lambda each: each.queues):
        own = _places([lane])
        for count, chosen in list(found.items()):
            total = count + lane.queues
            if total <= queues and total not in found and not own & _places(chosen):
                found[total] = [*chosen, lane]
    return found.get(queues, [])


def _places(lanes: list[Lane]) -> set[tuple[str, str]]:
    return {(lane.receiver, name) for lane in lanes for name in lane.rx_queues}


def _ratios(bench: Bench, lanes: list[Lane], best: Outcome, size: int) -> dict[str, Any]:
    """Return the share of what links and PCIe carry; None: not known."""
    receivers = {lane.receiver for lane in lanes}
    ports = [port for port in port_facts(bench.engine) if port["port"] in receivers]
    speeds, slots = zip(*map(limits_of_port, ports), strict=True)
    on_wire = best.gbps * (size + _OVERHEAD_ON_WIRE) / size
    return {
        "share_of_link": None if None in speeds else round(on_wire / sum(speeds), 4),
        "share_of_pcie": None if None in slots else round(best.gbps / sum(slots), 4),
    }


def _timestamps(bench: Bench) -> Found:
    lanes = [lane for lane in bench.open_lanes() if not lane.stream][:1]
    if not lanes:
        raise StepSkippedError("a stream of bytes (TCP) has no receive times")
    clock = bench.engine.port(lanes[0].receiver).now
    begin = clock()
    outcome = _gentle(bench, lanes, keeps_times=True)
    end = clock()
    figures: dict[str, Any] = outcome.to_dict() | {"begin_ns": begin, "end_ns": end}
    if outcome.faults:
        raise StepFailedError(outcome.faults, figures)
    backward = outside = count = 0
    for parts in outcome.times.values():
        times = np.concatenate(parts)
        count += len(times)
        backward += int(np.count_nonzero(np.diff(times) < 0))
        outside += int(np.count_nonzero((times < begin) | (times > end)))
    figures |= {"times": count, "backward": backward, "outside": outside}
    if count < outcome.arrived:
        raise StepFailedError(f"{outcome.arrived:,} packets arrived with {count:,} times", figures)
    if outside:
        raise StepFailedError(f"{outside:,} times are before or after the time of sending", figures)
    if backward:
        raise StepFailedError(f"{backward:,} times are before that of the packet before", figures)
    return f"{count:,} times, in order, and between begin and end", figures


def _timed_send(bench: Bench) -> Found:
    lane = bench.open_lanes()[0]
    queue = bench.engine.port(lane.sender).tx_queue(lane.tx_queue)
    queue.reset_lateness()
    outcome = _gentle(bench, [lane], packets=_TIMED, rate=1e9 / _TIMED_GAP_NS, keeps_times=True)
    lateness = queue.lateness()
    mechanism = next(
        (
            each.launch_times
            for each in bench.engine.snapshot().tx
            if (each.port, each.queue) == (lane.sender, lane.tx_queue)
        ),
        "worker",
    )
    figures = outcome.to_dict() | {"launch_times": mechanism, "lateness": _histogram(lateness)}
    if outcome.faults:
        raise StepFailedError(outcome.faults, figures)
    if mechanism == "worker" and lateness.count < outcome.sent:
        raise StepFailedError(
            f"{lateness.count:,} of {outcome.sent:,} packets had a launch time", figures
        )
    if (early := _earliest(bench, lane, outcome)) is not None:
        figures["least_delay_ns"] = early
        if early < -_CLOCK_NS:
            raise StepFailedError(f"a packet arrived {-early:,} ns before its launch time", figures)
    text = f"p50 {lateness.p50 / 1e3:.1f} µs, p99 {lateness.p99 / 1e3:.1f} µs late"
    if not lateness.count:
        text = "their lateness is not measured there"
    text += f" ({mechanism})" + ("" if early is not None else " (whether early: not compared)")
    return f"{outcome.sent:,} packets, {text}", figures


def _earliest(bench: Bench, lane: Lane, outcome: Outcome) -> int | None:
    """Return the least time from a launch time to an arrival; None: the clocks differ."""
    sender, receiver = bench.engine.port(lane.sender), bench.engine.port(lane.receiver)
    if receiver.config.rx.hardware_timestamps or engine_traits(bench.engine.name).kernel_bypass:
        return None
    if abs(sender.now() - receiver.now()) > _CLOCK_NS or outcome.strange or lane.stream:
        return None
    if len(outcome.times) != 1:
        return None
    (parts,) = outcome.times.values()
    times = np.concatenate(parts)
    return int((times - outcome.begin_ns - np.arange(len(times)) * _TIMED_GAP_NS).min())


def _histogram(lateness: Lateness) -> dict[str, Any]:
    edges, counts = lateness.histogram()
    return {
        "count": lateness.count,
        "p50_ns": lateness.p50,
        "p99_ns": lateness.p99,
        "maximum_ns": lateness.maximum,
        "histogram": [
            [int(edges[i]), int(edges[i + 1]), int(counts[i])] for i in np.flatnonzero(counts)
        ],
    }


def _split(bench: Bench) -> Found:
    lanes = [lane for lane in bench.open_lanes() if _split_queues(bench, lane)]
    if not lanes:
        raise StepSkippedError("no receive queue with a flow has several memory regions")
    sizes = {region.name: region.buf_size for region in bench.config.memory_regions}
    queues = {
        f"{lane.receiver}/{queue.name}": (lane, queue)
        for lane in lanes
        for queue in _split_queues(bench, lane)
    }
    boundaries = {
        name: queue.split_boundary or sizes[queue.memory_regions[0]]
        for name, (_, queue) in queues.items()
    }
    needed = max(boundaries.values()) + 1
    if (most := bench.largest(lanes)) < needed:
        raise StepSkippedError(
            f"the first memory region takes whole packets: they have up to {most:,} B, and "
            f"{needed:,} are needed"
        )
    text, figures = _compared(bench, lanes, max(1500, needed + _SMALL))
    for name, boundary in boundaries.items():
        lengths = figures["heads"].get(name)
        if not lengths:
            raise StepFailedError(f"{name}: no packet was split", figures)
        if any(length > boundary for length in lengths) or boundary not in lengths:
            raise StepFailedError(
                f"{name}: packets have {lengths} B in the first region, not {boundary}", figures
            )
    figures["paths"] = {
        name: bench.engine.port(lane.receiver).receive_path(queue.name)
        for name, (lane, queue) in queues.items()
    }
    if named := ", ".join(f"{name} {path}" for name, path in figures["paths"].items() if path):
        text += f"; {named}"
    return text, figures


def _split_queues(bench: Bench, lane: Lane) -> list[RxQueueConfig]:
    """Return the queues with several memory regions that all packets, or a spread, reach."""
    if lane.stream or lane.queues < len(lane.rx_queues):
        return []
    port = bench.engine.port(lane.receiver)
    found = [port.rx_queue(name).config for name in lane.rx_queues]
    return [queue for queue in found if len(queue.memory_regions) > 1]


def _regions(bench: Bench, lane: Lane) -> list[str]:
    port = bench.engine.port(lane.receiver)
    found = [name for q in lane.rx_queues for name in port.rx_queue(q).config.memory_regions]
    return list(dict.fromkeys(found))


def _gpu(bench: Bench) -> Found:
    devices = {r.name for r in bench.config.memory_regions if r.kind == "device"}
    if not devices:
        raise StepSkippedError("the configuration has no memory region of kind device")
    lanes = [lane for lane in bench.open_lanes() if devices & set(_regions(bench, lane))]
    if not lanes:
        raise StepSkippedError("no receive queue with a flow has a memory region of kind device")
    return _compared(bench, lanes)


def _compared(bench: Bench, lanes: list[Lane], large: int = 1500) -> Found:
    """Send packets to lanes, in small and in large packets, and compare each byte."""
    figures: dict[str, Any] = {"heads": {}}
    for wanted in (_SMALL, min(bench.largest(lanes), large)):
        size = _fitting(bench, lanes, wanted)
        outcome = bench.traffic(lanes, size).run(packets=_PACKETS, rate=_GENTLE * len(lanes))
        figures[f"{size} B"] = outcome.to_dict()
        for name, lengths in outcome.heads.items():
            figures["heads"][name] = sorted({*figures["heads"].get(name, []), *lengths})
        if outcome.faults:
            raise StepFailedError(f"{size} B: {outcome.faults}", figures)
    figures["regions"] = {lane.name: _regions(bench, lane) for lane in lanes}
    named = ", ".join(f"{name} in {' and '.join(r)}" for name, r in figures["regions"].items())
    return f"each byte compared: {named}", figures


def _no_frames(bench: Bench) -> Found:
    raise StepSkippedError("the configuration has no reorder plan")
