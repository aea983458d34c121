"""Declaring and running checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ._addresses import has_address, is_any
from ._finding import Finding, Result, Status
from ._needs import Needs, PortNeeds
from ._platform import Platform
from ._root import FactError
from .facts import Facts, Gpu, NetDevice, PciDevice

__all__ = ["Check", "Context", "DoesNotApplyError", "check", "ok", "skip"]


class DoesNotApplyError(Exception):
    """A check does not apply to this host or configuration; the text says why."""


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
        Kind of host; it chooses among remedies.
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
        # The PCI device of a USB NIC is the USB controller.
        return [every[a] for a in every if a in used and every[a].is_network]

    @property
    def nvidia_nics(self) -> list[PciDevice]:
        """
        NICs in use that are a ConnectX or a BlueField.

        Raises
        ------
        DoesNotApplyError
            If there is none.
        """
        if nics := [nic for nic in self.nics if nic.is_nvidia_nic]:
            return nics
        whose = "of the configuration" if self.needs.given else "on the PCI bus"
        raise DoesNotApplyError(f"no ConnectX or BlueField {whose}")

    @property
    def gpus(self) -> list[Gpu]:
        """
        GPUs in use: the configuration's; without one, all.

        Raises
        ------
        DoesNotApplyError
            If the configuration uses no GPU, or the host has none.
        FactError
            If they cannot be read.
        """
        used = self.needs.gpus
        if self.needs.given and not used:
            raise DoesNotApplyError("the configuration uses no GPU")
        if not used and not any(device.is_nvidia_gpu for device in self.facts.pci.values()):
            raise DoesNotApplyError("no NVIDIA GPU")
        if not self.facts.gpus:
            raise FactError("no NVIDIA driver; see gpu-driver")
        return [gpu for gpu in self.facts.gpus if not used or gpu.affinity in used]

    @property
    def physical_nics(self) -> list[PciDevice]:
        """
        Those of `nvidia_nics` that have settings of their own: no virtual functions.

        Raises
        ------
        DoesNotApplyError
            If there is none.
        """
        if nics := [nic for nic in self.nvidia_nics if not nic.is_virtual]:
            return nics
        raise DoesNotApplyError("virtual functions only: the physical function has the setting")

    def require_direct_gpu(self) -> None:
        """
        Go on only where NICs write to the memory of GPUs, or may be meant to.

        Raises
        ------
        DoesNotApplyError
            If the configuration's engine copies packets to the GPU, or the host has no GPU and NIC
            for more than that.
        """
        if not self.needs.given:
            self._require_gpu_and_nic()
        elif not self.needs.nic_writes_to_gpu:
            if self.needs.memory("device"):
                raise DoesNotApplyError(f"engine {self.needs.engine} copies packets to the GPU")
            raise DoesNotApplyError("the configuration has no region of kind device")

    def _require_gpu_and_nic(self) -> None:
        if not any(device.is_nvidia_gpu for device in self.facts.pci.values()):
            raise DoesNotApplyError("no NVIDIA GPU")
        _ = self.nvidia_nics

    @property
    def wrong(self) -> Status:
        """Status of a problem: without a configuration, nothing may depend on it."""
        return Status.FAIL if self.needs.given else Status.WARN

    @property
    def wrong_for_gpu(self) -> Status:
        """Status of what keeps NICs from the memory of a GPU."""
        return Status.WARN if self.needs.copies_without_nic else self.wrong

    @property
    def missing_ports(self) -> list[PortNeeds]:
        """Ports of the configuration that this host does not have."""
        return [port for port in self._without_details if not self._exists(port)]

    @property
    def hidden_ports(self) -> list[PortNeeds]:
        """Ports of the configuration that this host has, or may have, without any details."""
        return [
            port
            for port in self._without_details
            if self._exists(port) and not is_any(port.address)
        ]

    @property
    def _without_details(self) -> list[PortNeeds]:
        if self.needs.traits.in_memory:
            return []
        return [
            port
            for port in self.needs.ports
            if port.pci_address not in self.facts.pci
            and not self._is_virtual(port)
            and not any(self._is(each, port) for each in self.facts.interfaces.values())
        ]

    def _is_virtual(self, port: PortNeeds) -> bool:
        """Return whether the engine makes the port itself; False if the configuration is wrong."""
        try:
            return self.needs.by_engine().interfaces[port.name].virtual_device
        except (FactError, KeyError):
            return False

    def _exists(self, port: PortNeeds) -> bool:
        if port.pci_address:
            return False
        if self.facts.has_interface(port.address) or is_any(port.address):
            return True
        own = self.facts.addresses
        if any(has_address(name, own[name], port.address) for name in own):
            return True
        return not (self.facts.root.live or own or self.facts.interfaces)

    def ports_of(self, interface: NetDevice) -> list[PortNeeds]:
        """Return the configuration's ports on an interface."""
        return [port for port in self.needs.ports if self._is(interface, port)]

    def device_of(self, port: PortNeeds) -> PciDevice | None:
        """Return the NIC of a port of the configuration; None: no NIC, or not on this host."""
        owner = next((i for i in self.facts.interfaces.values() if self._is(i, port)), None)
        return self.facts.pci.get(owner.pci_address if owner else port.pci_address or "")

    def _is(self, interface: NetDevice, port: PortNeeds) -> bool:
        if port.address == interface.name or port.pci_address == interface.pci_address:
            return True
        own = self.facts.addresses.get(interface.name, ())
        return has_address(interface.name, own, port.address)


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
    function : callable
        Yields findings; without any, the check is skipped.
    """

    name: str
    title: str
    wanted: str
    why: str
    function: Callable[[Context], Iterable[Finding]]

    def run(self, context: Context) -> Result:
        """Run the check on a host; never raises."""
        return Result(self.name, self.title, self.wanted, self.why, tuple(self._findings(context)))

    def _findings(self, context: Context) -> list[Finding]:
        findings = []
        try:
            findings.extend(self.function(context))
        except DoesNotApplyError as reason:
            findings.append(skip(str(reason)))
        except FactError as error:
            findings.append(skip(f"not known: {error}"))
        except Exception as error:  # noqa: BLE001 - other checks still run
            findings.append(skip(f"this check is at fault: {type(error).__name__}: {error}"))
        return findings or [skip("nothing to check")]


def check(
    name: str, title: str, *, wanted: str, why: str
) -> Callable[[Callable[[Context], Iterator[Finding]]], Check]:
    """Turn a function that yields findings into a check."""

    def declare(function: Callable[[Context], Iterator[Finding]]) -> Check:
        return Check(name, title, wanted, why, function)

    return declare


def ok(found: str, subject: str = "") -> Finding:
    """Return a finding that is as expected."""
    return Finding(Status.OK, found, subject)


def skip(reason: str, subject: str = "") -> Finding:
    """Return a finding for a check that could not run, with the reason."""
    return Finding(Status.SKIP, reason, subject)
