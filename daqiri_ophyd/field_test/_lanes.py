"""Lanes: a transmit queue, the headers of a flow, and the receive queues of that flow."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from ..engine import FlowConfig, FlowMatch, InterfaceConfig, NetworkConfig
from ..host import FactError, Facts, is_unspecified, listens_at

__all__ = [
    "Header",
    "Lane",
    "UnmadeError",
    "candidate_links",
    "groups_of",
    "is_group",
    "lanes_of",
    "stray_header",
]

# Addresses for documentation (RFC 5737): no router forwards them.
_SOURCE, _DESTINATION = "192.0.2.1", "192.0.2.2"
_SOURCE_PORT, _DESTINATION_PORT = 4000, 5000
_MOST_PORTS_TRIED = 4096
_MOST_TAGS = 4


class UnmadeError(Exception):
    """No packets can be made for a flow; the text says why."""


@dataclass(frozen=True)
class Header:
    """What the packets of a lane have in front of, and in, their payload.

    Parameters
    ----------
    src_ip, dst_ip : str
        IPv4 addresses.
    src_port, dst_port : int
        UDP ports.
    ip_length : int or None
        The only total length of IPv4 that the flow accepts.
    words : tuple of (int, int)
        32-bit words in the payload: offset, value.
    ecpri : tuple of (int, int) or None
        Type and id of eCPRI messages; the packets then have no IP header.
    tags : int
        VLAN tags that the receiver removes.
    spreads : bool
        Whether the source ports differ, so that RSS spreads the packets over queues.
    """

    src_ip: str = _SOURCE
    dst_ip: str = _DESTINATION
    src_port: int = _SOURCE_PORT
    dst_port: int = _DESTINATION_PORT
    ip_length: int | None = None
    words: tuple[tuple[int, int], ...] = ()
    ecpri: tuple[int, int] | None = None
    tags: int = 0
    spreads: bool = False


@dataclass(frozen=True)
class Lane:
    """Packets from one transmit queue to the queues of one flow.

    Parameters
    ----------
    sender, receiver : str
        Interfaces.
    tx_queue : str
        Transmit queue.
    rx_queues : tuple of str
        Receive queues that may get the packets.
    flow : str
        Name of the flow; empty: packets that need none.
    flow_id : int
        Id that the packets arrive with.
    header : Header or None
        Headers of whole frames; None: the packets are payloads of sockets.
    words : tuple of (int, int)
        Words in the payload of sockets.
    assembled : bool
        Whether a reorder plan takes the packets.
    stream : bool
        Whether the packets are parts of a byte stream (TCP).
    group : str
        Multicast group that the packets go to; empty: they go to one port.
    """

    sender: str
    receiver: str
    tx_queue: str
    rx_queues: tuple[str, ...]
    flow: str
    flow_id: int
    header: Header | None
    words: tuple[tuple[int, int], ...] = ()
    assembled: bool = False
    stream: bool = False
    group: str = ""

    @property
    def queues(self) -> int:
        """Number of queues that its packets reach: those of RSS only if they are spread."""
        spreads = self.header is not None and self.header.spreads
        return len(self.rx_queues) if spreads else 1

    @property
    def name(self) -> str:
        """Name in reports: ``port0/detector``."""
        return f"{self.receiver}/{self.flow or 'any packet'}"


def candidate_links(config: NetworkConfig) -> list[tuple[str, str]]:
    """Return pairs of interfaces, sender and receiver, that may be connected.

    Sockets name each other; a server at ``0.0.0.0`` or ``::`` has all addresses of this host, and
    no others. Ports of raw streams are those that a cable may join; other ports come
    before a port itself.
    """
    senders = [i for i in config.interfaces if i.tx.queues]
    receivers = [i for i in config.interfaces if i.rx.queues]
    if config.loopback:
        return [(i.name, i.name) for i in senders if i.rx.queues]
    if config.stream_type == "socket":
        servers = {b.name: _local(b) for b in receivers}
        own: dict[str, list[str]] = {}
        if any(place and is_unspecified(place[1]) for place in servers.values()):
            # Without them, only loopback addresses are known to be those of this host.
            with suppress(FactError):
                own = Facts().addresses
        return [
            (a.name, name)
            for a in senders
            for name, local in servers.items()
            if _meet(_remote(a), local, own)
        ]
    pairs = [(a.name, b.name) for a in senders for b in receivers if a.name != b.name]
    return pairs + [(i.name, i.name) for i in senders if i.rx.queues]


def _meet(
    remote: tuple[str, str, int | None] | None,
    local: tuple[str, str, int | None] | None,
    own: dict[str, list[str]],
) -> bool:
    if remote is None or local is None:
        return False
    scheme, address, port = remote
    served, listening, served_port = local
    return (scheme, port) == (served, served_port) and listens_at(listening, address, own)


def _remote(interface: InterfaceConfig) -> tuple[str, str, int | None] | None:
    made = interface.socket_config
    return None if made is None or made.remote_addr is None else _place(made.remote_addr)


def _local(interface: InterfaceConfig) -> tuple[str, str, int | None] | None:
    made = interface.socket_config
    if made is None or made.local_addr is None or made.mode != "server":
        return None
    return _place(made.local_addr)


def _place(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname or "", parts.port


def lanes_of(config: NetworkConfig, link: tuple[str, str]) -> tuple[list[Lane], dict[str, str]]:
    """Return the lanes of a link, and why there is none for other flows of the receiver."""
    by_name = {i.name: i for i in config.interfaces}
    sender, receiver = by_name[link[0]], by_name[link[1]]
    ids = {queue.id: queue.name for queue in receiver.rx.queues}
    taken = _taken_by_plans(config, receiver)
    lanes: list[Lane] = []
    left_out: dict[str, str] = {}
    tx_names = [queue.name for queue in sender.tx.queues]
    stream = (receiver.socket_config is not None) and _scheme(receiver) == "tcp"
    group = _group_of_socket(sender)
    for number, flow in enumerate(receiver.rx.flows):
        action = next(a for a in reversed(flow.actions) if a.type == "queue")
        numbers = (action.id,) if action.id is not None else action.ids
        lane = Lane(
            sender=sender.name,
            receiver=receiver.name,
            tx_queue=tx_names[number % len(tx_names)],
            rx_queues=tuple(ids[each] for each in numbers),
            flow=flow.name,
            flow_id=flow.id,
            header=None,
            assembled=flow.name in taken,
            stream=stream,
            group=group,
        )
        try:
            if receiver.socket_config is None:
                earlier = receiver.rx.flows[:number]
                made = _header(flow, earlier, sender, receiver, spreads=len(numbers) > 1)
                to = made.dst_ip if made.ecpri is None and is_group(made.dst_ip) else ""
                lanes.append(replace(lane, header=made, group=to))
            else:
                lanes.append(replace(lane, words=_words_of_socket(flow, sender, receiver)))
        except UnmadeError as reason:
            left_out[f"{receiver.name}/{flow.name}"] = str(reason)
    if not receiver.rx.flows:
        lanes.append(
            Lane(
                sender=sender.name,
                receiver=receiver.name,
                tx_queue=tx_names[0],
                rx_queues=tuple(ids.values()),
                flow="",
                flow_id=0,
                header=Header() if receiver.socket_config is None else None,
                stream=stream,
                group=group,
            )
        )
    return lanes, left_out


def groups_of(config: NetworkConfig) -> list[str]:
    """Return the multicast groups to which a test of a configuration sends."""
    lanes = [lane for link in candidate_links(config) for lane in lanes_of(config, link)[0]]
    return sorted({lane.group for lane in lanes if lane.group})


def _group_of_socket(sender: InterfaceConfig) -> str:
    place = _remote(sender)
    return place[1] if place is not None and is_group(place[1]) else ""


def _scheme(interface: InterfaceConfig) -> str:
    made = interface.socket_config
    address = made and (made.local_addr or made.remote_addr)
    return urlsplit(address or "").scheme


def _taken_by_plans(config: NetworkConfig, receiver: InterfaceConfig) -> set[str]:
    ids = {number for plan in receiver.rx.reorder_configs for number in plan.flow_ids}
    named = {name for plan in config.reorder_configs for name in plan.flows}
    named |= {f"{receiver.name}/{name}" for p in receiver.rx.reorder_configs for name in p.flows}
    return {
        flow.name
        for flow in receiver.rx.flows
        if flow.id in ids or f"{receiver.name}/{flow.name}" in named
    }


def _tags_of(flow: FlowConfig, sender: InterfaceConfig) -> int:
    """Return how many VLAN tags the test has to add for a flow."""
    kinds = [action.type for action in flow.actions]
    pushed = [action.type for each in sender.tx.flows for action in each.actions]
    if "tunnel_decap" in kinds and "tunnel_encap" not in pushed:
        raise UnmadeError(
            "it takes packets out of tunnels, and no flow of the sender puts them into one"
        )
    if "tunnel_encap" in pushed and "tunnel_decap" not in kinds:
        raise UnmadeError(
            "the sender puts packets into tunnels, and the flow does not take them out"
        )
    pops, pushes = kinds.count("vlan_pop"), pushed.count("vlan_push")
    if pushes > pops:
        raise UnmadeError("the sender adds VLAN tags, and the flow does not remove them")
    return pops - pushes


def _header(
    flow: FlowConfig,
    earlier: Sequence[FlowConfig],
    sender: InterfaceConfig,
    receiver: InterfaceConfig,
    *,
    spreads: bool,
) -> Header:
    match, tags = flow.match, _tags_of(flow, sender)
    if match.type == "ecpri":
        ecpri = match.ecpri
        kind = (ecpri.msg_type if ecpri else None) or 0
        found = Header(ecpri=(kind, (ecpri.id if ecpri else None) or 0), tags=tags)
    elif match.type == "flex_item":
        found = replace(_flex_header(match, receiver), tags=tags)
    else:
        fixed = match.udp_src is not None and match.udp_src[0] == match.udp_src[1]
        found = Header(
            src_ip=match.ipv4_src or _SOURCE,
            dst_ip=match.ipv4_dst or _DESTINATION,
            src_port=_first(match.udp_src, _SOURCE_PORT),
            dst_port=_first(match.udp_dst, _DESTINATION_PORT),
            ip_length=match.ipv4_len,
            tags=tags,
            spreads=spreads and not fixed and match.udp_src is None,
        )
    before = [each for each in earlier if _pops(each) == _pops(flow)]
    for candidate in _candidates(found, match):
        if not any(_takes(each.match, candidate, receiver) for each in before):
            return candidate
    raise UnmadeError("earlier flows take all packets of it that the test can make")


def _pops(flow: FlowConfig) -> tuple[str, ...]:
    return tuple(action.type for action in flow.actions if action.type != "queue")


def _first(span: tuple[int, int] | None, default: int) -> int:
    if span is None:
        return default
    return span[0] or min(1, span[1])


def _candidates(header: Header, match: FlowMatch) -> Iterator[Header]:
    """Yield the header with each destination port, then each source port, of the flow."""
    yield header
    if match.type != "ipv4_udp":
        return
    for key, span in (("dst_port", match.udp_dst), ("src_port", match.udp_src)):
        low, high = span or (1024, 65535)
        for port in range(max(1, low), min(high, low + _MOST_PORTS_TRIED) + 1):
            yield replace(header, **{key: port})


def _flex_header(match: FlowMatch, receiver: InterfaceConfig) -> Header:
    item = next(each for each in receiver.rx.flex_items if each.id == match.flex_item_id)
    return Header(dst_port=item.udp_dst_port, words=((item.offset, match.val or 0),))


def _takes(match: FlowMatch, header: Header, receiver: InterfaceConfig) -> bool:
    """Whether a flow matches packets with a header, of the fields that the header fixes."""
    if match.type == "ecpri":
        wanted = match.ecpri
        if wanted is None or header.ecpri is None:
            return header.ecpri is not None
        return wanted.msg_type in (None, header.ecpri[0]) and wanted.id in (None, header.ecpri[1])
    if header.ecpri is not None:
        return False
    if match.type == "flex_item":
        made = _flex_header(match, receiver)
        mask = 0xFFFFFFFF if match.mask is None else match.mask
        return header.dst_port == made.dst_port and any(
            offset == made.words[0][0] and (value & mask) == (match.val or 0)
            for offset, value in header.words
        )
    return (
        match.ipv4_src in (None, header.src_ip)
        and match.ipv4_dst in (None, header.dst_ip)
        and (match.ipv4_len is None or match.ipv4_len == header.ip_length)
        and _within(header.src_port, match.udp_src)
        and _within(header.dst_port, match.udp_dst)
    )


def _within(port: int, span: tuple[int, int] | None) -> bool:
    return span is None or span[0] <= port <= span[1]


def stray_header(config: NetworkConfig, receiver: str) -> Header:
    """Return a header that no flow of an interface matches."""
    interface = next(i for i in config.interfaces if i.name == receiver)
    flows = interface.rx.flows
    # Ports for private use (RFC 6335).
    for port in range(49152, 49152 + _MOST_PORTS_TRIED):
        header = Header(src_port=port, dst_port=port)
        if not any(_takes(flow.match, header, interface) for flow in flows):
            return header
    raise UnmadeError("its flows match any packet")


def _words_of_socket(
    flow: FlowConfig, sender: InterfaceConfig, receiver: InterfaceConfig
) -> tuple[tuple[int, int], ...]:
    match, made = flow.match, sender.socket_config
    place = urlsplit((made and made.remote_addr) or "")
    if match.type == "flex_item":
        return _flex_header(match, receiver).words
    if match.udp_src is not None and match.udp_src != (0, 65535):
        raise UnmadeError("it matches a source port, which the sender's socket chooses")
    if match.ipv4_len is not None:
        raise UnmadeError("it matches a length of packets, and the test sends several")
    host = place.hostname or ""
    for found in (match.ipv4_src, match.ipv4_dst):
        if found is not None and found != host:
            raise UnmadeError(f"it matches address {found}, and the packets are between {host}")
    if match.udp_dst is not None and not _within(place.port or 0, match.udp_dst):
        raise UnmadeError(f"it does not match port {place.port}, at which the socket listens")
    return ()


def is_group(address: str) -> bool:
    """Whether an address is that of a multicast group."""
    try:
        return ipaddress.ip_address(address).is_multicast
    except ValueError:
        return False
