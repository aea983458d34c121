"""Reorder plans as devices."""

import json
from typing import Any

from ophyd import Component as Cpt
from ophyd.ophydobj import Kind

from daqiri_ophyd.engine import NotSupportedError

from ._base import EngineDevice
from ._flow import inner_configuration
from ._signals import EngineSignal, fact

__all__ = ["ReorderPlan"]


class _Enabled(EngineSignal[bool]):
    """Whether the plan is enabled; this build has no reordering."""

    def check_value(self, value: Any, **_: Any) -> None:
        """Refuse to enable."""
        if value:
            raise NotSupportedError(
                f"{self.name}: this build cannot reorder packets; it delivers them in order of "
                "arrival. Capture the packets and reorder them when reading."
            )
        super().check_value(value)

    def put(self, value: Any, **kwargs: Any) -> None:
        """Check and store the value."""
        self.check_value(value)
        super().put(value, **kwargs)


def _setting(name: str) -> Any:
    return lambda plan: plan.configured[name]


class ReorderPlan(EngineDevice):
    """A reorder plan of a port, as configured; it cannot be enabled in this build."""

    plan_name = fact(lambda plan: plan.member_name, "string")
    enabled = Cpt(_Enabled, value=False, kind=Kind.config)
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
