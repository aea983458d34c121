"""A recorded host is the host."""

import json

import pytest

from daqiri_ophyd.host import CHECKS, Facts, check_host, pcie_picture, record_host
from daqiri_ophyd.host.facts import _pci_names

# What depends on the place or the moment, not on the host.
_OF_THE_MOMENT = {"clocks", "storage"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "host"
    record_host(folder)
    return folder


@pytest.mark.parametrize("platform", ["generic", "igx", "spark", "gpunetio"])
def test_checks_find_the_same(tmp_path, platform):
    before = check_host(platform=platform)
    record_host(tmp_path / "host")
    there = check_host(platform=platform, root=tmp_path / "host")
    after = check_host(platform=platform)
    assert there.host == before.host
    for name in CHECKS.keys() - _OF_THE_MOMENT:
        # Other tests may change the host at the same time, for example by reserving hugepages.
        if "NVML" not in before[name].found and before[name] == after[name]:
            assert there[name] == before[name]


def test_picture_is_the_same(recorded):
    assert pcie_picture(Facts(recorded)) == pcie_picture(Facts())


def test_links_stay_within(recorded):
    links = [path for path in recorded.rglob("*") if path.is_symlink()]
    assert links
    for link in links:
        assert link.resolve().is_relative_to(recorded)


def test_answers_are_kept(recorded):
    addresses = json.loads((recorded / "recorded" / "addresses.json").read_text())
    assert "127.0.0.1/8" in addresses["lo"]
    assert "127.0.0.1/8" not in json.loads((recorded / "recorded" / "leased.json").read_text())


def test_names_of_devices_are_kept_without_the_list(tmp_path, monkeypatch):
    ids = {(device.vendor, device.device) for device in Facts().pci.values()}
    lines = [f"{vendor:04x}  Vendor\n\t{device:04x}  Device {device}\n" for vendor, device in ids]
    list_of_all = tmp_path / "pci.ids"
    list_of_all.write_text("0000  Nobody\n" + "".join(lines))
    monkeypatch.setattr(_pci_names, "_LISTS", (str(list_of_all),))
    record_host(tmp_path / "host")
    names = Facts(tmp_path / "host").pci_names
    assert names == Facts().pci_names
    assert len(names) == len(ids) + len({vendor for vendor, _ in ids})
    assert not list((tmp_path / "host").rglob("pci.ids"))


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is not empty; give a new one"):
        record_host(tmp_path)
    assert (tmp_path / "file").read_text() == "mine"
