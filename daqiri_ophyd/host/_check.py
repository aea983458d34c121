"""Declaring and running checks."""

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
    """Input of a check.

    Parameters
    ----------
    facts : Facts
        The host; each fact is read at its first use.
    needs : Needs
        Requirements of the engine's configuration.
    platform : Platform
        Kind of host.
    folder : str
        Directory for captures.
    """

    facts: Facts
    needs: Needs
    platform: Platform
    folder: str

    @property
    def interfaces(self) -> list[NetDevice]:
        """Network interfaces in use: the configuration's; without one, all with hardware."""
        every = self.facts.interfaces.values()
        if not self.needs.given:
            return [each for each in every if each.pci_address]
        return [each for each in every if any(self._is(each, p) for p in self.needs.ports)]

    @property
    def nics(self) -> list[PciDevice]:
        """NICs in use: those of the configuration's ports; without a configuration, all."""
        every = self.facts.pci
        if not self.needs.given:
            return [device for device in every.values() if device.is_nic]
        used = {each.pci_address for each in self.interfaces}
        used |= {port.pci_address for port in self.needs.ports if port.pci_address}
        return [device for address, device in every.items() if address in used]

    @property
    def nvidia_nics(self) -> list[PciDevice]:
        """NICs in use that are a ConnectX or a BlueField."""
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
        """Return the NIC of a port of the configuration; None: no NIC, or not on this host."""
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
    """One check of a host.

    Parameters
    ----------
    name : str
        Name for users, such as ``hugepages``.
    title : str
        What it checks, in a few words.
    wanted : str
        What is expected.
    why : str
        Why it matters, in one sentence.
    platforms : frozenset of Platform
        Platforms that it applies to.
    sources : tuple of str
        Sources of its facts.
    function : callable
        Yields findings; without any, the check is skipped.
    """

    name: str
    title: str
    wanted: str
    why: str
    platforms: frozenset[Platform]
    sources: tuple[str, ...]
    function: Callable[[Context], Iterable[Finding]]

    def run(self, context: Context) -> Result:
        """Run the check on a host; never raises."""
        return Result(self.name, self.title, self.wanted, self.why, tuple(self._findings(context)))

    def _findings(self, context: Context) -> list[Finding]:
        if context.platform not in self.platforms:
            return [skip(f"does not apply to platform {context.platform}")]
        findings = []
        try:
            findings.extend(self.function(context))
        except FactError as error:
            findings.append(skip(f"not known: {error}"))
        except Exception as error:  # noqa: BLE001 - other checks still run
            findings.append(skip(f"this check is at fault: {type(error).__name__}: {error}"))
        return findings or [skip("nothing to check")]


def check(
    name: str,
    title: str,
    *,
    wanted: str,
    why: str,
    sources: tuple[str, ...],
    platforms: Iterable[Platform] = PLATFORMS,
) -> Callable[[Callable[[Context], Iterator[Finding]]], Check]:
    """Turn a function that yields findings into a check."""

    def declare(function: Callable[[Context], Iterator[Finding]]) -> Check:
        return Check(name, title, wanted, why, frozenset(platforms), sources, function)

    return declare


def ok(found: str, subject: str = "") -> Finding:
    """Return a finding that is as expected."""
    return Finding(Status.OK, found, subject)


def skip(reason: str, subject: str = "") -> Finding:
    """Return a finding for a check that could not run, with the reason."""
    return Finding(Status.SKIP, reason, subject)
