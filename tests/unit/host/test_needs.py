"""What configurations ask of a host."""

import pytest

from daqiri_ophyd.host import Needs
from daqiri_ophyd.host._needs import Poller, Region


def interface(address, socket=None, rx=True, **changes):
    queue = {"name": "q", "id": 0, "cpu_core": 3, "memory_regions": ["m"]}
    made = {"name": "p", "address": address, "rx" if rx else "tx": {"queues": [queue]}, **changes}
    return made | ({"socket_config": socket} if socket else {})


def sockets(**settings):
    """Return what a configuration asks with a socket."""
    return needs(interface("10.0.0.1", settings), stream="socket")


def needs(*interfaces, stream="raw", **changes):
    regions = [{"name": "m", "kind": "host", "affinity": 0, "num_bufs": 100, "buf_size": 2000}]
    cfg = {
        "stream_type": stream,
        "master_core": 1,
        "memory_regions": regions,
        "interfaces": list(interfaces),
        **changes,
    }
    return Needs.of({"daqiri": {"cfg": cfg}})


def test_no_configuration_asks_for_nothing():
    none = Needs.of(None)
    assert not none.given
    assert (none.engine, none.master_core, none.ports, none.regions) == ("", None, (), ())
    assert (none.pollers, none.memory("huge")) == ((), 0)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("loopback", "loopback"),
        ("udp", "socket"),
        ("tcp", "socket"),
        ("igx", "dpdk"),
        ("spark", "dpdk"),
    ],
)
def test_engines_of_the_profiles(profile, name, engine):
    assert Needs.of(profile(name)).engine == engine


@pytest.mark.parametrize(
    ("asked", "engine"),
    [
        (needs(interface("loopback"), loopback="sw"), "loopback"),
        (needs(interface("0005:03:00.0")), "dpdk"),
        (needs(interface("0000:Af:00.1")), "dpdk"),
        (needs(interface("eth0")), "packet"),
        (needs(interface("eth0"), engine="dpdk"), "dpdk"),
        (sockets(local_addr="udp://127.0.0.1:5000"), "socket"),
        (sockets(remote_addr="tcp://[::1]:1"), "socket"),
        (
            needs(interface("10.0.0.1", {"local_addr": "roce://10.0.0.1:1"}), stream="socket"),
            "ibverbs",
        ),
        (
            needs(interface("10.0.0.1", {"remote_addr": "rdma://10.0.0.2:1"}), stream="socket"),
            "ibverbs",
        ),
    ],
)
def test_engine_by_stream_and_address(asked, engine):
    assert asked.engine == engine


@pytest.mark.parametrize(
    ("address", "pci"),
    [
        ("0005:03:00.0", "0005:03:00.0"),
        ("0000:AF:00.1", "0000:af:00.1"),
        ("eth0", None),
        ("127.0.0.1", None),
        ("fe80::1", None),
        ("loopback", None),
        ("03:00.0", None),
    ],
)
def test_ports_named_by_their_place_on_the_pci_bus(address, pci):
    [port] = needs(interface(address)).ports
    assert (port.address, port.pci_address) == (address, pci)


def test_queues_regions_and_frames():
    asked = needs(interface("eth0"), interface("eth1", rx=False))
    assert asked.master_core == 1
    assert asked.regions == (Region("m", "host", 0, 200_000),)
    assert asked.memory("host", "huge") == 200_000
    assert asked.pollers == (Poller("p/q", 3), Poller("p/q", 3))
    receiving, sending = asked.ports
    assert (receiving.rx_queues, receiving.tx_queues, receiving.buffered) == (1, 0, 200_000)
    assert (sending.rx_queues, sending.tx_queues, sending.buffered) == (0, 1, 0)
    assert receiving.frame == sending.frame == 2000


def test_queues_that_nobody_polls_and_queues_anywhere():
    queues = [
        {"name": "a", "cpu_core": "any", "memory_regions": ["m"]},
        {"name": "b", "cpu_core": 2, "poll_mode": "direct", "memory_regions": ["m"]},
    ]
    asked = needs({"name": "p", "address": "eth0", "rx": {"queues": queues}})
    assert asked.pollers == (Poller("p/a", None),)


def test_split_packets_take_a_buffer_of_each_region(profile):
    rx_port = Needs.of(profile("igx")).ports[1]
    assert rx_port.frame == 64 + 8192


@pytest.mark.parametrize(("payload", "frame"), [(500, 546), (9000, 2046)])
def test_payloads_of_sockets_have_headers_around_them(payload, frame):
    [port] = sockets(local_addr="udp://10.0.0.1:1", max_payload_size=payload).ports
    assert port.frame == frame
