"""Checks of PCI Express."""

import pytest

from daqiri_ophyd.host import Status, Step

from .conftest import assert_shell


def device_regions(*gpus, engine="ibverbs"):
    """Return a configuration with a memory region in each of some GPUs."""
    return {
        "stream_type": "raw",
        "engine": engine,
        "master_core": 0,
        "memory_regions": [
            {"name": f"r{n}", "kind": "device", "affinity": n, "num_bufs": 1024, "buf_size": 8192}
            for n in gpus
        ],
        "interfaces": [{"name": "p", "address": "0000:b3:00.0", "rx": {"queues": []}}],
    }


@pytest.mark.parametrize("check", ["pcie-topology", "acs", "iommu"])
def test_without_a_gpu_there_is_nothing_to_judge(result_of, check):
    result = result_of(check, "laptop")
    assert (result.status, result.found) == (Status.SKIP, "no NVIDIA GPU")


@pytest.mark.parametrize("check", ["pcie-topology", "acs", "iommu"])
@pytest.mark.parametrize(
    ("config", "found"),
    [
        (device_regions(0, engine="dpdk"), "engine dpdk copies packets to the GPU"),
        (device_regions(0, engine="packet"), "engine packet copies packets to the GPU"),
        (device_regions(0, engine="socket"), "engine socket copies packets to the GPU"),
        (device_regions(), "the configuration has no region of kind device"),
    ],
)
def test_paths_matter_only_where_nics_write_to_a_gpu(result_of, describe, check, config, found):
    files = translating(describe("a100"))
    result = result_of(check, "a100", config, files=files)
    assert (result.status, result.found) == (Status.SKIP, found)


@pytest.mark.parametrize("check", ["pcie-topology", "pcie-payload", "pcie-read-request"])
def test_without_a_connectx_there_is_nothing_to_judge(result_of, describe, check):
    host = describe("a100")
    pci = [entry for entry in host["pci"] if not entry["ids"].startswith("15b3:a2d6")]
    result = result_of(check, host, pci=pci, net={})
    assert (result.status, result.found) == (
        Status.SKIP,
        "no ConnectX or BlueField on the PCI bus",
    )


def test_a_connectx_is_judged_on_any_host(result_of):
    """The commonest server of a beamline has one, and no GPU."""
    nic = {"path": "pci0000:00/0000:01:00.0", "ids": "15b3:1021", "kind": "0200"}
    host = {"product": "PowerEdge R650", "pci": [{**nic, "payload": [512, 128]}]}
    for check in ("pcie-payload", "pcie-read-request"):
        assert result_of(check, host).status is Status.WARN
        assert result_of(check, host, platform="generic").status is Status.WARN


# pcie-payload, pcie-read-request

VIRTUAL = {"path": "pci0000:00/0000:01:00.2", "ids": "15b3:101e", "kind": "0200"}


@pytest.mark.parametrize("check", ["pcie-payload", "pcie-read-request", "nic-firmware"])
def test_virtual_functions_have_no_settings(result_of, check):
    # Payload and read request are reserved in them, and read as 128 B.
    seen = {**VIRTUAL, "payload": [128, 128], "read_request": 128}
    result = result_of(check, {"pci": [seen]})
    assert (result.status, result.found) == (
        Status.SKIP,
        "virtual functions only: the physical function has the setting",
    )
    # Of other vendors, and in a host: the kernel names the physical function.
    card = {"path": "pci0000:00/0000:01:00.0", "ids": "15b3:1021", "kind": "0200"}
    card |= {"payload": [512, 256], "read_request": 4096}
    links = {"/sys/devices/pci0000:00/0000:01:00.2/physfn": "/sys/devices/pci0000:00/0000:01:00.0"}
    seen["ids"] = "15b3:1021"
    result = result_of(check, {"pci": [card, seen]}, links=links)
    assert not [each for each in result.findings if "0000:01:00.2" in each.subject]


# pcie-topology


def test_one_switch_for_gpu_and_nic_is_ok(result_of, profile):
    result = result_of("pcie-topology", "igx", profile("igx:ibverbs"))
    assert (result.status, result.found) == (
        Status.OK,
        "0005:09:00.0: PXB to 0005:03:00.0, PXB to 0005:03:00.1",
    )


def test_a_gpu_on_the_other_processor_warns(result_of):
    result = result_of("pcie-topology", "a100")
    assert (result.status, result.found) == (
        Status.WARN,
        "0000:31:00.0: SYS to 0000:b3:00.0, SYS to 0000:b3:00.1",
    )
    [remedy] = result.remedies
    assert (remedy.now, remedy.files, remedy.lasting) == ((), (), ())
    assert "PCIe switch" in remedy.note


@pytest.mark.parametrize(
    ("gpus", "status"), [([1], Status.OK), ([0], Status.WARN), ([0, 1], Status.WARN)]
)
def test_only_gpus_with_regions_count(result_of, gpus, status):
    assert result_of("pcie-topology", "a100", device_regions(*gpus)).status is status


def test_the_host_bridge_will_do(result_of, describe, device):
    host = describe("a100")
    for entry in host["pci"]:
        entry["path"] = entry["path"].replace("pci0000:30/", "pci0000:b0/")
    result = result_of("pcie-topology", host)
    assert result.status is Status.OK
    assert "0000:31:00.0: PHB to 0000:b3:00.0" in result.found


def test_an_integrated_gpu_has_no_way_to_shorten(result_of):
    result = result_of("pcie-topology", "spark")
    assert (result.status, result.found) == (
        Status.SKIP,
        "000f:01:00.0: integrated: NIC and GPU use the host's memory",
    )


# pcie-payload


@pytest.mark.parametrize(
    ("payload", "status", "found"),
    [
        ([512, 512], Status.OK, "512 B of 512 B supported"),
        ([512, 256], Status.OK, "256 B of 512 B supported"),
        ([128, 128], Status.OK, "128 B of 128 B supported"),
        ([512, 128], Status.WARN, "128 B of 512 B supported"),
    ],
)
def test_payload(result_of, describe, device, payload, status, found):
    host = describe("igx")
    for function in "01":
        device(host, f"0005:03:00.{function}")["payload"] = payload
    result = result_of("pcie-payload", host)
    assert (result.status, result.found) == (status, f"0005:03:00.0, 0005:03:00.1: {found}")
    for remedy in result.remedies:
        assert (remedy.now, remedy.files, remedy.lasting) == ((), (), ())
        assert "BIOS" in remedy.note


def test_ports_that_no_configuration_uses_are_left_alone(result_of, describe, device, profile):
    host = describe("spark")
    device(host, "0000:01:00.1")["payload"] = [512, 128]
    device(host, "0000:01:00.1")["read_request"] = 512
    device(host, "0000:01:00.1")["link"] = "3x1/5x4"
    for check in ("pcie-payload", "pcie-read-request", "pcie-link"):
        assert result_of(check, host, profile("spark")).status is Status.OK
        assert result_of(check, host).status is Status.WARN


@pytest.mark.parametrize("check", ["pcie-payload", "pcie-read-request"])
@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (b"", "only 0 bytes of configuration space can be read (the rest requires root)"),
        (bytes(6) + b"\x10" + bytes(57), "has no capability 0x10"),
        # What a user other than root reads.
        (
            bytes(6) + b"\x10" + bytes(45) + b"\x60" + bytes(11),
            "only 64 bytes of configuration space can be read (the rest requires root)",
        ),
        (bytes(64), "has no list of capabilities"),
        (b"\xff" * 64, "only 64 bytes of configuration space can be read (the rest requires root)"),
    ],
)
def test_hidden_configuration_space_is_skipped(result_of, describe, check, space, reason):
    host = describe("spark")
    for path in (each["path"] for each in host["pci"] if each["ids"] == "15b3:1021"):
        host.setdefault("hex", {})[f"/sys/devices/{path}/config"] = space.hex()
    result = result_of(check, host)
    assert (result.status, result.found) == (Status.SKIP, f"not known: 0000:01:00.0: {reason}")


def test_a_circle_of_capabilities_ends(result_of, describe):
    host = describe("spark")
    space = bytearray(256)
    space[0x06], space[0x34], space[0x40:0x42] = 0x10, 0x40, b"\x01\x40"
    for path in (each["path"] for each in host["pci"] if each["ids"] == "15b3:1021"):
        host.setdefault("hex", {})[f"/sys/devices/{path}/config"] = space.hex()
    assert result_of("pcie-payload", host).found.endswith("has no capability 0x10")


# pcie-link


def test_a_full_link_is_ok(result_of, profile):
    result = result_of("pcie-link", "igx", profile("igx"))
    assert (result.status, result.found) == (
        Status.OK,
        "0005:03:00.0, 0005:03:00.1: 32.0 GT/s PCIe x8",
    )


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("4x8/4x16", "16.0 GT/s PCIe x8; the maximum is 16.0 GT/s PCIe x16"),
        ("3x16/4x16", "8.0 GT/s PCIe x16; the maximum is 16.0 GT/s PCIe x16"),
    ],
)
def test_a_narrow_or_slow_link_warns(result_of, describe, device, link, found):
    host = describe("a100")
    for function in "01":
        device(host, f"0000:b3:00.{function}")["link"] = link
    result = result_of("pcie-link", host)
    assert (result.status, result.found) == (Status.WARN, f"0000:b3:00.0, 0000:b3:00.1: {found}")
    [remedy] = result.remedies
    assert "slot" in remedy.note and remedy.now == ()


@pytest.mark.parametrize("bridge", ["0005:00:00.0", "0005:01:00.0"])
def test_a_slow_link_above_the_nic_warns(result_of, describe, device, bridge):
    host = describe("igx")
    device(host, bridge)["link"] = "1x4/5x8"
    result = result_of("pcie-link", host)
    assert (result.status, result.found) == (
        Status.WARN,
        "0005:03:00.0, 0005:03:00.1: 32.0 GT/s PCIe x8, "
        f"but the link at bridge {bridge} runs at 2.5 GT/s PCIe x4",
    )


def test_a_link_that_is_slower_than_its_port_is_remarked_on(result_of):
    """Nothing can be done about it."""
    result = result_of("pcie-link", "spark")
    assert result.status is Status.OK
    assert result.found.endswith(
        "32.0 GT/s PCIe x4, which carries about 113 Gb/s of the port's 200"
    )


def test_a_soldered_nic_cannot_be_seated_again(result_of, describe, device):
    host = describe("spark")
    device(host, "0002:01:00.0")["link"] = "5x2/5x4"
    result = result_of("pcie-link", host)
    assert result.status is Status.WARN
    assert "soldered" in result.remedies[0].note


def test_on_board_nics_have_no_link(result_of):
    result = result_of("pcie-link", "laptop")
    assert (result.status, result.found) == (
        Status.SKIP,
        "0000:00:1f.6: no PCIe link of its own",
    )


# pcie-read-request


def test_the_largest_read_request_is_ok(result_of):
    result = result_of("pcie-read-request", "igx")
    assert (result.status, result.found) == (Status.OK, "0005:03:00.0, 0005:03:00.1: 4096 B")


def test_a_small_read_request_is_raised_with_setpci_and_a_rule(result_of, describe, device):
    host = describe("spark")
    device(host, "0002:01:00.1")["read_request"] = 512
    result = result_of("pcie-read-request", host)
    assert (result.status, result.found) == (Status.WARN, "0002:01:00.1: 512 B")
    [remedy] = result.remedies
    assert remedy.now == ("setpci -s 0002:01:00.1 CAP_EXP+8.w=5000:f000",)
    # A rule holds also when the port leaves the bus and comes back.
    [(path, text)] = remedy.files
    assert path == "/etc/udev/rules.d/90-daqiri-read-request-0002-01-00.1.rules"
    assert 'KERNEL=="0002:01:00.1"' in text
    assert "setpci -s 0002:01:00.1 CAP_EXP+8.w=5000:f000'" in text
    assert remedy.lasting == ("udevadm control --reload",)
    assert remedy.verify == ("setpci -s 0002:01:00.1 CAP_EXP+8.w | grep -q ^5",)
    assert "Secure Boot" in remedy.note
    assert_shell(remedy)


# acs


def test_access_control_that_is_off_is_ok(result_of):
    result = result_of("acs", "a100")
    assert result.status is Status.OK
    # Not the bridges above: what GPU and NIC tell each other does not come there.
    assert result.found == "0000:b2:00.0, 0000:b2:01.0, 0000:b4:00.0, 0000:b5:08.0: off"


def test_access_control_between_gpu_and_nic_is_switched_off(result_of, describe, device):
    host = describe("a100")
    device(host, "0000:b2:00.0")["acs"] = 0x1D
    result = result_of("acs", host)
    assert (result.status, result.found) == (Status.WARN, "0000:b2:00.0: on (0x001d)")
    [remedy] = result.remedies
    assert remedy.now == ("setpci -s 0000:b2:00.0 ECAP_ACS+0x6.w=0000",)
    assert remedy.files[0] == (
        "/etc/daqiri-host.d/40-acs-0000-b2-00.0.sh",
        "set -e\nsetpci -s 0000:b2:00.0 ECAP_ACS+0x6.w=0000\n"
        "setpci -s 0000:b2:00.0 ECAP_ACS+0x6.w | grep -q ^0000\n",
    )
    assert "BIOS" in remedy.note
    assert_shell(remedy)


def test_access_control_above_the_switch_does_no_harm(result_of, describe, device):
    host = describe("a100")
    device(host, "0000:b0:02.0")["acs"] = device(host, "0000:b1:00.0")["acs"] = 0x1D
    assert result_of("acs", host).status is Status.OK


def test_a_bridge_without_access_control_is_ok(result_of, describe, device):
    host = describe("a100")
    del device(host, "0000:b4:00.0")["acs"]
    result = result_of("acs", host)
    assert result.status is Status.OK
    assert "0000:b4:00.0: none" in result.found


def test_hidden_access_control_is_skipped(result_of, describe):
    host = describe("a100")
    for entry in host["pci"]:
        if entry["kind"] == "0604":
            host.setdefault("hex", {})[f"/sys/devices/{entry['path']}/config"] = "00" * 64
    result = result_of("acs", host)
    assert result.status is Status.SKIP
    assert result.found.endswith(
        "only 64 bytes of configuration space can be read (the rest requires root)"
    )


def test_access_control_of_root_ports_is_between_slots(result_of, describe, device):
    host = describe("a100")
    # GPU 0 on the NIC's host bridge, in a separate slot.
    for entry in host["pci"]:
        entry["path"] = entry["path"].replace("pci0000:30/", "pci0000:b0/")
    device(host, "0000:30:02.0")["acs"] = 0x1D
    result = result_of("acs", host, device_regions(0))
    assert (result.status, result.found) == (Status.WARN, "0000:30:02.0: on (0x001d)")


def test_without_a_common_host_bridge_there_is_no_access_control_to_judge(result_of):
    result = result_of("acs", "a100", device_regions(0))
    assert (result.status, result.found) == (
        Status.SKIP,
        "no bridges between a GPU and a NIC of one host bridge",
    )


# iommu


def translating(host, cpuinfo="vendor_id\t: GenuineIntel", kinds=("DMA-FQ",)):
    files = dict(host["files"])
    files |= {"/proc/cpuinfo": cpuinfo, "/sys/class/iommu/dmar0/intel-iommu/version": "1:0"}
    for n, kind in enumerate(kinds):
        files[f"/sys/kernel/iommu_groups/{n}/type"] = kind
    return files


def test_no_iommu_is_ok(result_of):
    result = result_of("iommu", "a100")
    assert (result.status, result.found) == (Status.OK, "off")


def test_an_iommu_that_passes_through_is_ok(result_of, describe):
    files = translating(describe("a100"), kinds=("identity", "identity"))
    result = result_of("iommu", "a100", files=files)
    assert (result.status, result.found) == (Status.OK, "passthrough")
    files = translating(describe("a100"))
    for line in ("quiet iommu=pt", "iommu.passthrough=1", "iommu.passthrough=on"):
        assert result_of("iommu", "a100", files=files, cmdline=line).found == "passthrough"


@pytest.mark.parametrize(
    ("cpuinfo", "words", "note"),
    [
        ("vendor_id\t: GenuineIntel", "iommu=pt", "iommu=off intel_iommu=off"),
        ("vendor_id\t: AuthenticAMD", "iommu=pt", "iommu=off amd_iommu=off"),
        ("CPU implementer\t: 0x41", "iommu.passthrough=1", "in the BIOS."),
    ],
)
def test_an_iommu_that_translates_warns(result_of, describe, cpuinfo, words, note):
    files = translating(describe("a100"), cpuinfo, ("identity", "DMA-FQ"))
    result = result_of("iommu", "a100", device_regions(0), files=files)
    assert (result.status, result.found) == (Status.WARN, "on, with translation")
    [remedy] = result.remedies
    # Passthrough, and only where it is named.
    assert (remedy.step, remedy.kernel_line) == (Step.IOMMU, words)
    assert (remedy.now, remedy.files, remedy.lasting) == ((), (), ())
    assert note in remedy.note
    # It matters if no packet arrives.
    assert result_of("iommu", "a100", files=files).status is Status.SKIP
