"""Pictures of hosts."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from daqiri_ophyd.host import FactError, Facts, pcie_picture

IMAGES = Path(__file__).parents[3] / "docs" / "images"


def test_the_pictures_of_the_documentation_are_those_of_the_described_hosts(make_host, host_name):
    drawn = pcie_picture(Facts(make_host(host_name)))
    shown = IMAGES / f"host-{host_name}.svg"
    assert drawn == shown.read_text(encoding="utf-8"), f"{shown} is out of date"


def test_every_text_and_box_lies_within_the_picture(make_host, host_name):
    root = ElementTree.fromstring(pcie_picture(Facts(make_host(host_name))))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for shape in root:
        if shape.get("x"):
            assert 0 <= float(shape.get("x", 0)) <= width
            assert 0 <= float(shape.get("y", 0)) <= height
            assert float(shape.get("x", 0)) + float(shape.get("width", 0)) <= width


def test_a_host_without_devices_has_no_picture(make_host):
    with pytest.raises(FactError, match="nothing to draw"):
        pcie_picture(Facts(make_host({})))
