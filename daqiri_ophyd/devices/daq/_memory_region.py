"""Memory regions as devices: how many packet buffers are free."""

from typing import Any

from daqiri_ophyd.engine import Engine

from ..parts._base import CounterDevice
from ..parts._signals import counter, fact
from ._configuration import region_table

__all__ = ["MemoryRegion"]


def _configured(name: str) -> Any:
    return lambda region: region.configured[name]


class MemoryRegion(CounterDevice):
    """Free buffers of a memory region, and its configuration.

    If packets are dropped for the reason ``no_packet_buffer``, check first whether a region has no
    free buffers.
    """

    free = counter("buffers")

    buffers = fact(_configured("num_bufs"), "integer", "buffers")
    buf_size = fact(_configured("buf_size"), "integer", "byte")
    region_kind = fact(_configured("kind"), "string")

    @property
    def source(self) -> str:
        """Source of the readings, for data keys."""
        return f"daqiri://{self.daq.name}/regions/{self.member_name}"

    @property
    def configured(self) -> dict[str, Any]:
        """The region as configured, with all defaults."""
        regions = region_table(self.daq.configuration_dict)
        return next(region for region in regions if region["name"] == self.member_name)

    def values_of(self, engine: Engine) -> dict[str, Any]:
        """Read the level of the region; it is not in the engine's periodic copy."""
        return {"free": engine.free_buffers(self.member_name)}
