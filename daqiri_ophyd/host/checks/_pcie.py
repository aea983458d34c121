"""Checks of PCI Express."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from .._platform import WITH_NVIDIA_NIC, Platform
from .._root import FactError
from ..facts import Connection, PciDevice, bridges_between, connection
from ._files import at_every_boot, grub_words

_PAYLOAD = 256
_READ_REQUEST = 4096


def _nics(context: Context) -> list[PciDevice]:
    if nics := context.nvidia_nics:
        return nics
    raise FactError("no ConnectX or BlueField NIC")


def _gpus(context: Context) -> list[PciDevice]:
    """Return the GPUs that NICs write into: the configuration's; without one, all."""
    gpus = [device for device in context.facts.pci.values() if device.is_nvidia_gpu]
    if not gpus:
        raise FactError("no NVIDIA GPU on the PCI bus")
    if not context.needs.given:
        return gpus
    indices = {r.affinity for r in context.needs.regions if r.kind == "device"}
    if not indices:
        raise FactError("the configuration has no region of kind device")
    used = {gpu.pci_address for gpu in context.facts.gpus if gpu.index in indices}
    return [gpu for gpu in gpus if gpu.address in used]


@check(
    "pcie-topology",
    "path between GPUs and NICs",
    wanted="PIX or PXB; PHB is acceptable",
    why="The host bridge and links between CPUs are shared with all other traffic.",
    sources=("/sys/devices/pci*",),
    platforms=(Platform.IGX, Platform.GPUNETIO),
)
def pcie_topology(context: Context) -> Iterator[Finding]:
    nics = _nics(context)
    note = (
        "Move the NIC or the GPU to slots below one PCIe switch, or at least of one CPU. "
        "Without a switch, NODE is the best that most x86 hosts reach."
    )
    for gpu in _gpus(context):
        ways = {nic.address: connection(gpu, nic) for nic in nics}
        # One suitable NIC is enough: the configuration can use it.
        best = min(ways.values(), key=list(Connection).index)
        found = ", ".join(f"{way} to {nic}" for nic, way in ways.items())
        if best in (Connection.NODE, Connection.SYS):
            yield Finding(Status.WARN, found, gpu.address, Remedy(note=note))
        else:
            yield ok(found, gpu.address)


@check(
    "pcie-payload",
    "PCIe maximum payload",
    wanted=f"{_PAYLOAD} B, or the NIC's maximum if that is less",
    why="Small payloads use more of the link for headers; 128 B costs about a tenth of the rate.",
    sources=("/sys/bus/pci/devices/*/config",),
    platforms=WITH_NVIDIA_NIC,
)
def pcie_payload(context: Context) -> Iterator[Finding]:
    note = "The bridges negotiate it at boot; only a BIOS option, if any, changes it."
    for nic in _nics(context):
        express = nic.express
        found = f"{express.max_payload} B of {express.max_payload_supported} B supported"
        if express.max_payload >= min(_PAYLOAD, express.max_payload_supported):
            yield ok(found, nic.address)
        else:
            yield Finding(Status.WARN, found, nic.address, Remedy(note=note))


@check(
    "pcie-link",
    "PCIe speed and width",
    wanted="each NIC's link at its maximum speed and width",
    why="A slow or narrow link limits the rate, whatever the engine's settings.",
    sources=("/sys/bus/pci/devices/*/{current,max}_link_{speed,width}",),
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
        is_now = f"{nic.link_speed} x{nic.link_width}"
        can_be = f"{nic.max_link_speed} x{nic.max_link_width}"
        if is_now == can_be:
            yield ok(is_now, nic.address)
        else:
            found = f"{is_now}; the maximum is {can_be}"
            yield Finding(Status.WARN, found, nic.address, Remedy(note=note))


@check(
    "pcie-read-request",
    "PCIe maximum read request",
    wanted=f"{_READ_REQUEST} B",
    why="The NIC reads packets to send in requests of this size, with a limited number in flight.",
    sources=("/sys/bus/pci/devices/*/config",),
    platforms=WITH_NVIDIA_NIC,
)
def pcie_read_request(context: Context) -> Iterator[Finding]:
    for nic in _nics(context):
        size = nic.express.max_read_request
        if size >= _READ_REQUEST:
            yield ok(f"{size} B", nic.address)
        else:
            command = f"setpci -s {nic.address} CAP_EXP+8.w=5000:f000"
            remedy = at_every_boot(
                f"read-request-{nic.address.replace(':', '-')}",
                "Large PCIe reads",
                command,
                note="Secure Boot forbids it (Operation not permitted).",
            )
            yield Finding(Status.WARN, f"{size} B", nic.address, remedy)


@check(
    "acs",
    "PCIe access control between GPU and NIC",
    wanted="off on the bridges between GPU and NIC",
    why="With ACS on, peer-to-peer traffic is redirected through the root complex.",
    sources=("/sys/bus/pci/devices/*/config",),
    platforms=(Platform.GPUNETIO,),
)
def acs(context: Context) -> Iterator[Finding]:
    facts = context.facts
    between: set[str] = set()
    for gpu in _gpus(context):
        for nic in _nics(context):
            if connection(gpu, nic) in (Connection.PIX, Connection.PXB):
                between.update(bridges_between(gpu, nic))
    if not between:
        yield skip("no PCIe switch between a GPU and a NIC")
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
            command = f"setpci -s {address} ECAP_ACS+0x6.w=0000"
            remedy = at_every_boot(
                f"acs-{address.replace(':', '-')}",
                "No PCIe access control",
                command,
                note="If the BIOS has an option, disable it there instead.",
            )
            yield Finding(Status.WARN, f"on ({control:#06x})", address, remedy)


@check(
    "iommu",
    "IOMMU",
    wanted="off, or in passthrough mode",
    why="Translation slows the NIC's accesses, and on some hosts keeps packets from the GPU.",
    sources=("/sys/class/iommu", "/sys/kernel/iommu_groups/*/type", "/proc/cmdline"),
    platforms=(Platform.GPUNETIO,),
)
def iommu(context: Context) -> Iterator[Finding]:
    root = context.facts.root
    line = context.facts.command_line
    if not root.names("/sys/class/iommu"):
        yield ok("off")
        return
    groups = [root.optional(path) for path in root.glob("/sys/kernel/iommu_groups/*/type")]
    if line.get("iommu") == "pt" or (groups and all(kind == "identity" for kind in groups)):
        yield ok("passthrough")
        return
    cpu = root.optional("/proc/cpuinfo")
    if "CPU implementer" in cpu:
        # Arm has no parameter that disables it.
        words, note = "iommu.passthrough=1", "Requires a reboot."
    else:
        words = f"iommu=off {'amd' if 'AuthenticAMD' in cpu else 'intel'}_iommu=off"
        note = (
            "Requires a reboot. Less drastic: iommu=pt. Or disable VT-d or the IOMMU in the BIOS."
        )
    remedy = Remedy(files=(grub_words("iommu", words),), lasting=("update-grub",), note=note)
    yield Finding(Status.WARN, "on, with translation", "", remedy)
