"""Folders that look like a host's /proc and /sys, made from the short descriptions in hosts/."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from daqiri_ophyd.engine import load_config
from daqiri_ophyd.host import check_host

HOSTS = Path(__file__).parent / "hosts"
PROFILES = Path(__file__).parents[3] / "profiles"
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``host_name`` for every described host."""
    if "host_name" in metafunc.fixturenames:
        names = sorted(path.stem for path in HOSTS.glob("*.yaml"))
        metafunc.parametrize("host_name", names)


def read_host(name: str) -> dict[str, Any]:
    # By libyaml: a third of the time of these tests was Python's own reader.
    return yaml.load((HOSTS / f"{name}.yaml").read_text(), yaml.CSafeLoader)


@pytest.fixture
def describe() -> Callable[[str], dict[str, Any]]:
    """Return the description of a host by name, to be changed at will."""
    return read_host


@pytest.fixture(scope="session")
def make_described() -> Callable[[Path, str], Path]:
    """Make a host of hosts/ as a folder of a name given."""

    def make(folder: Path, name: str) -> Path:
        folder.mkdir()
        return write_host(folder, read_host(name))

    return make


@pytest.fixture
def make_host(tmp_path: Path, describe) -> Callable[..., Path]:
    """Make the folder of a host: a name in hosts/ or a description; keys given replace its own."""

    def make(host: str | dict[str, Any], **changes: Any) -> Path:
        described = describe(host) if isinstance(host, str) else host
        folder = tmp_path / f"host{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return write_host(folder, {**described, **changes})

    return make


def write_host(root: Path, host: dict[str, Any]) -> Path:
    """Make the folder.

    Keys: ``files`` (text by path), ``links`` (target by path), ``hex`` (bytes by path),
    ``recorded`` (values by name), and short forms for what is long to write out: ``cmdline``,
    ``modules``, ``cpus``, ``smt``, ``nodes``, ``governor``, ``capacities`` (of CPUs), ``memory``
    (kB), ``hugepages`` (total and free by kB), ``default_hugepage`` (kB), ``node_hugepages``,
    ``pci``, ``net``, ``drives``.
    """
    tree = Tree(root)
    if "product" in host:
        tree.file("/sys/class/dmi/id/product_name", host["product"])
    tree.file("/proc/sys/kernel/hostname", host.get("name", "recorded"))
    tree.file("/proc/sys/kernel/osrelease", host.get("kernel", "6.8.0"))
    tree.file("/proc/cmdline", host.get("cmdline", "quiet"))
    tree.file(
        "/proc/modules", "".join(f"{m} 16384 0 - Live 0x0\n" for m in host.get("modules", ()))
    )
    tree.cpus(host.get("cpus", 4), host.get("nodes"), host.get("smt", 1), host.get("governor", ""))
    tree.memory(
        host.get("memory", 16 << 20), host.get("hugepages", {}), host.get("default_hugepage", 2048)
    )
    for node, pools in enumerate(host.get("node_hugepages", ())):
        tree.pools(f"/sys/devices/system/node/node{node}/hugepages", pools)
    for cpu, capacity in enumerate(host.get("capacities", ())):
        tree.file(f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity", str(capacity))
    for device in host.get("pci", ()):
        tree.pci(**device)
    for name, interface in host.get("net", {}).items():
        tree.interface(name, **interface)
    for name, drive in host.get("drives", {}).items():
        tree.drive(name, **drive)
    for path, text in host.get("files", {}).items():
        tree.file(path, text)
    for path, digits in host.get("hex", {}).items():
        tree.bytes(path, bytes.fromhex(digits))
    for path, target in host.get("links", {}).items():
        tree.link(path, target)
    for name, value in host.get("recorded", {}).items():
        tree.file(f"/recorded/{name}.json", json.dumps(value))
    return root


class Tree:
    """Files below a folder, by their paths on a host."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str, text: str) -> None:
        self.bytes(path, f"{text}\n".encode())

    def bytes(self, path: str, content: bytes) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def link(self, path: str, target: str) -> None:
        """Make a link to a path of the same host."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * (len(place.relative_to(self.root).parts) - 1)
        place.symlink_to(up + target.lstrip("/"))

    def cpus(self, count: int, nodes: list[str] | None, smt: int, governor: str) -> None:
        base = "/sys/devices/system/cpu"
        self.file(f"{base}/online", f"0-{count - 1}")
        for cpu in range(count):
            cores = count // smt
            siblings = ",".join(str(cpu % cores + cores * n) for n in range(smt))
            self.file(f"{base}/cpu{cpu}/topology/thread_siblings_list", siblings)
            if governor:
                self.file(f"{base}/cpu{cpu}/cpufreq/scaling_governor", governor)
        for node, cpus in enumerate(nodes or [f"0-{count - 1}"]):
            self.file(f"/sys/devices/system/node/node{node}/cpulist", cpus)

    def memory(self, size: int, pools: dict[int, list[int]], default: int) -> None:
        """Write sizes in kB, and huge pages by size: how many, how many are free."""
        total, free = pools.get(default, [0, 0])
        lines = [f"MemTotal: {size} kB", f"MemAvailable: {size} kB", "HugePages_Surp: 0"]
        lines += [f"HugePages_Total: {total}", f"HugePages_Free: {free}", "HugePages_Rsvd: 0"]
        self.file("/proc/meminfo", "\n".join([*lines, f"Hugepagesize: {default} kB"]))
        self.pools("/sys/kernel/mm/hugepages", pools)

    def pools(self, folder: str, pools: dict[int, list[int]]) -> None:
        for size, (total, free) in pools.items():
            self.file(f"{folder}/hugepages-{size}kB/nr_hugepages", str(total))
            self.file(f"{folder}/hugepages-{size}kB/free_hugepages", str(free))

    def pci(
        self,
        path: str,
        ids: str,
        kind: str,
        numa: int = -1,
        link: str = "",
        driver: str = "",
        payload: tuple[int, int] = (256, 256),
        read_request: int = 512,
        acs: int | None = None,
        bar1: int | None = None,
    ) -> None:
        """Make a device: ``path`` from the host bridge down, ``ids`` vendor:device, ``kind`` class,
        ``link`` such as ``4x16/5x16``: generation and lanes, now and at most."""
        folder = f"/sys/devices/{path}"
        address = path.rpartition("/")[2]
        vendor, device = ids.split(":")
        self.file(f"{folder}/vendor", f"0x{vendor}")
        self.file(f"{folder}/device", f"0x{device}")
        self.file(f"{folder}/class", f"0x{kind:0<6}")
        self.file(f"{folder}/numa_node", str(numa))
        if link:
            now, _, most = link.partition("/")
            for name, text in (("current", now), ("max", most or now)):
                generation, _, lanes = text.partition("x")
                speed = f"{_SPEEDS[int(generation)]} GT/s PCIe"
                self.file(f"{folder}/{name}_link_speed", speed)
                self.file(f"{folder}/{name}_link_width", lanes)
        self.bytes(f"{folder}/config", config_space(payload, read_request, acs, bar1))
        if driver:
            self.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}")
            (self.root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        self.link(f"/sys/bus/pci/devices/{address}", folder)

    def interface(
        self,
        name: str,
        pci: str = "",
        carrier: int | None = 1,
        mtu: int = 1500,
        speed: int | None = None,
        rdma: str = "",
        link_layer: str = "Ethernet",
        up: bool = True,
        port: str = "",
        kind: int = 1,
        firmware: str = "",
        card: str = "",
    ) -> None:
        folder = f"/sys/class/net/{name}"
        self.file(f"{folder}/mtu", str(mtu))
        self.file(f"{folder}/type", str(kind))
        self.file(f"{folder}/flags", "0x1003" if up else "0x1002")
        if port:
            self.file(f"{folder}/phys_port_name", port)
        if carrier is not None:
            self.file(f"{folder}/carrier", str(carrier))
        if speed is not None:
            self.file(f"{folder}/speed", str(speed))
        if pci:
            self.link(f"{folder}/device", f"/sys/bus/pci/devices/{pci}")
        if rdma:
            device = self.root / f"sys/bus/pci/devices/{pci}/infiniband/{rdma}/ports/1"
            device.mkdir(parents=True)
            (device / "link_layer").write_text(f"{link_layer}\n")
            for file, text in (("fw_ver", firmware), ("sys_image_guid", card)):
                if text:
                    (device.parents[1] / file).write_text(f"{text}\n")
            self.link(
                f"/sys/class/infiniband/{rdma}", f"/sys/bus/pci/devices/{pci}/infiniband/{rdma}"
            )

    def drive(self, name: str, pci: str, model: str) -> None:
        folder = f"/sys/bus/pci/devices/{pci}/nvme/{name}"
        # The kernel pads names to 40 characters.
        self.file(f"{folder}/model", f"{model:40}")
        self.link(f"/sys/class/nvme/{name}", folder)


def config_space(
    payload: tuple[int, int], read_request: int, acs: int | None, bar1: int | None = None
) -> bytes:
    """Return a configuration space with PCI Express, and Access Control and Resizable BAR if given.

    ``bar1``: MiB that BAR 1 can be set to.
    """
    space = bytearray(4096)
    space[0x06] = 0x10
    space[0x34] = 0x60
    space[0x60:0x62] = b"\x10\x00"
    code = {128 << n: n for n in range(6)}
    space[0x64] = code[payload[0]]
    control = code[payload[1]] << 5 | code[read_request] << 12
    space[0x68:0x6A] = control.to_bytes(2, "little")
    if acs is not None:
        space[0x100:0x104] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x106:0x108] = acs.to_bytes(2, "little")
    if bar1 is not None:
        after = 0x200 << 20 if bar1 else 0
        head = int.from_bytes(space[0x100:0x104], "little") | after
        space[0x100:0x104] = head.to_bytes(4, "little")
        space[0x200:0x204] = (0x0015 | 1 << 16).to_bytes(4, "little")
        # All sizes up to this one; one entry, for BAR 1.
        space[0x204:0x208] = ((2 * bar1 - 1) << 4).to_bytes(4, "little")
        space[0x208:0x20C] = (1 << 5 | 1).to_bytes(4, "little")
    return bytes(space)


@pytest.fixture
def result_of(make_host, describe) -> Callable[..., Any]:
    """Return the result of one check on a host, described by name or in full, with changes."""

    def result_of(
        check: str,
        host: str | dict[str, Any],
        config: dict[str, Any] | None = None,
        platform: str = "auto",
        **changes: Any,
    ) -> Any:
        described = describe(host) if isinstance(host, str) else host
        root = make_host({**described, **changes})
        return check_host(config, platform=platform, root=root, only=[check])[check]

    return result_of


@pytest.fixture
def profile() -> Callable[[str], dict[str, Any]]:
    """Return a configuration that comes with the package: ``NAME``, or ``NAME:ENGINE``."""

    def profile(which: str) -> dict[str, Any]:
        name, _, engine = which.partition(":")
        config = load_config(PROFILES / f"{name}.yaml").to_dict()
        if engine:
            config["daqiri"]["cfg"]["engine"] = engine
        return config

    return profile


@pytest.fixture
def device() -> Callable[[dict[str, Any], str], dict[str, Any]]:
    """Return a description's entry of a PCI device, to be changed at will."""

    def device(host: dict[str, Any], address: str) -> dict[str, Any]:
        [found] = [entry for entry in host["pci"] if entry["path"].endswith(address)]
        return found

    return device


def raw(address, buf_size, engine="packet"):
    """Return a configuration with one receive queue on a port."""
    return {
        "version": 1,
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
                "rx": {
                    "queues": [
                        {
                            "name": f"q{n}",
                            "id": n,
                            "cpu_core": "any",
                            "batch_size": 64,
                            "memory_regions": ["m"],
                        }
                        for n in range(4)
                    ]
                },
            }
        ],
    }


def assert_shell(remedy):
    """Assert that a shell takes the commands."""
    for command in (*remedy.now, *remedy.lasting):
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=20)
