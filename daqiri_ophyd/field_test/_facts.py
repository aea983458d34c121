"""What a report says of the host and of the ports."""

from __future__ import annotations

import contextlib
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..engine import Engine, NetworkConfig, capabilities, version
from ..host import FactError, Facts, engine_traits, pci_address
from ..host.facts import NicSettings

__all__ = ["interface_of", "limits_of_port", "host_facts", "port_facts"]

NOT_KNOWN = "not known"
_CPU_NAME = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def _known(read: Callable[[], Any]) -> Any:
    """Return a fact, or that it is not known."""
    try:
        found = read()
    except (FactError, OSError, ValueError):
        return NOT_KNOWN
    return NOT_KNOWN if found is None or found == "" else found


def host_facts(config: NetworkConfig, engine_name: str) -> dict[str, Any]:
    """Return facts of the host, of the build, and of the engine."""
    facts = Facts()
    identity = _known(facts.identity)
    named = identity if isinstance(identity, dict) else {}
    return {
        "name": named.get("name") or NOT_KNOWN,
        "product": named.get("product") or NOT_KNOWN,
        "kernel": named.get("kernel") or NOT_KNOWN,
        "machine": platform.machine(),
        "cpu": _known(_cpu_name),
        "cpus": _known(lambda: len(facts.allowed_cpus)),
        "memory_bytes": _known(lambda: facts.memory.total),
        "hugepages": _known(
            lambda: [
                {"size": each.size, "total": each.total, "free": each.free}
                for each in facts.hugepages
            ]
        ),
        "command_line": _known(lambda: Path("/proc/cmdline").read_text().strip()),
        "python": platform.python_version(),
        "version": version(),
        "engine": engine_name,
        "engines": capabilities(),
        "stream_type": config.stream_type,
    }


def _cpu_name() -> str | None:
    found = _CPU_NAME.search(Path("/proc/cpuinfo").read_text())
    return found[1] if found else None


def interface_of(address: str, facts: Facts) -> str | None:
    """Return the network interface that an address of a configuration means; None: none."""
    with contextlib.suppress(FactError):
        if facts.has_interface(address):
            return address
        pci = pci_address(address)
        for name, found in facts.interfaces.items():
            if pci is not None and found.pci_address == pci:
                return name
        for name, addresses in facts.addresses.items():
            if address in addresses:
                return name
        # Devices of DPDK: net_af_packet0,iface=eth0.
        named = re.search(r"iface=([\w.@+-]+)", address)
        if named and facts.has_interface(named[1]):
            return named[1]
    return None


def port_facts(engine: Engine) -> list[dict[str, Any]]:
    """Return facts of the ports of an engine."""
    facts = Facts()
    return [_port(engine, number, facts) for number in range(len(engine.ports))]


def _port(engine: Engine, number: int, facts: Facts) -> dict[str, Any]:
    port = engine.ports[number]
    link = port.link()
    in_memory = engine_traits(engine.name).in_memory
    name = None if in_memory else interface_of(port.address, facts)
    found: dict[str, Any] = {
        "port": port.name,
        "address": port.address,
        "interface": name or "none",
        "mac_address": port.mac_address,
        "state": link.state,
        "mtu": link.mtu or NOT_KNOWN,
        "speed_Mb_per_s": link.speed or NOT_KNOWN,
        "rx_queues": [queue.name for queue in port.rx],
        "tx_queues": [queue.name for queue in port.tx],
        "receive_path": {queue.name: port.receive_path(queue.name) for queue in port.rx},
    }
    pci = pci_address(port.address) or ""
    if name is not None:
        device = facts.interfaces.get(name)
        pci = "" if device is None else device.pci_address
        # Of interfaces without a card, the speed is a number without a meaning.
        speed = (link.speed or device.speed) if device and pci else None
        found["speed_Mb_per_s"] = speed or NOT_KNOWN
        settings = _nic_settings(facts, name)
        found["driver"] = settings.driver or NOT_KNOWN
        found["firmware"] = settings.firmware or NOT_KNOWN
    card = _pci(facts).get(pci)
    found["pci"] = NOT_KNOWN if card is None else card.address
    if card is not None:
        found |= {
            "driver": found.get("driver") or card.driver or NOT_KNOWN,
            "numa_node": NOT_KNOWN if card.numa_node is None else card.numa_node,
            "pcie_speed": card.link_speed or NOT_KNOWN,
            "pcie_width": card.link_width or NOT_KNOWN,
            "pcie_Gb_per_s": NOT_KNOWN if card.bandwidth is None else round(card.bandwidth, 1),
        }
    return found


def _pci(facts: Facts) -> dict[str, Any]:
    found = _known(lambda: facts.pci)
    return found if isinstance(found, dict) else {}


def _nic_settings(facts: Facts, name: str) -> NicSettings:
    try:
        return facts.nic_settings(name)
    except FactError:
        return NicSettings()


def limits_of_port(facts: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return what a port's link and its PCIe link carry, Gb/s; None: not known."""
    speed, pcie = facts.get("speed_Mb_per_s"), facts.get("pcie_Gb_per_s")
    return (
        speed / 1000 if isinstance(speed, int) else None,
        float(pcie) if isinstance(pcie, int | float) else None,
    )
