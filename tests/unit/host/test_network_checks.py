"""Checks of NICs and network interfaces."""

import os
import shutil
import subprocess

import pytest

from daqiri_ophyd.host import Remedy, Status, Step

OLD = "15b3:1015"  # ConnectX-4 Lx


def raw(address, buf_size, engine="packet"):
    """Return a configuration with one receive queue on a port."""
    return {
        "stream_type": "raw",
        "engine": engine,
        "master_core": 0,
        "memory_regions": [
            {"name": "m", "kind": "host", "affinity": 0, "num_bufs": 1024, "buf_size": buf_size}
        ],
        "interfaces": [
            {
                "name": "p",
                "address": address,
                "rx": {"queues": [{"name": f"q{n}", "memory_regions": ["m"]} for n in range(4)]},
            }
        ],
    }


def socket(address, uri, payload=0):
    """Return a configuration with a listening socket."""
    config = raw(address, 65536, "socket") | {"stream_type": "socket"}
    config["interfaces"][0]["socket_config"] = {"mode": "server", "local_addr": uri}
    if payload:
        config["interfaces"][0]["socket_config"]["max_payload_size"] = payload
    return config


def assert_shell(remedy):
    """Assert that a shell takes the commands."""
    for command in (*remedy.now, *remedy.lasting):
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=20)


# nic-driver


def test_loaded_drivers_are_ok(result_of):
    result = result_of("nic-driver", "spark")
    assert (result.status, result.found) == (Status.OK, "loaded")


def test_missing_drivers_are_loaded(result_of):
    result = result_of("nic-driver", "igx", modules=["nvidia", "ib_core"])
    assert (result.status, result.found) == (Status.WARN, "not loaded: mlx5_core, mlx5_ib")
    [remedy] = result.remedies
    assert remedy.now == ("modprobe mlx5_core", "modprobe mlx5_ib")
    assert remedy.files == (("/etc/modules-load.d/daqiri-nic.conf", "mlx5_core\nmlx5_ib\n"),)
    assert "doca-ofed" in remedy.note
    assert not remedy.lasting


def test_built_in_drivers_are_ok(result_of, describe):
    host = describe("igx")
    names = "".join(f"kernel/x/{name}.ko\n" for name in ("ib_core", "mlx5_core", "mlx5_ib"))
    files = {f"/lib/modules/{host['kernel']}/modules.builtin": names}
    assert result_of("nic-driver", host, modules=[], files=files).status is Status.OK


def test_a_spark_has_its_drivers(result_of):
    [remedy] = result_of("nic-driver", "spark", modules=[]).remedies
    assert "rather than adding doca-ofed" in remedy.note


def test_a_configuration_for_the_nic_fails_without_its_drivers(result_of, profile):
    result = result_of("nic-driver", "igx", profile("igx"), modules=["mlx5_core"])
    assert (result.status, result.found) == (Status.FAIL, "not loaded: ib_core, mlx5_ib")


@pytest.mark.parametrize(("config", "status"), [("igx", Status.FAIL), (None, Status.WARN)])
def test_a_nic_that_another_driver_has_is_named(
    result_of, describe, device, profile, config, status
):
    host = describe("igx")
    device(host, "0005:03:00.1")["driver"] = "vfio-pci"
    del host["net"]["cx7_1"]
    result = result_of("nic-driver", host, config and profile(config))
    assert (result.status, result.found) == (
        status,
        "0005:03:00.1: not known to the RDMA stack; its kernel driver: vfio-pci",
    )


def test_sockets_take_any_nic(result_of, profile):
    result = result_of("connectx", "spark", profile("udp"), modules=[], pci=[], net={"lo": {}})
    assert (result.status, result.found) == (Status.SKIP, "engine socket works with any NIC")
    result = result_of("nic-driver", "spark", raw("enp1s0f0np0", 2048))
    assert (result.status, result.found) == (Status.SKIP, "engine packet has its interfaces")


def test_an_interface_that_is_missing_may_lack_its_driver(result_of, describe):
    config = raw("ens6f0np0", 2048)
    result = result_of("nic-driver", "a100", config, modules=[], net={})
    assert (result.status, result.found) == (Status.FAIL, "not loaded: mlx5_core")


@pytest.mark.parametrize("check", ["nic-driver", "link-layer", "nic-firmware"])
def test_hosts_without_a_connectx_need_no_settings_of_it(result_of, check):
    result = result_of(check, "laptop")
    assert (result.status, result.found) == (
        Status.SKIP,
        "no ConnectX or BlueField on the PCI bus",
    )


def test_hosts_without_a_connectx_have_other_engines(result_of):
    result = result_of("connectx", "laptop")
    assert (result.status, result.found) == (
        Status.SKIP,
        "none; engines socket and packet work with any NIC",
    )


# connectx


def test_new_nics_are_ok(result_of):
    result = result_of("connectx", "a100")
    assert (result.status, result.found) == (Status.OK, "0000:b3:00.0, 0000:b3:00.1: BlueField-2")


def test_spark_whose_ports_vanished_fails_and_asks_for_the_cable(result_of, describe):
    host = describe("spark")
    pci = [entry for entry in host["pci"] if not entry["ids"].startswith("15b3")]
    result = result_of("connectx", host, pci=pci, net={})
    assert (result.status, result.found) == (Status.FAIL, "none on the PCI bus")
    [remedy] = result.remedies
    assert "plug in a QSFP cable first" in remedy.note


def test_no_nic_elsewhere_asks_for_one(result_of):
    result = result_of("connectx", "igx", pci=[], net={})
    assert result.status is Status.FAIL
    assert [remedy.note for remedy in result.remedies] == ["Install a ConnectX-6 Dx or later."]


OLD_NICS = [OLD, "15b3:1016", "15b3:101a", "15b3:101c", "15b3:101f"]


@pytest.mark.parametrize("ids", OLD_NICS)
def test_old_nics_and_their_virtual_functions(result_of, describe, device, ids):
    host = describe("igx")
    host["pci"].remove(device(host, "0005:03:00.1"))
    device(host, "0005:03:00.0")["ids"] = ids
    result = result_of("connectx", host, net={})
    assert result.status is Status.SKIP
    assert result.found.endswith(": for engines socket and packet only")
    result = result_of("connectx", host, raw("0005:03:00.0", 2048, "dpdk"), net={})
    assert result.status is Status.FAIL
    assert result.found.endswith(", not suitable")
    assert "ConnectX-6 Dx" in result.remedies[0].note


def test_an_old_nic_beside_a_new_one_is_left_alone(result_of, describe, device):
    host = describe("spark")
    device(host, "0002:01:00.0")["ids"] = device(host, "0002:01:00.1")["ids"] = OLD
    assert result_of("connectx", host).status is Status.OK


def test_an_old_nic_that_the_configuration_uses_fails(result_of, describe, device, profile):
    host = describe("igx")
    device(host, "0005:03:00.1")["ids"] = OLD
    result = result_of("connectx", host, profile("igx"))
    assert (result.status, result.found) == (
        Status.FAIL,
        "0005:03:00.1: ConnectX-4 Lx, not suitable",
    )


# link-layer


def test_ethernet_is_ok(result_of):
    result = result_of("link-layer", "igx")
    assert (result.status, result.found) == (Status.OK, "mlx5_0 port 1, mlx5_1 port 1: Ethernet")


def test_infiniband_is_switched_by_the_card_and_the_port(result_of, describe, profile):
    host = describe("igx")
    host["net"]["cx7_1"]["link_layer"] = "InfiniBand"
    result = result_of("link-layer", host, profile("igx"))
    assert (result.status, result.found) == (Status.FAIL, "mlx5_1 port 1: InfiniBand")
    [remedy] = result.remedies
    # Firmware is changed only where that is named.
    assert remedy.step is Step.FIRMWARE
    assert remedy.lasting == ("mlxconfig -y -d 0005:03:00.0 set LINK_TYPE_P2=ETH",)
    [condition] = remedy.verify_lasting
    assert condition.startswith("mlxconfig -d 0005:03:00.0 query LINK_TYPE_P2 | grep ")
    assert "Secure Boot" in remedy.note
    assert_shell(remedy)


def test_without_a_configuration_infiniband_may_be_another_network(result_of, describe):
    host = describe("igx")
    host["net"]["cx7_1"]["link_layer"] = "InfiniBand"
    assert result_of("link-layer", host).status is Status.OK
    host["net"]["cx7_0"]["link_layer"] = "InfiniBand"
    result = result_of("link-layer", host)
    assert (result.status, result.found) == (
        Status.WARN,
        "mlx5_0 port 1, mlx5_1 port 1: InfiniBand",
    )
    # Which of them is the person's choice.
    assert all(not (remedy.now or remedy.lasting) for remedy in result.remedies)
    assert "mlxconfig -y -d 0005:03:00.0 set LINK_TYPE_P1=ETH" in result.remedies[0].note


def test_infiniband_of_ports_that_the_configuration_does_not_use_is_left_alone(
    result_of, describe, profile
):
    host = describe("spark")
    host["net"]["enp1s0f1np1"]["link_layer"] = "InfiniBand"
    assert result_of("link-layer", host, profile("spark")).found == (
        "mlx5_0 port 1, mlx5_3 port 1: Ethernet"
    )


def test_rdma_devices_without_a_nic_have_no_link_layer_to_set(result_of, describe):
    host = describe("igx")
    files = {"/sys/devices/virtual/infiniband/rxe0/ports/1/link_layer": "InfiniBand"}
    links = {"/sys/class/infiniband/rxe0": "/sys/devices/virtual/infiniband/rxe0"}
    for interface in host["net"].values():
        del interface["rdma"]
    result = result_of("link-layer", host, files=files, links=links)
    assert (result.status, result.found) == (Status.SKIP, "nothing to check")


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
    assert result.remedies[0].now == ("ip link set dev cx7_0 up",)


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


# ip-address


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
@pytest.mark.parametrize("address", ["192.0.2.77", "[2001:db8::77]", "[::ffff:127.0.0.1]"])
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
            "systemd-network",
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
    assert result.found == "cx7_1: 1500 B; the configuration's packets need 8238 B"
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


# nic-settings


def test_settings_that_suit_are_ok(result_of):
    result = result_of("nic-settings", "container")
    assert (result.status, result.found) == (Status.OK, "eth0: receive ring 256, rx-gro")


def settings(**changed):
    return {
        "addresses": {"eth0": ["192.0.2.2/24"]},
        "ethtool": {
            "eth0": {
                "rx_ring": 1024,
                "max_rx_ring": 1024,
                "channels": 2,
                "max_channels": 8,
                "offloads": ["rx-gro"],
                **changed,
            }
        },
    }


@pytest.mark.parametrize(
    ("changed", "config", "found", "command"),
    [
        ({"max_rx_ring": 8192}, None, "receive ring 1024 of 8192", "ethtool -G eth0 rx 8192"),
        ({"offloads": ["rx-gro", "rx-lro"]}, None, "LRO is on", "ethtool -K eth0 lro off"),
        ({"offloads": []}, None, "GRO is off", "ethtool -K eth0 gro on"),
        (
            {},
            raw("eth0", 2048),
            "2 NIC queues for 4 receive queues",
            "ethtool -L eth0 combined 4",
        ),
        (
            {"max_channels": 3},
            raw("eth0", 2048),
            "2 NIC queues for 4 receive queues",
            "ethtool -L eth0 combined 3",
        ),
    ],
)
def test_settings_that_do_not_suit_warn(result_of, changed, config, found, command):
    result = result_of("nic-settings", "container", config, recorded=settings(**changed))
    assert (result.status, result.found) == (Status.WARN, f"eth0: {found}")
    [remedy] = result.remedies
    assert remedy.now == (command,)
    path, text = remedy.files[0]
    assert path == "/etc/daqiri-host.d/50-nic-eth0.sh"
    assert text.startswith(f"set -e\n{command}\n{remedy.verify[0]}\n")
    assert_shell(remedy)


@pytest.mark.parametrize(
    "changed", [{"channels": 4}, {"channels": 2, "max_channels": 2}, {"channels": None}]
)
def test_as_many_queues_as_the_nic_has_are_ok(result_of, changed):
    recorded = settings(**changed)
    assert result_of("nic-settings", "container", raw("eth0", 2048), recorded=recorded).status is (
        Status.OK
    )


def test_a_capture_needs_no_gro(result_of):
    recorded = settings(offloads=[], channels=4)
    result = result_of("nic-settings", "container", raw("eth0", 2048), recorded=recorded)
    assert (result.status, result.found) == (Status.OK, "eth0: receive ring 1024, no offloads")


def test_engines_that_own_the_nic_set_it_themselves(result_of, profile):
    result = result_of("nic-settings", "igx", profile("igx"))
    assert (result.status, result.found) == (
        Status.SKIP,
        "engine dpdk does not use the kernel's NIC settings",
    )


def test_a_driver_without_settings_is_skipped(result_of):
    result = result_of("nic-settings", "container", recorded={})
    assert (result.status, result.found) == (Status.SKIP, "eth0: not reported by the driver")


def test_malformed_recordings_of_settings_name_what_is_accepted(result_of):
    result = result_of("nic-settings", "container", recorded={"ethtool": {"eth0": {"ring": 1}}})
    assert result.status is Status.SKIP
    assert "ethtool.json" in result.found and "accepted are objects with rx_ring" in result.found


# nic-firmware


@pytest.fixture
def firmware(result_of, describe, device):
    def result_with(change, config=None, nic="15b3:a2d6"):
        host = describe("a100")
        for function in "01":
            device(host, f"0000:b3:00.{function}")["ids"] = nic
        path = "/recorded/mlxconfig-0000:b3:00.0.txt"
        host["files"][path] = change(host["files"][path])
        return result_of("nic-firmware", host, config)

    return result_with


def accurate():
    config = raw("0000:b3:00.0", 9000, "dpdk")
    config["interfaces"][0]["tx"] = {"queues": [], "accurate_send": True}
    return config


def test_firmware_as_wanted_is_ok(firmware):
    result = firmware(lambda text: text, accurate())
    assert (result.status, result.found) == (
        Status.OK,
        "0000:b3:00.0: firmware 24.43.2026; 0000:b3:00.0: settings as expected",
    )


def test_wrong_firmware_settings_are_set_at_once(firmware):
    def change(text):
        return (
            text.replace("DISABLED(1)", "ENABLED(0)")
            .replace("KEEP_ETH_LINK_UP_P1                         True(1)", "KEEP_ETH_LINK_UP_P1 0")
            .replace("KEEP_IB_LINK_UP_P2                          False(0)", "KEEP_IB_LINK_UP_P2 1")
        )

    result = firmware(change)
    assert result.status is Status.WARN
    assert result.found == (
        "0000:b3:00.0: KEEP_ETH_LINK_UP_P1 is 0, KEEP_IB_LINK_UP_P2 is 1; "
        "0000:b3:00.0: INTERNAL_CPU_OFFLOAD_ENGINE is ENABLED"
    )
    keep_link, nic_mode = result.remedies
    assert keep_link.step is Step.FIRMWARE
    assert keep_link.lasting == (
        "mlxconfig -y -d 0000:b3:00.0 set KEEP_ETH_LINK_UP_P1=1 KEEP_IB_LINK_UP_P2=0",
    )
    # This ends what runs on it, so it is a separate choice.
    assert nic_mode.step is Step.DPU_MODE
    assert nic_mode.lasting == (
        "mlxconfig -y -d 0000:b3:00.0 set INTERNAL_CPU_OFFLOAD_ENGINE=DISABLED",
    )
    assert "Arm cores" in nic_mode.note and "cold boot" in nic_mode.note
    assert_shell(keep_link)


@pytest.mark.parametrize(
    ("version", "status"),
    [("28.35.1012", Status.OK), ("28.35.1011", Status.WARN), ("22.34.4000", Status.WARN)],
)
def test_firmware_that_steers(result_of, describe, version, status):
    host = describe("a100")
    host["net"]["ens6f0np0"]["firmware"] = version
    files = host["files"] | {"/sys/module/mlx5_core/version": "24.10-0.5.5"}
    result = result_of("nic-firmware", host, files=files)
    assert result.status is status
    assert f"firmware {version}, mlx5_core 24.10-0.5.5" in result.found
    if status is Status.WARN:
        assert result.found.endswith("hardware steering needs xx.35.1012")


def test_the_kernels_engines_take_any_firmware(firmware, profile):
    result = firmware(lambda text: text.replace("DISABLED(1)", "ENABLED(0)"), profile("udp"))
    assert (result.status, result.found) == (
        Status.SKIP,
        "engine socket works with any firmware",
    )


def test_the_scheduler_is_looked_at_on_any_host(result_of, describe):
    host = describe("igx")
    path = "/recorded/mlxconfig-0005:03:00.0.txt"
    files = {path: "    ACCURATE_TX_SCHEDULER    False(0)\n    REAL_TIME_CLOCK_ENABLE    True(1)"}
    config = accurate()
    config["interfaces"][0]["address"] = "0005:03:00.0"
    result = result_of("nic-firmware", host, config, files=files)
    assert (result.status, result.found) == (
        Status.WARN,
        "0005:03:00.0: ACCURATE_TX_SCHEDULER is False",
    )


def test_a_connectx_has_no_modes(firmware):
    result = firmware(lambda text: text.replace("DISABLED(1)", "ENABLED(0)"), nic="15b3:1021")
    assert result.status is Status.OK


@pytest.mark.parametrize(("config", "status"), [(None, Status.OK), (accurate(), Status.WARN)])
def test_the_scheduler_is_wanted_for_accurate_send_only(firmware, config, status):
    name = "ACCURATE_TX_SCHEDULER"
    result = firmware(lambda text: text.replace(f"{name}     ", f"{name} 0\n    X "), config)
    assert result.status is status
    if config:
        assert result.remedies[0].lasting == (f"mlxconfig -y -d 0000:b3:00.0 set {name}=1",)


def test_firmware_without_a_scheduler_cannot_send_accurately(firmware):
    result = firmware(lambda text: text.replace("ACCURATE_TX_SCHEDULER", "SOMETHING"), accurate())
    assert (result.status, result.found) == (
        Status.WARN,
        "0000:b3:00.0: no ACCURATE_TX_SCHEDULER",
    )
    assert result.remedies[0].lasting == ()
    assert "firmware" in result.remedies[0].note


def test_output_without_the_settings_is_no_good_news(firmware):
    result = firmware(lambda _: "-E- Failed to open the device\n")
    assert result.findings[1].status is Status.SKIP
    assert "does not list these settings" in result.findings[1].found


def test_without_mlxconfig_firmware_is_not_known(result_of, describe):
    host = describe("a100")
    del host["files"]["/recorded/mlxconfig-0000:b3:00.0.txt"]
    result = result_of("nic-firmware", host)
    assert result.findings[1].status is Status.SKIP
    assert result.findings[1].found == (
        "settings are not known: /recorded/mlxconfig-0000:b3:00.0.txt: no such file or directory"
    )


# What ethtool 6.x prints; before, the maxima.
RINGS = """\
Ring parameters for eth0:
Pre-set maximums:
RX:\t\t\t8192
RX Mini:\t\tn/a
RX Jumbo:\t\tn/a
TX:\t\t\t8192
TX push buff len:\tn/a
Current hardware settings:
RX:\t\t\tCURRENT
RX Mini:\t\tn/a
RX Jumbo:\t\tn/a
TX:\t\t\t8192
RX Buf Len:\t\tn/a
CQE Size:\t\tn/a
TX Push:\t\toff
RX Push:\t\toff
TX push buff len:\tn/a
TCP data split:\tn/a
"""
CHANNELS = """\
Channel parameters for eth0:
Pre-set maximums:
RX:\t\tn/a
Combined:\t4
Current hardware settings:
RX:\t\tn/a
TX:\t\tn/a
Other:\t\tn/a
Combined:\tCURRENT
"""


@pytest.mark.parametrize(
    ("printed", "settings", "config", "current", "right"),
    [
        (RINGS, {"rx_ring": 1024, "max_rx_ring": 8192}, None, 8192, True),
        (RINGS, {"rx_ring": 1024, "max_rx_ring": 8192}, None, 1024, False),
        (RINGS, {"rx_ring": 1024, "max_rx_ring": 8192}, None, 81920, False),
        (CHANNELS, {"channels": 1, "max_channels": 4}, raw("eth0", 2048), 4, True),
        (CHANNELS, {"channels": 1, "max_channels": 4}, raw("eth0", 2048), 14, False),
        (CHANNELS, {"channels": 1, "max_channels": 4}, raw("eth0", 2048), 1, False),
    ],
)
def test_it_is_the_current_setting_that_is_looked_at(
    result_of, tmp_path, printed, settings, config, current, right
):
    recorded = {"ethtool": {"eth0": settings | {"offloads": ["rx-gro"]}}}
    [remedy] = result_of("nic-settings", "container", config, recorded=recorded).remedies
    (tmp_path / "said").write_text(printed.replace("CURRENT", str(current)))
    ethtool = tmp_path / "ethtool"
    ethtool.write_text(f'#!/bin/sh\ncase "$1" in -[a-z]) cat {tmp_path}/said ;; esac\n')
    ethtool.chmod(0o755)
    [condition] = remedy.verify
    # In the script and, after each boot, in the file that the service runs.
    for shell in (["bash", "-c", condition], ["sh", "-c", remedy.files[0][1]]):
        done = subprocess.run(shell, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=20)
        assert (done.returncode == 0) is right


@pytest.mark.parametrize(
    ("name", "before", "printed", "right"),
    [
        ("KEEP_ETH_LINK_UP_P1", "False(0)", "True(1)", True),
        ("KEEP_ETH_LINK_UP_P1", "False(0)", "1", True),
        ("KEEP_ETH_LINK_UP_P1", "False(0)", "False(0)  False(0)  True(1)", True),
        # Default, current, next boot: the last one counts.
        ("KEEP_ETH_LINK_UP_P1", "False(0)", "True(1)  True(1)  False(0)", False),
        ("KEEP_ETH_LINK_UP_P1", "False(0)", "False(0)", False),
        ("KEEP_ETH_LINK_UP_P1", "0", "0", False),
        ("KEEP_IB_LINK_UP_P1", "True(1)", "False(0)", True),
        ("KEEP_IB_LINK_UP_P1", "True(1)", "True(1)", False),
        ("INTERNAL_CPU_MODEL", "SEPARATED_HOST(0)", "EMBEDDED_CPU(1)", True),
        ("INTERNAL_CPU_MODEL", "SEPARATED_HOST(0)", "SEPARATED_HOST(0)", False),
        ("INTERNAL_CPU_OFFLOAD_ENGINE", "ENABLED(0)", "DISABLED(1)", True),
        ("INTERNAL_CPU_OFFLOAD_ENGINE", "ENABLED(0)", "ENABLED(0)", False),
        ("LINK_TYPE_P1", "IB(1)", "ETH(2)", True),
        ("LINK_TYPE_P1", "IB(1)", "IB(1)", False),
        ("LINK_TYPE_P1", "IB(1)", "", False),
    ],
)
@pytest.mark.parametrize("mark", ["        ", "*       ", "RO      "])
def test_a_setting_of_firmware_is_fixed_when_it_has_its_value(
    firmware, tmp_path, name, before, printed, right, mark
):
    def change(text):
        lines = [f"    {name}    {before}" if name in line else line for line in text.split("\n")]
        return "\n".join(lines)

    [remedy] = firmware(change).remedies
    mlxconfig = tmp_path / "mlxconfig"
    line = f"{mark}{name}          {printed}          "
    mlxconfig.write_text(
        f'#!/bin/sh\n[ "$*" = "-d 0000:b3:00.0 query {name}" ] || exit 1\n'
        f"echo 'Device type:    ConnectX7 ETH True(1)'\necho '{line}'\n"
    )
    mlxconfig.chmod(0o755)
    [condition] = remedy.verify_lasting
    done = subprocess.run(
        ["bash", "-c", condition], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=20
    )
    assert (done.returncode == 0) is right
