"""What configurations ask of a host."""

import pytest

from daqiri_ophyd import profiles
from daqiri_ophyd.engine import capabilities
from daqiri_ophyd.host import FactError, Needs
from daqiri_ophyd.host._needs import Poller, Region


def interface(address, socket=None, rx=True, **changes):
    queue = {"name": "q", "id": 0, "cpu_core": 3, "memory_regions": ["m"]}
    made = {"name": "p", "address": address, "rx" if rx else "tx": {"queues": [queue]}, **changes}
    return made | ({"socket_config": socket} if socket else {})


def sockets(**settings):
    """Return what a configuration with a socket requires."""
    return needs(interface("10.0.0.1", settings), engine="socket")


def needs(*interfaces, engine="packet", **changes):
    regions = [{"name": "m", "kind": "host", "affinity": 0, "num_bufs": 100, "buf_size": 2000}]
    cfg = {
        "engine": engine,
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
    assert (none.pollers, none.gpus, none.memory("huge")) == ((), {}, 0)


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


@pytest.mark.parametrize("name", profiles.names())
def test_the_engine_is_the_one_that_would_open(profile, name):
    asked = Needs.of(profile(name))
    assert asked.engine == asked.by_engine().engine


def test_the_software_loopback_is_an_engine_of_its_own():
    assert needs(interface("loopback"), engine="dpdk", loopback="sw").engine == "loopback"


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("udp", {}),
        ("jungfrau-gpu", {0: "memory region 'rx_buffers' of kind host_pinned"}),
        ("igx", {0: "memory region 'tx_payloads' of kind device"}),
        ("spark", {0: "memory region 'tx_buffers' of kind host_pinned"}),
    ],
)
def test_gpus_of_a_configuration(profile, name, gpus):
    assert Needs.of(profile(name)).gpus == gpus


def test_gpus_of_regions_and_plans():
    regions = [
        {"name": n, "kind": kind, "affinity": gpu, "num_bufs": 1, "buf_size": 1}
        for n, kind, gpu in (("m", "device", 2), ("f", "device", 1), ("h", "host", 3))
    ]
    plans = [
        {"name": "a", "reorder_type": "gpu", "memory_region": "h"},
        {"name": "b", "reorder_type": "cpu", "memory_region": "f"},
    ]
    port = interface("eth0")
    port["rx"]["reorder_configs"] = plans
    asked = needs(port, memory_regions=regions)
    assert asked.gpus == {
        2: "memory region 'm' of kind device",
        1: "memory region 'f' of kind device",
        0: "reorder config 'a'",
    }


@pytest.mark.parametrize(
    ("engine", "direct"), [("socket", False), ("packet", False), ("dpdk", False), ("ibverbs", True)]
)
def test_who_writes_to_a_gpu(engine, direct):
    region = {"name": "m", "kind": "device", "affinity": 0, "num_bufs": 1, "buf_size": 1}
    assert needs(engine=engine, memory_regions=[region]).nic_writes_to_gpu is direct
    assert not needs(engine=engine).nic_writes_to_gpu


def test_nics_may_write_where_the_engine_else_copies(profile):
    asked = Needs.of(profile("igx"))
    assert asked.copies_without_nic is asked.nic_writes_to_gpu
    assert asked.copies_without_nic is (capabilities()["dpdk"] == "available")
    assert not Needs.of(profile("spark")).copies_without_nic


def test_the_engine_reads_names_of_any_letters():
    queue = {"name": "🙂", "id": 0, "cpu_core": "any", "batch_size": 1, "memory_regions": ["m"]}
    asked = interface("lo", name="é🙂")
    asked["rx"]["queues"] = [queue]
    assert list(needs(asked, version=1, stream_type="raw").by_engine().interfaces) == ["é🙂"]


def test_configurations_with_errors_are_not_asked_about():
    with pytest.raises(FactError, match="the configuration is not valid: version: required"):
        needs(interface("eth0")).by_engine()


@pytest.mark.parametrize(
    ("address", "pci"),
    [
        ("0005:03:00.0", "0005:03:00.0"),
        ("0000:AF:00.1", "0000:af:00.1"),
        ("eth0", None),
        ("127.0.0.1", None),
        ("fe80::1", None),
        ("loopback", None),
        # Without a domain, and with NVML's eight digits of it.
        ("17:00.0", "0000:17:00.0"),
        ("00000005:03:00.0", "0005:03:00.0"),
        ("00010000:03:00.0", "10000:03:00.0"),
        ("3:00.0", None),
    ],
)
def test_ports_named_by_their_place_on_the_pci_bus(address, pci):
    [port] = needs(interface(address)).ports
    assert (port.address, port.pci_address) == (address, pci)


def test_queues_and_regions():
    asked = needs(interface("eth0"), interface("eth1", rx=False))
    assert asked.master_core == 1
    assert asked.regions == (Region("m", "host", 0, 200_000),)
    assert asked.memory("host", "huge") == 200_000
    assert asked.pollers == (Poller("p/q", 3), Poller("p/q", 3))
    receiving, sending = asked.ports
    assert receiving.rx_queues == 1
    assert sending.rx_queues == 0


def test_queues_that_nobody_polls_and_queues_anywhere():
    queues = [
        {"name": "a", "cpu_core": "any", "memory_regions": ["m"]},
        {"name": "b", "cpu_core": 2, "poll_mode": "direct", "memory_regions": ["m"]},
    ]
    asked = needs({"name": "p", "address": "eth0", "rx": {"queues": queues}})
    assert asked.pollers == (Poller("p/a", None),)
