"""The kernel: version, modules, and privileges of this process."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass
from typing import Final

from .._record import read_record
from .._root import FactError, Root

__all__ = ["CAPABILITIES", "Process", "kernel_version", "read_modules", "read_process"]
__all__ += ["read_services"]

SERVICES = "/recorded/services.json"
_SERVICES = frozenset(
    ("chronyd", "ptp4l", "phc2sys", "ntpd", "systemd-timesyncd")
    + ("irqbalance", "NetworkManager", "systemd-networkd")
)

CAPABILITIES: Final = {
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_BPF": 39,
}
"""Bit numbers of capabilities (linux/capability.h)."""

_NAMESPACES = "/proc/self/ns"
_FIRST_USERS = 0xEFFFFFFD  # PROC_USER_INIT_INO (linux/proc_ns.h)
_NS_GET_USERNS = 0xB701  # linux/nsfs.h


@dataclass(frozen=True, slots=True)
class Process:
    """Privileges and limits of a process.

    Parameters
    ----------
    user : int
        Effective user id.
    capabilities : frozenset of str
        Effective capabilities, of those in `CAPABILITIES`. In a user namespace, only those that
        apply to the network of the process.
    memlock : int or None
        Bytes it may lock in memory; None: no limit.
    rtprio : int
        Highest real-time priority it may take without CAP_SYS_NICE.
    mappable : int or None
        Bytes of address space that it may map in addition (RLIMIT_AS); None: no limit.
    used, used_hugepages : int
        Bytes of memory, and of huge pages, that it has, such as those of an open engine.
    """

    user: int
    capabilities: frozenset[str]
    memlock: int | None
    rtprio: int
    mappable: int | None
    used: int = 0
    used_hugepages: int = 0


def kernel_version(release: str) -> tuple[int, int]:
    """
    Return major and minor version of a kernel's release, such as ``6.8.0-1023-nvidia``.

    Raises
    ------
    FactError
        If it does not begin with a version.
    """
    match = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if not match:
        raise FactError(f"/proc/sys/kernel/osrelease: holds {release[:40]!r}, not a version")
    return int(match[1]), int(match[2])


def read_modules(root: Root) -> frozenset[str]:
    """
    Return the names of loaded and built-in modules, with underscores.

    A kernel without modules has neither list; a folder in /sys/module counts as a module too.
    """
    lines = (line.split() for line in root.optional("/proc/modules").splitlines())
    loaded = {words[0] for words in lines if words}
    release = root.optional("/proc/sys/kernel/osrelease")
    builtin = {
        line.rpartition("/")[2].split(".ko")[0]
        for line in root.optional(f"/lib/modules/{release}/modules.builtin").splitlines()
    }
    names = {*loaded, *builtin, *root.names("/sys/module")}
    return frozenset(name.replace("-", "_") for name in names)


def read_process(root: Root) -> Process:
    """
    Return the privileges of this process; on a recorded host, of the process that recorded it.

    Raises
    ------
    FactError
        If the process's state cannot be read.
    """
    status = dict(line.split(":", 1) for line in root.lines("/proc/self/status") if ":" in line)
    try:
        effective = int(status["CapEff"], 16)
        user = int(status["Uid"].split()[1])
    except (KeyError, ValueError, IndexError):
        raise FactError("/proc/self/status: lacks Uid or CapEff") from None
    limits = root.optional("/proc/self/limits")
    return Process(
        user,
        frozenset(
            name
            for name, bit in CAPABILITIES.items()
            if effective >> bit & 1 and _applies(root, name)
        ),
        _soft_limit(limits, "Max locked memory"),
        _soft_limit(limits, "Max realtime priority") or 0,
        _left(limits, _size(status, "VmSize")),
        _size(status, "RssAnon") + _size(status, "RssShmem"),
        _size(status, "HugetlbPages"),
    )


def _size(status: dict[str, str], name: str) -> int:
    match = re.match(r"\s*(\d{1,15}) kB", status.get(name, ""), re.ASCII)
    return int(match[1]) << 10 if match else 0


def _applies(root: Root, capability: str) -> bool:
    """Return whether the kernel accepts a capability; of a recorded host, it does."""
    if not root.live:
        return True
    try:
        users = os.stat(f"{_NAMESPACES}/user").st_ino
        if users == _FIRST_USERS:
            return True
        return capability.startswith("CAP_NET_") and users == _owner_of_network()
    except OSError:
        return True


def _owner_of_network() -> int:
    """Return the user namespace to which the network of this process belongs; 0: one outside."""
    network = os.open(f"{_NAMESPACES}/net", os.O_RDONLY)
    try:
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
    except PermissionError:
        return 0
    finally:
        os.close(network)
    try:
        return os.fstat(owner).st_ino
    finally:
        os.close(owner)


def _left(limits: str, mapped: int) -> int | None:
    """Return what is left of the address space; without the line, there is no limit."""
    if "Max address space" not in limits:
        return None
    limit = _soft_limit(limits, "Max address space")
    return None if limit is None else max(limit - mapped, 0)


def _soft_limit(limits: str, name: str) -> int | None:
    match = re.search(rf"^{name}\s+(\d{{1,20}}|unlimited)\b", limits, re.MULTILINE)
    if not match:
        return 0
    return None if match[1] == "unlimited" else int(match[1])


def read_services(root: Root) -> frozenset[str]:
    """
    Return which services of interest are running, by the names of their processes.

    Those of a recorded host are in its ``recorded/services.json``: no other process is recorded.

    Raises
    ------
    FactError
        If the recording is malformed.
    """
    if not root.live:
        return frozenset(read_record(root, SERVICES, list[str]) or ())
    # Not the root that records what it reads.
    plain = Root()
    names = {plain.optional(f"/proc/{number}/comm") for number in _processes()}
    # The kernel keeps 15 characters.
    return frozenset(name for name in _SERVICES if name[:15] in names)


def _processes() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []
