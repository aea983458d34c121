"""Comparison of sent packets with captured ones, as a device."""

import time
from typing import Any

from ophyd.ophydobj import Kind

from daqiri_ophyd.replay import Comparison, PacketSource, Replay, compare

from ..parts._base import ThreadedDevice
from ..parts._signals import reading
from ..parts._status import TypedStatus
from ..recording.packets._capture import Capture
from ..traffic._tx_queue import TxQueue

__all__ = ["Verification"]


class Verification(ThreadedDevice):
    """Compares captured packets with the packets sent, as a reading.

    `trigger` compares on a thread. ``passed`` is true if everything is identical; otherwise
    ``difference`` describes the first difference. ``sent``, ``captured`` and ``identical`` (counted
    from the first one) are packets; on TCP ports, bytes of the stream. ``gap_...`` are deviations
    of the gaps between identical packets from the intended gaps, `daqiri_ophyd.replay.GapErrors`.

    Parameters
    ----------
    prefix : str
        Not used.
    name : str
        Name of the device.
    tx : TxQueue
        Transmit queue of the packets.
    source : PacketSource
        The packets.
    capture : Capture
        Capture that has the received packets in its files since it was staged.
    """

    passed = reading(False, kind=Kind.hinted)
    difference = reading("", kind=Kind.normal)
    sent = reading(0, kind=Kind.normal)
    captured = reading(0, kind=Kind.normal)
    identical = reading(0, kind=Kind.normal)
    gap_p50 = reading(0, "ns", kind=Kind.normal)
    gap_p99 = reading(0, "ns", kind=Kind.normal)
    gap_max = reading(0, "ns", kind=Kind.normal)
    gap_mean = reading(0.0, "ns", kind=Kind.normal)

    def __init__(
        self,
        prefix: str = "",
        *,
        name: str,
        tx: TxQueue,
        source: PacketSource,
        capture: Capture,
        **kwargs: Any,
    ) -> None:
        self._tx, self._source, self._capture = tx, source, capture
        self._result: Comparison | None = None
        super().__init__(prefix, name=name, **kwargs)

    @property
    def result(self) -> Comparison | None:
        """Result of the last `trigger`; None before it ends."""
        return self._result

    def trigger(self) -> TypedStatus:
        """Compare; the status is done when all packets are compared, also if they differ."""
        self._result = None
        return super().trigger()

    def work(self) -> None:
        """Compare, and update the readings."""
        captured = Replay(
            self._capture.files, link_type=self._tx.link_type, segment_size=self._tx.segment_size
        )
        result = compare(self._source, captured)
        gaps = result.gaps
        values = {
            "passed": not result.difference,
            "difference": result.difference,
            "sent": result.sent,
            "captured": result.captured,
            "identical": result.identical,
            "gap_p50": gaps.p50,
            "gap_p99": gaps.p99,
            "gap_max": gaps.maximum,
            "gap_mean": gaps.mean,
        }
        now = time.time()
        for attribute, value in values.items():
            getattr(self, attribute).update(value, now)
        self._result = result
