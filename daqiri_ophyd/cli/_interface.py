"""A configuration for a network interface that was named on the command line."""

import fcntl
import ipaddress
import itertools
import socket
import struct
from collections.abc import Sequence
from typing import Any

import typer

_RX_BYTES, _TX_BYTES = 128 << 20, 16 << 20
# In addition to the MTU: an Ethernet header and two VLAN tags.
_AROUND = 22
_SIOCGIFMTU = 0x8921


def interfaces() -> list[str]:
    """Return the names of this host's network interfaces."""
    return [name for _, name in socket.if_nameindex()]


def _mtu(interface: str) -> int:
    # MTU in this process's network namespace, which /sys may not show.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        request = struct.pack("16sI", interface.encode(), 0)
        return struct.unpack("16sI", fcntl.ioctl(question, _SIOCGIFMTU, request))[1]


def _address(host: str) -> str:
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise typer.BadParameter(f"--host: found {host!r}; accepts an IPv4 address") from None


def _flows(udp_ports: Sequence[int], hosts: Sequence[str]) -> list[dict[str, Any]]:
    """Return flows for packets to one of the ports, and from or to one of the hosts."""
    ends = [
        {end: _address(host)} for host in dict.fromkeys(hosts) for end in ("ipv4_src", "ipv4_dst")
    ] or [{}]
    ports = [{"udp_dst": port} for port in dict.fromkeys(udp_ports)] or [{}]
    matches = [{**port, **end} for port, end in itertools.product(ports, ends)]
    return [
        {
            "name": f"flow{number}",
            "id": number,
            "match": match,
            "action": {"type": "queue", "id": 0},
        }
        for number, match in enumerate(matches, 1)
        if match
    ]


def interface_configuration(
    interface: str,
    udp_ports: Sequence[int] = (),
    hosts: Sequence[str] = (),
    packet_filter: str | None = None,
) -> dict[str, Any]:
    """
    Return a configuration with a receive and a transmit queue on one network interface.

    Parameters
    ----------
    interface : str
        Name of the interface; frames of its MTU fit into the buffers.
    udp_ports, hosts : sequence
        Receive only UDP packets to one of these ports, and from or to one of these IPv4 addresses.
        Empty: everything.
    packet_filter : str or None
        Receive only packets that this expression of tcpdump's filter language matches.

    Raises
    ------
    typer.BadParameter
        If a host is not an IPv4 address.
    """
    size = _mtu(interface) + _AROUND
    size += -size % 64
    flows = _flows(udp_ports, hosts)

    def region(name: str, total: int) -> dict[str, Any]:
        return {
            "name": name,
            "kind": "host",
            "num_bufs": max(total // size, 1024),
            "buf_size": size,
        }

    def queue(name: str, region: str) -> dict[str, Any]:
        return {
            "name": name,
            "id": 0,
            "cpu_core": "any",
            "batch_size": 256,
            "memory_regions": [region],
        }

    return {
        "daqiri": {
            "cfg": {
                "version": 1,
                "stream_type": "raw",
                "engine": "packet",
                "master_core": 0,
                "log_level": "warn",
                "memory_regions": [
                    region("rx_buffers", _RX_BYTES),
                    region("tx_buffers", _TX_BYTES),
                ],
                "interfaces": [
                    {
                        "name": interface,
                        "address": interface,
                        "rx": {
                            "flow_isolation": bool(flows),
                            **({} if packet_filter is None else {"filter": packet_filter}),
                            "queues": [{**queue("rx", "rx_buffers"), "timeout_us": 20_000}],
                            "flows": flows,
                        },
                        "tx": {"queues": [queue("tx", "tx_buffers")]},
                    }
                ],
            }
        }
    }
