"""Facts about PCI devices: how they hang together, and their configuration space."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daqiri_ophyd.host import FactError, Facts
from daqiri_ophyd.host.facts import Drive, PciDevice, bridges_between, connection


def at(path, node=None, config=b""):
    """Return a device by its path from the host bridge down, ``A/B/C`` for short."""
    *ancestors, address = path.split("/")
    return PciDevice(
        address, 0x020000, 0x15B3, 0x1021, node, tuple(ancestors), "", "", 0, 0, "", config
    )


# The expected output of nvidia-smi topo; P: root port, U and D: ports of a switch.
WAYS = [
    # Two functions of one card.
    ("host/P/nic.0", 0, "host/P/nic.1", 0, "PIX"),
    # A bus without bridges, of a virtual machine: the host bridge alone.
    ("host/nic", None, "host/gpu", None, "PHB"),
    # Two slots of one switch.
    ("host/P/U/D1/nic", 0, "host/P/U/D2/gpu", 0, "PIX"),
    # A card with a switch: its NIC and its GPU.
    ("host/P/U/D1/nic", 0, "host/P/U/D2/V/E/gpu", 0, "PXB"),
    # Two switches beneath a third.
    ("host/P/U/D1/V/E/nic", 0, "host/P/U/D2/W/F/gpu", 0, "PXB"),
    # A device that sits higher up than the other.
    ("host/P/U/D1/nic", 0, "host/P/gpu", 0, "PXB"),
    # Two root ports of one host bridge.
    ("host/P1/nic", 0, "host/P2/gpu", 0, "PHB"),
    ("host/P1/U/D/nic", 0, "host/P2/U/D/gpu", 0, "PHB"),
    # Two host bridges of one processor.
    ("host1/P/nic", 1, "host2/P/gpu", 1, "NODE"),
    # One node only, so that the kernel counts none.
    ("host1/P/nic", None, "host2/P/gpu", None, "NODE"),
    ("host1/P/nic", 0, "host2/P/gpu", None, "NODE"),
    # Two processors; buses of the same name do not make them one.
    ("host1/P/nic", 0, "host2/P/gpu", 1, "SYS"),
]


@pytest.mark.parametrize(("a", "a_node", "b", "b_node", "way"), WAYS)
def test_way_between_two_devices(a, a_node, b, b_node, way):
    one, other = at(a, a_node), at(b, b_node)
    assert connection(one, other) == connection(other, one) == way


@pytest.mark.parametrize(
    ("a", "b", "bridges"),
    [
        ("host/P/nic.0", "host/P/nic.1", ()),
        ("host/P/U/D1/nic", "host/P/U/D2/V/E/gpu", ("D1", "D2", "V", "E")),
        ("host/P1/nic", "host/P2/gpu", ("P1", "P2")),
        ("host1/P/nic", "host2/P/gpu", ("host1", "P", "host2", "P")),
    ],
)
def test_bridges_between_two_devices(a, b, bridges):
    assert bridges_between(at(a), at(b)) == bridges


def test_described_trees_are_read_as_nvidia_smi_shows_them(make_host):
    igx = Facts(make_host("igx")).pci
    assert connection(igx["0005:09:00.0"], igx["0005:03:00.1"]) == "PXB"
    assert connection(igx["0005:03:00.0"], igx["0005:03:00.1"]) == "PIX"
    assert connection(igx["0005:03:00.0"], igx["0004:01:00.0"]) == "NODE"
    a100 = Facts(make_host("a100")).pci
    assert connection(a100["0000:31:00.0"], a100["0000:32:00.0"]) == "PHB"
    assert connection(a100["0000:31:00.0"], a100["0000:b6:00.0"]) == "SYS"
    assert a100["0000:b6:00.0"].is_gpu and a100["0000:b3:00.0"].is_nic
    assert a100["0000:32:00.0"].is_nvme and a100["0000:b4:00.0"].is_bridge


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=4096))
def test_any_configuration_space_is_read_or_refused(space):
    nic = at("host/P/nic", config=space)
    for read in (lambda: nic.express, lambda: nic.access_control):
        try:
            read()
        except FactError as error:
            assert str(error).startswith("nic: ")


@pytest.mark.parametrize(("next_at", "found"), [(0x100, None), (0x200, 0x1D), (0, None)])
def test_extended_capabilities_are_followed_to_their_end(next_at, found):
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | next_at << 20).to_bytes(4, "little")
    space[0x200:0x204] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[0x206] = 0x1D
    assert at("host/nic", config=bytes(space)).access_control == found


def test_facts_agree_with_the_files_of_this_machine():
    facts = Facts()
    shown = subprocess.run(
        ["sh", "-c", "cd /sys/bus/pci/devices 2>/dev/null && grep -H . */vendor */device */class"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    ).stdout
    wanted = {}
    for line in shown.splitlines():
        path, _, value = line.partition(":0x")
        address, _, name = path.partition("/")
        wanted.setdefault(address, {})[name] = int(value, 16)
    found = {
        address: {"vendor": d.vendor, "device": d.device, "class": d.device_class}
        for address, d in facts.pci.items()
    }
    assert found == wanted
    for address, device in facts.pci.items():
        assert device.ancestors[0].startswith("pci")
        assert address not in device.ancestors


PCI_IDS = """\
# A comment

10de  NVIDIA Corporation
\t20b5  GA100 [A100 PCIe 80GB]
\t\t10de 1533  A100 80GB PCIe
#\tNot a vendor
15b3  Mellanox Technologies
# nor this
\t1021  MT2910 Family [ConnectX-7]

\ta2d6  MT42822 BlueField-2 integrated ConnectX-6 Dx network controller
C 02  Network controller
\t00  Ethernet controller
"""


@pytest.mark.parametrize("path", ["/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids"])
def test_names_are_those_of_the_list_of_the_host(make_host, path):
    facts = Facts(make_host("a100", recorded={}, files={path: PCI_IDS}))
    assert facts.pci_names == {
        "10de": "NVIDIA Corporation",
        "10de:20b5": "GA100 [A100 PCIe 80GB]",
        "15b3": "Mellanox Technologies",
        "15b3:a2d6": "MT42822 BlueField-2 integrated ConnectX-6 Dx network controller",
    }


def test_drives_are_known_by_address(make_host):
    facts = Facts(make_host("a100"))
    assert facts.drives == {"0000:32:00.0": Drive("nvme0", "SAMSUNG MZQL23T8HCLS-00A07")}
