"""Checks of network interfaces: their links, addresses and frames."""

import os
import shutil
import subprocess

import pytest

from daqiri_ophyd.engine import load_config
from daqiri_ophyd.host import Remedy, Status

from .conftest import assert_shell, raw


def socket(address, uri, payload=0):
    """Return a configuration with a listening socket."""
    config = raw(address, 65536, "socket") | {"stream_type": "socket"}
    config["interfaces"][0]["socket_config"] = {"mode": "server", "local_addr": uri}
    if payload:
        config["interfaces"][0]["socket_config"]["max_payload_size"] = payload
    return config


# physical-port


def both(first, second):
    """Return a configuration with a port on each of two interfaces."""
    config = raw(first, 2048, "dpdk")
    config["interfaces"].append({**config["interfaces"][0], "name": "q", "address": second})
    return config


def test_ports_of_their_own_are_ok(result_of, profile):
    result = result_of("physical-port", "spark", profile("spark"))
    assert (result.status, result.found) == (Status.OK, "enP2p1s0f1np1: p1; enp1s0f0np0: p0")


def test_a_spark_has_two_interfaces_for_each_physical_port(result_of):
    result = result_of("physical-port", "spark", both("0000:01:00.0", "0002:01:00.0"))
    assert (result.status, result.found) == (
        Status.WARN,
        "enP2p1s0f0np0, enp1s0f0np0: one physical port, p0: no packet between them reaches the "
        "cable",
    )
    assert (
        result.remedies[0].note
        == "Use an interface of the other physical port, such as p0 with p1."
    )


@pytest.mark.parametrize(("card", "status"), [("a1", Status.WARN), ("a2", Status.OK)])
def test_functions_of_one_card_are_known_by_its_number(result_of, describe, card, status):
    host = describe("igx")
    host["net"]["cx7_0"] |= {"port": "p0", "card": "a1"}
    host["net"]["cx7_1"] |= {"port": "p0", "card": card}
    result = result_of("physical-port", host, both("0005:03:00.0", "0005:03:00.1"))
    assert result.status is status


def test_drivers_that_do_not_name_their_ports(result_of):
    result = result_of("physical-port", "container", raw("eth0", 2048))
    assert (result.status, result.found) == (Status.SKIP, "not reported by the driver")
    assert result_of("physical-port", "spark").found == "no configuration"


# carrier


def test_a_port_that_could_be_faster(result_of, profile, describe):
    recorded = describe("igx")["recorded"]
    recorded["ethtool"] = {"cx7_0": {"max_speed": 200000}, "cx7_1": {"max_speed": 100000}}
    result = result_of("carrier", "igx", recorded=recorded)
    assert (result.status, result.found) == (
        Status.WARN,
        "cx7_0: link at 100000 Mb/s; the port has 200000",
    )
    assert "ethtool cx7_0" in result.remedies[0].note


def test_ports_with_a_link_are_ok(result_of, profile):
    result = result_of("carrier", "spark", profile("spark"))
    assert result.status is Status.OK
    assert result.found == "enP2p1s0f1np1, enp1s0f0np0: link at 200000 Mb/s"


@pytest.mark.parametrize(("config", "status"), [("igx", Status.FAIL), (None, Status.WARN)])
def test_ports_without_a_cable(result_of, describe, profile, config, status):
    host = describe("igx")
    host["net"]["cx7_1"]["carrier"] = 0
    result = result_of("carrier", host, profile(config) if config else None)
    assert (result.status, result.found) == (status, "cx7_1: no link")
    [remedy] = result.remedies
    assert remedy.now == ()
    assert "cable" in remedy.note


@pytest.mark.parametrize("change", [{"carrier": 0}, {"up": False, "carrier": None}])
@pytest.mark.parametrize("config", [raw("eth0", 2048), socket("192.0.2.2", "udp://192.0.2.2:5000")])
def test_engines_of_the_kernel_open_without_a_link(result_of, describe, config, change):
    host = describe("container")
    host["net"]["eth0"] |= change
    assert result_of("carrier", host, config).status is Status.WARN


def test_ports_without_links_ask_for_the_cable(result_of, describe):
    host = describe("spark")
    for interface in host["net"].values():
        interface["carrier"] = 0
    result = result_of("carrier", host)
    assert "Plug in the cable at both ends" in result.remedies[0].note


def test_a_port_that_is_off_is_switched_on(result_of, describe):
    host = describe("igx")
    host["net"]["cx7_0"] |= {"up": False, "carrier": None}
    result = result_of("carrier", host)
    assert (result.status, result.found) == (Status.WARN, "cx7_0: switched off")
    # It may be off on purpose.
    command = "ip link set dev cx7_0 up"
    assert result.remedies == (Remedy(note=f"If this port is to be used: {command}"),)
    [remedy] = result_of("carrier", host, raw("cx7_0", 2048)).remedies
    assert remedy.now == (command,)


def test_ports_that_are_missing_fail(result_of, describe, profile):
    host = describe("spark")
    pci = [entry for entry in host["pci"] if not entry["ids"].startswith("15b3")]
    result = result_of("carrier", host, profile("spark"), pci=pci, net={})
    assert result.status is Status.FAIL
    assert result.found == (
        "tx_port: 0000:01:00.0: no such port on this host; "
        "rx_port: 0002:01:00.1: no such port on this host"
    )
    assert "QSFP" in result.remedies[0].note


def test_a_driver_that_hides_the_link_is_skipped(result_of, describe):
    host = describe("container")
    host["net"]["eth0"]["carrier"] = None
    result = result_of("carrier", host)
    assert (result.status, result.found) == (Status.SKIP, "eth0: not reported by the driver")


def test_udp_on_this_machine_uses_loopback(result_of, profile):
    result = result_of("carrier", "laptop", profile("udp"))
    assert (result.status, result.found) == (Status.OK, "lo: link")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "0:0::0"])
def test_a_wildcard_is_no_port_to_miss(result_of, address):
    result = result_of("carrier", "container", socket(address, "udp://0.0.0.0:5000"))
    assert (result.status, result.found) == (Status.SKIP, "nothing to check")


@pytest.mark.parametrize("address", ["127.0.0.2", "::1", "0:0:0:0:0:0:0:1"])
def test_all_addresses_of_loopback_are_its(result_of, address):
    result = result_of("carrier", "container", socket(address, "udp://127.0.0.2:5000"))
    assert (result.status, result.found) == (Status.OK, "lo: link")


@pytest.mark.parametrize("address", ["2001:db8:0:0::5", "2001:DB8::0005", "2001:db8::5%eth0"])
def test_addresses_are_the_same_in_any_form(result_of, describe, address):
    host = describe("container")
    host["recorded"]["addresses"]["eth0"] = ["2001:db8::5/64"]
    result = result_of("carrier", host, socket(address, "udp://127.0.0.1:5000"))
    assert (result.status, result.found) == (Status.OK, "eth0: link")


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        # Only a group is joined on the interface with the address.
        ("udp://127.0.0.1:5000", Status.WARN),
        ("tcp://127.0.0.1:5000", Status.WARN),
        ("udp://239.0.0.1:5000", Status.FAIL),
    ],
)
def test_sockets_need_the_port_for_groups_only(result_of, uri, status):
    result = result_of("carrier", "container", socket("192.0.2.77", uri))
    assert (result.status, result.found) == (status, "p: 192.0.2.77: no such port on this host")


def test_names_of_interfaces_are_as_written(result_of):
    assert result_of("carrier", "container", raw("ETH0", 2048)).status is Status.FAIL


@pytest.mark.parametrize("name", ["a#b", "v$(id)", "a'b"])
def test_an_interface_with_an_odd_name_is_not_missing(result_of, describe, name):
    host = describe("container")
    host["net"][name] = {}
    result = result_of("carrier", host, raw(name, 2048))
    assert result.status is Status.SKIP
    assert result.found == (
        f"p: {name}: not looked at, because of its name or because /sys/class/net does not list it"
    )


def test_without_a_list_of_interfaces_no_port_is_missing(result_of):
    result = result_of("carrier", {}, raw("eth0", 2048))
    assert result.status is Status.SKIP
    assert result.found == "p: eth0: not known: /sys/class/net lists no interface"


def checked(config, **rx):
    """Return a configuration without errors."""
    config["interfaces"][0].setdefault("rx", {}).update(rx)
    for queue in config["interfaces"][0]["rx"]["queues"]:
        queue |= {"cpu_core": "any", "batch_size": 1, "id": int(queue["name"][1:])}
    return load_config({"version": 1, **config}).to_dict()


@pytest.mark.parametrize(
    ("rx", "status"),
    [
        ({}, Status.WARN),
        ({"receive_path": "af_xdp"}, Status.WARN),
        ({"filter": "udp"}, Status.FAIL),
    ],
)
def test_an_interface_that_has_to_be_up(result_of, describe, rx, status):
    host = describe("container")
    host["net"]["eth0"] |= {"up": False, "carrier": None}
    result = result_of("carrier", host, checked(raw("eth0", 2048), **rx))
    assert (result.status, result.found) == (status, "eth0: switched off")
    assert result.remedies[0].now == ("ip link set dev eth0 up",)


@pytest.mark.parametrize(
    ("kind", "status"), [(1, Status.OK), (768, Status.FAIL), (32, Status.FAIL)]
)
def test_engine_packet_needs_ethernet_frames(result_of, describe, kind, status):
    host = describe("container")
    host["net"]["eth0"]["kind"] = kind
    result = result_of("carrier", host, checked(raw("eth0", 2048)))
    assert result.status is status
    if status is Status.FAIL:
        assert result.found == f"eth0: no Ethernet frames (link type {kind})"
    udp = checked(socket("eth0", "udp://192.0.2.2:5000"))
    assert result_of("carrier", host, udp).status is Status.OK


@pytest.mark.parametrize("address", ["00:03.0", "00000000:00:03.0", "0000:00:03.0"])
def test_pci_addresses_in_any_form(result_of, address):
    config = raw(address, 2048, "dpdk")
    result = result_of("carrier", "container", config)
    assert (result.status, result.found) == (Status.OK, "eth0: link")
    result = result_of("carrier", "container", raw("00:1f.0", 2048, "dpdk"))
    assert result.found == "p: 00:1f.0: no such port on this host"


@pytest.mark.parametrize("check", ["nic-driver", "connectx", "carrier", "physical-port", "mtu"])
def test_virtual_devices_of_dpdk_are_no_ports_of_the_host(result_of, check):
    result = result_of(check, "igx", raw("net_ring0", 2048, "dpdk"))
    assert result.status is Status.SKIP, result.found
    assert not result.remedies


# ip-address


def ipv6(**interfaces):
    """Return the files of a kernel with IPv6, on or off by interface."""
    conf = "/proc/sys/net/ipv6/conf"
    return {
        "/proc/net/dev": "",
        "/proc/net/if_inet6": "",
        f"{conf}/all/disable_ipv6": "0",
        f"{conf}/default/disable_ipv6": "1",
        **{f"{conf}/{name}/disable_ipv6": str(off) for name, off in interfaces.items()},
    }


def udp_client(remote):
    config = socket("eth0", "udp://192.0.2.2:5000")
    config["interfaces"][0]["socket_config"] = {"mode": "client", "remote_addr": remote}
    return config


SWITCHED_OFF = "IPv6 is switched off on"


@pytest.mark.parametrize(
    ("files", "config", "status", "found"),
    [
        (ipv6(lo=0, eth0=0), socket("eth0", "udp://[::1]:5000"), Status.SKIP, ""),
        (
            *(ipv6(lo=1, eth0=1), socket("eth0", "udp://[::1]:5000")),
            *(Status.FAIL, f"p: ::1: {SWITCHED_OFF} all interfaces"),
        ),
        (
            *(ipv6(lo=1, eth0=0), socket("eth0", "tcp://[::1]:5000")),
            *(Status.FAIL, f"p: ::1: {SWITCHED_OFF} lo"),
        ),
        (ipv6(lo=1, eth0=0), socket("eth0", "udp://[::]:5000"), Status.SKIP, ""),
        (ipv6(lo=1, eth0=1), socket("eth0", "udp://192.0.2.2:5000"), Status.SKIP, ""),
        (
            *(ipv6(lo=1, eth0=1), socket("eth0", "udp://[::]:5000")),
            *(Status.WARN, f"p: ::: {SWITCHED_OFF} all interfaces"),
        ),
        (
            *(ipv6(lo=1, eth0=1), udp_client("udp://[2001:db8::7]:5000")),
            *(Status.FAIL, f"p: 2001:db8::7: {SWITCHED_OFF} all interfaces"),
        ),
        (
            *(ipv6(lo=1, eth0=1), udp_client("tcp://[2001:db8::7]:5000")),
            *(Status.WARN, f"p: 2001:db8::7: {SWITCHED_OFF} all interfaces"),
        ),
        # Booted with ipv6.disable=1.
        (
            *({"/proc/net/dev": ""}, socket("eth0", "udp://[::]:5000")),
            *(Status.FAIL, "p: ::: this kernel has no IPv6"),
        ),
        (
            *({"/proc/net/dev": ""}, udp_client("tcp://[2001:db8::7]:5000")),
            *(Status.WARN, "p: 2001:db8::7: this kernel has no IPv6"),
        ),
        ({}, socket("eth0", "udp://[::]:5000"), Status.SKIP, ""),
    ],
)
def test_addresses_of_ipv6_where_it_is_off(result_of, describe, files, config, status, found):
    host = describe("container")
    host["files"] |= files
    result = result_of("ip-address", host, config)
    assert result.status is status
    if status is Status.SKIP:
        return
    assert result.found == found
    [remedy] = result.remedies
    assert_shell(remedy)
    if SWITCHED_OFF in found:
        # On no other interface than the one that needs it.
        where = "all" if found.endswith("all interfaces") else "lo"
        assert remedy.now == (f"sysctl -w net.ipv6.conf.{where}.disable_ipv6=0",)
        assert remedy.files[0][0] == "/etc/sysctl.d/90-daqiri-ipv6.conf"


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
@pytest.mark.parametrize(
    "address",
    [
        *("192.0.2.77", "[2001:db8::77]"),
        # Sockets of IPv6 do not have IPv4 addresses, of which kind ever.
        *("[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]", "[::ffff:239.0.0.1]"),
    ],
)
def test_a_local_address_that_no_interface_has_fails(result_of, scheme, address):
    config = socket("192.0.2.2", f"{scheme}://{address}:5000")
    result = result_of("ip-address", "container", config)
    assert (result.status, result.found) == (
        Status.FAIL,
        f"p: local_addr {address.strip('[]')}: no interface has this address",
    )


def test_a_tcp_client_tries_again_from_an_address_that_is_missing(result_of):
    config = socket("192.0.2.2", "tcp://192.0.2.77:5000")
    config["interfaces"][0]["socket_config"] |= {
        "mode": "client",
        "remote_addr": "tcp://192.0.2.3:5000",
    }
    assert result_of("ip-address", "container", config).status is Status.WARN


@pytest.mark.parametrize(
    "address",
    [
        *("192.0.2.2", "0.0.0.0", "[::]", "127.0.0.9", "[::1]", "239.0.0.1", "[ff02::1]"),
        # The kernel takes broadcasts, too.
        *("255.255.255.255", "192.0.2.255"),
    ],
)
def test_local_addresses_that_can_be_bound(result_of, address):
    config = socket("192.0.2.2", f"udp://{address}:5000")
    assert result_of("ip-address", "container", config).status is Status.SKIP


def test_addresses_that_no_interface_has_may_be_allowed(result_of, describe):
    host = describe("container")
    host["files"]["/proc/sys/net/ipv4/ip_nonlocal_bind"] = "1"
    config = socket("192.0.2.2", "udp://192.0.2.77:5000")
    assert result_of("ip-address", host, config).status is Status.SKIP
    config = socket("192.0.2.2", "udp://[2001:db8::77]:5000")
    assert result_of("ip-address", host, config).status is Status.FAIL


def test_without_a_record_of_addresses_none_is_missed(result_of, describe):
    host = describe("container")
    del host["recorded"]["addresses"]
    config = socket("eth0", "udp://192.0.2.77:5000")
    assert result_of("ip-address", host, config).status is Status.SKIP


def test_addresses_are_ok(result_of):
    result = result_of("ip-address", "igx")
    assert (result.status, result.found) == (Status.OK, "cx7_0: 1.1.1.1/24; cx7_1: 2.2.2.2/24")


def test_ports_without_an_address_get_one_each_in_networks_of_their_own(result_of, describe):
    result = result_of(
        "ip-address", describe("igx"), recorded={"addresses": {"cx7_0": ["fe80::1/64"]}}
    )
    assert (result.status, result.found) == (Status.WARN, "cx7_0, cx7_1: none")
    first, second = result.remedies
    assert "ip address add 192.168.10.1/24 dev cx7_0" in first.note
    assert "ip address add 192.168.11.1/24 dev cx7_1" in second.note
    assert "Choose a free address" in first.note
    # Nobody but a person knows which address is free.
    assert first == Remedy(note=first.note)


def test_addresses_are_for_sockets(result_of, profile):
    recorded = {"addresses": {}}
    result = result_of("ip-address", "igx", profile("igx"), recorded=recorded)
    assert (result.status, result.found) == (Status.SKIP, "engine dpdk uses none")
    result = result_of("ip-address", "igx", raw("cx7_0", 2048, "packet"), recorded=recorded)
    assert result.found == "engine packet uses none"


@pytest.mark.parametrize(
    ("service", "example"),
    [
        (
            "systemd-networkd",
            "lines [Match], Name=cx7_0, [Network], Address=192.168.10.1/24 "
            "in /etc/systemd/network/20-daqiri-cx7_0.network",
        ),
        (
            "NetworkManager",
            "nmcli connection add type ethernet ifname cx7_0 con-name daqiri-cx7_0 "
            "ipv4.method manual ipv4.addresses 192.168.10.1/24 ipv6.method ignore",
        ),
    ],
)
def test_the_example_is_for_the_service_that_runs(result_of, service, example):
    recorded = {"addresses": {}, "services": [service]}
    remedy = result_of("ip-address", "igx", recorded=recorded).remedies[0]
    assert example in remedy.note
    assert remedy == Remedy(note=remedy.note)


def test_a_leased_address_is_not_enough(result_of, describe):
    host = describe("igx")
    host["recorded"]["leased"] = ["2.2.2.2/24"]
    result = result_of("ip-address", host)
    assert (result.status, result.found) == (Status.WARN, "cx7_1: leased only: 2.2.2.2/24")


def test_malformed_leases_are_named(result_of, describe):
    host = describe("igx")
    host["recorded"]["leased"] = {"cx7_1": 1}
    assert "leased.json" in result_of("ip-address", host).found


def test_spark_has_networkmanager(result_of, describe):
    host = describe("spark")
    del host["recorded"]["addresses"]["enp1s0f0np0"]
    [remedy] = result_of("ip-address", host).remedies
    assert "nmcli connection add type ethernet ifname enp1s0f0np0" in remedy.note
    assert "192.168.12.1/24" in remedy.note


# mtu


def test_jumbo_frames_are_ok(result_of, profile):
    result = result_of("mtu", "igx", profile("igx"))
    assert (result.status, result.found) == (Status.OK, "cx7_0, cx7_1: 9000 B")


def test_jumbo_regions_on_ports_of_1500_bytes_fail(result_of, describe, profile):
    host = describe("igx")
    host["net"]["cx7_1"]["mtu"] = 1500
    result = result_of("mtu", host, profile("igx"))
    assert result.status is Status.FAIL
    assert result.found == "cx7_1: 1500 B; the configuration's packets need 8234 B"
    [remedy] = result.remedies
    assert remedy.now == ("ip link set dev cx7_1 mtu 9000",)
    assert remedy.files == (
        (
            "/etc/udev/rules.d/90-daqiri-mtu-cx7_1.rules",
            'ACTION=="add", SUBSYSTEM=="net", KERNELS=="0005:03:00.1", ATTR{mtu}="9000"\n',
        ),
    )
    assert remedy.lasting == ("udevadm control --reload",)
    assert_shell(remedy)


def test_without_a_configuration_fast_ports_should_have_jumbo_frames(result_of, describe):
    host = describe("igx")
    host["net"]["cx7_0"]["mtu"] = 1500
    result = result_of("mtu", host)
    assert (result.status, result.found) == (Status.WARN, "cx7_0: 1500 B")
    # Its network may have smaller frames, and other programs may use it.
    note = "If all of this port's network has this MTU: ip link set dev cx7_0 mtu 9000"
    assert result.remedies == (Remedy(note=note),)


@pytest.mark.parametrize(
    ("config", "status"),
    [
        # Buffers of 2 KiB are the custom for standard frames.
        (raw("eth0", 2048), Status.OK),
        # The engine opens all the same.
        (raw("eth0", 2049), Status.WARN),
        (raw("0000:00:03.0", 4096, "dpdk"), Status.FAIL),
        # 28 B of IPv4 and UDP.
        (socket("192.0.2.2", "udp://192.0.2.2:1", 1472), Status.OK),
        (socket("192.0.2.2", "udp://192.0.2.2:1", 1473), Status.WARN),
        # IPv6 has 20 B more.
        (socket("192.0.2.2", "udp://[::1]:1", 1452), Status.OK),
        (socket("192.0.2.2", "udp://[::1]:1", 1453), Status.WARN),
        # A stream has no frames.
        (socket("192.0.2.2", "tcp://192.0.2.2:1", 65536), Status.OK),
        (socket("192.0.2.2", "tcp://192.0.2.2:1"), Status.OK),
    ],
)
def test_packets_of_a_configuration_on_a_port_of_1500_bytes(result_of, config, status):
    assert result_of("mtu", "container", config).status is status


def test_ip_over_infiniband_has_other_frames(result_of, describe):
    host = describe("igx")
    host["net"]["cx7_0"] |= {"kind": 32, "mtu": 2044}
    result = result_of("mtu", host)
    assert result.status is Status.OK
    assert result.findings[0].found == "2044 B, of IP over InfiniBand"


@pytest.mark.parametrize(
    ("device", "others"),
    [
        # Two ports in one function, as of a ConnectX-3; a USB controller.
        ({"ids": "15b3:1003", "kind": "0200"}, {"eth9": {"pci": "0000:00:09.0"}}),
        ({"ids": "8086:a0ed", "kind": "0c03"}, {}),
    ],
)
def test_a_device_of_other_interfaces_does_not_stand_for_one(result_of, describe, device, others):
    host = describe("container")
    host["pci"].append({"path": "pci0000:00/0000:00:09.0", **device})
    host["net"] |= {"eth8": {"pci": "0000:00:09.0"}, **others}
    [remedy] = result_of("mtu", host, raw("eth8", 9000)).remedies
    assert 'NAME=="eth8"' in remedy.files[0][1]
    assert "KERNELS" not in remedy.files[0][1]


def test_a_change_that_interrupts_traffic_says_so(result_of, describe):
    [remedy] = result_of("mtu", "container", raw("eth0", 9000)).remedies
    assert "interrupts the port's traffic" in remedy.note


def test_a_port_without_hardware_is_matched_by_name(result_of, describe):
    host = describe("container")
    host["net"]["veth0"] = {}
    [remedy] = result_of("mtu", host, raw("veth0", 9000)).remedies
    assert 'NAME=="veth0"' in remedy.files[0][1]


# Udev's own reading of a rule, in a namespace whose /run and /sys are its own.
UDEV = """
set -e
mount -t sysfs sysfs /sys
mount -t tmpfs run /run
mount -t tmpfs rules /etc/udev/rules.d
ip link add veth0 type veth peer name veth1
printf %s "$2" > "$1"
udevadm test --action=add /sys/class/net/veth0
udevadm test --action=add /sys/class/net/veth1
cat /sys/class/net/veth0/mtu /sys/class/net/veth1/mtu
"""


@pytest.mark.root
@pytest.mark.skipif(
    not (shutil.which("udevadm") and os.path.isdir("/etc/udev/rules.d")), reason="needs udev"
)
def test_udev_follows_the_rule(result_of, describe):
    host = describe("container")
    host["net"]["veth0"] = {}
    [remedy] = result_of("mtu", host, raw("veth0", 9000)).remedies
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", UDEV, "sh", *remedy.files[0]],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["9000", "1500"]


def test_mtu_of_no_port_is_skipped(result_of):
    assert result_of("mtu", "container", net={}).status is Status.SKIP
