"""Checks of NICs: drivers, modes, settings and firmware."""

import subprocess

import pytest

from daqiri_ophyd.host import Status, Step

from .conftest import assert_shell, raw

OLD = "15b3:1015"  # ConnectX-4 Lx


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


def test_dpdk_drives_cards_of_other_makers(result_of, describe, device):
    host = describe("igx")
    device(host, "0005:03:00.0")["ids"] = "8086:1572"
    for check in ("nic-driver", "connectx"):
        result = result_of(check, host, raw("0005:03:00.0", 2048, "dpdk"), net={})
        assert result.status is Status.SKIP, result.found


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
    assert result.status is Status.WARN
    assert "in software" in result.remedies[0].note
    result = result_of("connectx", host, raw("0005:03:00.0", 2048, "ibverbs"), net={})
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
    result = result_of("connectx", host, profile("igx:ibverbs"))
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
    assert "interrupts the port's traffic" in remedy.note
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
    # Which ends what runs on it: a choice of its own.
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
