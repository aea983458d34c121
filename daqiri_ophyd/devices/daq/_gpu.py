"""GPUs that the configuration uses, as devices."""

import logging
import math
import threading
import time
from dataclasses import asdict
from typing import Any

from ophyd import Component
from ophyd.ophydobj import Kind

from daqiri_ophyd.host import FactError, GpuIdentity, GpuReader

from ..parts._base import CounterDevice, ThreadedDevice
from ..parts._signals import EngineSignalRO, Readings, fact
from ..parts._ticker import default_ticker

__all__ = ["Gpu"]

_log = logging.getLogger(__name__)
# The period at which the drivers of all GPUs have new samples.
_PERIOD_S = 1.0


def _identity(name: str) -> Any:
    return lambda gpu: getattr(gpu.identity, name)


def _reading(
    units: str, kind: Kind = Kind.normal, precision: int = 0
) -> Component[EngineSignalRO[float]]:
    return Component(EngineSignalRO, value=math.nan, units=units, precision=precision, kind=kind)


class Gpu(CounterDevice, ThreadedDevice):
    """A GPU that the configuration uses: its load, memory and temperature.

    Values that the driver does not report are NaN in readings, and 0 or empty in the configuration.
    `trigger` reads on a thread. Subscribed signals are updated once a second. They are NaN while
    the GPU cannot be read; the log has the reason. Only staging opens the engine.
    """

    utilization = _reading("percent", Kind.hinted)
    memory_utilization = _reading("percent")
    memory_used = _reading("byte")
    bar1_used = _reading("byte")
    temperature = _reading("degC")
    power = _reading("W", precision=3)
    sm_clock = _reading("MHz")

    gpu_name = fact(_identity("name"), "string")
    uuid = fact(_identity("uuid"), "string")
    pci_address = fact(_identity("pci_address"), "string")
    driver_version = fact(_identity("driver"), "string")
    memory_total = fact(_identity("memory_total"), "integer", "byte")
    bar1_total = fact(_identity("bar1_total"), "integer", "byte")

    def __init__(self, prefix: str = "", *, member: str, **kwargs: Any) -> None:
        self._reader = GpuReader(int(member))
        self._triggered: tuple[dict[str, float], float] | None = None
        self._polled: tuple[dict[str, float], float] | None = None
        self._poll: threading.Thread | None = None
        self._next_poll = 0.0
        self._failure = ""
        super().__init__(prefix, member=member, **kwargs)

    @property
    def source(self) -> str:
        """Source of the readings, for data keys."""
        return f"daqiri://{self.daq.name}/gpus/{self.member_name}"

    @property
    def identity(self) -> GpuIdentity:
        """Model and identifiers of the GPU.

        Raises
        ------
        FactError
            If it cannot be read on this host; the message names the missing resource.
        """
        return self._reader.identity

    def take_values(self) -> dict[str, Any]:
        """Read the driver; raises `FactError` if the GPU cannot be read."""
        return asdict(self._reader.read())

    def work(self) -> None:
        """Read the values for the next `read`, and once the identity of the GPU."""
        self.read_configuration()
        self._triggered = (self.take_values(), time.time())

    def read(self) -> Readings:
        """Return the values of the last `trigger` once; otherwise read the driver."""
        triggered, self._triggered = self._triggered, None
        return super().read() if triggered is None else self.readings_of(*triggered)

    def unstage(self) -> list[object]:
        """Discard values of a `trigger` that were not read."""
        self._triggered = None
        unstaged: list[object] = super().unstage()
        return unstaged

    def _notify_subscribers(self) -> None:
        if not self._is_monitored():
            default_ticker().remove(self._notify_subscribers)
            self.monitor()  # another thread may have opened the engine
            return
        polled, self._polled = self._polled, None
        if polled is not None:
            for attribute, value in polled[0].items():
                getattr(self, attribute).update_if_changed(value, polled[1])
        asking = self._poll is not None and self._poll.is_alive()
        if not asking and time.monotonic() >= self._next_poll:
            # A GPU that hangs must not block this thread, which captures need.
            self._next_poll = time.monotonic() + _PERIOD_S
            self._poll = threading.Thread(target=self._ask_driver, name=self.name, daemon=True)
            self._poll.start()

    def _ask_driver(self) -> None:
        failure = ""
        try:
            values = self.take_values()
        except Exception as error:
            # After any error the values are unknown; the next period tries again.
            failure = str(error) if isinstance(error, FactError) else repr(error)
            values = {signal.attr_name: math.nan for signal in self._counters()}
        if failure and failure != self._failure:
            _log.warning("%s: %s", self.name, failure)
        self._failure = failure
        self._polled = (values, time.time())
