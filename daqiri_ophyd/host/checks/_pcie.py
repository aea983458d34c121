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
    """Return the GPUs that a NIC writes into: the configuration's, or without one all."""
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
    "way between GPUs and NICs",
    wanted="PIX or PXB; PHB will do",
    why="Packets that cross the host bridge or a link between processors share it with all else.",
    sources=("/sys/devices/pci*",),
    platforms=(Platform.IGX, Platform.GPUNETIO),
)
def pcie_topology(context: Context) -> Iterator[Finding]:
    nics = _nics(context)
    note = (
        "Move the NIC or the GPU to slots beneath one PCIe switch, or at least of one processor. "
        "Without a switch, NODE is the best that most x86 hosts reach."
    )
    for gpu in _gpus(context):
        ways = {nic.address: connection(gpu, nic) for nic in nics}
        # One good NIC is enough: the configuration can use that.
        best = min(ways.values(), key=list(Connection).index)
        found = ", ".join(f"{way} to {nic}" for nic, way in ways.items())
        if best in (Connection.NODE, Connection.SYS):
            yield Finding(Status.WARN, found, gpu.address, Remedy(note=note))
        else:
            yield ok(found, gpu.address)


@check(
    "pcie-payload",
    "PCIe maximum payload",
    wanted=f"{_PAYLOAD} B, or all that the NIC can where that is less",
    why="Small payloads spend more of the link on headers; 128 B costs about a tenth of its rate.",
    sources=("/sys/bus/pci/devices/*/config",),
    platforms=WITH_NVIDIA_NIC,
)
def pcie_payload(context: Context) -> Iterator[Finding]:
    note = "The bridges above agree on it at boot; nothing can be set but a BIOS option, if any."
    for nic in _nics(context):
        express = nic.express
        found = f"{express.max_payload} B of the {express.max_payload_supported} B it can"
        if express.max_payload >= min(_PAYLOAD, express.max_payload_supported):
            yield ok(found, nic.address)
        else:
            yield Finding(Status.WARN, found, nic.address, Remedy(note=note))


@check(
    "pcie-link",
    "PCIe speed and width",
    wanted="each NIC's link at the speed and width it can do",
    why="A link that trained narrow or slow is a ceiling that no setting of the engine lifts.",
    sources=("/sys/bus/pci/devices/*/{current,max}_link_{speed,width}",),
)
def pcie_link(context: Context) -> Iterator[Finding]:
    note = (
        "Seat the card again, put it into a slot with as many lanes, without a riser, and look for "
        "a link speed limit in the BIOS."
    )
    if context.platform == Platform.SPARK:
        note = "The NIC is soldered: cold-boot; if it stays so, the board has no more lanes there."
    for nic in context.nics:
        if not nic.link_speed or not nic.max_link_speed:
            yield skip("has no PCIe link of its own", nic.address)
            continue
        is_now = f"{nic.link_speed} x{nic.link_width}"
        can_be = f"{nic.max_link_speed} x{nic.max_link_width}"
        if is_now == can_be:
            yield ok(is_now, nic.address)
        else:
            found = f"{is_now}; it can do {can_be}"
            yield Finding(Status.WARN, found, nic.address, Remedy(note=note))


@check(
    "pcie-read-request",
    "PCIe maximum read request",
    wanted=f"{_READ_REQUEST} B",
    why="The NIC fetches what it sends in requests of this size and has only so many under way.",
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
    why="With it a switch sends what GPU and NIC tell each other up to the host bridge and back.",
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
            yield ok("has none", address)
        elif control == 0:
            yield ok("off", address)
        else:
            command = f"setpci -s {address} ECAP_ACS+0x6.w=0000"
            remedy = at_every_boot(
                f"acs-{address.replace(':', '-')}",
                "No PCIe access control",
                command,
                note="Better off in the BIOS, where there is an option.",
            )
            yield Finding(Status.WARN, f"on ({control:#06x})", address, remedy)


@check(
    "iommu",
    "IOMMU",
    wanted="off, or passing through",
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
        yield ok("passing through")
        return
    cpu = root.optional("/proc/cpuinfo")
    if "CPU implementer" in cpu:
        # Arm has no word that switches it off.
        words, note = "iommu.passthrough=1", "Takes a boot."
    else:
        words = f"iommu=off {'amd' if 'AuthenticAMD' in cpu else 'intel'}_iommu=off"
        note = "Takes a boot. Milder: iommu=pt. Or switch VT-d or the IOMMU off in the BIOS."
    remedy = Remedy(files=(grub_words("iommu", words),), lasting=("update-grub",), note=note)
    yield Finding(Status.WARN, "translates", "", remedy)
