"""Checks of NICs: drivers, modes, settings and firmware."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._check import Context, DoesNotApplyError, check, ok, skip
from .._finding import Finding, Remedy, Status, Step
from .._platform import Platform
from .._root import FactError
from ..facts import PciDevice
from ._files import at_every_boot

_RDMA_DRIVERS = ("ib_core", "mlx5_core", "mlx5_ib")
# NICs without the functions that dpdk and ibverbs need: what is older than ConnectX-6 Dx, and its
# smaller sibling, ConnectX-6 Lx.
_UNSUITABLE = frozenset((0x1003, 0x1004, 0x1007, 0x1011, *range(0x1013, 0x101D), 0x101F, 0xA2D2))
NO_CABLE = (
    "On a DGX Spark the ports disappear from the bus 5 to 20 s after boot unless a cable is "
    "plugged in: plug in a QSFP cable first."
)
_BUY = "Install a ConnectX-6 Dx or later."
# These boards have a NIC: without one, something is wrong.
_WITH_NIC = (Platform.IGX, Platform.SPARK)
# From here on firmware has hardware steering: minor version and build.
_STEERING = (35, 1012)
_KEEP_LINK = {
    "KEEP_ETH_LINK_UP_P1": "1",
    "KEEP_ETH_LINK_UP_P2": "1",
    "KEEP_IB_LINK_UP_P1": "0",
    "KEEP_IB_LINK_UP_P2": "0",
}
_SCHEDULER = {"ACCURATE_TX_SCHEDULER": "1", "REAL_TIME_CLOCK_ENABLE": "1"}
_BLUEFIELD = (0xA2D6, 0xA2DC)
_NIC_MODE = {
    "LINK_TYPE_P1": "ETH",
    "LINK_TYPE_P2": "ETH",
    "INTERNAL_CPU_MODEL": "1",
    "INTERNAL_CPU_PAGE_SUPPLIER": "1",
    "INTERNAL_CPU_ESWITCH_MANAGER": "1",
    "INTERNAL_CPU_IB_VPORT0": "1",
    "INTERNAL_CPU_OFFLOAD_ENGINE": "DISABLED",
}
# mlxconfig prints names with numbers: True(1), EXT_HOST_PF(1).
_SPELLINGS = {
    "1": ("1", "True", "EMBEDDED_CPU", "EXT_HOST_PF"),
    "0": ("0", "False", "ECPF", "SEPARATED_HOST"),
    "ETH": ("ETH", "2"),
    "DISABLED": ("DISABLED", "1"),
}


@check(
    "nic-driver",
    "NIC driver",
    wanted="mlx5_core loaded for a ConnectX; for dpdk and ibverbs ib_core and mlx5_ib as well",
    why="Without its kernel module a NIC has no interface, and user space cannot access it.",
)
def nic_driver(context: Context) -> Iterator[Finding]:
    needs = context.needs
    if needs.given and needs.traits.kernel_bypass and not needs.traits.rdma_cards:
        # Others are the matter of the check engine.
        _ = context.nvidia_nics
    if not any(nic.is_nvidia_nic for nic in context.facts.pci.values()):
        if not needs.traits.rdma_cards:
            raise DoesNotApplyError("no ConnectX or BlueField on the PCI bus")
    elif needs.given and not needs.traits.kernel_bypass and not context.missing_ports:
        yield skip(f"engine {needs.engine} has its interfaces")
        return
    wanted = _RDMA_DRIVERS if needs.traits.kernel_bypass or not needs.given else ("mlx5_core",)
    missing = [name for name in wanted if name not in context.facts.modules]
    if not missing:
        yield ok("loaded")
        if wanted == _RDMA_DRIVERS:
            yield from _unknown_to_rdma(context)
        return
    note = (
        "If a module is missing, install the kernel's other modules (Ubuntu: "
        "linux-modules-extra-$(uname -r), Red Hat: kernel-modules) or doca-ofed of NVIDIA's DOCA "
        "repository, and reboot."
    )
    if context.platform == Platform.SPARK:
        note = "DGX OS has these modules: reinstall it rather than adding doca-ofed."
    remedy = Remedy(
        now=tuple(f"modprobe {name}" for name in missing),
        files=(("/etc/modules-load.d/daqiri-nic.conf", "".join(f"{m}\n" for m in missing)),),
        note=note,
        verify=tuple(f"grep -q ^{name} /proc/modules" for name in missing),
    )
    yield Finding(context.wrong, f"not loaded: {', '.join(missing)}", "", remedy)


def _unknown_to_rdma(context: Context) -> Iterator[Finding]:
    """Report NICs that user space cannot find (ibv_devinfo)."""
    known = {device.pci_address for device in context.facts.rdma}
    for nic in context.nics:
        if not nic.is_nvidia_nic or nic.address in known:
            continue
        found = f"not known to the RDMA stack; its kernel driver: {nic.driver or 'none'}"
        note = "Bind it to mlx5_core: driverctl unset-override ADDRESS, or see dmesg."
        yield Finding(context.wrong, found, nic.address, Remedy(note=note))


@check(
    "connectx",
    "ConnectX NIC",
    wanted="ConnectX-6 Dx or later, for engines dpdk and ibverbs",
    why="These NICs support steering, header-data split and timed transmission.",
)
def connectx(context: Context) -> Iterator[Finding]:
    needs = context.needs
    if needs.given and not needs.traits.kernel_bypass:
        yield skip(f"engine {needs.engine} works with any NIC")
        return
    nics = [nic for nic in context.nics if nic.is_nvidia_nic]
    if needs.given and not nics and not needs.traits.rdma_cards:
        yield skip(f"engine {needs.engine} drives other cards, too")
        return
    if not nics and not needs.given and context.platform not in _WITH_NIC:
        yield skip("none; engines socket and packet work with any NIC")
    elif not nics:
        where = "among the configuration's ports" if needs.given else "on the PCI bus"
        note = NO_CABLE if context.platform == Platform.SPARK else _BUY
        yield Finding(Status.FAIL, f"none {where}", "", Remedy(note=note))
    # Without a configuration, one suitable NIC is enough.
    one_fits = not needs.given and any(nic.device not in _UNSUITABLE for nic in nics)
    for nic in nics:
        name = nic.product or f"device {nic.device:#06x}"
        if nic.device not in _UNSUITABLE:
            yield ok(name, nic.address)
        elif one_fits:
            yield skip(f"{name}, not suitable; another is", nic.address)
        elif not needs.given:
            yield skip(f"{name}: for engines socket and packet only", nic.address)
        elif not needs.traits.rdma_cards:
            note = f"The engine does in software what this card does not do. {_BUY}"
            yield Finding(Status.WARN, f"{name}, an old one", nic.address, Remedy(note=note))
        else:
            note = f"{_BUY} The engines socket and packet work with this one."
            yield Finding(Status.FAIL, f"{name}, not suitable", nic.address, Remedy(note=note))


@check(
    "link-layer",
    "link layer",
    wanted="Ethernet",
    why="A port in InfiniBand mode receives no Ethernet packets.",
)
def link_layer(context: Context) -> Iterator[Finding]:
    nics = {nic.address for nic in context.physical_nics}
    ports = [
        (device, port, layer)
        for device in context.facts.rdma
        if device.pci_address in nics
        for port, layer in device.layers.items()
    ]
    one_is_ethernet = any(layer == "Ethernet" for _, _, layer in ports)
    for device, port, layer in ports:
        name = f"{device.name} port {port}"
        if layer == "Ethernet":
            yield ok(layer, name)
            continue
        if not context.needs.given and one_is_ethernet:
            yield skip(f"{layer}, as for another network; other ports are Ethernet", name)
            continue
        # The card's settings are set through its first function; each function may be a port.
        card, _, function = device.pci_address.rpartition(".")
        setting = f"LINK_TYPE_P{int(function) + port}"
        command = f"mlxconfig -y -d {card}.0 set {setting}=ETH"
        note = "Secure Boot forbids it: disable it until this is done."
        if not context.needs.given:
            note = f"For a port that is to receive Ethernet: {command}, and reboot. {note}"
            yield Finding(Status.WARN, layer, name, Remedy(note=note))
            continue
        remedy = Remedy(
            lasting=(command,),
            note=f"Requires a reboot. {note}",
            step=Step.FIRMWARE,
            verify_lasting=(_is_set(f"{card}.0", setting, "ETH"),),
        )
        yield Finding(Status.FAIL, layer, name, remedy)


@check(
    "nic-settings",
    "NIC rings, queues and offloads",
    wanted="rings at their maximum, a NIC queue per receive queue, GRO for sockets, no LRO",
    why="A short ring overflows while the kernel is busy; LRO merges packets that belong apart.",
)
def nic_settings(context: Context) -> Iterator[Finding]:
    needs = context.needs
    if needs.traits.in_memory or needs.traits.kernel_bypass:
        yield skip(f"engine {needs.engine} does not use the kernel's NIC settings")
        return
    takes_frames = needs.given and not needs.sockets
    for interface in context.interfaces:
        if not interface.pci_address:
            continue
        name, settings = interface.name, context.facts.nic_settings(interface.name)
        wrong, commands, verify = [], [], []

        def add(
            found: str,
            command: str,
            condition: str,
            to: tuple[list[str], ...] = (wrong, commands, verify),
        ) -> None:
            for texts, text in zip(to, (found, command, condition), strict=True):
                texts.append(text)

        if settings.rx_ring and settings.max_rx_ring and settings.rx_ring < settings.max_rx_ring:
            add(
                f"receive ring {settings.rx_ring} of {settings.max_rx_ring}",
                f"ethtool -G {name} rx {settings.max_rx_ring}",
                _set_to(f"ethtool -g {name}", "RX", settings.max_rx_ring),
            )
        queues = sum(port.rx_queues for port in context.ports_of(interface))
        most = settings.max_channels or 0
        if settings.channels and takes_frames and settings.channels < min(queues, most):
            add(
                f"{settings.channels} NIC queues for {queues} receive queues",
                f"ethtool -L {name} combined {min(queues, most)}",
                _set_to(f"ethtool -l {name}", "Combined", min(queues, most)),
            )
        offloads = settings.offloads
        if offloads is not None and "rx-lro" in offloads:
            add(
                "LRO is on",
                f"ethtool -K {name} lro off",
                f"ethtool -k {name} | grep -q '^large-receive-offload: off'",
            )
        if offloads is not None and not takes_frames and "rx-gro" not in offloads:
            add(
                "GRO is off",
                f"ethtool -K {name} gro on",
                f"ethtool -k {name} | grep -q '^generic-receive-offload: on'",
            )
        if wrong:
            note = "On many NICs this interrupts the port's traffic for up to some seconds."
            remedy = at_every_boot(50, f"nic-{name}", *commands, verify=tuple(verify), note=note)
            yield Finding(Status.WARN, ", ".join(wrong), name, remedy)
        elif settings.rx_ring or offloads is not None:
            on = ", ".join(offloads or ()) or "no offloads"
            pause = ", obeys pause frames" if settings.rx_pause else ""
            ring = f"receive ring {settings.rx_ring}, " if settings.rx_ring else ""
            yield ok(f"{ring}{on}{pause}", name)
        else:
            yield skip("not reported by the driver", name)


def _set_to(command: str, name: str, value: int) -> str:
    """Return a condition: a current setting, not the maximum, which ethtool prints before it."""
    return f"{command} | sed '1,/^Current/d' | grep -q '^{name}:[[:space:]]*{value}$'"


@check(
    "nic-firmware",
    "NIC firmware and its settings",
    wanted="firmware that steers by itself; link kept up; BlueField in NIC mode; scheduler on if "
    "accurate_send is set",
    why="Engines dpdk and ibverbs depend on functions and settings of the firmware.",
)
def nic_firmware(context: Context) -> Iterator[Finding]:
    if context.needs.given and not context.needs.traits.kernel_bypass:
        yield skip(f"engine {context.needs.engine} works with any firmware")
        return
    cards: dict[str, PciDevice] = {}
    for nic in context.physical_nics:
        # Settings belong to the card: one function of each is enough.
        cards.setdefault(nic.address.rpartition(".")[0], nic)
    for nic in cards.values():
        yield _version(context, nic)
        try:
            settings = context.facts.firmware(nic.address)
        except FactError as error:
            yield skip(f"settings are not known: {error}", nic.address)
        else:
            yield from _settings(context, nic, settings)


def _version(context: Context, nic: PciDevice) -> Finding:
    text = next((d.firmware for d in context.facts.rdma if d.pci_address == nic.address), "")
    driver = context.facts.root.optional("/sys/module/mlx5_core/version")
    with_driver = f", mlx5_core {driver}" if driver else ""
    numbers = re.fullmatch(r"(\d{1,4})\.(\d{1,4})\.(\d{1,6})", text, re.ASCII)
    if not numbers:
        return skip("firmware version is not known", nic.address)
    if (int(numbers[2]), int(numbers[3])) >= _STEERING:
        return ok(f"firmware {text}{with_driver}", nic.address)
    found = f"firmware {text}{with_driver}; hardware steering needs xx.35.1012"
    note = "Update the firmware with NVIDIA's mlxup or the DOCA packages; DOCA and it must match."
    return Finding(Status.WARN, found, nic.address, Remedy(note=note))


def _settings(context: Context, nic: PciDevice, has: dict[str, str]) -> Iterator[Finding]:
    scheduler = any(port.accurate_send for port in context.needs.ports)
    wanted = {Step.FIRMWARE: dict(_KEEP_LINK) if _has_gpu(context) else {}, Step.DPU_MODE: {}}
    if scheduler:
        wanted[Step.FIRMWARE] |= _SCHEDULER
    if nic.device in _BLUEFIELD:
        wanted[Step.DPU_MODE] = _NIC_MODE
    known = {name for names in wanted.values() for name in names if name in has}
    lacking = [name for name in _SCHEDULER if scheduler and name not in has]
    if not known and not lacking:
        if any(wanted.values()):
            yield skip("mlxconfig does not list these settings", nic.address)
        return
    right = not lacking
    for step, names in wanted.items():
        wrong = {
            name: value
            for name, value in names.items()
            if name in has and has[name] not in _SPELLINGS.get(value, (value,))
        }
        if wrong:
            right = False
            found = ", ".join(f"{name} is {has[name]}" for name in wrong)
            yield Finding(Status.WARN, found, nic.address, _set_firmware(nic, step, wrong))
    if lacking:
        note = "Update the NIC's firmware, or set accurate_send to false."
        found = ", ".join(f"no {name}" for name in lacking)
        yield Finding(Status.WARN, found, nic.address, Remedy(note=note))
    if right:
        yield ok("settings as expected", nic.address)


def _has_gpu(context: Context) -> bool:
    return any(device.is_nvidia_gpu for device in context.facts.pci.values())


def _set_firmware(nic: PciDevice, step: Step, wrong: dict[str, str]) -> Remedy:
    words = " ".join(f"{name}={value}" for name, value in wrong.items())
    note = "Requires a cold boot, such as ipmitool power cycle."
    if step is Step.DPU_MODE:
        note = f"This ends what runs on the BlueField's own Arm cores. {note}"
    return Remedy(
        lasting=(f"mlxconfig -y -d {nic.address} set {words}",),
        note=note,
        step=step,
        verify_lasting=tuple(_is_set(nic.address, name, value) for name, value in wrong.items()),
    )


def _is_set(address: str, name: str, value: str) -> str:
    """Return a condition: the value for the next boot, the last column that mlxconfig prints."""
    values = "|".join(_SPELLINGS.get(value, (value,)))
    line = rf"^[*[:space:]]*(RO[[:space:]]+)?{name}[[:space:]](.*[[:space:]])?"
    line += rf"({values})([(][^()]*[)])?[[:space:]]*$"
    return f"mlxconfig -d {address} query {name} | grep -Eq '{line}'"
