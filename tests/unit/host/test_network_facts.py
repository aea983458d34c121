"""Facts about network interfaces against ip and ethtool."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from daqiri_ophyd.host import FactError, Facts

TOOLS = pytest.mark.skipif(
    not (shutil.which("ip") and shutil.which("ethtool")), reason="needs ip and ethtool"
)

# In a network namespace with a /sys of its own: interfaces of several kinds, then the facts, and
# what the tools say of the same.
SETUP = """
set -e
mount -t sysfs sysfs /sys
ip link set dev lo up
ip link add v0 numrxqueues 4 type veth peer name v1 numrxqueues 2
ip link add v2 type veth peer name v3
ip link add bridge0 type bridge
# An address of the kernel's own comes when it likes.
for each in v0 v1 v2 v3; do ip link set dev $each addrgenmode none; done
ethtool -K v0 gro on
ethtool -L v0 rx 2
ip address add 192.0.2.1/24 dev v0
ip address add 198.51.100.7/31 dev v0 valid_lft 3600 preferred_lft 3600
ip address add 2001:db8::1/64 dev v0 nodad
ip address add 192.0.2.9 peer 192.0.2.10/32 dev v1
ip link set dev v0 mtu 9000 up
ip link set dev v1 up
ip link set dev v2 up
exec "$@"
"""
FACTS = """
import dataclasses, json, subprocess
from daqiri_ophyd.host import Facts

facts = Facts()
names = sorted(facts.interfaces)

def said(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout

print(json.dumps({
    "interfaces": {name: dataclasses.asdict(facts.interfaces[name]) for name in names},
    "addresses": facts.addresses,
    "leased": sorted(facts.leased),
    "settings": {name: dataclasses.asdict(facts.nic_settings(name)) for name in names},
    "ip": json.loads(said("ip", "-j", "address")),
    "features": {name: said("ethtool", "-k", name) for name in names},
    "channels": {name: said("ethtool", "-l", name) for name in names},
    "rings": {name: said("ethtool", "-g", name) for name in names},
    "pause": {name: said("ethtool", "-a", name) for name in names},
    "stamps": {name: said("ethtool", "-T", name) for name in names},
}))
"""
# Names that ethtool prints for the kernel's.
FEATURES = {
    "rx-gro": "generic-receive-offload",
    "rx-lro": "large-receive-offload",
}


def gather(*command):
    done = subprocess.run(
        [*command, sys.executable, "-c", FACTS], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def numbers(text, name):
    """Return the values of a field, largest possible first."""
    return [int(value) for value in re.findall(rf"^{name}:\s+(\d+)$", text, re.MULTILINE)]


def assert_agreement(said, links):
    for name, link in links.items():
        found = said["interfaces"][name]
        assert found["mtu"] == link["mtu"]
        assert found["up"] == ("UP" in link["flags"])
        if found["up"]:
            assert found["carrier"] == ("LOWER_UP" in link["flags"])
        addresses = [f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", ())]
        assert sorted(said["addresses"].get(name, [])) == sorted(addresses)

        settings, features = said["settings"][name], said["features"][name]
        on = [ours for ours, theirs in FEATURES.items() if f"\n{theirs}: on" in features]
        assert settings["offloads"] == on
        received = numbers(said["channels"][name], "RX")
        combined = numbers(said["channels"][name], "Combined")
        both = [sum(pair) for pair in zip(received or [0, 0], combined or [0, 0], strict=True)]
        if any(both):
            assert [settings["max_channels"], settings["channels"]] == both
        else:
            assert not settings["channels"]
        rings = numbers(said["rings"][name], "RX")
        assert [settings["max_rx_ring"], settings["rx_ring"]] == (rings or [None, None])
        pause = re.search(r"^RX:\s+(on|off)$", said["pause"][name], re.MULTILINE)
        assert settings["rx_pause"] == (pause[1] == "on" if pause else None)
        stamps = said["stamps"][name]
        if stamps:
            assert settings["hardware_receive"] == ("hardware-receive" in stamps)
            clock = re.search(r"PTP Hardware Clock: (\d+)", stamps)
            assert settings["clock"] == (int(clock[1]) if clock else None)


@TOOLS
@pytest.mark.root
def test_facts_of_a_namespace_agree_with_ip_and_ethtool():
    said = gather("unshare", "--net", "--mount", "sh", "-c", SETUP, "sh")
    links = {link["ifname"]: link for link in said["ip"]}
    assert set(said["interfaces"]) == set(links) >= {"lo", "v0", "v1", "v2", "v3", "bridge0"}
    assert_agreement(said, links)
    v0, settings = said["interfaces"]["v0"], said["settings"]["v0"]
    assert (v0["mtu"], v0["up"], v0["carrier"], v0["pci_address"]) == (9000, True, True, "")
    assert "192.0.2.1/24" in said["addresses"]["v0"]
    assert "2001:db8::1/64" in said["addresses"]["v0"]
    assert said["leased"] == ["198.51.100.7/31"]
    # An address with a peer is its own, not the peer's.
    assert said["addresses"]["v1"] == ["192.0.2.9/32"]
    assert (settings["channels"], settings["max_channels"]) == (2, 4)
    assert settings["offloads"] == ["rx-gro"]
    assert said["interfaces"]["v2"]["carrier"] is False
    assert said["interfaces"]["v3"]["carrier"] is None


@TOOLS
def test_facts_of_this_machine_agree_with_ip_and_ethtool():
    said = gather()
    # Interfaces of other programs appear and disappear during the test.
    names = {
        name for name, each in said["interfaces"].items() if name == "lo" or each["pci_address"]
    }
    assert_agreement(said, {link["ifname"]: link for link in said["ip"] if link["ifname"] in names})


def test_an_interface_that_is_not_there_has_no_settings():
    settings = Facts().nic_settings("no-such-port")
    assert settings.rx_ring is settings.channels is settings.clock is None
    assert settings.offloads is settings.max_speed is None


def test_recorded_interfaces(make_host):
    interfaces = Facts(make_host("a100")).interfaces
    port = interfaces["ens6f0np0"]
    assert (port.pci_address, port.port, port.ethernet) == ("0000:b3:00.0", "p0", True)
    assert (port.up, port.carrier, port.mtu, port.speed) == (True, True, 9000, 100000)


def test_recorded_rdma_devices(make_host, describe):
    first, second = Facts(make_host("a100")).rdma
    assert (first.name, first.pci_address, first.firmware) == (
        "mlx5_0",
        "0000:b3:00.0",
        "24.43.2026",
    )
    assert first.card == second.card != ""
    assert second.layers == {1: "Ethernet"}
    host = describe("a100")
    host["net"]["ens6f0np0"] |= {"kind": 32, "link_layer": "InfiniBand"}
    facts = Facts(make_host(host))
    assert not facts.interfaces["ens6f0np0"].ethernet
    assert facts.rdma[0].layers == {1: "InfiniBand"}


@pytest.mark.parametrize("recorded", [[], {"eth0": {"nonsense": 1}}, {"eth0": 3}])
def test_malformed_recordings_are_named(make_host, recorded):
    facts = Facts(make_host({"recorded": {"ethtool": recorded or {"eth0": []}}}))
    with pytest.raises(FactError, match=r"ethtool\.json"):
        facts.nic_settings("eth0")
