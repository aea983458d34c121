"""Checks of PCI Express."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status, Step
from .._platform import Platform
from .._root import FactError
from ..facts import Connection, PciDevice, bridges_between, connection
from ._files import at_every_boot

_PAYLOAD = 256
_READ_REQUEST = 4096


def _gpus(context: Context) -> list[PciDevice]:
    """Return the GPUs that NICs write into: the configuration's; without one, all."""
    context.require_direct_gpu()
    gpus = [device for device in context.facts.pci.values() if device.is_nvidia_gpu]
    if not gpus:
        raise FactError("no NVIDIA GPU on the PCI bus")
    if not context.needs.given:
        return gpus
    indices = {r.affinity for r in context.needs.regions if r.kind == "device"}
    used = {gpu.pci_address for gpu in context.facts.gpus if gpu.affinity in indices}
    return [gpu for gpu in gpus if gpu.address in used]


@check(
    "pcie-topology",
    "path between GPUs and NICs",
    wanted="PIX or PXB; PHB is acceptable",
    why="The host bridge and links between CPUs are shared with all other traffic.",
)
def pcie_topology(context: Context) -> Iterator[Finding]:
    gpus, nics = _gpus(context), context.nvidia_nics
    note = (
        "Move the NIC or the GPU to slots below one PCIe switch, or at least of one CPU. "
        "Without a switch, NODE is the best that most x86 hosts reach."
    )
    integrated = {gpu.pci_address for gpu in context.facts.gpus if gpu.integrated}
    for gpu in gpus:
        if gpu.address in integrated:
            yield skip("integrated: NIC and GPU use the host's memory", gpu.address)
            continue
        paths = {nic.address: connection(gpu, nic) for nic in nics}
        # One suitable NIC is enough: the configuration can use it.
        best = min(paths.values(), key=list(Connection).index)
        found = ", ".join(f"{path} to {nic}" for nic, path in paths.items())
        if best in (Connection.NODE, Connection.SYS):
            yield Finding(Status.WARN, found, gpu.address, Remedy(note=note))
        else:
            yield ok(found, gpu.address)


@check(
    "pcie-payload",
    "PCIe maximum payload",
    wanted=f"{_PAYLOAD} B, or the NIC's maximum if that is less",
    why="Small payloads use more of the link for headers; 128 B costs about a tenth of the rate.",
)
def pcie_payload(context: Context) -> Iterator[Finding]:
    note = "The bridges negotiate it at boot; only a BIOS option, if any, changes it."
    for nic in context.physical_nics:
        express = nic.express
        found = f"{express.max_payload} B of {express.max_payload_supported} B supported"
        if express.max_payload >= min(_PAYLOAD, express.max_payload_supported):
            yield ok(found, nic.address)
        else:
            yield Finding(Status.WARN, found, nic.address, Remedy(note=note))


@check(
    "pcie-link",
    "PCIe speed and width",
    wanted="each NIC's link, and those of the bridges above it, at maximum speed and width",
    why="A slow or narrow link limits the rate, whatever the engine's settings.",
)
def pcie_link(context: Context) -> Iterator[Finding]:
    note = (
        "Reseat the card, use a slot with enough lanes and no riser, and check the BIOS for a link "
        "speed limit."
    )
    if context.platform == Platform.SPARK:
        note = "The NIC is soldered: cold-boot. If it stays so, the board has no more lanes there."
    for nic in context.nics:
        if not nic.link_speed or not nic.max_link_speed:
            yield skip("no PCIe link of its own", nic.address)
            continue
        now = _text(nic)
        most = f"{nic.max_link_speed} x{nic.max_link_width}"
        if now != most:
            found = f"{now}; the maximum is {most}"
            yield Finding(Status.WARN, found, nic.address, Remedy(note=note))
        elif narrow := _narrow_bridge(context, nic):
            found = f"{now}, but the link at bridge {narrow.address} runs at {_text(narrow)}"
            yield Finding(Status.WARN, found, nic.address, Remedy(note=note))
        else:
            yield ok(now + _shortfall(context, nic), nic.address)


def _text(device: PciDevice) -> str:
    return f"{device.link_speed} x{device.link_width}"


def _narrow_bridge(context: Context, nic: PciDevice) -> PciDevice | None:
    """Return the bridge above a NIC whose link carries least, if less than the NIC's own."""
    own = nic.bandwidth or 0
    bridges = [context.facts.pci[a] for a in nic.ancestors if a in context.facts.pci]
    linked = [bridge for bridge in bridges if (bridge.bandwidth or own) < own]
    return min(linked, key=lambda bridge: bridge.bandwidth or 0, default=None)


def _shortfall(context: Context, nic: PciDevice) -> str:
    """Return what the link carries, where the port is faster; nothing can be done about it."""
    rates = [i.speed for i in context.interfaces if i.pci_address == nic.address and i.speed]
    carries = nic.packet_bandwidth or 0
    if not rates or carries >= max(rates) / 1000:
        return ""
    return f", which carries about {carries:.0f} Gb/s of the port's {max(rates) / 1000:.0f}"


@check(
    "pcie-read-request",
    "PCIe maximum read request",
    wanted=f"{_READ_REQUEST} B",
    why="The NIC reads packets to send in requests of this size, with a limited number in flight.",
)
def pcie_read_request(context: Context) -> Iterator[Finding]:
    for nic in context.physical_nics:
        size = nic.express.max_read_request
        if size >= _READ_REQUEST:
            yield ok(f"{size} B", nic.address)
        else:
            yield Finding(Status.WARN, f"{size} B", nic.address, _larger_reads(nic.address))


def _larger_reads(address: str) -> Remedy:
    command = f"setpci -s {address} CAP_EXP+8.w=5000:f000"
    # A rule, because a port may leave the bus and come back; bind: a driver may reset the device.
    rule = (
        f'ACTION=="add|bind", SUBSYSTEM=="pci", KERNEL=="{address}", '
        f"RUN+=\"/bin/sh -c 'PATH=/usr/sbin:/usr/bin:/sbin:/bin {command}'\"\n"
    )
    name = address.replace(":", "-")
    return Remedy(
        now=(command,),
        files=((f"/etc/udev/rules.d/90-daqiri-read-request-{name}.rules", rule),),
        lasting=("udevadm control --reload",),
        note="Secure Boot forbids it (Operation not permitted).",
        # Bits 14 to 12: 5 is 4096 B.
        verify=(f"setpci -s {address} CAP_EXP+8.w | grep -q ^5",),
    )


@check(
    "acs",
    "PCIe access control between GPU and NIC",
    wanted="off on the bridges between GPU and NIC",
    why="With ACS on, peer-to-peer traffic is redirected through the root complex.",
)
def acs(context: Context) -> Iterator[Finding]:
    facts = context.facts
    between: set[str] = set()
    for gpu in _gpus(context):
        for nic in context.nvidia_nics:
            # Between slots of one host bridge too, over its root ports.
            if connection(gpu, nic) in (Connection.PIX, Connection.PXB, Connection.PHB):
                between.update(bridges_between(gpu, nic))
    if not between:
        yield skip("no bridges between a GPU and a NIC of one host bridge")
    for address in sorted(between & facts.pci.keys()):
        try:
            control = facts.pci[address].access_control
        except FactError as error:
            yield skip(str(error).removeprefix(f"{address}: "), address)
            continue
        if control is None:
            yield ok("none", address)
        elif control == 0:
            yield ok("off", address)
        else:
            remedy = at_every_boot(
                40,
                f"acs-{address.replace(':', '-')}",
                f"setpci -s {address} ECAP_ACS+0x6.w=0000",
                verify=(f"setpci -s {address} ECAP_ACS+0x6.w | grep -q ^0000",),
                note="If the BIOS has an option, disable it there instead.",
            )
            yield Finding(Status.WARN, f"on ({control:#06x})", address, remedy)


@check(
    "iommu",
    "IOMMU",
    wanted="off, or in passthrough mode, where NICs write to a GPU",
    why="Translation slows the NIC's accesses, and on some hosts keeps packets from the GPU.",
)
def iommu(context: Context) -> Iterator[Finding]:
    context.require_direct_gpu()
    root = context.facts.root
    line = context.facts.command_line
    if not root.names("/sys/class/iommu"):
        yield ok("off")
        return
    groups = [root.optional(path) for path in root.glob("/sys/kernel/iommu_groups/*/type")]
    asked = line.get("iommu") == "pt" or line.get("iommu.passthrough") in ("1", "on", "y")
    if asked or (groups and all(kind == "identity" for kind in groups)):
        yield ok("passthrough")
        return
    if not context.needs.given:
        yield skip("on, with translation; give a configuration to check whether it matters")
        return
    cpu = root.optional("/proc/cpuinfo")
    arm = "CPU implementer" in cpu
    vendor = "amd" if "AuthenticAMD" in cpu else "intel"
    note = "If still no packet reaches the GPU, disable VT-d or the IOMMU in the BIOS"
    note += "." if arm else f", or add iommu=off {vendor}_iommu=off to the kernel command line."
    remedy = Remedy(
        note=note, step=Step.IOMMU, kernel_line="iommu.passthrough=1" if arm else "iommu=pt"
    )
    yield Finding(Status.WARN, "on, with translation", "", remedy)
