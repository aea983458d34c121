"""The PCIe tree of a host as a picture (SVG 1.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

from ._root import FactError
from .facts import Connection, Facts, Gpu, PciDevice, connection, cpu_ranges

__all__ = ["pcie_picture"]

_ROW, _BOX, _STEP, _LEAF, _MARGIN, _PAD = 56, 40, 92, 300, 24, 14
# Space for the label of a device's link.
_GAP = 60
_FONT = "DejaVu Sans, Verdana, sans-serif"
_INK, _SOFT, _PAPER, _GROUND = "#1f2933", "#52606d", "#ffffff", "#f0f4f8"
_FILLS = {"NIC": "#d9f2e3", "GPU": "#fdf0c8", "NVMe": "#dbe7fb", "bridge": "#ffffff"}
_EDGES = {"NIC": "#2f855a", "GPU": "#b7791f", "NVMe": "#2b5fab", "bridge": "#829ab1"}
_PATH_COLOURS = {
    Connection.PIX: "#9ae6b4",
    Connection.PXB: "#c6f6d5",
    Connection.PHB: "#fefcbf",
    Connection.NODE: "#fed7aa",
    Connection.SYS: "#feb2b2",
}
_NARROW = "#c53030"
_VENDORS = {
    0x1002: "AMD",
    0x10DE: "NVIDIA",
    0x10EC: "Realtek",
    0x144D: "Samsung",
    0x14E4: "Broadcom",
    0x15B3: "NVIDIA",
    0x15B7: "SanDisk",
    0x1AF4: "virtio",
    0x8086: "Intel",
}
_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "32.0": 5, "64.0": 6}


@dataclass
class _Node:
    """A bridge or a device of the tree, and where it is drawn."""

    label: str
    device: PciDevice | None = None
    children: dict[str, _Node] = field(default_factory=dict)
    x: float = 0
    y: float = 0

    def leaves(self) -> Iterator[_Node]:
        if not self.children:
            yield self
        for child in self.children.values():
            yield from child.leaves()


def pcie_picture(facts: Facts) -> str:
    """
    Return the PCIe tree as SVG.

    NUMA nodes, host bridges, bridges, NICs, GPUs and NVMe drives, the generation and width of every
    link (red where it could be faster), and a table of the paths between GPUs and NICs.

    Parameters
    ----------
    facts : Facts
        The host.

    Returns
    -------
    str
        An SVG document.

    Raises
    ------
    FactError
        If the host has neither a NIC, a GPU nor an NVMe drive on a PCI bus.
    """
    shown = {a: d for a, d in facts.pci.items() if _kind(d) in ("NIC", "GPU", "NVMe")}
    if not shown:
        raise FactError("no NIC, GPU or NVMe drive on a PCI bus: nothing to draw")
    groups = _trees(facts, shown)
    names = _names(facts, shown)
    canvas = _Canvas()
    depth = max(len(device.ancestors) for device in shown.values())
    identity = facts.identity()
    title = ", ".join(filter(None, (identity["name"], identity["product"])))
    canvas.text(_MARGIN, 34, title or "PCI Express", size=17, weight="bold")
    y = 56.0
    width = _MARGIN + _PAD + depth * _STEP + _GAP + _LEAF + _PAD
    for number, hosts in groups.items():
        y = _draw_group(canvas, facts, number, hosts, names, y, width, depth) + 16
    right, y = _draw_paths(canvas, facts, shown, names, y)
    return canvas.finish(max(width, right) + _MARGIN, y + 8)


def _kind(device: PciDevice) -> str:
    if device.is_nic:
        return "NIC"
    if device.is_gpu:
        return "GPU"
    return "NVMe" if device.is_nvme else "bridge"


def _trees(facts: Facts, shown: dict[str, PciDevice]) -> dict[int | None, dict[str, _Node]]:
    """Return host bridges by name by NUMA node, with the devices below them."""
    groups: dict[int | None, dict[str, _Node]] = {}
    for address in sorted(shown):
        device = shown[address]
        hosts = groups.setdefault(device.numa_node, {})
        above = hosts
        for name in device.ancestors:
            node = above.setdefault(name, _Node(name, facts.pci.get(name)))
            above = node.children
        above[address] = _Node(address, device)
    return dict(sorted(groups.items(), key=lambda item: (item[0] is None, item[0] or 0)))


def _names(facts: Facts, shown: dict[str, PciDevice]) -> dict[str, tuple[str, str]]:
    """Return two lines for each device: product, and address with name."""
    gpus = _gpus(facts)
    interfaces = {each.pci_address: each for each in facts.interfaces.values() if each.pci_address}
    names = {}
    for address, device in shown.items():
        vendor = _VENDORS.get(device.vendor, f"{device.vendor:04x}")
        name = device.product or f"{vendor} {device.device:04x}"
        second = address
        if gpu := gpus.get(address):
            name = gpu.name
            second += f" · GPU {gpu.index}" + (", integrated" if gpu.integrated else "")
        if interface := interfaces.get(address):
            second += f" · {interface.name}"
            if not interface.carrier:
                second += ", no link"
            elif interface.speed:
                second += f", {interface.speed / 1000:g} Gb/s"
        names[address] = (name, second)
    return names


def _gpus(facts: Facts) -> dict[str, Gpu]:
    try:
        return {gpu.pci_address: gpu for gpu in facts.gpus}
    except FactError:
        return {}


def _draw_group(
    canvas: _Canvas,
    facts: Facts,
    number: int | None,
    hosts: dict[str, _Node],
    names: dict[str, tuple[str, str]],
    top: float,
    width: float,
    depth: int,
) -> float:
    rows = sum(1 for host in hosts.values() for _ in host.leaves())
    bottom = top + 34 + rows * _ROW + 4
    canvas.box(_MARGIN, top, width - _MARGIN, bottom - top, _GROUND, "#bcccdc", 10)
    canvas.text(_MARGIN + _PAD, top + 22, _node_title(facts, number), size=12, fill=_SOFT)
    y = top + 34
    for host in hosts.values():
        for leaf in host.leaves():
            leaf.y = y + _BOX / 2
            y += _ROW
        _place(host, 0, depth)
        _draw_node(canvas, host, names)
    return bottom


def _node_title(facts: Facts, number: int | None) -> str:
    try:
        cpus = {n for n, cpu in facts.cpus.items() if number is None or cpu.node == number}
        nodes = {cpu.node for cpu in facts.cpus.values()}
    except FactError:
        cpus, nodes = set(), set()
    where = (
        "NUMA node not known" if number is None and len(nodes) > 1 else f"NUMA node {number or 0}"
    )
    return f"{where} · CPUs {cpu_ranges(cpus)}" if cpus else where


def _place(node: _Node, level: int, depth: int) -> None:
    """Place a bridge at the middle of its children; devices are in one column."""
    node.x = _MARGIN + _PAD + (level * _STEP if node.children else depth * _STEP + _GAP)
    for child in node.children.values():
        _place(child, level + 1, depth)
    if node.children:
        ys = [child.y for child in node.children.values()]
        node.y = (min(ys) + max(ys)) / 2


def _draw_node(canvas: _Canvas, node: _Node, names: dict[str, tuple[str, str]]) -> None:
    for child in node.children.values():
        _draw_link(canvas, node, child)
        _draw_node(canvas, child, names)
    if node.children:
        label = "host bridge" if node.device is None else "bridge"
        short = node.label.removeprefix("pci")
        canvas.box(node.x, node.y - 16, _STEP - 20, 32, _PAPER, _EDGES["bridge"], 6)
        canvas.text(node.x + (_STEP - 20) / 2, node.y - 2, label, 9, _SOFT, anchor="middle")
        canvas.text(node.x + (_STEP - 20) / 2, node.y + 10, short, 10, anchor="middle")
    elif node.device is not None:
        kind = _kind(node.device)
        first, second = names[node.label]
        canvas.box(node.x, node.y - _BOX / 2, _LEAF, _BOX, _FILLS[kind], _EDGES[kind], 8)
        canvas.text(node.x + 10, node.y - 4, first, 12, weight="bold")
        canvas.text(node.x + _LEAF - 10, node.y - 4, kind, 10, _EDGES[kind], anchor="end")
        canvas.text(node.x + 10, node.y + 12, second, 10, _SOFT)


def _draw_link(canvas: _Canvas, node: _Node, child: _Node) -> None:
    begin, bend = node.x + _STEP - 20, node.x + _STEP - 10
    device = child.device
    colour, ink, label = _EDGES["bridge"], _SOFT, ""
    if device is not None and device.link_speed:
        label = _link(device.link_speed, device.link_width)
        if device.max_link_speed:
            most = _link(device.max_link_speed, device.max_link_width)
            if most != label:
                colour = ink = _NARROW
                canvas.text(child.x - 6, child.y + 12, f"of {most}", 9, ink, anchor="end")
    canvas.line([(begin, node.y), (bend, node.y), (bend, child.y), (child.x, child.y)], colour)
    if label and not child.children:
        canvas.text(child.x - 6, child.y - 4, label, 9, ink, anchor="end")


def _link(speed: str, width: int) -> str:
    rate = speed.split()[0]
    generation = _GENERATIONS.get(rate)
    return f"Gen{generation} x{width}" if generation else f"{speed} x{width}"


def _draw_paths(
    canvas: _Canvas,
    facts: Facts,
    shown: dict[str, PciDevice],
    names: dict[str, tuple[str, str]],
    top: float,
) -> tuple[float, float]:
    """Draw the table; return its right and bottom ends."""
    gpus = [device for device in shown.values() if device.is_nvidia_gpu]
    nics = [device for device in shown.values() if device.is_nic]
    if not gpus or not nics:
        return 0, top
    integrated = {address for address, gpu in _gpus(facts).items() if gpu.integrated}
    cell, first = 104, 250
    canvas.text(_MARGIN, top + 18, "Paths between GPUs and NICs", 12, weight="bold")
    top += 30
    for column, nic in enumerate(nics):
        x = _MARGIN + first + column * cell
        canvas.text(x + cell / 2, top + 12, nic.address, 10, _SOFT, anchor="middle")
    top += 20
    for gpu in gpus:
        canvas.text(_MARGIN, top + 18, f"{names[gpu.address][0]} · {gpu.address}", 10)
        for column, nic in enumerate(nics):
            path = connection(gpu, nic)
            label, fill = str(path), _PATH_COLOURS[path]
            if gpu.address in integrated:
                label, fill = "host memory", _PAPER
            x = _MARGIN + first + column * cell
            canvas.box(x + 2, top + 2, cell - 4, 24, fill, "#cbd2d9", 4)
            canvas.text(x + cell / 2, top + 18, label, 11, anchor="middle", weight="bold")
        top += 28
    return _MARGIN + first + len(nics) * cell, top + 8


class _Canvas:
    """Shapes, in the order in which they are drawn."""

    def __init__(self) -> None:
        self._shapes: list[ElementTree.Element] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, edge: str, radius: float
    ) -> None:
        self._add("rect", x=x, y=y, width=width, height=height, rx=radius, fill=fill, stroke=edge)

    def line(self, points: list[tuple[float, float]], colour: str) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._add("polyline", points=path, fill="none", stroke=colour, stroke_width=1.6)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 11,
        fill: str = _INK,
        anchor: str = "start",
        weight: str = "normal",
    ) -> None:
        shape = self._add(
            "text", x=x, y=y, fill=fill, font_size=size, text_anchor=anchor, font_weight=weight
        )
        shape.text = text

    def finish(self, width: float, height: float) -> str:
        """Return the document."""
        size = {"width": f"{width:g}", "height": f"{height:g}"}
        svg = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                **size,
                "viewBox": f"0 0 {width:g} {height:g}",
                "font-family": _FONT,
            },
        )
        ElementTree.SubElement(svg, "rect", {**size, "fill": _PAPER})
        svg.extend(self._shapes)
        ElementTree.indent(svg)
        return ElementTree.tostring(svg, encoding="unicode") + "\n"

    def _add(self, name: str, **attributes: str | float) -> ElementTree.Element:
        texts = {
            key.replace("_", "-"): value if isinstance(value, str) else f"{value:g}"
            for key, value in attributes.items()
        }
        shape = ElementTree.Element(name, texts)
        self._shapes.append(shape)
        return shape
