"""The PCIe tree of a host as a picture (SVG 1.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._canvas import INK, PAPER, Canvas, text_width
from ._device_names import DeviceNames, known
from ._root import FactError
from .facts import Connection, Facts, PciDevice, connection, cpu_ranges

__all__ = ["pcie_picture"]

# As wide as a page of the documentation shows it without shrinking it.
_WIDTH, _MARGIN, _PAD = 700, 14, 12
_END = _WIDTH - _MARGIN
# Indentation of a level, and of the deepest one at most.
_STEP, _DEEPEST = 20, 260
_BRIDGE, _DEVICE = 22, 36
# The table of paths.
_FIRST, _CELL, _ROW = 190, 80, 32
_COLUMNS = (_END - _MARGIN - _FIRST) // _CELL
_SOFT, _GROUND, _EDGE, _LINE = "#52606d", "#f0f4f8", "#bcccdc", "#829ab1"
_FILLS = {"NIC": "#d9f2e3", "GPU": "#fdf0c8", "NVMe": "#dbe7fb"}
_EDGES = {"NIC": "#276749", "GPU": "#975a16", "NVMe": "#2b5fab"}
_DEGRADED, _SHORT = "#c53030", "#975a16"
_PATHS = {
    Connection.PIX: ("#9ae6b4", "over one switch at most"),
    Connection.PXB: ("#c6f6d5", "over several bridges"),
    Connection.PHB: ("#fefcbf", "over the host bridge"),
    Connection.NODE: ("#fed7aa", "between host bridges of a NUMA node"),
    Connection.SYS: ("#feb2b2", "between NUMA nodes"),
}
# Bridges, by the bridge above them.
_BELOW = {
    "host bridge": "root port",
    "root port": "switch",
    "switch": "switch port",
    "switch port": "switch",
}
_PORTS = ("root port", "switch port")
_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "32.0": 5, "64.0": 6}


@dataclass
class _Node:
    """A bridge or a device of the tree."""

    name: str
    kind: str
    device: PciDevice | None
    children: dict[str, _Node] = field(default_factory=dict)


def pcie_picture(facts: Facts) -> str:
    """
    Return the PCIe tree as SVG.

    It has NUMA nodes, host bridges, bridges, NICs, GPUs and NVMe drives, the generation, width and
    rate of every link (red where it is below its maximum), a table of the paths from GPUs to NICs
    and drives, and a legend.

    Parameters
    ----------
    facts : Facts
        The host.

    Returns
    -------
    str
        An SVG document, 700 px wide.

    Raises
    ------
    FactError
        If the host has neither a NIC, a GPU nor an NVMe drive on a PCI bus.
    """
    shown = [device for _, device in sorted(facts.pci.items()) if _kind(device)]
    if not shown:
        raise FactError("no NIC, GPU or NVMe drive on a PCI bus: nothing to draw")
    canvas, names = Canvas(), DeviceNames(facts)
    identity = facts.identity()
    title = ", ".join(filter(None, (identity["name"], identity["product"]))) or "PCI Express"
    canvas.text(_MARGIN, 32, title, 16, bold=True, within=_END - _MARGIN)
    y = _Tree(canvas, facts, names, shown).draw(46)
    y, table = _draw_paths(canvas, names, shown, y)
    return canvas.finish(_WIDTH, _draw_legend(canvas, shown, table, y))


def _kind(device: PciDevice) -> str:
    if device.is_nic:
        return "NIC"
    if device.is_gpu:
        return "GPU"
    return "NVMe" if device.is_nvme else ""


class _Tree:
    """Host bridges of each NUMA node, with the devices below them."""

    def __init__(
        self, canvas: Canvas, facts: Facts, names: DeviceNames, shown: list[PciDevice]
    ) -> None:
        self._canvas, self._facts, self._names = canvas, facts, names
        self._groups: dict[int | None, dict[str, _Node]] = {}
        for device in shown:
            above, kind = self._groups.setdefault(device.numa_node, {}), ""
            for name in device.ancestors:
                bridge = facts.pci.get(name)
                kind = _bridge_kind(name, bridge, kind)
                above = above.setdefault(name, _Node(name, kind, bridge)).children
            above.setdefault(device.address, _Node(device.address, _kind(device), device))
        self._step = min(_STEP, _DEEPEST / max(1, *(len(device.ancestors) for device in shown)))

    def draw(self, top: float) -> float:
        """Draw all; return the lower end."""
        for number in sorted(self._groups, key=lambda number: (number is None, number or 0)):
            panel = self._canvas.box(_MARGIN, top, _END - _MARGIN, 0, _GROUND, _EDGE, 8)
            x, y = _MARGIN + _PAD, top + 22
            self._canvas.text(x, y, self._title(number), 12, _SOFT, within=_END - _PAD - x)
            for host in self._groups[number].values():
                y, _ = self._draw_node(host, x, y, None)
            panel.set("height", f"{y + 10 - top:g}")
            top = y + 22
        return top

    def _title(self, number: int | None) -> str:
        cpus = known(lambda: self._facts.cpus, {})
        here = {n for n, cpu in cpus.items() if number is None or cpu.node == number}
        several = len({cpu.node for cpu in cpus.values()}) > 1
        where = "NUMA node not known" if number is None and several else f"NUMA node {number or 0}"
        return f"{where} · CPUs {cpu_ranges(here)}" if here else where

    def _draw_node(
        self, node: _Node, x: float, y: float, above: _Node | None
    ) -> tuple[float, float]:
        """Draw a node and those below it; return the lower end of all, and the node's middle."""
        label, colour = self._link(node, above)
        if label:
            start = x - self._step / 2 + 5
            self._canvas.text(start, y + 14, label, 10, colour, within=_END - _PAD - start)
        y += 18 if label else 8
        height = _BRIDGE if node.children else _DEVICE
        middle, bend = y + height / 2, x + self._step / 2
        if above is not None:
            arm = _DEGRADED if colour == _DEGRADED else _LINE
            self._canvas.line([(bend - self._step, middle), (x, middle)], arm, 2.4)
        if node.children:
            self._draw_bridge(node, x, y)
        else:
            self._draw_device(node, x, y)
        lower = last = y = y + height
        for child in node.children.values():
            y, last = self._draw_node(child, x + self._step, y, node)
        if node.children:
            self._canvas.line([(bend, lower), (bend, last)], _LINE)
        return y, middle

    def _draw_bridge(self, node: _Node, x: float, y: float) -> None:
        product = self._names.product(node.device) if node.device else ""
        address = node.name.removeprefix("pci")
        text = " · ".join(filter(None, (node.kind, address, product)))
        width = min(text_width(text, 10) + 16, _END - _PAD - x)
        self._canvas.box(x, y, width, _BRIDGE, PAPER, _LINE, 6)
        self._canvas.text(x + 8, y + 15, text, within=width - 16)

    def _draw_device(self, node: _Node, x: float, y: float) -> None:
        if node.device is None:
            return
        names, width = self._names.of(node.device), _END - _PAD - x
        edge = _EDGES[node.kind]
        self._canvas.box(x, y, width, _DEVICE, _FILLS[node.kind], edge, 8)
        tag = self._canvas.text(x + width - 10, y + 15, node.kind, 10, edge, "end")
        self._canvas.text(x + 10, y + 15, names.product, 12, bold=True, within=width - tag - 30)
        second = " · ".join(filter(None, (node.name, names.system, names.state)))
        self._canvas.text(x + 10, y + 29, second, 10, _SOFT, within=width - 20)

    def _link(self, node: _Node, above: _Node | None) -> tuple[str, str]:
        """Return the label of the link above a node, and its colour."""
        # A port is in one chip with what is above it; its link is the one below it.
        if above is None or node.kind in _PORTS:
            return "", _SOFT
        ends = [node.device, above.device if above.kind in _PORTS else None]
        linked = [end for end in ends if end is not None and end.bandwidth]
        if not linked:
            return "", _SOFT
        slower = min(linked, key=lambda end: end.bandwidth or 0)
        now = _speed(slower.link_speed, slower.link_width, slower.bandwidth)
        best = linked[0]
        most = _speed(best.max_link_speed, best.max_link_width, best.max_bandwidth)
        if most not in ("", now):
            return f"{now}; possible: {most}", _DEGRADED
        rate = self._names.of(node.device).rate / 1000 if node.device else 0
        carried = slower.packet_bandwidth or 0
        if carried < rate:
            return f"{now}; carries about {carried:.0f} of the port's {rate:g} Gb/s", _SHORT
        return now, _SOFT


def _bridge_kind(name: str, device: PciDevice | None, above: str) -> str:
    if name.startswith("pci"):
        return "host bridge"
    if device is not None and not device.is_bridge:
        return "controller"
    return _BELOW.get(above, "bridge")


def _speed(speed: str, width: int, bandwidth: float | None) -> str:
    if bandwidth is None:
        return ""
    rate = speed.split()[0]
    generation = f"Gen{_GENERATIONS[rate]}" if rate in _GENERATIONS else speed
    # One byte has 8 bits.
    gigabytes = f"{bandwidth / 8:.0f}" if bandwidth >= 80 else f"{bandwidth / 8:.2g}"
    return f"{generation} x{width}, {gigabytes} GB/s"


def _draw_paths(
    canvas: Canvas, names: DeviceNames, shown: list[PciDevice], top: float
) -> tuple[float, bool]:
    """Draw the table; return its lower end, and whether it has classes of paths."""
    gpus = [device for device in shown if device.is_nvidia_gpu]
    others = [device for device in shown if device.is_nic or device.is_nvme]
    if not gpus or not others:
        return top, False
    integrated = {address for address, gpu in names.gpus.items() if gpu.integrated}
    canvas.text(_MARGIN, top + 14, "Paths from GPUs to NICs and drives", 12, bold=True)
    top += 20
    for start in range(0, len(gpus), _COLUMNS):
        part = gpus[start : start + _COLUMNS]
        for column, gpu in enumerate(part):
            _cell(canvas, column, top + 14, names.of(gpu).system or "GPU", bold=True)
            _cell(canvas, column, top + 27, gpu.address, _SOFT)
        top += 32
        for other in others:
            of = names.of(other)
            canvas.text(_MARGIN, top + 14, of.system or of.product, within=_FIRST - 8)
            canvas.text(_MARGIN, top + 26, other.address, 10, _SOFT, within=_FIRST - 8)
            for column, gpu in enumerate(part):
                path = connection(gpu, other)
                fill, label = _PATHS[path][0], str(path)
                if gpu.address in integrated:
                    fill, label = PAPER, "host memory"
                x = _MARGIN + _FIRST + column * _CELL
                canvas.box(x + 2, top + 3, _CELL - 4, _ROW - 6, fill, _EDGE, 4)
                _cell(canvas, column, top + 20, label)
            top += _ROW
    return top + 14, not integrated.issuperset(gpu.address for gpu in gpus)


def _cell(
    canvas: Canvas, column: int, y: float, text: str, fill: str = INK, bold: bool = False
) -> None:
    x = _MARGIN + _FIRST + (column + 0.5) * _CELL
    canvas.text(x, y, text, 10, fill, "middle", bold, within=_CELL - 6)


def _draw_legend(canvas: Canvas, shown: list[PciDevice], table: bool, y: float) -> float:
    """Draw what colours and classes of paths mean; return the lower end."""
    kinds = {_kind(device) for device in shown}
    chips = [(_FILLS[kind], _EDGES[kind], kind, "") for kind in _FILLS if kind in kinds]
    chips += [(PAPER, _LINE, "bridge", ""), (_DEGRADED, _DEGRADED, "", "link below its maximum")]
    classes = [(fill, _EDGE, path, meaning) for path, (fill, meaning) in _PATHS.items()]
    for row in (chips, classes if table else []):
        x, end = _MARGIN, y
        for fill, edge, name, meaning in row:
            chip = 46 if name else 16
            width = chip + (6 + text_width(meaning, 10) if meaning else 0)
            if x + width > _END:
                x, y = _MARGIN, y + 22
            # A link is a line.
            canvas.box(x, y + (0 if name else 7), chip, 17 if name else 2.4, fill, edge, 3)
            canvas.text(x + chip / 2, y + 12, name, anchor="middle")
            canvas.text(x + chip + 6, y + 12, meaning, 10, _SOFT)
            x += width + 14
            end = y + 22
        y = end
    note = "Gen4 x16: generation and lanes of a link. GB/s: its rate in each direction."
    canvas.text(_MARGIN, y + 14, note, 10, _SOFT)
    return y + 28
