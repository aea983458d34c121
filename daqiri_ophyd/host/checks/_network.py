"""Checks of network interfaces: their links, addresses and frames."""

from __future__ import annotations

from collections.abc import Iterator

from .._addresses import can_bind, is_any, is_loopback
from .._check import Context, check, ok, skip
from .._device_names import known
from .._engine_rules import InterfaceNeeds
from .._finding import Finding, Remedy, Status
from .._needs import PortNeeds
from .._platform import Platform
from .._root import FactError
from ..facts import NetDevice
from ._nic import NO_CABLE

_JUMBO = 9000


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
            note += " " + NO_CABLE
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
            needed = any(asked.requires_up for asked in _asked_of(context, interface))
            status = Status.FAIL if needed else _lossy(context)
            yield Finding(status, "switched off", name, _switch_on(context, name))
        elif interface.carrier is None:
            yield skip("not reported by the driver", name)
        else:
            note = "Plug in the cable at both ends, and check that the other end is switched on."
            yield Finding(_lossy(context), "no link", name, Remedy(note=note))


def _switch_on(context: Context, name: str) -> Remedy:
    command = f"ip link set dev {name} up"
    if not context.needs.given:
        # It may be off on purpose.
        return Remedy(note=f"If this port is to be used: {command}")
    return Remedy(
        now=(command,),
        note="Permanently: in the settings of the network service.",
        verify=(f"ip link show dev {name} up | grep -q .",),
    )


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
    return Status.FAIL if context.needs.traits.kernel_bypass else Status.WARN


def _needs_address(context: Context, port: PortNeeds) -> bool:
    """Return whether the engine opens only if this host has the port's address."""
    return not context.needs.kernel_sockets or port.joins_group


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
    if needs.given and not needs.traits.has_sockets:
        yield skip(f"engine {needs.engine} uses none")
        return
    addresses = context.facts.addresses
    if needs.kernel_sockets:
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
        # On the others it may be off on purpose.
        setting = f"net.ipv6.conf.{'all' if everywhere else 'lo'}.disable_ipv6"
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
    elif "systemd-networkd" in services:
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
    asked = context.needs.by_engine().interfaces if context.needs.given else {}
    for interface in context.interfaces:
        name, found = interface.name, f"{interface.mtu} B"
        if not interface.ethernet:
            yield skip(f"{found}, of IP over InfiniBand", name)
            continue
        wanted = max((asked[port.name].mtu for port in context.ports_of(interface)), default=0)
        if interface.mtu < wanted:
            found += f"; the configuration's packets need {wanted} B"
            yield Finding(
                _lossy(context), found, name, _set_mtu(context, interface, max(wanted, _JUMBO))
            )
        elif interface.mtu < _JUMBO and not context.needs.given and interface in _fast(context):
            yield Finding(Status.WARN, found, name, _set_mtu(context, interface, _JUMBO))
        else:
            yield ok(found, name)


def _set_mtu(context: Context, interface: NetDevice, mtu: int) -> Remedy:
    name, pci = interface.name, interface.pci_address
    command = f"ip link set dev {name} mtu {mtu}"
    if not context.needs.given:
        # Of a network with smaller frames, it would lose packets of other programs.
        return Remedy(note=f"If all of this port's network has this MTU: {command}")
    # A udev rule works with any network service, and when a port returns to the bus. It matches the
    # device, because the interface may be renamed after the rule ran; but not the device of several
    # interfaces: a NIC with two ports in one function, or a USB controller.
    alone = [each.pci_address for each in context.facts.interfaces.values()].count(pci) == 1
    device = context.facts.pci.get(pci)
    alone = alone and device is not None and device.is_network
    match = f'KERNELS=="{pci}"' if alone else f'NAME=="{name}"'
    rule = f'ACTION=="add", SUBSYSTEM=="net", {match}, ATTR{{mtu}}="{mtu}"\n'
    return Remedy(
        now=(command,),
        files=((f"/etc/udev/rules.d/90-daqiri-mtu-{name}.rules", rule),),
        lasting=("udevadm control --reload",),
        note=(
            "Every switch and sender on the path needs the same MTU. On many NICs the change "
            "interrupts the port's traffic for up to some seconds."
        ),
        verify=(f'test "$(cat /sys/class/net/{name}/mtu)" = {mtu}',),
    )
