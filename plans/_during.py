"""Capture while another plan runs."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, Msg, MsgGenerator, make_decorator, short_uid

from daqiri_ophyd.devices import Capture, FrameDetector, TxQueue

from ._arrival import are_peers, bytes_on_the_way, until_arrived, until_taken
from ._metadata import engine_metadata_wrapper

# Time in which a failed capture ends the run while the plan waits for the transmission.
_LOOK_S = 0.1

Streams = Mapping[str, Sequence[Any]]
"""Devices by the name of their stream."""

Recording = Capture | FrameDetector
Recordings = Recording | Sequence[Recording]

__all__ = [
    "Flight",
    "capture_during",
    "capture_during_decorator",
    "capture_during_wrapper",
    "streams_of",
]


class Flight:
    """A capture, a transmission, or both, on the fly in an open run.

    Each method is a plan stub. `start` can be followed by any messages, `end` waits for the
    devices, and `recover` stops them. All of them collect rows. An interrupted plan continues at a
    checkpoint; a flight that has started is not started again.

    Parameters
    ----------
    streams : mapping
        Devices of each stream by its name, in the order in which they are kicked off.
    flush_period : float
        Time between collections of rows, s.
    """

    def __init__(self, streams: Streams, flush_period: float) -> None:
        self._streams = streams
        self._devices = [device for devices in streams.values() for device in devices]
        self._flush_period = flush_period
        self._collected = 0.0
        self._bytes_before: dict[tuple[Any, Any], int] = {}
        self.running = False

    def start(self) -> MsgGenerator[None]:
        """Declare the streams and kick off the devices."""
        yield from bps.checkpoint()
        for stream, devices in self._streams.items():
            yield from bps.declare_stream(*devices, name=stream, collect=True)
            # A pause repeats the interrupted messages; each stream must be declared only once.
            yield from bps.checkpoint()

        def kick_off() -> MsgGenerator[None]:
            self.running = True
            self._bytes_before = {pair: bytes_on_the_way(*pair) for pair in self._pairs()}
            for device in self._devices:
                yield from bps.kickoff(device, wait=True)

        yield from bpp.rewindable_wrapper(kick_off(), False)
        # From now on, documents have the paths of the files, even if this process is killed.
        yield from self.collect()
        yield from bps.checkpoint()

    def collect(self) -> MsgGenerator[None]:
        """Collect the rows of complete files."""

        def collect() -> MsgGenerator[None]:
            for stream, devices in self._streams.items():
                yield from bps.collect(*devices, name=stream)

        self._collected = time.monotonic()
        # Not rewindable: repeated after a pause, it would number rows twice.
        yield from bpp.rewindable_wrapper(collect(), False)

    def _collect_rest(self) -> MsgGenerator[None]:
        """Collect the rows that the last collection missed because a pause cancelled it."""
        captures = [[d for d in s if isinstance(d, Recording)] for s in self._streams.values()]
        while any(some and all(one.uncollected for one in some) for some in captures):
            yield from self.collect()

    def end(self) -> MsgGenerator[None]:
        """Wait until all devices have finished; a capture without a limit ends last.

        On TCP, where the sender waits for a slow receiver, such a capture has the whole stream.
        """
        last = [d for d in self._devices if isinstance(d, Recording) and not d.limited]
        first = [device for device in self._devices if device not in last]

        def complete() -> MsgGenerator[None]:
            if first:
                yield from self._complete(first)
            for (tx, detector), before in self._bytes_before.items():
                if detector in last:
                    yield from self._arrival(tx, detector, before)
            if last:
                yield from self._complete(last)
            yield from self._collect_rest()

        yield from bpp.rewindable_wrapper(complete(), False)
        self.running = False
        yield from bps.checkpoint()

    def _pairs(self) -> list[tuple[TxQueue, Capture]]:
        senders = [device for device in self._devices if isinstance(device, TxQueue)]
        captures = [device for device in self._devices if isinstance(device, Capture)]
        return [
            (tx, one)
            for tx in senders
            for one in captures
            if tx.daq is one.daq and are_peers(tx, one)
        ]

    def _arrival(self, tx: TxQueue, detector: Capture, before: int) -> MsgGenerator[None]:
        def missing() -> int:
            # Packets in transit before arrive too, or are flushed. Others may have sent as well.
            return bytes_on_the_way(tx, detector) - min(before, 0)

        size, timeout = missing(), detector.timeout.get()
        if detector.failed:
            return
        if size > 0:
            yield from until_arrived(detector, size, lambda: size - missing(), timeout)
        yield from until_taken(detector, timeout)

    def _complete(self, devices: list[Any]) -> MsgGenerator[None]:
        group = short_uid("complete")
        statuses = []
        for device in devices:
            statuses.append((yield from bps.complete(device, group=group)))
        done = False
        pause = min(self._flush_period, _LOOK_S)
        while not done:
            # A deferred pause takes effect here.
            yield from bps.checkpoint()
            waited = yield from bps.wait(group=group, timeout=pause, error_on_timeout=False)
            done = all(status is None or status.done for status in statuses)
            if waited and not done:
                # After a pause the RunEngine no longer has the group, and `wait` returns at once.
                yield from bps.sleep(pause)
            # Collecting raises the cause if a capture has failed.
            if done or self._is_due() or any(getattr(d, "failed", False) for d in self._devices):
                yield from self.collect()
        yield from self._raise_failure(statuses)

    @staticmethod
    def _raise_failure(statuses: list[Any]) -> MsgGenerator[None]:
        failed = next((s for s in statuses if s is not None and not s.success), None)
        if failed is None:
            return
        for _ in range(20):
            # The RunEngine raises it here, so that the run is not closed as a success.
            yield from bps.sleep(0.05)
        raise FailedStatus(failed) from failed.exception(timeout=0)

    def _is_due(self) -> bool:
        return time.monotonic() - self._collected >= self._flush_period

    def recover(self, error: Exception | None = None) -> MsgGenerator[None]:
        """Stop the devices and complete the files, which are part of the run."""
        if not self.running:
            return
        self.running = False
        # On threads: completing a file can take a while.
        tasks = yield from bps.wait_for(
            [partial(asyncio.to_thread, device.stop, success=True) for device in self._devices]
        )
        try:
            yield from self.collect()
        except FailedStatus:
            # Raised by a capture whose failure was not seen yet. Its rows can be collected now.
            yield from self.collect()
        yield from self._collect_rest()
        for task in tasks or ():
            if (failure := task.exception()) is not None:
                raise failure from error

    def collect_at(self, msg: Msg) -> MsgGenerator[None] | None:
        """Return a plan that collects due rows after a message, if that is a checkpoint."""
        if msg.command == "checkpoint" and self.running and self._is_due():
            return self.collect()
        return None


def capture_during(
    detector: Recordings | Mapping[str, Recordings],
    plan: MsgGenerator[Any],
    *,
    tx: TxQueue | None = None,
    stream: str = "primary",
    flush_period: float = 0.5,
) -> MsgGenerator[Any]:
    """Capture while a plan runs, in the open run.

    The capture begins before the first message of the plan. It ends after the last one, or later if
    it has a limit (`num_packets`, `acquire_time`) that is not reached yet. If the plan or the
    capture fails, the files recorded so far are part of the run.

    A pause also pauses the capture. After the pause, the RunEngine repeats the plan from its last
    checkpoint, and the capture continues.

    Parameters
    ----------
    detector : Capture, FrameDetector, sequence of these, or mapping
        Capture of a port, or detector of a reorder plan's frames; it must be staged. Several
        detectors in a list share the stream. Each must be prepared for the same number of rows,
        which are files (`CaptureTrigger`) or frames. A mapping gives each detector its own stream:
        ``{"images": detector, "packets": capture}``.
    plan : generator
        Plan to run during the capture, such as ``bps.mv(motor, 10)``. It may not open a run; see
        `capture_during_wrapper`.
    tx : TxQueue, optional
        A prepared and staged transmit queue that sends during the capture. Its row is in the stream
        ``transmit``.
    stream : str
        Stream of the files and their counters, unless ``detector`` is a mapping.
    flush_period : float
        Time between collections of rows, s. While the plan runs, they are collected at its
        checkpoints.

    Returns
    -------
    Any
        Return value of the plan.

    Raises
    ------
    FailedStatus
        If the capture or the transmission fails.
    ValueError
        If one of several detectors in a stream is not prepared, is prepared for another number of
        rows, or is given twice.
    """
    flight = Flight(_streams(detector, tx, stream), flush_period)

    def run() -> MsgGenerator[Any]:
        yield from flight.start()
        result = yield from bpp.plan_mutator(plan, lambda msg: (None, flight.collect_at(msg)))
        yield from flight.end()
        return result

    return (yield from bpp.contingency_wrapper(run(), except_plan=flight.recover))


def _streams(given: Any, tx: TxQueue | None, stream: str) -> Streams:
    """Return the detectors of each stream, and the transmission in ``transmit``."""
    named = given if isinstance(given, Mapping) else {stream: given}
    if tx is not None and "transmit" in named:
        raise ValueError(f"stream 'transmit' is used by {tx.name}; give the detector another one.")
    streams = {name: _recordings(some, name) for name, some in named.items()}
    recordings = [one for some in streams.values() for one in some]
    if not recordings:
        raise ValueError("no detector is given; accepted is {stream: detector, ...}.")
    for one in recordings:
        if recordings.count(one) > 1 and len(streams) > 1:
            raise ValueError(f"{one.name} is in several streams; give it one.")
    return streams if tx is None else {**streams, "transmit": [tx]}


def _recordings(given: Any, stream: str) -> Sequence[Recording]:
    """Return detectors that can be flown in one stream."""
    recordings = list(given) if isinstance(given, Sequence) else [given]
    for one in recordings or [given]:
        if not isinstance(one, Recording):
            raise TypeError(
                f"detector is {getattr(one, 'name', None) or repr(one)}; accepted are a capture, "
                "daq.<port>.capture, a frame detector, daq.<port>.frames.<plan>, a list of "
                "these, and {stream: detector, ...}."
            )
    if len(recordings) == 1:
        return recordings
    for one in recordings:
        if not one.prepared:
            how = (
                "bps.prepare(detector, 100), for 100 frames"
                if isinstance(one, FrameDetector)
                else "bps.prepare(capture, CaptureTrigger(number_of_files=..., "
                "packets_per_file=...))"
            )
            raise ValueError(
                f"{one.name} cannot share stream {stream!r}: it is not prepared. Prepare it first: "
                f"{how}; or give each detector a stream, {{stream: detector, ...}}."
            )
    rows = {one.name: _rows(one) for one in recordings}
    if len(rows) < len(recordings) or len(set(rows.values())) > 1:
        numbers = ", ".join(f"{one.name}: {rows[one.name]}" for one in recordings)
        raise ValueError(
            f"Detectors that share stream {stream!r} must have equal numbers of rows, files or "
            f"frames, each detector once; found {numbers}. Prepare them for the same number."
        )
    return recordings


def _rows(one: Recording) -> int:
    """Return the rows of a prepared detector."""
    if isinstance(one, FrameDetector):
        return one.prepared or 0
    return one.num_packets.get() // max(1, one.roll_packets.get())


def capture_during_wrapper(
    plan: MsgGenerator[Any],
    detector: Recording | Mapping[str, Recording],
    *,
    tx: TxQueue | None = None,
    stream: str = "packets",
    flush_period: float = 0.5,
) -> MsgGenerator[Any]:
    """Capture during each run of a plan, such as ``bp.scan([diode], motor, 0, 1, 11)``.

    The devices are staged first. The capture begins when a run is opened, and ends before it is
    closed; see `capture_during`.

    Parameters
    ----------
    plan : generator
        A plan that opens and closes runs.
    detector : Capture, FrameDetector or mapping
        As for `capture_during`; each of several needs its own stream.
    tx, flush_period
        As for `capture_during`.
    stream : str
        Stream of the files and their counters, unless ``detector`` is a mapping; not a stream of
        the plan.

    Returns
    -------
    Any
        Return value of the plan.

    Raises
    ------
    FailedStatus
        If the capture or the transmission fails.
    """
    streams = _streams(detector, tx, stream)
    devices = [device for devices in streams.values() for device in devices]
    flights = [Flight(streams, flush_period)]

    def insert(msg: Msg) -> tuple[MsgGenerator[Any] | None, MsgGenerator[Any] | None]:
        flight = flights[-1]
        if msg.command == "open_run":
            if msg.run is not None or flight.running:
                raise ValueError(
                    f"a capture cannot be in run {msg.run!r}: capture_during_wrapper is for plans "
                    "that open one run after the other, without keys."
                )
            flights.append(Flight(streams, flush_period))
            return None, flights[-1].start()
        if msg.command == "close_run" and flight.running:
            # A run that ends early has an exit status, also after RE.stop().
            early = msg.kwargs.get("exit_status") is not None
            return _before(msg, flight.recover if early else flight.end), None
        return None, flight.collect_at(msg)

    def run() -> MsgGenerator[Any]:
        return (yield from bpp.plan_mutator(plan, insert))

    def recover(error: Exception) -> MsgGenerator[None]:
        yield from flights[-1].recover(error)

    def staged() -> MsgGenerator[Any]:
        return (yield from bpp.contingency_wrapper(run(), except_plan=recover))

    return (yield from engine_metadata_wrapper(bpp.stage_wrapper(staged(), devices)))


capture_during_decorator = make_decorator(capture_during_wrapper)
"""`capture_during_wrapper` as a decorator: ``capture_during_decorator(detector, ...)``."""


def _before(msg: Msg, first: Callable[[], MsgGenerator[None]]) -> MsgGenerator[Any]:
    yield from first()
    return (yield msg)


def streams_of(detectors: Sequence[Recording], tx: TxQueue | None, stream: str) -> dict[str, Any]:
    """Return the devices of each stream: captures in ``stream``, a transmission in ``transmit``.

    Without a capture, the transmission is in ``stream``.
    """
    streams: dict[str, list[Any]] = {}
    if detectors:
        streams[stream] = list(detectors)
    if tx is not None:
        streams["transmit" if streams else stream] = [tx]
    return streams
