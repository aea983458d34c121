"""Checks of NICs and network interfaces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._addresses import can_bind, is_any, is_loopback
from .._check import Context, DoesNotApplyError, check, ok, skip
from .._device_names import known
from .._engine_rules import InterfaceNeeds
from .._finding import Finding, Remedy, Status, Step
from .._needs import PortNeeds
from .._platform import Platform
from .._root import FactError
from ..facts import NetDevice, PciDevice
from ._files import at_every_boot

_JUMBO = 9000
_ETHERNET_HEADER = 18
_RDMA_DRIVERS = ("ib_core", "mlx5_core", "mlx5_ib")
# NICs without the functions that dpdk and ibverbs need: what is older than ConnectX-6 Dx, and its
# smaller sibling, ConnectX-6 Lx.
_UNSUITABLE = frozenset((0x1003, 0x1004, 0x1007, 0x1011, *range(0x1013, 0x101D), 0x101F, 0xA2D2))
# Buffers of this size are for standard frames and do not imply larger ones.
_USUAL_BUFFER = 2048
_NO_CABLE = (
    "On a DGX Spark the ports disappear from the bus 5 to 20 s after boot unless a cable is "
    "plugged in: plug in a QSFP cable first."
)
_BUY = "Install a ConnectX-6 Dx or later."
# These boards have a NIC: without one, something is wrong.
_WITH_NIC = (Platform.IGX, Platform.SPARK)


@check(
    "nic-driver",
    "NIC driver",
    wanted="mlx5_core loaded for a ConnectX; for dpdk and ibverbs ib_core and mlx5_ib as well",
    why="Without its kernel module a NIC has no interface, and user space cannot access it.",
)
def nic_driver(context: Context) -> Iterator[Finding]:
    needs = context.needs
    if not any(nic.is_nvidia_nic for nic in context.facts.pci.values()):
        if not needs.past_kernel:
            raise DoesNotApplyError("no ConnectX or BlueField on the PCI bus")
    elif needs.given and not needs.past_kernel and not context.missing_ports:
        yield skip(f"engine {needs.engine} has its interfaces")
        return
    wanted = _RDMA_DRIVERS if needs.past_kernel or not needs.given else ("mlx5_core",)
    missing = [name for name in wanted if name not in context.facts.modules]
    if not missing:
        yield ok("loaded")
        if wanted == _RDMA_DRIVERS:
            yield from _unknown_to_rdma(context)
        return
    note = (
        "If a module is missing, install the kernel's extra modules (Debian, Ubuntu: "
        "linux-modules-extra-$(uname -r)) or doca-ofed of NVIDIA's DOCA repository, and reboot."
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
    if needs.given and not needs.past_kernel:
        yield skip(f"engine {needs.engine} works with any NIC")
        return
    nics = [nic for nic in context.nics if nic.is_nvidia_nic]
    if not nics and not needs.given and context.platform not in _WITH_NIC:
        yield skip("none; engines socket and packet work with any NIC")
    elif not nics:
        where = "among the configuration's ports" if needs.given else "on the PCI bus"
        note = _NO_CABLE if context.platform == Platform.SPARK else _BUY
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
    nics = {nic.address for nic in context.nvidia_nics}
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
    "physical-port",
    "physical ports of the interfaces",
    wanted="a physical port of its own for each port of the configuration",
    why="Between interfaces of one physical port, traffic stays in the NIC: no cable carries it.",
)
def physical_port(context: Context) -> Iterator[Finding]:
    if not context.needs.given:
        yield skip("no configuration")
        return
    cards = {device.pci_address: device.card for device in context.facts.rdma}
    used: dict[tuple[str, str], list[NetDevice]] = {}
    for interface in context.interfaces:
        device = context.facts.pci.get(interface.pci_address)
        if not interface.port or device is None:
            continue
        # Functions of one card share its number; a Spark has one NIC in two PCI domains.
        card = cards.get(interface.pci_address) or interface.pci_address.rpartition(".")[0]
        if context.platform == Platform.SPARK and device.is_nvidia_nic:
            card = "the NIC"
        used.setdefault((card, interface.port), []).append(interface)
    for (_, port), interfaces in used.items():
        names = ", ".join(interface.name for interface in interfaces)
        if len(interfaces) == 1:
            yield ok(port, names)
        else:
            note = "Use an interface of the other physical port, such as p0 with p1."
            found = f"one physical port, {port}: no packet between them reaches the cable"
            yield Finding(Status.WARN, found, names, Remedy(note=note))
    if not used:
        yield skip("not reported by the driver")


@check(
    "carrier",
    "link of the ports",
    wanted="a link on every port in use",
    why="Without a link no packet arrives.",
)
def carrier(context: Context) -> Iterator[Finding]:
    for port in context.missing_ports:
        note = "Compare the address with what lspci and ip address show."
        if context.platform == Platform.SPARK:
            note += " " + _NO_CABLE
        found = f"{port.address}: no such port on this host"
        status = Status.FAIL if _needs_address(context, port) else Status.WARN
        yield Finding(status, found, port.name, Remedy(note=note))
    for port in context.hidden_ports:
        yield skip(f"{port.address}: {_why_hidden(context, port)}", port.name)
    for interface in context.interfaces:
        name = interface.name
        if wrong := _no_frames(context, interface):
            yield wrong
        elif interface.carrier:
            yield _linked(context, interface)
        elif not interface.up:
            remedy = Remedy(
                now=(f"ip link set dev {name} up",),
                note="Permanently: in the settings of the network service.",
                verify=(f"ip link show dev {name} up | grep -q .",),
            )
            needed = any(asked.requires_up for asked in _asked_of(context, interface))
            status = Status.FAIL if needed else _lossy(context)
            yield Finding(status, "switched off", name, remedy)
        elif interface.carrier is None:
            yield skip("not reported by the driver", name)
        else:
            note = "Plug in the cable at both ends, and check that the other end is switched on."
            yield Finding(_lossy(context), "no link", name, Remedy(note=note))


def _asked_of(context: Context, interface: NetDevice) -> list[InterfaceNeeds]:
    """Return what the engine asks of an interface; nothing of a configuration with errors."""
    ports = context.ports_of(interface)
    asked = known(lambda: context.needs.by_engine().interfaces, {})
    return [asked[port.name] for port in ports if port.name in asked]


def _no_frames(context: Context, interface: NetDevice) -> Finding | None:
    """Report an interface whose link the engine does not accept."""
    for asked in _asked_of(context, interface):
        accepted = asked.link_types
        if accepted and interface.link_type is not None and interface.link_type not in accepted:
            found = f"no Ethernet frames (link type {interface.link_type})"
            note = "Name an Ethernet interface, or use a socket stream."
            return Finding(Status.FAIL, found, interface.name, Remedy(note=note))
    return None


def _lossy(context: Context) -> Status:
    """Status of what costs packets: engines on the kernel's interfaces open all the same."""
    return Status.FAIL if context.needs.past_kernel else Status.WARN


def _needs_address(context: Context, port: PortNeeds) -> bool:
    """Return whether the engine opens only if this host has the port's address."""
    return context.needs.engine != "socket" or port.joins_group


def _why_hidden(context: Context, port: PortNeeds) -> str:
    if not context.facts.interfaces:
        return "not known: /sys/class/net lists no interface"
    return "not looked at, because of its name or because /sys/class/net does not list it"


def _linked(context: Context, interface: NetDevice) -> Finding:
    """Compare the link's speed with what the port can have."""
    found = "link" + (f" at {interface.speed} Mb/s" if interface.speed else "")
    try:
        most = context.facts.nic_settings(interface.name).max_speed
    except FactError:
        most = None
    if not interface.speed or not most or interface.speed >= most:
        return ok(found, interface.name)
    note = (
        "Check what the other end, the cable and the transceiver can do, and auto-negotiation: "
        f"ethtool {interface.name}."
    )
    return Finding(Status.WARN, f"{found}; the port has {most}", interface.name, Remedy(note=note))


@check(
    "ip-address",
    "address of the ports",
    wanted="local_addr on this host, IPv6 where addresses are IPv6; a static address on every "
    "ConnectX port in use",
    why="Senders use the port's address, and an address from DHCP can change between runs.",
)
def ip_address(context: Context) -> Iterator[Finding]:
    needs = context.needs
    if needs.given and needs.engine not in ("socket", "ibverbs"):
        yield skip(f"engine {needs.engine} uses none")
        return
    addresses = context.facts.addresses
    if needs.engine == "socket":
        yield from _without_ipv6(context)
        yield from _cannot_bind(context)
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


def _cannot_bind(context: Context) -> Iterator[Finding]:
    """Report local addresses that no interface has."""
    addresses = context.facts.addresses
    if not addresses:
        return
    for port in context.needs.ports:
        family = "ipv6" if ":" in port.local_host else "ipv4"
        if family in context.facts.bind_any or can_bind(addresses, port.local_host):
            continue
        status = Status.FAIL if port.opens_at_once else Status.WARN
        note = "Set local_addr to an address that ip address shows, or to 0.0.0.0 for all."
        found = f"local_addr {port.local_host}: no interface has this address"
        yield Finding(status, found, port.name, Remedy(note=note))


def _without_ipv6(context: Context) -> Iterator[Finding]:
    """Report IPv6 addresses where IPv6 is off."""
    ipv6 = context.facts.ipv6
    for port in context.needs.ports:
        hosts = [host for host in (port.local_host, port.remote_host) if ":" in host]
        if not hosts:
            continue
        status = Status.FAIL if port.opens_at_once else Status.WARN
        if not ipv6.supported:
            note = "Boot without ipv6.disable=1 on the kernel command line, or use IPv4 addresses."
            found = f"{hosts[0]}: this kernel has no IPv6"
            yield Finding(status, found, port.name, Remedy(note=note))
            continue
        everywhere = bool(ipv6.off) and not ipv6.on
        if not everywhere and not ("lo" in ipv6.off and any(map(is_loopback, hosts))):
            continue
        if all(map(is_any, hosts)) and not port.remote_host:
            # The kernel binds these all the same.
            status = Status.WARN
        where = "all interfaces" if everywhere else "lo"
        setting = "net.ipv6.conf.all.disable_ipv6"
        remedy = Remedy(
            now=(f"sysctl -w {setting}=0",),
            files=(("/etc/sysctl.d/90-daqiri-ipv6.conf", f"{setting}=0\n"),),
            note="Or use IPv4 addresses.",
            verify=(f'test "$(sysctl -n {setting})" = 0',),
        )
        yield Finding(status, f"{hosts[0]}: IPv6 is switched off on {where}", port.name, remedy)


def _set_address(context: Context, name: str, address: str) -> Remedy:
    """Return how to set an address; which one is free, only a person knows."""
    services = context.facts.services
    # DGX OS runs NetworkManager.
    if "NetworkManager" in services or context.platform == Platform.SPARK:
        how = (
            f"nmcli connection add type ethernet ifname {name} con-name daqiri-{name} "
            f"ipv4.method manual ipv4.addresses {address} ipv6.method ignore, "
            f"then nmcli connection up daqiri-{name}"
        )
    elif "systemd-network" in services:
        how = (
            f"lines [Match], Name={name}, [Network], Address={address} "
            f"in /etc/systemd/network/20-daqiri-{name}.network, then networkctl reload"
        )
    else:
        how = (
            f"ip address add {address} dev {name}, until the next boot; "
            "permanently in the settings of the network service of this host"
        )
    return Remedy(
        note=(
            "Choose a free address, in a network of its own for each port; the other end needs one "
            f"in the same network. An example: {how}."
        )
    )


def _fast(context: Context) -> list[NetDevice]:
    """Return the Ethernet interfaces of ConnectX and BlueField NICs in use."""
    used = {nic.address for nic in context.nics if nic.is_nvidia_nic}
    return [i for i in context.interfaces if i.pci_address in used and i.ethernet]


@check(
    "mtu",
    "largest frame of the ports",
    wanted=f"at least the configuration's largest packet; {_JUMBO} where the network allows it",
    why="Packets larger than the MTU are fragmented or lost; larger packets cost less CPU.",
)
def mtu(context: Context) -> Iterator[Finding]:
    for interface in context.interfaces:
        name, found = interface.name, f"{interface.mtu} B"
        if not interface.ethernet:
            yield skip(f"{found}, of IP over InfiniBand", name)
            continue
        frame = max((port.frame for port in context.ports_of(interface)), default=0)
        if context.needs.engine != "socket" and frame <= _USUAL_BUFFER:
            frame = 0
        # A region's buffers may be larger than any frame.
        wanted = min(frame - _ETHERNET_HEADER, _JUMBO)
        if interface.mtu < wanted:
            found += f"; the configuration's packets need {wanted} B"
            yield Finding(_lossy(context), found, name, _set_mtu(interface))
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
        verify=(f'test "$(cat /sys/class/net/{name}/mtu)" = {_JUMBO}',),
    )


@check(
    "nic-settings",
    "NIC rings, queues and offloads",
    wanted="rings at their maximum, a NIC queue per receive queue, GRO for sockets, no LRO",
    why="A short ring overflows while the kernel is busy; LRO merges packets that belong apart.",
)
def nic_settings(context: Context) -> Iterator[Finding]:
    engine = context.needs.engine
    if engine == "loopback" or context.needs.past_kernel:
        yield skip(f"engine {engine} does not use the kernel's NIC settings")
        return
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
        if settings.channels and engine == "packet" and settings.channels < min(queues, most):
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
        if offloads is not None and engine != "packet" and "rx-gro" not in offloads:
            add(
                "GRO is off",
                f"ethtool -K {name} gro on",
                f"ethtool -k {name} | grep -q '^generic-receive-offload: on'",
            )
        if wrong:
            remedy = at_every_boot(50, f"nic-{name}", *commands, verify=tuple(verify))
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
    if context.needs.given and not context.needs.past_kernel:
        yield skip(f"engine {context.needs.engine} works with any firmware")
        return
    cards: dict[str, PciDevice] = {}
    for nic in context.nvidia_nics:
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
