"""The devices of this process whose engines are open."""

import weakref
from typing import Any

from daqiri_ophyd.engine import DaqiriError

__all__ = ["all_devices", "name_holder", "open_devices"]

all_devices: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""All devices that own an engine."""


def open_devices() -> list[Any]:
    """Return the devices of this process whose engines are open.

    A device whose variable has another value now, because a startup file was run again, keeps its
    sockets until it is closed.

    Returns
    -------
    list of Daq
        In no order.
    """
    return [device for device in list(all_devices) if device.is_open]


def name_holder(error: DaqiriError) -> DaqiriError:
    """Return an error of opening; if an open device has the socket, with the device's name."""
    words = str(error).replace(": ", " ").split()
    for device in open_devices():
        sockets = [interface.socket_config for interface in device.config.interfaces]
        if any(each is not None and each.local_addr in words for each in sockets):
            return type(error)(
                f"{error}. That is this process: its device {device.name} is open and has the "
                "socket. Close it first; daqiri_ophyd.devices.open_devices() returns it, also if "
                "its variable has another value now."
            )
    return error
