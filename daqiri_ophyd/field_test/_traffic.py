"""Sending packets of lanes, and verifying those that arrive."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import Burst, Engine, RxQueue, TxQueue
from ._budget import Budget
from ._frames import make_packets, marks_of
from ._lanes import Lane

__all__ = ["Outcome", "Traffic", "losses_between", "losses_of", "rows_of"]

# Packets of a lane that differ.
_PACKETS = 1024
# Longest time that packets in transit need, s.
_QUIET = 0.3
_LONGEST_WAIT = 10.0
# Packets that have not moved for this time are not sent, s.
_STUCK = 1.0
_LEAD_NS = 20_000_000
_POLL = 0.02
# How long queues are emptied at the end, if packets of others never end, s.
_DRAIN = 1.0
_ANYWHERE_ELSE = "outside the engine"


@dataclass
class Outcome:
    """What became of packets.

    Parameters
    ----------
    offered : int
        Packets that were given to transmit queues.
    sent, sent_bytes : int
        Packets that left, and their bytes.
    arrived : int
        Packets that arrived, as often as they were sent.
    verified : int
        Of these, packets whose bytes were compared.
    lost, duplicate, damaged, misplaced, strange : int
        Packets that did not arrive; that arrived too often; whose bytes differ; in another queue or
        with another flow id than the flow's; of other senders.
    losses : dict of str to int
        Where packets were lost, by the counters of queues and ports.
    seconds : float
        From the first packet submitted to the last one sent.
    begin_ns : int
        Launch time of the first packet; 0: packets had none.
    times : dict of str to list of ndarray
        Arrival times of bursts by queue, if they were asked for.
    heads : dict of str to list of int
        By queue, lengths of the first segment of packets that have several.
    """

    offered: int = 0
    sent: int = 0
    sent_bytes: int = 0
    arrived: int = 0
    verified: int = 0
    lost: int = 0
    duplicate: int = 0
    damaged: int = 0
    misplaced: int = 0
    strange: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    begin_ns: int = 0
    times: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)
    heads: dict[str, list[int]] = field(default_factory=dict)

    @property
    def packet_rate(self) -> float:
        """Packets sent per second."""
        return self.sent / self.seconds if self.seconds else 0.0

    @property
    def gbps(self) -> float:
        """Gb/s sent, of the bytes that the engine counts."""
        return 8e-9 * self.sent_bytes / self.seconds if self.seconds else 0.0

    @property
    def faults(self) -> str:
        """What is wrong with the packets; empty: nothing."""
        found = []
        if not self.sent and not self.lost:
            found.append("no packet was sent")
        if self.lost:
            named = ", ".join(f"{reason} {count:,}" for reason, count in self.losses.items())
            found.append(f"{self.lost:,} of {self.offered:,} packets lost ({named})")
        for count, what in (
            (self.duplicate, "arrived twice"),
            (self.damaged, "with other bytes than sent"),
            (self.misplaced, "in another queue, or with another flow id"),
        ):
            if count:
                found.append(f"{count:,} packets {what}")
        return "; ".join(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for a report."""
        return {
            "offered": self.offered,
            "sent": self.sent,
            "sent_bytes": self.sent_bytes,
            "arrived": self.arrived,
            "verified": self.verified,
            "lost": self.lost,
            "losses": self.losses,
            "duplicate": self.duplicate,
            "damaged": self.damaged,
            "misplaced": self.misplaced,
            "strange": self.strange,
            "seconds": round(self.seconds, 6),
            "packets_per_s": round(self.packet_rate, 1),
            "Gb_per_s": round(self.gbps, 6),
        }


def rows_of(burst: Burst) -> NDArray[np.uint8]:
    """Return whole packets as rows on the host, from wherever their segments are."""
    if burst.num_segments == 1:
        return _on_host(burst.gather())
    parts = [_on_host(burst.gather(segment=i)) for i in range(burst.num_segments)]
    return np.hstack(parts)


def _on_host(rows: Any) -> NDArray[np.uint8]:
    return rows if isinstance(rows, np.ndarray) else rows.get()


def _end_sending(queue: TxQueue, stop: threading.Event, limit: float) -> float:
    """Wait until packets have left, or do not move, as those too long for a link.

    Parameters
    ----------
    queue : TxQueue
        Their queue.
    stop : Event
        Ends the wait.
    limit : float
        Ends it, too, s of ``time.perf_counter``.

    Returns
    -------
    float
        When the last one left, s of ``time.perf_counter``.
    """
    held, moved = -1, time.perf_counter()
    while not queue.wait_sent(_POLL):
        counted = queue.counters().held
        if counted != held:
            held, moved = counted, time.perf_counter()
        elif time.perf_counter() - moved > _STUCK:
            return moved
        if stop.is_set() or time.perf_counter() >= limit:
            break
    return time.perf_counter()


def _flush_stuck(queue: TxQueue) -> None:
    if not queue.wait_sent(0.0):
        queue.flush()


def losses_of(engine: Engine) -> Counter[str]:
    """Return all counters of lost packets, by name."""
    found: Counter[str] = Counter()
    for port in engine.ports:
        for queue in (*port.rx, *port.tx):
            for reason, count in queue.counters().dropped.items():
                found[f"{port.name}/{queue.name} {reason}"] += count
        for reason, count in port.counters().by_reason.items():
            found[f"{port.name} before the engine: {reason}"] += count
    return found


def losses_between(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Return the losses that were added."""
    return dict(after - before)


class _Arrivals:
    """What one receive queue got."""

    def __init__(self, traffic: Traffic, queue: RxQueue, key: tuple[str, str]) -> None:
        self._traffic = traffic
        self._queue = queue
        lanes = traffic.lanes
        self._own = np.array([(key[0] == e.receiver and key[1] in e.rx_queues) for e in lanes])
        self._ids = np.array([lane.flow_id for lane in lanes])
        self.seen = np.zeros(len(traffic.expected), np.int64)
        self.total = self.verified = self.damaged = self.misplaced = self.strange = 0
        self.times: list[NDArray[np.int64]] = []
        self.heads: set[int] = set()
        self._keeps_up = 4 * queue.config.batch_size
        self._parts = 0  # bytes of a stream so far

    def take(self, burst: Burst, *, hurries: bool, keeps_times: bool) -> None:
        if self._traffic.lanes[0].stream:
            self._take_stream(burst)
            return
        lengths = burst.lengths
        fitting = lengths == self._traffic.size
        if keeps_times:
            self.times.append(np.array(burst.timestamps))
        if hurries and self._queue.counters().held > self._keeps_up:
            # Comparing would be what packets wait for.
            count = int(np.count_nonzero(fitting))
            self.total += count
            self.strange += len(burst) - count
            return
        if not fitting.any():
            self.strange += len(burst)
            return
        rows, flow_ids = rows_of(burst), burst.flow_ids
        if burst.num_segments > 1:
            self.heads |= set(np.unique(burst.segment_lengths(0)[fitting]).tolist())
        if not fitting.all():
            self.strange += int(np.count_nonzero(~fitting))
            rows, flow_ids = rows[fitting, : self._traffic.size], flow_ids[fitting]
        traffic = self._traffic
        known, at = marks_of(rows, len(traffic.lanes), traffic.count)
        same = known & (rows == traffic.expected[at]).all(axis=1)
        lane = at // traffic.count
        self.damaged += int(np.count_nonzero(known & ~same))
        self.strange += int(np.count_nonzero(~known))
        placed = self._own[lane] & (flow_ids == self._ids[lane])
        self.misplaced += int(np.count_nonzero(same & ~placed))
        self.seen += np.bincount(at[same], minlength=len(self.seen))
        count = int(np.count_nonzero(same))
        self.total += count
        self.verified += count

    def _take_stream(self, burst: Burst) -> None:
        """Compare the next bytes of a stream, which repeats its packets."""
        data, _ = burst.gather_flat()
        flat = self._traffic.expected.reshape(-1)
        wanted = flat[(self._parts + np.arange(len(data))) % len(flat)]
        size = self._traffic.size
        before = self._parts // size
        self._parts += len(data)
        count = self._parts // size - before
        self.total += count
        if np.array_equal(data, wanted):
            self.verified += count
        else:
            self.damaged += max(1, count)


class Traffic:
    """Packets of lanes, of one size.

    Parameters
    ----------
    engine : Engine
        Open engine.
    lanes : sequence of Lane
        At most 256.
    size : int
        Bytes of each packet as it arrives.
    budget : Budget
        Limits of time and bytes.
    """

    def __init__(self, engine: Engine, lanes: Sequence[Lane], size: int, budget: Budget) -> None:
        self.engine = engine
        self.lanes = list(lanes)
        self.size = size
        self.count = _PACKETS
        self._budget = budget
        sent, expected = [], []
        for number, lane in enumerate(self.lanes):
            macs = (
                engine.port(lane.sender).mac_address,
                engine.port(lane.receiver).mac_address,
            )
            one, other = make_packets(lane, number, size, self.count, macs)
            sent.append(one)
            expected.append(other)
        self._sent = sent
        self.expected = np.concatenate(expected)
        self._queues: dict[tuple[str, str], RxQueue] = {}
        for lane in self.lanes:
            port = engine.port(lane.receiver)
            # Packets that are steered wrongly arrive in other queues.
            self._queues |= {(port.name, queue.name): queue for queue in port.rx}
        self._tx: list[TxQueue] = [
            engine.port(lane.sender).tx_queue(lane.tx_queue) for lane in self.lanes
        ]
        self._stop = threading.Event()
        # Whether the time of the test was used up before the packets were sent and received.
        self._cut = False
        self._begins = [0] * len(self.lanes)
        # When each lane sent its first and its last packet.
        self._spans = [(0.0, 0.0)] * len(self.lanes)

    def discard(self) -> None:
        """Discard what the queues have."""
        for queue in self._queues.values():
            queue.flush()

    def send(self, packets: int, rate: float) -> None:
        """Send packets of the first lane, for another receiver than `run`.

        Raises
        ------
        StepSkippedError
            If they are more than what is left of the bytes of the test, or its time is used up
            before they are sent.
        """
        self._budget.require_bytes(packets * self.size)
        self._stop.clear()
        self._cut = False
        submitted = [0]
        self._send(0, packets, None, rate, submitted)
        _flush_stuck(self._tx[0])
        self._budget.spend(submitted[0] * self.size)
        self._require_whole()

    def _require_whole(self) -> None:
        """Raise `StepSkippedError` if the time limit cut the traffic: its losses say nothing."""
        if self._cut:
            raise self._budget.out_of_time()

    def run(
        self,
        *,
        packets: int | None = None,
        seconds: float | None = None,
        rate: float | None = None,
        hurries: bool = False,
        keeps_times: bool = False,
    ) -> Outcome:
        """Send packets, and receive them.

        Parameters
        ----------
        packets : int, optional
            Packets of each lane. Default: as many as `seconds` take.
        seconds : float, optional
            How long to send.
        rate : float, optional
            Packets per second, of all lanes. None: as fast as it goes.
        hurries : bool
            Whether to only count packets when the queue fills up.
        keeps_times : bool
            Whether to keep arrival times.

        Raises
        ------
        StepSkippedError
            If the time or the bytes of the test are used up, also before all packets arrived.
        DaqiriError
            If packets cannot be sent or received.
        """
        self._budget.require()
        most = self._budget.packets_left(self.size, len(self.lanes))
        if packets is None and rate is not None and seconds is not None:
            packets = max(1, int(rate * seconds / len(self.lanes)))
        packets = most if packets is None else min(packets, most)
        self.discard()
        self._stop.clear()
        self._cut = False
        arrivals = {key: _Arrivals(self, queue, key) for key, queue in self._queues.items()}
        errors: list[BaseException] = []
        before = losses_of(self.engine)
        counted = [queue.counters() for queue in dict.fromkeys(self._tx)]
        receivers = [
            threading.Thread(
                target=self._guarded,
                args=(errors, self._receive, self._queues[key], found, hurries, keeps_times),
                name=f"receive {key}",
            )
            for key, found in arrivals.items()
        ]
        submitted = [0] * len(self.lanes)
        senders = [
            threading.Thread(
                target=self._guarded,
                args=(errors, self._send, number, packets, seconds, rate, submitted),
                name=f"send {number}",
            )
            for number in range(len(self.lanes))
        ]
        self._quiet = threading.Event()
        try:
            for thread in (*receivers, *senders):
                thread.start()
            for thread in senders:
                while thread.is_alive():
                    thread.join(_POLL)
            for queue in dict.fromkeys(self._tx):
                _flush_stuck(queue)
            self._wait_until_quiet(arrivals, sum(submitted))
        finally:
            self._stop.set()
            self._quiet.set()
            for thread in (*receivers, *senders):
                if thread.ident is not None:
                    thread.join()
        if errors:
            raise errors[0]
        outcome = self._outcome(arrivals, submitted)
        after = [queue.counters() for queue in dict.fromkeys(self._tx)]
        outcome.sent = sum(b.sent - a.sent for a, b in zip(counted, after, strict=True))
        outcome.sent_bytes = sum(
            b.sent_bytes - a.sent_bytes for a, b in zip(counted, after, strict=True)
        )
        begins, ends = zip(*self._spans, strict=True)
        outcome.seconds = max(ends) - min(begins)
        outcome.begin_ns = self._begins[0]
        self._budget.spend(outcome.sent_bytes)
        self._require_whole()
        self._name_losses(outcome, losses_between(before, losses_of(self.engine)))
        return outcome

    def _guarded(self, errors: list[BaseException], work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)
            self._stop.set()

    def _send(
        self,
        number: int,
        packets: int,
        seconds: float | None,
        rate: float | None,
        submitted: list[int],
    ) -> None:
        queue, rows = self._tx[number], self._sent[number]
        chunk = min(queue.batch_size, self.count)
        clock = self.engine.port(self.lanes[number].sender).now
        begin = clock() + _LEAD_NS
        each, first = 0.0, time.perf_counter()
        if rate is not None:
            self._begins[number] = begin
            first += _LEAD_NS / 1e9
            each = 1e9 * len(self.lanes) / rate
            chunk = max(1, min(chunk, int(1e6 / each)))
        limit = time.perf_counter() + self._budget.seconds_left
        end = time.perf_counter() + seconds if seconds is not None and rate is None else inf
        done, moved = 0, time.monotonic()
        while done < packets and not self._stop.is_set() and time.perf_counter() < min(end, limit):
            at = done % self.count
            part = rows[at : at + min(chunk, packets - done)]
            times = None
            if rate is not None:
                times = np.full(len(part), begin + int(done * each), np.int64)
            accepted = queue.send(part, launch_times=times, within=0.1, timeout=_LONGEST_WAIT)
            if accepted:
                moved = time.monotonic()
            elif time.monotonic() - moved > _STUCK:
                break
            done += accepted
            submitted[number] = done
        # At a rate, the time until the next packet belongs to the last one.
        self._spans[number] = (
            first,
            max(_end_sending(queue, self._stop, limit), first + done * each / 1e9),
        )
        if time.perf_counter() >= limit and not self._stop.is_set():
            self._cut = True

    def _receive(self, queue: RxQueue, found: _Arrivals, hurries: bool, keeps_times: bool) -> None:
        limit = None
        while True:
            ends = self._quiet.is_set() or self._stop.is_set()
            if ends and limit is None:
                limit = time.monotonic() + _DRAIN
            if limit is not None and time.monotonic() >= limit:
                return
            burst = queue.receive(0.0 if ends else _POLL)
            if burst is not None:
                with burst:
                    found.take(burst, hurries=hurries, keeps_times=keeps_times)
            elif ends:
                return

    def _wait_until_quiet(self, arrivals: dict[tuple[str, str], _Arrivals], expected: int) -> None:
        """Wait until all packets are there, or none comes any more."""
        left = self._budget.seconds_left
        limit = time.monotonic() + min(_LONGEST_WAIT, left)
        last, since = -1, time.monotonic()
        while time.monotonic() < limit and not self._stop.is_set():
            got = sum(found.total for found in arrivals.values())
            if got != last:
                last, since = got, time.monotonic()
            elif got >= expected or time.monotonic() - since > _QUIET:
                return
            time.sleep(0.005)
        if left <= _LONGEST_WAIT and not self._stop.is_set():
            self._cut = True

    def _outcome(self, arrivals: dict[tuple[str, str], _Arrivals], submitted: list[int]) -> Outcome:
        seen = np.sum([found.seen for found in arrivals.values()], axis=0)
        wanted = np.concatenate([np.arange(self.count) < n % self.count for n in submitted]).astype(
            np.int64
        ) + np.repeat([n // self.count for n in submitted], self.count)
        outcome = Outcome(offered=sum(submitted))
        for key, found in arrivals.items():
            outcome.arrived += found.total
            outcome.verified += found.verified
            outcome.damaged += found.damaged
            outcome.misplaced += found.misplaced
            outcome.strange += found.strange
            if found.heads:
                outcome.heads["/".join(key)] = sorted(found.heads)
            if found.times:
                outcome.times["/".join(key)] = found.times
        if outcome.verified == outcome.arrived and not self.lanes[0].stream:
            outcome.lost = int(np.maximum(wanted - seen, 0).sum())
            outcome.duplicate = int(np.maximum(seen - wanted, 0).sum())
            outcome.lost = max(0, outcome.lost - outcome.damaged)
        else:
            outcome.lost = max(0, sum(submitted) - outcome.arrived - outcome.damaged)
        return outcome

    def _name_losses(self, outcome: Outcome, losses: dict[str, int]) -> None:
        """Name where lost packets are; counters may also have packets of other senders."""
        if not outcome.lost:
            return
        outcome.losses = losses
        if (rest := outcome.lost - sum(losses.values())) > 0:
            outcome.losses = losses | {_ANYWHERE_ELSE: rest}
