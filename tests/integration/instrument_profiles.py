"""Simulated instruments: their packets as Ethernet frames, and the plans of their profiles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import Engine, ReorderPlan, ethernet
from daqiri_ophyd.simulate import Chunk

__all__ = ["framed", "plan_in", "plan_of"]


def framed(chunk: Chunk, source: int, ports: NDArray[np.intp]) -> list[NDArray[np.uint8]]:
    """Packets as Ethernet frames, from ``source`` on, to the port of each stream."""
    made: list[Any] = [None] * len(chunk.packets)
    for size in np.unique(chunk.sizes):
        which = np.flatnonzero(chunk.sizes == size)
        streams = chunk.streams[which]
        rows = ethernet.udp_frames(
            chunk.packets[which, :size],
            src_mac="02:00:00:00:00:01",
            dst_mac="02:00:00:00:00:02",
            src_ip="192.0.2.1",
            dst_ip="192.0.2.2",
            src_port=source + streams,
            dst_port=ports[streams],
        )
        for i, row in zip(which.tolist(), rows, strict=True):
            made[i] = row
    return made


def plan_in(config: dict[str, Any]) -> dict[str, Any]:
    """The plan in the configuration of a profile."""
    (plan,) = config.get("reorder_configs") or config["interfaces"][0]["rx"]["reorder_configs"]
    return plan


def plan_of(engine: Engine) -> ReorderPlan:
    """The plan of an engine with such a configuration."""
    (plan,) = [*engine.reorder.values(), *(p for e in engine.ports for p in e.reorder.values())]
    return plan
