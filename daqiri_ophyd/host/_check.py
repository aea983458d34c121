"""Checks: how they are declared, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ._finding import Finding, Result, Status
from ._needs import Needs, PortNeeds
from ._platform import PLATFORMS, Platform
from ._root import FactError
from .facts import Facts, NetDevice, PciDevice

__all__ = ["Check", "Context", "check", "ok", "skip"]


@dataclass(frozen=True, slots=True)
class Context:
    """What a check may look at.

    Parameters
    ----------
    facts : Facts
        The host; each fact is gathered when it is first asked for.
    needs : Needs
        What the engine's configuration asks of the host.
    platform : Platform
        Kind of host.
    folder : str
        Where captures will be written.
    """

    facts: Facts
    needs: Needs
    platform: Platform
    folder: str

    @property
    def interfaces(self) -> list[NetDevice]:
        """Network interfaces in use: the configuration's, or without one all with hardware."""
        every = self.facts.interfaces.values()
        if not self.needs.given:
            return [each for each in every if each.pci_address]
        return [each for each in every if any(self._is(each, p) for p in self.needs.ports)]

    @property
    def nics(self) -> list[PciDevice]:
        """NICs in use: those of the configuration's ports, or without one all."""
        every = self.facts.pci
        if not self.needs.given:
            return [device for device in every.values() if device.is_nic]
        used = {each.pci_address for each in self.interfaces}
        used |= {port.pci_address for port in self.needs.ports if port.pci_address}
        return [device for address, device in every.items() if address in used]

    @property
    def nvidia_nics(self) -> list[PciDevice]:
        """Those of the NICs in use that are a ConnectX or a BlueField."""
        return [nic for nic in self.nics if nic.is_nvidia_nic]

    @property
    def missing_ports(self) -> list[PortNeeds]:
        """Ports of the configuration that this host does not have."""
        if self.needs.engine == "loopback":
            return []
        return [
            port
            for port in self.needs.ports
            if port.pci_address not in self.facts.pci
            and not any(self._is(each, port) for each in self.facts.interfaces.values())
        ]

    def ports_of(self, interface: NetDevice) -> list[PortNeeds]:
        """Return the configuration's ports on an interface."""
        return [port for port in self.needs.ports if self._is(interface, port)]

    def device_of(self, port: PortNeeds) -> PciDevice | None:
        """Return the NIC of a port of the configuration; None: it has none, or it is not here."""
        owner = next((i for i in self.facts.interfaces.values() if self._is(i, port)), None)
        return self.facts.pci.get(owner.pci_address if owner else port.pci_address or "")

    def _is(self, interface: NetDevice, port: PortNeeds) -> bool:
        address = port.address.lower()
        if address in (interface.name.lower(), interface.pci_address):
            return True
        own = self.facts.addresses.get(interface.name, ())
        return any(each.partition("/")[0].lower() == address for each in own)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to know about a host.

    Parameters
    ----------
    name : str
        What users call it, such as ``hugepages``.
    title : str
        What it looks at, in a few words.
    wanted : str
        What would be right.
    why : str
        Why it matters, in one sentence.
    platforms : frozenset of Platform
        Where it says anything.
    sources : tuple of str
        Where its facts come from.
    function : callable
        Yields what it finds; nothing found is a skip.
    """

    name: str
    title: str
    wanted: str
    why: str
    platforms: frozenset[Platform]
    sources: tuple[str, ...]
    function: Callable[[Context], Iterable[Finding]]

    def run(self, context: Context) -> Result:
        """Return what it finds on a host; never raises."""
        return Result(self.name, self.title, self.wanted, self.why, tuple(self._findings(context)))

    def _findings(self, context: Context) -> list[Finding]:
        if context.platform not in self.platforms:
            return [skip(f"does not apply to platform {context.platform}")]
        findings = []
        try:
            findings.extend(self.function(context))
        except FactError as error:
            findings.append(skip(f"not known: {error}"))
        except Exception as error:  # noqa: BLE001 - the other checks are wanted all the same
            findings.append(skip(f"this check is at fault: {type(error).__name__}: {error}"))
        return findings or [skip("nothing here to look at")]


def check(
    name: str,
    title: str,
    *,
    wanted: str,
    why: str,
    sources: tuple[str, ...],
    platforms: Iterable[Platform] = PLATFORMS,
) -> Callable[[Callable[[Context], Iterator[Finding]]], Check]:
    """Make a check of a function that yields findings."""

    def declare(function: Callable[[Context], Iterator[Finding]]) -> Check:
        return Check(name, title, wanted, why, frozenset(platforms), sources, function)

    return declare


def ok(found: str, subject: str = "") -> Finding:
    """Return a finding that is as wanted."""
    return Finding(Status.OK, found, subject)


def skip(reason: str, subject: str = "") -> Finding:
    """Return a finding that there is nothing to judge, and why."""
    return Finding(Status.SKIP, reason, subject)
