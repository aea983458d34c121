"""Settings of NICs, from ethtool."""

from __future__ import annotations

import ctypes
import fcntl
import re
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from .._record import read_record
from .._root import FactError, Root

__all__ = ["NicSettings", "read_nic_settings"]

RECORDED = "/recorded/ethtool.json"
_SIOCETHTOOL = 0x8946
_ETHTOOL_GDRVINFO = 0x03
_ETHTOOL_GPAUSEPARAM = 0x12
_ETHTOOL_GET_TS_INFO = 0x41
_HARDWARE_RECEIVE = 1 << 2  # SOF_TIMESTAMPING_RX_HARDWARE
_OFFLOADS = ("rx-gro", "rx-lro")
# Of the names of link modes, such as 100000baseKR4/Full.
_MODE = re.compile(r"(\d{1,9})base")


@dataclass(frozen=True, slots=True)
class NicSettings:
    """Settings of a NIC; None: the driver has no such setting.

    Parameters
    ----------
    rx_ring, max_rx_ring : int or None
        Descriptors of a receive queue: current and maximum.
    channels, max_channels : int or None
        Receive queues: current and maximum.
    offloads : tuple of str or None
        Enabled offloads, of ``rx-gro`` and ``rx-lro``.
    rx_pause : bool or None
        Whether it obeys pause frames.
    clock : int or None
        Index of its PTP hardware clock.
    hardware_receive : bool or None
        Whether it can timestamp received packets.
    max_speed : int or None
        Mb/s of its fastest link mode.
    driver, firmware : str or None
        Name of the driver, and version of the firmware.
    """

    rx_ring: int | None = None
    max_rx_ring: int | None = None
    channels: int | None = None
    max_channels: int | None = None
    offloads: tuple[str, ...] | None = None
    rx_pause: bool | None = None
    clock: int | None = None
    hardware_receive: bool | None = None
    max_speed: int | None = None
    driver: str | None = None
    firmware: str | None = None


def read_nic_settings(root: Root, interface: str) -> NicSettings:
    """
    Return the settings of an interface; those of a recorded host are in ``recorded/ethtool.json``.

    Raises
    ------
    FactError
        If the kernel cannot be asked, or the recording is malformed.
    """
    if root.live:
        from pyroute2.netlink.exceptions import NetlinkError

        try:
            return NicSettings(**_live(interface))
        except (OSError, NetlinkError) as error:
            raise FactError(f"ethtool: {error}") from None
    recorded = read_record(root, RECORDED, dict[str, NicSettings]) or {}
    return recorded.get(interface, NicSettings())


def _live(interface: str) -> dict[str, Any]:
    # Importing pyroute2 takes a tenth of a second, and many commands ask no kernel.
    from pyroute2.ethtool import Ethtool

    found: dict[str, Any] = {}
    with closing(Ethtool()) as ethtool:
        if rings := _ask(ethtool.get_rings, interface):
            found.update(rx_ring=rings.rx, max_rx_ring=rings.rx_max)
        if channels := _ask(ethtool.get_channels, interface):
            found["channels"] = channels.rx_count + channels.combined_count
            found["max_channels"] = channels.max_rx + channels.max_combined
        if features := _ask(ethtool.get_features, interface):
            on = (name for name in _OFFLOADS if name in features.features)
            found["offloads"] = tuple(name for name in on if features.features[name].enable)
        if modes := _ask(ethtool.get_link_mode, interface):
            speeds = [int(m[1]) for mode in modes.supported_modes if (m := _MODE.match(mode))]
            found["max_speed"] = max(speeds, default=None)
    # pyroute2 does not support these requests.
    if names := _request(interface, _ETHTOOL_GDRVINFO, "=I32s32s32s32s32s32x"):
        driver, _, firmware = (name.split(b"\0")[0].decode(errors="replace") for name in names[1:4])
        found.update(driver=driver or None, firmware=firmware or None)
    if pause := _request(interface, _ETHTOOL_GPAUSEPARAM, "=4I"):
        found["rx_pause"] = bool(pause[2])
    if stamps := _request(interface, _ETHTOOL_GET_TS_INFO, "=2Ii8I"):
        found["clock"] = stamps[2] if stamps[2] >= 0 else None
        found["hardware_receive"] = bool(stamps[1] & _HARDWARE_RECEIVE)
    return found


def _ask(request: Callable[[str], Any], interface: str) -> Any:
    from pyroute2.ethtool.ioctl import EthtoolError
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        return request(interface)
    except (EthtoolError, NetlinkError, OSError):
        return None


def _request(interface: str, command: int, layout: str) -> tuple[Any, ...] | None:
    """Return the fields of an answer to SIOCETHTOOL (linux/ethtool.h), or None."""
    answer = ctypes.create_string_buffer(struct.calcsize(layout))
    struct.pack_into("=I", answer, 0, command)
    name = interface.encode()[:15]
    request = struct.pack("16sP16x", name, ctypes.addressof(answer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
        except OSError:
            return None
    return struct.unpack(layout, answer.raw)
