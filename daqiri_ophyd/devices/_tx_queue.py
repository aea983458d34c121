"""A transmit queue as a device that sends on a schedule."""

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
    default_pump,
)
from daqiri_ophyd.replay import PacketSource, Transmission, TransmissionProgress

from ._base import CounterDevice, Readings
from ._pulse import default_pulse
from ._signals import EngineSignal, counter, counter_array, fact, setting
from ._status import EngineStatus

__all__ = ["TransmitStoppedError", "TxQueue"]

_PAUSE_S = 1.0


class TransmitStoppedError(RuntimeError):
    """A transmission that was stopped before its end."""


def _setting(name: str) -> Any:
    return lambda queue: getattr(queue.configured, name)


class TxQueue(CounterDevice):
    """Counters and settings of a transmit queue, and packets sent on a schedule.

    ============== ===============================================================================
    hook           what happens
    ============== ===============================================================================
    ``prepare``    takes the packets to send, a `daqiri_ophyd.replay.PacketSource`
    ``trigger``    in a step scan: sends them; done when all have left. Nothing prepared: done
    ``kickoff``    in a fly scan: begins to send them
    ``complete``   done when all have left
    ``collect``    one row of the readings for each transmission that has ended
    ``pause``      no further packets leave; ``resume`` goes on with the gaps that remain; all of
                   the engine pauses (`Daq.pause`)
    ``stop``       no further packets leave; ``unstage`` does the same and forgets the packets
    ============== ===============================================================================

    In every reading ``submitted = sent + held + dropped``. Lateness is time between the launch
    time of a packet and its launch, since the beginning of the latest transmission;
    ``lateness_histogram`` counts packets in the bins between ``lateness_edges``.
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
        self._flight = threading.RLock()  # over the above and the rows
        self._rows: list[dict[str, dict[str, Any]]] = []
        super().__init__(prefix, **kwargs)

    @property
    def configured(self) -> Any:
        """Settings of the queue, with every default and adjustment."""
        return next(q for q in self.interface.tx.queues if q.name == self.member_name)

    def take_values(self) -> dict[str, Any]:
        """Read all counters of the queue at once."""
        queue = self.daq.tx_queue(self.port_name, self.member_name)
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
        """Return the same from what the engine copied; the histogram only for its subscribers."""
        row = counters["tx"][self.port_name][self.member_name]
        values = self._values(TxCounters.of_row(row), int(counters["steady_ns"]) / 1e9)
        for name in ("lateness_p50", "lateness_p99", "lateness_p999", "lateness_max"):
            values[name] = int(row[name])
        if self.lateness_histogram.monitored:
            lateness = self.daq.tx_queue(self.port_name, self.member_name).lateness()
            values["lateness_histogram"] = lateness.binned().tolist()
        return values

    def _values(self, counters: TxCounters, now: float) -> dict[str, Any]:
        return {
            "sent": counters.sent,
            "late": counters.late,
            "dropped": counters.dropped_total,
            "submitted": counters.submitted,
            "held": counters.held,
            "sent_bytes": counters.sent_bytes,
            "bursts": counters.bursts,
            **self.rate_of({"rate": counters.sent, "data_rate": counters.sent_bytes}, now),
        }

    def prepare(self, value: PacketSource) -> EngineStatus:
        """Take the packets that `trigger` and `kickoff` send.

        Parameters
        ----------
        value : PacketSource
            What to send, and when.

        Raises
        ------
        TypeError
            If it is none.
        """
        if not isinstance(value, PacketSource):
            raise TypeError(
                f"{self.name}: cannot send a {type(value).__name__}; give a source of packets "
                "(daqiri_ophyd.replay: PacketArray, NumberedPackets, Replay)."
            )
        self._packets = value
        status = EngineStatus(self, action="preparing", timeout=self.timeout.get())
        status.finish()
        return status

    def stage(self) -> list[object]:
        """Open the engine if it is not, forget earlier transmissions."""
        self.daq.open()
        self._rows.clear()
        return super().stage()

    def unstage(self) -> list[object]:
        """Stop sending, forget the packets."""
        self.stop(success=True)
        self._packets = None
        return super().unstage()

    def trigger(self) -> EngineStatus:
        """Send what was prepared; done when it has left."""
        # The RunEngine triggers again what a pause interrupted.
        self.stop(success=True)
        if self._packets is None:
            status = EngineStatus(self, action="sending", timeout=self.timeout.get())
            status.finish()
            return status
        return self._launch(self._packets)

    def kickoff(self) -> EngineStatus:
        """Begin to send what was prepared.

        Raises
        ------
        RuntimeError
            If nothing was prepared, or a transmission goes on.
        """
        if self._packets is None:
            raise RuntimeError(
                f"{self.name}: nothing to send; prepare it first: bps.prepare({self.name}, source)."
            )
        if self._status is not None and not self._status.done:
            raise RuntimeError(f"{self.name}: a transmission goes on; complete it first.")
        self._launch(self._packets)
        started = EngineStatus(self, action="beginning to send", timeout=self.timeout.get())
        started.finish()
        return started

    def complete(self) -> EngineStatus:
        """Return the status of the transmission; done when all packets have left."""
        if self._status is None:
            raise RuntimeError(f"{self.name}: nothing was kicked off, so nothing can complete.")
        return self._status

    def collect_asset_docs(self) -> Iterator[Any]:
        """Yield nothing: what is sent is not kept."""
        yield from ()

    def describe_collect(self) -> Readings:
        """Return the data keys of `collect_pages`, those of `describe`."""
        return dict(self.describe())

    def collect_pages(self) -> Iterator[dict[str, Any]]:
        """Yield a row of the readings for each transmission that has ended."""
        with self._flight:
            rows, self._rows = self._rows, []
        if rows:
            yield {
                "time": [max(key["timestamp"] for key in row.values()) for row in rows],
                "data": {name: [row[name]["value"] for row in rows] for name in rows[0]},
                "timestamps": {name: [row[name]["timestamp"] for row in rows] for name in rows[0]},
            }

    def pause(self) -> None:
        """Pause the engine; see `Daq.pause`."""
        self.daq.pause()

    def resume(self) -> None:
        """Go on; see `Daq.resume`."""
        self.daq.resume()

    def hold(self) -> bool:
        """Let no further packets leave; waits for those that are due within a quarter second.

        Returns
        -------
        bool
            Whether there was anything to pause.
        """
        with self._flight:
            transmission, status = self._transmission, self._status
            if transmission is None or status is None or self._held:
                return False
            self._held = self._interrupted = True
        transmission.pause()
        status.hold()
        self.daq.tx_queue(self.port_name, self.member_name).wait_sent(_PAUSE_S)
        return True

    def proceed(self) -> None:
        """Go on after `hold`, with the gaps that remain."""
        with self._flight:
            transmission, status = self._transmission, self._status
            if transmission is None or status is None or not self._held:
                return
            self._held = False
        transmission.resume()
        status.proceed()

    def give_up(self) -> bool:
        """End a transmission that was paused: it belongs to a reading that is taken again.

        Returns
        -------
        bool
            Whether there was one.
        """
        if self.transmission is None or not self._interrupted:
            return False
        self.stop(success=True)
        return True

    def stop(self, *, success: bool = False) -> None:
        """Let no further packets leave; those handed over to the engine still do."""
        with self._flight:
            transmission = self._transmission
        if transmission is None:
            return
        transmission.stop()
        self._settle(transmission, stopped=not success)

    @property
    def link_type(self) -> int:
        """What the port sends: 1 Ethernet frames, 101 payloads of sockets."""
        socket = self.daq.config.stream_type == "socket"
        return LINKTYPE_RAW if socket else LINKTYPE_ETHERNET

    @property
    def transmission(self) -> TransmissionProgress | None:
        """How far the current transmission is; None if there is none."""
        with self._flight:
            return None if self._transmission is None else self._transmission.progress()

    def refuse_change(self, signal: EngineSignal) -> None:
        """Raise if a setting is changed while it is in use."""
        if self._transmission is not None:
            raise RuntimeError(f"{signal.name} cannot be changed while packets are being sent.")

    def _launch(self, packets: PacketSource) -> EngineStatus:
        patience = self.timeout.get()
        queue = self.daq.tx_queue(self.port_name, self.member_name)
        queue.reset_lateness()
        self.refresh()  # the rate of the row is that of the transmission
        status = EngineStatus(
            self,
            action="sending",
            timeout=patience + packets.duration_ns / 1e9 + self.start_delay.get(),
        )
        transmission = Transmission(
            self.daq.port(self.port_name),
            queue,
            packets,
            start_delay=self.start_delay.get(),
            patience=patience,
        )
        with self._flight:
            self._transmission, self._status = transmission, status
            self._held = self._interrupted = False
        default_pump().add(transmission.fileno(), lambda: self._settle(transmission))
        default_pulse().add(self._look)
        return status

    def _look(self) -> None:
        """Tell watchers how far it is; fail what has hung."""
        with self._flight:
            transmission, status = self._transmission, self._status
        if transmission is None or status is None:
            default_pulse().remove(self._look)
            return
        status.report(self._sent_so_far(transmission), transmission.progress().packets, "packets")
        status.check()

    def _sent_so_far(self, transmission: Transmission) -> int:
        held = self.daq.tx_queue(self.port_name, self.member_name).counters().held
        return max(0, transmission.progress().submitted - held)

    def _settle(self, transmission: Transmission, *, stopped: bool = False) -> None:
        """End a transmission whose thread has ended."""
        with self._flight:
            if self._transmission is not transmission or self._status is None:
                return
            status, self._transmission = self._status, None
            default_pump().remove(transmission.fileno())
            transmission.close()
            # Silently: a subscriber may wait for the thread that waits for this.
            self._rows.append(self.read_silently())
        progress = transmission.progress()
        status.report(progress.submitted, progress.packets, "packets")
        if progress.error is not None:
            status.fail(progress.error)
        elif stopped and progress.submitted < progress.packets:
            status.fail(
                TransmitStoppedError(
                    f"stopped after {progress.submitted} of {progress.packets} packets"
                )
            )
        else:
            status.finish()
