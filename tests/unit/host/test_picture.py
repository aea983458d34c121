"""Pictures of hosts."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from fontTools.ttLib import TTFont

from daqiri_ophyd.host import FactError, Facts, pcie_picture

HOSTS = sorted(path.stem for path in (Path(__file__).parent / "hosts").glob("*.yaml"))
IMAGES = Path(__file__).parents[3] / "docs" / "images"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SVG = "{http://www.w3.org/2000/svg}"
LONG = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"


@dataclass
class Box:
    """A text, or a rectangle without one."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float = 0

    def holds(self, other):
        return (
            self.left <= other.left <= other.right <= self.right
            and self.top <= other.top <= other.bottom <= self.bottom
        )

    def meets(self, other):
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


@pytest.fixture(scope="module")
def text_end():
    """Return the width of a text in the picture's font, independently of the code's table."""
    fonts = {}
    for weight, name in (("normal", "DejaVuSans.ttf"), ("bold", "DejaVuSans-Bold.ttf")):
        with TTFont(FONTS / name) as font:
            ems = font["head"].unitsPerEm
            widths = dict(font["hmtx"].metrics)
            fonts[weight] = {c: widths[n][0] / ems for c, n in font.getBestCmap().items()}
    return lambda text, size, weight: sum(fonts[weight].get(ord(c), 1) for c in text) * size


@pytest.fixture
def draw(make_host, text_end):
    """Return the texts, the boxes and the size of a host's picture."""

    def draw(host, **changes):
        root = ElementTree.fromstring(pcie_picture(Facts(make_host(host, **changes))))
        texts, boxes = [], []
        for shape in root:
            x, y = float(shape.get("x", 0)), float(shape.get("y", 0))
            if shape.tag == SVG + "text":
                text, size = shape.text.strip(), float(shape.get("font-size"))
                width = text_end(text, size, shape.get("font-weight"))
                left = x - width * {"start": 0, "middle": 0.5, "end": 1}[shape.get("text-anchor")]
                # Without what letters such as g have below the line.
                texts.append(Box(text, left, y - 0.76 * size, left + width, y, size))
            elif shape.tag == SVG + "rect":
                right, bottom = x + float(shape.get("width")), y + float(shape.get("height"))
                boxes.append(Box("", x, y, right, bottom))
        return texts, boxes

    return draw


@pytest.fixture
def hgx():
    """Eight GPUs, ten NICs and eight drives below switches of two NUMA nodes, with long names."""
    pci, net, drives, gpus = [], {}, {}, []
    bus = 0x40
    kinds = ["GPU", "NIC", "NVMe"] * 8 + ["NIC"] * 2
    for number, kind in enumerate(kinds):
        numa = number // 13
        path = f"pci0000:{numa}0/0000:{numa}0:01.0/0000:{numa}1:00.0/0000:{numa}2:{number:02x}.0"
        if number % 13 == 0:
            for end in (2, 3):
                bridge = "/".join(path.split("/")[:end])
                pci.append({"path": bridge, "ids": "1000:c030", "kind": "0604", "link": "5x16"})
        pci.append({"path": path, "ids": "1000:c030", "kind": "0604", "link": "5x16"})
        address = f"0000:{bus + number:02x}:00.0"
        ids = {"GPU": "10de:2bb4", "NIC": "15b3:1021", "NVMe": "144d:a80a"}[kind]
        code = {"GPU": "0302", "NIC": "0200", "NVMe": "0108"}[kind]
        device = {"path": f"{path}/{address}", "ids": ids, "kind": code, "link": "5x16"}
        pci.append(device)
        if kind == "GPU":
            gpus.append({"index": len(gpus), "name": LONG, "pci_address": address})
        elif kind == "NIC":
            name = f"enP{number}p1s0f0np0"
            net[name] = {"pci": address, "speed": 400000, "rdma": f"rocep{number}s0f0"}
        else:
            drives[f"nvme{number}"] = {"pci": address, "model": "SAMSUNG MZWLO3T8HCLS-00A07"}
    for device in pci:
        device["numa"] = int(device["path"][8])
    names = {"1000": "Broadcom / LSI", "1000:c030": "PEX890xx PCIe Gen 5 Switch"}
    return {
        "name": "beamline-daq-with-a-long-name.facility.example.org",
        "product": "NVIDIA HGX " + "with a long name " * 5,
        "cpus": 8,
        "nodes": ["0-3", "4-7"],
        "pci": pci,
        "net": net,
        "drives": drives,
        "recorded": {"gpus": gpus, "pci-names": names},
    }


@pytest.fixture
def odd():
    """Names of all kinds, and a device below many bridges."""
    deep = "pci0000:00" + "".join(f"/0000:{n:02x}:00.0" for n in range(24))
    bridges = ["/".join(deep.split("/")[:n]) for n in range(2, 25)]
    pci = [{"path": p, "ids": "abcd:0001", "kind": "0604", "link": "1x1/6x16"} for p in bridges]
    pci += [
        {"path": deep, "ids": "10de:2bb4", "kind": "0302", "link": "1x1/6x16"},
        {"path": "pci10000:00/10000:e1:00.0", "ids": "ffff:ffff", "kind": "0200", "link": "1x1"},
        {"path": "pci10000:00/10000:e2:00.0", "ids": "1234:5678", "kind": "0108"},
    ]
    return {
        "name": "W" * 64,
        "product": "面面俱到的服务器" * 20,
        "pci": pci,
        "net": {"W" * 15: {"pci": "10000:e1:00.0", "speed": 800000, "rdma": "M" * 60}},
        "drives": {"nvme0": {"pci": "10000:e2:00.0", "model": "<&>" * 50}},
        "recorded": {
            "gpus": [{"index": 1000, "name": LONG * 3, "pci_address": "0000:17:00.0"}],
            "pci-names": {"abcd": "Some & Company, Inc.", "abcd:0001": "W" * 300},
        },
    }


@pytest.fixture(params=[*HOSTS, "hgx", "odd"])
def any_host(request):
    """Return every host in turn."""
    name = request.param
    return name if name in HOSTS else request.getfixturevalue(name)


def test_pictures_of_the_documentation_are_those_of_the_described_hosts(
    make_host, host_name, pytestconfig
):
    drawn = pcie_picture(Facts(make_host(host_name)))
    shown = IMAGES / f"host-{host_name}.svg"
    if pytestconfig.getoption("--write"):
        shown.write_text(drawn, encoding="utf-8")
    assert drawn == shown.read_text(encoding="utf-8"), (
        f"{shown} is out of date; run pytest --write {__file__}"
    )


def test_every_text_ends_within_its_box(draw, any_host):
    texts, boxes = draw(any_host)
    whole = boxes[0]
    assert (whole.left, whole.right) == (0, 700)
    for box in boxes:
        assert whole.holds(box)
    for text in texts:
        # The box that holds the beginning and is smallest.
        around = [
            b for b in boxes if b.left <= text.left < b.right and b.top < text.bottom <= b.bottom
        ]
        smallest = min(around, key=lambda box: (box.right - box.left) * (box.bottom - box.top))
        assert smallest.holds(text), text


def test_texts_do_not_overlap_and_can_be_read(draw, any_host):
    texts, _ = draw(any_host)
    assert min(text.size for text in texts) >= 10
    assert not [pair for pair in combinations(texts, 2) if pair[0].meets(pair[1])]


def test_a_shortened_name_is_there_in_full(make_host, describe):
    host = describe("igx")
    host["recorded"]["gpus"][0]["name"] = LONG * 2
    root = ElementTree.fromstring(pcie_picture(Facts(make_host(host))))
    [text] = [text for text in root.iter(SVG + "text") if text.find(SVG + "title") is not None]
    assert text.text.strip().endswith("…")
    assert text.find(SVG + "title").text == LONG * 2


def texts_of(drawn):
    return [text.text for text in drawn[0]]


def test_long_name_fits(draw, describe):
    host = describe("igx")
    host["recorded"]["gpus"][0]["name"] = LONG
    assert LONG in texts_of(draw(host))


@pytest.mark.parametrize(
    "address", ["0005:00:00.0", "0005:01:00.0", "0005:07:00.0", "0005:02:02.0", "0005:09:00.0"]
)
def test_degraded_link_is_labelled_in_full(draw, describe, device, address):
    host = describe("igx")
    device(host, address)["link"] = "1x4/4x16"
    degraded = "Gen1 x4, 1 GB/s; possible: "
    assert [text for text in texts_of(draw(host)) if text.startswith(degraded)]


def test_every_link_is_labelled_with_its_rate(draw):
    texts = texts_of(draw("igx"))
    assert texts.count("Gen5 x8, 32 GB/s") == 3
    assert texts.count("Gen4 x16, 32 GB/s") == 2
    assert texts.count("Gen4 x4, 7.9 GB/s") == 1


@pytest.mark.parametrize(
    ("link", "label"),
    [
        ("1x1", "Gen1 x1, 0.25 GB/s"),
        ("3x4", "Gen3 x4, 3.9 GB/s"),
        ("5x16", "Gen5 x16, 63 GB/s"),
        ("6x16", "Gen6 x16, 126 GB/s"),
    ],
)
def test_rates_of_links(draw, describe, device, link, label):
    host = describe("laptop")
    device(host, "0000:04:00.0")["link"] = device(host, "0000:00:06.0")["link"] = link
    assert label in texts_of(draw(host))


def test_a_port_faster_than_its_link_is_remarked(draw):
    remark = "Gen5 x4, 16 GB/s; carries about 113 of the port's 200 Gb/s"
    assert texts_of(draw("spark")).count(remark) == 4
    assert not [text for text in texts_of(draw("igx")) if "carries" in text]


def test_bridges_have_kinds_and_names(draw):
    texts = texts_of(draw("igx"))
    assert "host bridge · 0005:00" in texts
    assert "root port · 0005:00:00.0" in texts
    assert "switch · 0005:07:00.0 · Broadcom PEX880xx PCIe Gen 4 Switch" in texts
    assert "switch port · 0005:02:02.0 · NVIDIA ConnectX-7 PCIe Bridge" in texts


def test_a_controller_of_drives_is_no_bridge(draw):
    path = "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"
    pci = [
        {"path": "pci0000:00/0000:00:0e.0", "ids": "8086:467f", "kind": "0104"},
        {"path": path.rpartition("/")[0], "ids": "8086:464d", "kind": "0604", "link": "4x4"},
        {"path": path, "ids": "144d:a80a", "kind": "0108", "link": "4x4"},
    ]
    texts = texts_of(draw({"pci": pci}))
    for text in (
        "controller · 0000:00:0e.0",
        "host bridge · 10000:e0",
        "root port · 10000:e0:06.0",
    ):
        assert text in texts
    assert "Samsung device a80a" in texts


def test_table_has_names_of_the_system_and_drives(draw):
    texts = texts_of(draw("a100"))
    table = texts[texts.index("Paths from GPUs to NICs and drives") :]
    assert table[1:8] == [
        "GPU 0",
        "0000:31:00.0",
        "GPU 1",
        "0000:b6:00.0",
        "nvme0",
        "0000:32:00.0",
        "PHB",
    ]
    assert table[8:13] == ["SYS", "ens6f0np0 / mlx5_0", "0000:b3:00.0", "SYS", "PXB"]
    assert [text for text in table if text in ("PIX", "PXB", "PHB", "NODE", "SYS")][-5:] == [
        *("PIX", "PXB", "PHB", "NODE", "SYS")
    ]
    assert "over several bridges" in table


def test_a_wide_table_is_drawn_in_parts(draw, hgx):
    texts = texts_of(draw(hgx))
    table = texts[texts.index("Paths from GPUs to NICs and drives") :]
    assert [text for text in table if text.startswith("GPU ")] == [f"GPU {n}" for n in range(8)]
    assert table.count("nvme2") == 2


def test_paths_of_an_integrated_gpu_are_not_classed(draw):
    texts = texts_of(draw("spark"))
    assert texts.count("host memory") == 5
    assert "PIX" not in texts


def test_products_have_their_names(draw, describe):
    texts = texts_of(draw("laptop"))
    assert "Intel Ethernet Connection (16) I219-LM" in texts
    assert "SAMSUNG MZVL4512HBLU-00BL7" in texts
    host = describe("laptop")
    del host["drives"], host["recorded"]["pci-names"]
    assert {"Samsung device a80b", "Intel device 46a6"} <= set(texts_of(draw(host)))


def test_a_host_without_devices_has_no_picture(make_host):
    with pytest.raises(FactError, match="nothing to draw"):
        pcie_picture(Facts(make_host({})))


def test_each_picture_is_on_one_page_of_the_documentation(host_name):
    pages = IMAGES.parent.rglob("*.md")
    assert sum(page.read_text().count(f"images/host-{host_name}.svg") for page in pages) == 1
