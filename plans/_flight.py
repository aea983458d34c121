"""Devices that fly in an open run."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bluesky import plan_stubs as bps
from bluesky import preprocessors as bpp
from bluesky.utils import FailedStatus, Msg, MsgGenerator, short_uid

from daqiri_ophyd.devices import Capture, FrameDetector, TxQueue

from ._arrival import are_peers, bytes_on_the_way, until_arrived, until_taken

__all__ = ["Flight", "Recording", "Recordings", "Streams", "streams_of"]

# Time in which a failed capture ends the run while the plan waits for the transmission.
_LOOK_S = 0.1
# Collections without a new row, after which a simulation ends. A pause cancels one at a time.
_TRIES = 10

Streams = Mapping[str, Sequence[Any]]
"""Devices by the name of their stream."""

Recording = Capture | FrameDetector
Recordings = Recording | Sequence[Recording]


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
        in_vain = 0
        while in_vain < _TRIES and (rest := self._uncollected()):
            yield from self.collect()
            in_vain = in_vain + 1 if self._uncollected() == rest else 0

    def _uncollected(self) -> list[Any]:
        """Return the files that a collection can put into documents: each stream's, if all have."""
        found = []
        for devices in self._streams.values():
            files = [list(one.uncollected) for one in devices if isinstance(one, Recording)]
            if files and all(files):
                found += files
        return found

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
            if tx.daq is one.daq and tx.daq.is_open and are_peers(tx, one)
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
