"""A transmit queue as a device that sends on a schedule."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import (
    LATENESS_EDGES,
    LINKTYPE_ETHERNET,
    LINKTYPE_RAW,
    TxCounters,
    TxQueueConfig,
    default_pump,
)
from daqiri_ophyd.replay import PacketSource, Transmission, TransmissionProgress, segment_size

from ..parts._base import CounterDevice
from ..parts._signals import DataKeys, EngineSignal, Readings, counter, counter_array, fact, setting
from ..parts._status import EngineStatus, StageStatus
from ..parts._ticker import default_ticker

__all__ = ["TransmitStoppedError", "TxQueue"]

# How long a pause waits for packets to leave, in total and since the last packet left. Both are
# longer than the time by which packets are submitted before their launch.
_PAUSE_S = 1.0
_STUCK_S = 0.3
_RATE_S = 1.0


class TransmitStoppedError(RuntimeError):
    """A transmission was stopped before its end."""


def _setting(name: str) -> Any:
    return lambda queue: getattr(queue.configured, name)


class TxQueue(CounterDevice):
    """Counters and settings of a transmit queue, and packets sent on a schedule.

    ============== ===============================================================================
    hook           what happens
    ============== ===============================================================================
    ``prepare``    accepts the packets to send, a `daqiri_ophyd.replay.PacketSource`
    ``trigger``    in a step scan: sends them; done when all have been sent
    ``kickoff``    in a fly scan: starts sending them
    ``complete``   done when all have been sent
    ``collect``    one row of the readings for each transmission that has ended
    ``pause``      pauses the whole engine (`Daq.pause`): no further packets are submitted;
                   ``resume`` continues with the remaining gaps
    ``stop``       no further packets are submitted, and those that have not left are dropped
                   (reason ``flushed``); ``unstage`` also forgets the packets
    ============== ===============================================================================

    ``submitted = sent + held + dropped`` in every reading. Lateness is the time from a packet's
    launch time to its launch, for the packets of the latest transmission. ``lateness_histogram``
    counts packets in the bins between ``lateness_edges``. Rates are those of the last second, or
    since the transmission began if that is less.
    """

    sent = counter("packets", hinted=True)
    late = counter("packets", hinted=True)
    dropped = counter("packets", hinted=True)
    submitted = counter("packets")
    held = counter("packets")
    sent_bytes = counter("byte")
    bursts = counter("bursts")
    rate = counter("packets/s", dtype="number")
    data_rate = counter("byte/s", dtype="number")
    lateness_p50 = counter("ns")
    lateness_p99 = counter("ns")
    lateness_p999 = counter("ns")
    lateness_max = counter("ns")
    lateness_histogram = counter_array("packets", len(LATENESS_EDGES) - 1)

    queue_id = fact(_setting("id"), "integer")
    batch_size = fact(_setting("batch_size"), "integer", "packets")
    pacing_mbps = fact(_setting("pacing_mbps"), "integer", "Mbit/s")
    cpu_core = fact(_setting("cpu_core"), "string")
    realtime_priority = fact(_setting("realtime_priority"), "integer")
    regions = fact(_setting("memory_regions"), "array")
    start_delay = setting(0.1, "s", minimum=0.0)
    lateness_edges = fact(lambda _: LATENESS_EDGES.tolist(), "array", "ns")
    timeout = setting(10.0, "s", minimum=0.001)

    def __init__(self, prefix: str = "", **kwargs: Any) -> None:
        self._packets: PacketSource | None = None
        self._transmission: Transmission | None = None
        self._status: EngineStatus | None = None
        self._held = self._interrupted = False
        self._flight = threading.RLock()  # guards the attributes above and the rows
        self._rows: list[Readings] = []
        # When the latest transmission began, s of time.monotonic, and the counters at that time.
        self._began: tuple[float, TxCounters] | None = None
        super().__init__(prefix, **kwargs)

    @property
    def configured(self) -> TxQueueConfig:
        """Settings of the queue, with all defaults and adjustments."""
        return next(q for q in self.interface.tx.queues if q.name == self.member_name)

    def take_values(self) -> dict[str, Any]:
        """Read all counters of the queue at once; opens the engine if it is closed."""
        queue = self.daq.open().tx_queue(self.port_name, self.member_name)
        values = self._values(queue.counters(), time.monotonic())
        lateness = queue.lateness()
        return values | {
            "lateness_p50": lateness.p50,
            "lateness_p99": lateness.p99,
            "lateness_p999": lateness.p999,
            "lateness_max": lateness.maximum,
            "lateness_histogram": lateness.binned().tolist(),
        }

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy.

        The histogram is not in the copy; it is read only if it has subscribers.
        """
        row = counters["tx"][self.port_name][self.member_name]
        values = self._values(TxCounters.of_row(row), int(counters["steady_ns"]) / 1e9)
        for name in ("lateness_p50", "lateness_p99", "lateness_p999", "lateness_max"):
            values[name] = int(row[name])
        if self.lateness_histogram.monitored:
            lateness = self.daq.tx_queue(self.port_name, self.member_name).lateness()
            values["lateness_histogram"] = lateness.binned().tolist()
        return values

    def _values(self, counters: TxCounters, now: float) -> dict[str, Any]:
        rate, data_rate = self._rates(counters, now)
        return {
            "sent": counters.sent,
            "late": counters.late,
            "dropped": counters.dropped_total,
            "submitted": counters.submitted,
            "held": counters.held,
            "sent_bytes": counters.sent_bytes,
            "bursts": counters.bursts,
            "rate": rate,
            "data_rate": data_rate,
        }

    def _rates(self, counters: TxCounters, now: float) -> tuple[float, float]:
        if self._began is not None:
            then, before = self._began
            # A reopened engine counts from 0.
            if then < now < then + _RATE_S and before.sent <= counters.sent:
                elapsed = now - then
                return (
                    (counters.sent - before.sent) / elapsed,
                    (counters.sent_bytes - before.sent_bytes) / elapsed,
                )
        return self.daq.tx_queue(self.port_name, self.member_name).rates()

    def prepare(self, value: PacketSource) -> EngineStatus:
        """Set the packets that `trigger` and `kickoff` send.

        Parameters
        ----------
        value : PacketSource
            Packets to send, with their times.

        Raises
        ------
        TypeError
            If ``value`` is not a `PacketSource`.
        """
        if not isinstance(value, PacketSource):
            raise TypeError(
                f"{self.name}: cannot send a {type(value).__name__}; give a packet source "
                "(daqiri_ophyd.replay: PacketArray, NumberedPackets, Replay)."
            )
        self._packets = value
        status = EngineStatus(self, action="preparing", timeout=self.timeout.get())
        status.finish()
        return status

    def stage(self) -> list[object] | StageStatus:
        """Open the engine if it is closed, and forget earlier transmissions.

        Returns a status if the engine is opened on a thread; see `Daq.stage_part`.
        """
        self._rows.clear()
        return self.daq.stage_part(self, super().stage)

    def unstage(self) -> list[object]:
        """Stop sending and forget the packets."""
        if self.daq.staged_by_another():
            return []
        self.stop(success=True)
        self._packets = None
        return super().unstage()

    def trigger(self) -> EngineStatus:
        """Send the prepared packets; done when all have been sent.

        Raises
        ------
        RuntimeError
            If nothing was prepared.
        """
        # After a pause the RunEngine triggers the interrupted reading again.
        self.stop(success=True)
        return self._start(self._prepared("triggered"))

    def kickoff(self) -> EngineStatus:
        """Start sending the prepared packets.

        Raises
        ------
        RuntimeError
            If nothing was prepared, or a transmission is running.
        """
        packets = self._prepared("kicked off")
        if self._status is not None and not self._status.done:
            raise RuntimeError(f"{self.name}: a transmission is running; complete it first.")
        self._start(packets)
        started = EngineStatus(self, action="starting to send", timeout=self.timeout.get())
        started.finish()
        return started

    def complete(self) -> EngineStatus:
        """Return the status of the transmission; done when all packets have been sent."""
        if self._status is None:
            raise RuntimeError(f"{self.name}: no transmission to complete; kick it off first.")
        return self._status

    def collect_asset_docs(self) -> Iterator[Any]:
        """Yield nothing, because sent packets are not stored."""
        yield from ()

    def describe_collect(self) -> DataKeys:
        """Return the data keys of `collect_pages`, those of `describe`."""
        return dict(self.describe())

    def collect_pages(self) -> Iterator[dict[str, Any]]:
        """Yield a row of the readings for each transmission that has ended."""
        if self._status is not None:
            self._status.wait_told()
        with self._flight:
            rows, self._rows = self._rows, []
        if rows:
            yield {
                "time": [max(key["timestamp"] for key in row.values()) for row in rows],
                "data": {name: [row[name]["value"] for row in rows] for name in rows[0]},
                "timestamps": {name: [row[name]["timestamp"] for row in rows] for name in rows[0]},
            }

    async def pause(self) -> None:
        """Pause the engine; see `Daq.pause`."""
        await self.daq.pause()

    def resume(self) -> None:
        """Resume the engine; see `Daq.resume`."""
        self.daq.resume()

    def pause_sending(self) -> bool:
        """Submit no further packets; `wait_sent` waits for those submitted so far.

        Returns
        -------
        bool
            Whether there is a transmission, now paused.
        """
        with self._flight:
            transmission, status = self._transmission, self._status
            if transmission is None or status is None:
                return False
            if self._held:
                return True
            self._held = self._interrupted = True
        transmission.pause()
        status.pause_timeout()
        return True

    async def wait_sent(self) -> None:
        """Wait until all submitted packets have left, none leave anymore, or 1 s has passed."""
        queue = self.daq.tx_queue(self.port_name, self.member_name)
        sent, since = -1, 0.0
        end = time.monotonic() + _PAUSE_S
        while (counters := queue.counters()).held and (now := time.monotonic()) < end:
            if counters.sent != sent:
                sent, since = counters.sent, now
            if now - since > _STUCK_S:
                return
            await asyncio.sleep(0.005)

    def resume_sending(self) -> None:
        """Continue after `pause_sending`, with the remaining gaps."""
        with self._flight:
            transmission, status = self._transmission, self._status
            if transmission is None or status is None or not self._held:
                return
            self._held = False
        transmission.resume()
        status.resume_timeout()

    def stop_interrupted(self) -> bool:
        """Stop a transmission that a pause interrupted: the RunEngine repeats its reading.

        Returns
        -------
        bool
            Whether such a transmission existed and some of its packets were still held.
        """
        if self.transmission is None or not self._interrupted:
            return False
        held = self.daq.tx_queue(self.port_name, self.member_name).counters().held > 0
        self.stop(success=True)
        return held

    def stop(self, *, success: bool = False) -> None:
        """Submit no further packets, and drop those that have not left."""
        with self._flight:
            transmission = self._transmission
        if transmission is None:
            return
        transmission.stop()
        self._finish(transmission, stopped=not success)

    @property
    def link_type(self) -> int:
        """Link type of the port: 1 Ethernet frames, 101 payloads of sockets."""
        socket = self.daq.config.stream_type == "socket"
        return LINKTYPE_RAW if socket else LINKTYPE_ETHERNET

    @property
    def segment_size(self) -> int | None:
        """Bytes of the longest packet of a TCP port; None on other ports."""
        return segment_size(self.daq.config, self.port_name, self.member_name)

    @property
    def transmission(self) -> TransmissionProgress | None:
        """Progress of the current transmission; None if nothing is being sent."""
        with self._flight:
            return None if self._transmission is None else self._transmission.progress()

    @property
    def busy(self) -> str:
        """State as for every device; ``sending`` during a transmission."""
        return "sending" if self._transmission is not None else super().busy

    def refuse_change(self, signal: EngineSignal) -> None:
        """Raise if a setting is changed while it is in use."""
        if self._transmission is not None:
            raise RuntimeError(f"{signal.name} cannot be changed while packets are being sent.")

    def _prepared(self, action: str) -> PacketSource:
        """Return the prepared packets; raise if there are none."""
        if self._packets is None:
            raise RuntimeError(
                f"{self.name} was {action} with nothing prepared. Prepare it before each plan that "
                "stages it, because unstaging forgets the packets: bps.prepare(tx, packet_source("
                "...)). To read its counters without sending, read its group, such as "
                "daq.<port>.tx."
            )
        return self._packets

    def _start(self, packets: PacketSource) -> EngineStatus:
        timeout = self.timeout.get()
        queue = self.daq.tx_queue(self.port_name, self.member_name)
        queue.reset_lateness()
        # The rate in the row is that of this transmission.
        self._began = time.monotonic(), queue.counters()
        status = EngineStatus(
            self,
            action="sending",
            timeout=timeout + packets.duration_ns / 1e9 + self.start_delay.get(),
        )
        transmission = Transmission(
            self.daq.port(self.port_name),
            queue,
            packets,
            start_delay=self.start_delay.get(),
            timeout=timeout,
        )
        with self._flight:
            self._transmission, self._status = transmission, status
            self._held = self._interrupted = False
        default_pump().add(transmission.fileno(), lambda: self._finish(transmission))
        default_ticker().add(self._update_progress, status.fail)
        return status

    def _update_progress(self) -> None:
        """Report progress; fail if there is none for too long."""
        with self._flight:
            transmission, status = self._transmission, self._status
        if transmission is None or status is None:
            default_ticker().remove(self._update_progress)
            return
        status.report(self._sent_so_far(transmission), transmission.progress().packets, "packets")
        status.check()

    def _sent_so_far(self, transmission: Transmission) -> int:
        held = self.daq.tx_queue(self.port_name, self.member_name).counters().held
        progress = transmission.progress()
        return max(0, progress.submitted - progress.dropped - held)

    def _finish(self, transmission: Transmission, *, stopped: bool = False) -> None:
        """Finish or fail the status of a transmission whose thread has ended."""
        with self._flight:
            if self._transmission is not transmission or self._status is None:
                return
            status, self._transmission = self._status, None
            default_pump().remove(transmission.fileno())
            transmission.close()
            try:
                # Subscribers are not called: one may wait for the thread that holds this lock.
                self._rows.append(self.read())
            except Exception as error:  # a status that nothing ends would hang the plan
                status.fail(error)
                return
        progress = transmission.progress()
        sent = max(0, progress.submitted - progress.dropped)
        status.report(sent, progress.packets, "packets")
        if progress.error is not None:
            status.fail(progress.error)
        elif stopped and sent < progress.packets:
            status.fail(TransmitStoppedError(f"stopped after {sent} of {progress.packets} packets"))
        else:
            status.finish()
