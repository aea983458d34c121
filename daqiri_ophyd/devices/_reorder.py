"""Reorder plans as devices."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd.engine import ReorderCounters

from ._base import CounterDevice
from ._configuration import inner_configuration
from ._signals import counter, fact

__all__ = ["ReorderPlan"]


def _setting(name: str) -> Any:
    return lambda plan: plan.configured[name]


class ReorderPlan(CounterDevice):
    """A reorder plan of a port: packets of its flows become frames.

    The counters are those of `daqiri_ophyd.engine.ReorderCounters`; frames have ``_frames`` in
    their names, since ophyd keeps ``complete`` for flyers. They begin at 0 whenever the engine is
    opened. Frames are handed out by the receive queue that the flows lead to.
    """

    complete_frames = counter("frames", hinted=True)
    incomplete_frames = counter("frames", hinted=True)
    lost_frames = counter("frames")
    missing = counter("packets")
    packets = counter("packets")
    placed = counter("packets")
    duplicate = counter("packets")
    late = counter("packets")
    malformed = counter("packets")
    no_buffer = counter("packets")
    restarts = counter("restarts")

    plan_name = fact(lambda plan: plan.member_name, "string")
    reorder_type = fact(_setting("reorder_type"), "string")
    memory_region = fact(_setting("memory_region"), "string")
    payload_byte_offset = fact(_setting("payload_byte_offset"), "integer", "byte")
    flow_ids = fact(_setting("flow_ids"), "array")
    method = fact(lambda plan: json.dumps(plan.configured["method"]), "string")

    @property
    def configured(self) -> dict[str, Any]:
        """The plan as configured, with all defaults."""
        inner = inner_configuration(self.daq.configuration_dict)
        port = next(i for i in inner["interfaces"] if i["name"] == self.port_name)
        return next(p for p in port["rx"]["reorder_configs"] if p["name"] == self.member_name)

    def take_values(self) -> dict[str, Any]:
        """Read the counters of the plan; opens the engine if it is closed."""
        plan = self.daq.open().port(self.port_name).reorder_plan(self.member_name)
        return _values(plan.counters())

    def take_copied(self, counters: NDArray[np.void]) -> dict[str, Any]:
        """Return the same values from the engine's periodic copy."""
        row = counters["reorder"][self.port_name][self.member_name]
        return _values(ReorderCounters.of_row(row))


def _values(counters: ReorderCounters) -> dict[str, int]:
    frames = ("complete", "incomplete", "lost")
    values = asdict(counters)
    return {f"{name}_frames" if name in frames else name: values[name] for name in values}
