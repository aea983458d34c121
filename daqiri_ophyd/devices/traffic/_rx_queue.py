"""A receive queue as a device."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import RxCounters, RxQueueConfig

from ..parts._base import CounterDevice
from ..parts._signals import counter, fact

if TYPE_CHECKING:
    from ..recording.packets._capture import Capture

__all__ = ["RECEIVE_DROPS", "RxQueue"]

RECEIVE_DROPS = (
    "no_packet_buffer",
    "no_burst_buffer",
    "ring_full",
    "kernel",
    "nic",
    "truncated",
    "filtered",
    "flushed",
    "malformed",
)
"""Reasons for which a receive queue drops packets."""


def _setting(name: str) -> Any:
    return lambda queue: getattr(queue.configured, name)


class RxQueue(CounterDevice):
    """Counters and settings of a receive queue.

    Every reading satisfies ``received = delivered + held + dropped``. `receive_path` is
    `daqiri_ophyd.engine.RxQueueState.receive_path`; it is empty while the engine is closed.
    """

    capture: "Capture"
    """Capture of this queue, in addition to that of the port."""

    received = counter("packets", hinted=True)
    dropped = counter("packets", hinted=True)
    received_bytes = counter("byte")
    delivered = counter("packets")
    held = counter("packets")
    truncated = counter("packets")
    bursts = counter("bursts")
    ring_high_water = counter("bursts")
    rate = counter("packets/s", dtype="number")
    data_rate = counter("byte/s", dtype="number")
    dropped_no_packet_buffer = counter("packets")
    dropped_no_burst_buffer = counter("packets")
    dropped_ring_full = counter("packets")
    dropped_kernel = counter("packets")
    dropped_nic = counter("packets")
    dropped_truncated = counter("packets")
    dropped_filtered = counter("packets")
    dropped_flushed = counter("packets")
    dropped_malformed = counter("packets")

    queue_id = fact(_setting("id"), "integer")
    batch_size = fact(_setting("batch_size"), "integer", "packets")
    timeout_us = fact(_setting("timeout_us"), "integer", "us")
    cpu_core = fact(_setting("cpu_core"), "string")
    poll_mode = fact(_setting("poll_mode"), "string")
    split_boundary = fact(_setting("split_boundary"), "integer", "byte")
    regions = fact(_setting("memory_regions"), "array")
    receive_path = fact(lambda queue: queue.receive_path_of(queue.member_name), "string")

    @property
    def configured(self) -> RxQueueConfig:
        """Settings of the queue, with all defaults and adjustments."""
        return next(q for q in self.interface.rx.queues if q.name == self.member_name)

    def take_values(self) -> dict[str, Any]:
        """Read all counters of the queue at once; opens the engine if it is closed."""
        queue = self.daq.open().rx_queue(self.port_name, self.member_name)
        return self._values(queue.counters())

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy."""
        row = counters["rx"][self.port_name][self.member_name]
        return self._values(RxCounters.of_row(row))

    def _values(self, counters: RxCounters) -> dict[str, Any]:
        rate, data_rate = self.daq.rx_queue(self.port_name, self.member_name).rates()
        return {
            "received": counters.received,
            "dropped": counters.dropped_total,
            "received_bytes": counters.received_bytes,
            "delivered": counters.delivered,
            "held": counters.held,
            "truncated": counters.truncated,
            "bursts": counters.bursts,
            "ring_high_water": counters.ring_high_water,
            "rate": rate,
            "data_rate": data_rate,
            **{f"dropped_{reason}": counters.dropped[reason] for reason in RECEIVE_DROPS},
        }
