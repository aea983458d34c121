"""Checks of NICs and network interfaces."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from .._platform import WITH_NVIDIA_NIC, Platform
from .._root import FactError
from ..facts import NetDevice, PciDevice
from ._files import at_every_boot

_JUMBO = 9000
_ETHERNET_HEADER = 18
_DRIVERS = ("ib_core", "mlx5_core", "mlx5_ib")
# NICs without the functions that the engine needs; all others are newer.
_TOO_OLD = frozenset((0x1003, 0x1004, 0x1007, 0x1011, *range(0x1013, 0x101D), 0xA2D2))
# Buffers of this size are for standard frames and do not imply larger ones.
_USUAL_BUFFER = 2048
_NO_CABLE = (
    "On a DGX Spark the ports disappear from the bus 5 to 20 s after boot unless a cable is "
    "plugged in: plug in a QSFP cable first."
)
_BUY = "Install a ConnectX-6 Dx or later."


def _kernel_serves(context: Context) -> str:
    """Return why the configuration works with any NIC; empty: it does not."""
    engine = context.needs.engine
    return (
        f"engine {engine} works with any NIC" if engine in ("loopback", "socket", "packet") else ""
    )


@check(
    "nic-driver",
    "NIC driver stack",
    wanted=", ".join(_DRIVERS) + " loaded",
    why="User space accesses ConnectX NICs through these kernel modules.",
    sources=("/proc/modules", "/sys/module"),
    platforms=WITH_NVIDIA_NIC,
)
def nic_driver(context: Context) -> Iterator[Finding]:
    if reason := _kernel_serves(context):
        yield skip(reason)
        return
    missing = [name for name in _DRIVERS if name not in context.facts.modules]
    if not missing:
        yield ok("loaded")
        return
    remedy = Remedy(
        now=tuple(f"modprobe {name}" for name in missing),
        lasting=("apt-get install -y doca-ofed",),
        note="doca-ofed is in NVIDIA's DOCA repository; reboot after the installation.",
    )
    yield Finding(Status.FAIL, f"not loaded: {', '.join(missing)}", "", remedy)


@check(
    "connectx",
    "ConnectX NIC",
    wanted="ConnectX-6 Dx or later",
    why="These NICs support steering, header-data split and timed transmission.",
    sources=("/sys/bus/pci/devices",),
    platforms=WITH_NVIDIA_NIC,
)
def connectx(context: Context) -> Iterator[Finding]:
    if reason := _kernel_serves(context):
        yield skip(reason)
        return
    nics = context.nvidia_nics
    if not nics:
        where = "among the configuration's ports" if context.needs.given else "on the PCI bus"
        note = _NO_CABLE if context.platform == Platform.SPARK else _BUY
        yield Finding(Status.FAIL, f"none {where}", "", Remedy(note=note))
    # Without a configuration, one suitable NIC is enough.
    one_fits = not context.needs.given and any(nic.device not in _TOO_OLD for nic in nics)
    for nic in nics:
        name = nic.product or f"device {nic.device:#06x}"
        if nic.device not in _TOO_OLD:
            yield ok(name, nic.address)
        elif one_fits:
            yield skip(f"{name}, too old; another is suitable", nic.address)
        else:
            note = f"{_BUY} The engines socket and packet work with this one."
            yield Finding(Status.FAIL, f"{name}, too old", nic.address, Remedy(note=note))


@check(
    "link-layer",
    "link layer",
    wanted="Ethernet",
    why="A port in InfiniBand mode receives no Ethernet packets.",
    sources=("/sys/class/infiniband/*/ports/*/link_layer",),
    platforms=WITH_NVIDIA_NIC,
)
def link_layer(context: Context) -> Iterator[Finding]:
    root = context.facts.root
    nics = {nic.address for nic in context.nvidia_nics}
    for path in root.glob("/sys/class/infiniband/*/ports/*/link_layer"):
        device, port = path.split("/")[4], path.split("/")[6]
        parts = root.target(f"/sys/class/infiniband/{device}").split("/")
        address = next((part for part in reversed(parts) if part in nics), None)
        if address is None:
            continue
        layer = root.text(path)
        if layer == "Ethernet":
            yield ok(layer, f"{device} port {port}")
            continue
        # The card's settings are set through its first function; each function may be a port.
        card, _, function = address.rpartition(".")
        setting = f"LINK_TYPE_P{int(function) + int(port)}=ETH"
        remedy = Remedy(
            lasting=(f"mlxconfig -y -d {card}.0 set {setting}",),
            note="Requires a reboot. Secure Boot forbids it: disable it until this is done.",
        )
        yield Finding(_wrong(context), layer, f"{device} port {port}", remedy)


@check(
    "carrier",
    "link of the ports",
    wanted="a link on every port in use",
    why="Without a link no packet arrives.",
    sources=("/sys/class/net/*/carrier",),
)
def carrier(context: Context) -> Iterator[Finding]:
    for port in context.missing_ports:
        note = "Compare the address with what lspci and ip address show."
        if context.platform == Platform.SPARK:
            note += " " + _NO_CABLE
        found = f"{port.address}: no such port on this host"
        yield Finding(Status.FAIL, found, port.name, Remedy(note=note))
    for interface in context.interfaces:
        name = interface.name
        if interface.carrier:
            yield ok("link" + (f" at {interface.speed} Mb/s" if interface.speed else ""), name)
        elif not interface.up:
            remedy = Remedy(now=(f"ip link set dev {name} up",))
            yield Finding(_wrong(context), "switched off", name, remedy)
        elif interface.carrier is None:
            yield skip("not reported by the driver", name)
        else:
            note = "Plug in the cable at both ends, and check that the other end is switched on."
            yield Finding(_wrong(context), "no link", name, Remedy(note=note))


def _wrong(context: Context) -> Status:
    """Return the status of a problem: without a configuration, the port may be unused."""
    return Status.FAIL if context.needs.given else Status.WARN


@check(
    "ip-address",
    "address of the ports",
    wanted="a static address on every ConnectX port in use",
    why="Senders use the port's address, and an address from DHCP can change between runs.",
    sources=("netlink",),
    platforms=(Platform.IGX, Platform.SPARK),
)
def ip_address(context: Context) -> Iterator[Finding]:
    addresses = context.facts.addresses
    for n, interface in enumerate(_fast(context)):
        own = [a for a in addresses.get(interface.name, ()) if not a.startswith("fe80:")]
        static = [address for address in own if address not in context.facts.leased]
        if static:
            yield ok(", ".join(static), interface.name)
        else:
            # A network per port: in one network, Linux answers ARP for one port on another.
            remedy = _set_address(context, interface.name, f"192.168.{10 + n}.1/24")
            found = f"leased only: {', '.join(own)}" if own else "none"
            yield Finding(Status.WARN, found, interface.name, remedy)


def _set_address(context: Context, name: str, address: str) -> Remedy:
    now = (f"ip address add {address} dev {name}",)
    note = "Choose an address; the other end needs one in the same network."
    add = (
        f"nmcli connection add type ethernet ifname {name} con-name daqiri-{name} "
        f"ipv4.method manual ipv4.addresses {address} ipv6.method ignore"
    )
    if context.platform == Platform.SPARK:
        # DGX OS runs NetworkManager.
        return Remedy(now, lasting=(add, f"nmcli connection up daqiri-{name}"), note=note)
    text = f"[Match]\nName={name}\n\n[Network]\nAddress={address}\n"
    return Remedy(
        now,
        files=((f"/etc/systemd/network/20-{name}.network", text),),
        lasting=("systemctl restart systemd-networkd",),
        note=f"{note} With NetworkManager instead of systemd-networkd: {add}",
    )


def _fast(context: Context) -> list[NetDevice]:
    used = {nic.address for nic in context.nvidia_nics}
    return [interface for interface in context.interfaces if interface.pci_address in used]


@check(
    "mtu",
    "largest frame of the ports",
    wanted=f"at least the configuration's largest packet; {_JUMBO} where the network allows it",
    why="Packets larger than the MTU are fragmented or lost; larger packets cost less CPU.",
    sources=("/sys/class/net/*/mtu",),
)
def mtu(context: Context) -> Iterator[Finding]:
    for interface in context.interfaces:
        name, found = interface.name, f"{interface.mtu} B"
        frame = max((port.frame for port in context.ports_of(interface)), default=0)
        if context.needs.engine != "socket" and frame <= _USUAL_BUFFER:
            frame = 0
        # A region's buffers may be larger than any frame.
        wanted = min(frame - _ETHERNET_HEADER, _JUMBO)
        if interface.mtu < wanted:
            found += f"; the configuration's packets need {wanted} B"
            yield Finding(Status.FAIL, found, name, _set_mtu(interface))
        elif interface.mtu < _JUMBO and not context.needs.given and interface in _fast(context):
            yield Finding(Status.WARN, found, name, _set_mtu(interface))
        else:
            yield ok(found, name)


def _set_mtu(interface: NetDevice) -> Remedy:
    name, pci = interface.name, interface.pci_address
    # A udev rule works with any network service, and when a port returns to the bus. It matches the
    # device, because the interface may be renamed after the rule ran.
    match = f'KERNELS=="{pci}"' if pci else f'NAME=="{name}"'
    rule = f'ACTION=="add", SUBSYSTEM=="net", {match}, ATTR{{mtu}}="{_JUMBO}"\n'
    return Remedy(
        now=(f"ip link set dev {name} mtu {_JUMBO}",),
        files=((f"/etc/udev/rules.d/90-daqiri-mtu-{name}.rules", rule),),
        lasting=("udevadm control --reload",),
        note="Every switch and sender on the path needs the same MTU.",
    )


@check(
    "nic-settings",
    "NIC rings, queues and offloads",
    wanted="rings at their maximum, a NIC queue per receive queue, GRO for sockets, no LRO",
    why="A short ring overflows while the kernel is busy; LRO merges packets that belong apart.",
    sources=("ethtool netlink", "SIOCETHTOOL"),
)
def nic_settings(context: Context) -> Iterator[Finding]:
    engine = context.needs.engine
    if engine in ("loopback", "dpdk", "ibverbs"):
        yield skip(f"engine {engine} does not use the kernel's NIC settings")
        return
    for interface in context.interfaces:
        if not interface.pci_address:
            continue
        name, settings = interface.name, context.facts.nic_settings(interface.name)
        wrong, commands = [], []
        if settings.rx_ring and settings.max_rx_ring and settings.rx_ring < settings.max_rx_ring:
            wrong.append(f"receive ring {settings.rx_ring} of {settings.max_rx_ring}")
            commands.append(f"ethtool -G {name} rx {settings.max_rx_ring}")
        queues = sum(port.rx_queues for port in context.ports_of(interface))
        most = settings.max_channels or 0
        if settings.channels and engine == "packet" and settings.channels < min(queues, most):
            wrong.append(f"{settings.channels} NIC queues for {queues} receive queues")
            commands.append(f"ethtool -L {name} combined {min(queues, most)}")
        if "rx-lro" in settings.offloads:
            wrong.append("LRO is on")
            commands.append(f"ethtool -K {name} lro off")
        if settings.offloads and engine != "packet" and "rx-gro" not in settings.offloads:
            wrong.append("GRO is off")
            commands.append(f"ethtool -K {name} gro on")
        if wrong:
            remedy = at_every_boot(f"nic-{name}", f"{name} ready", *commands, folder="/usr/sbin")
            yield Finding(Status.WARN, ", ".join(wrong), name, remedy)
        elif settings.rx_ring or settings.offloads:
            on = ", ".join(settings.offloads) or "no offloads"
            pause = ", obeys pause frames" if settings.rx_pause else ""
            yield ok(f"receive ring {settings.rx_ring}, {on}{pause}", name)
        else:
            yield skip("not reported by the driver", name)


@check(
    "nic-firmware",
    "NIC firmware settings",
    wanted="link kept up; BlueField in NIC mode; scheduler on if accurate_send is set",
    why="The firmware reads at boot the settings that the engine depends on.",
    sources=("mlxconfig -d ADDRESS query",),
    platforms=(Platform.GPUNETIO,),
)
def nic_firmware(context: Context) -> Iterator[Finding]:
    cards: dict[str, PciDevice] = {}
    for nic in context.nvidia_nics:
        # Settings belong to the card: one function of each is enough.
        cards.setdefault(nic.address.rpartition(".")[0], nic)
    for nic in cards.values():
        try:
            settings = context.facts.firmware(nic.address)
        except FactError as error:
            yield skip(f"not known: {error}", nic.address)
        else:
            yield _judge_firmware(context, nic, settings)


def _judge_firmware(context: Context, nic: PciDevice, settings: dict[str, str]) -> Finding:
    wanted = dict(_KEEP_LINK)
    scheduler = any(port.accurate_send for port in context.needs.ports)
    if scheduler:
        wanted |= _SCHEDULER
    if nic.device in _BLUEFIELD:
        wanted |= _NIC_MODE
    known = {name: value for name, value in wanted.items() if name in settings}
    if not known:
        return skip("mlxconfig does not list these settings", nic.address)
    wrong = {
        name: value
        for name, value in known.items()
        if settings[name] not in _SPELLINGS.get(value, (value,))
    }
    lacking = [name for name in _SCHEDULER if scheduler and name not in settings]
    if not wrong and not lacking:
        return ok("as expected", nic.address)
    found = [f"{name} is {settings[name]}" for name in wrong] + [f"no {name}" for name in lacking]
    words = " ".join(f"{name}={value}" for name, value in wrong.items())
    commands = (f"mlxconfig -y -d {nic.address} set {words}",) if wrong else ()
    notes = []
    if wrong:
        notes.append("Requires a cold boot, such as ipmitool power cycle.")
    if lacking:
        notes.append("Update the NIC's firmware, or set accurate_send to false.")
    remedy = Remedy(lasting=commands, note=" ".join(notes))
    return Finding(Status.WARN, ", ".join(found), nic.address, remedy)


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
