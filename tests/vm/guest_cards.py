"""In the guest: its network cards, and the C++ tests of engines."""

from pathlib import Path

BUS = Path("/sys/bus/pci")
SUITE = Path("build/dpdk/native/test_engines")


def cards() -> list[str]:
    """PCI addresses of the cards of Ethernet, without those of virtio."""
    folders = sorted((BUS / "devices").iterdir())
    found = [each.name for each in folders if (each / "class").read_text().strip() == "0x020000"]
    assert len(found) == 2, found
    return found


def bind(card: str, driver: str) -> None:
    device = BUS / "devices" / card
    if (device / "driver").exists():
        (device / "driver" / "unbind").write_text(card)
    (device / "driver_override").write_text(driver)
    (BUS / "drivers_probe").write_text(card)


def reserve_hugepages(count: int) -> None:
    Path("/proc/sys/vm/nr_hugepages").write_text(str(count))
