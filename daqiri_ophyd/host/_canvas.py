"""An SVG document with texts of known widths."""

from __future__ import annotations

from xml.etree import ElementTree

__all__ = ["INK", "PAPER", "Canvas", "text_width"]

INK, PAPER = "#1f2933", "#ffffff"
# Verdana has the widths of DejaVu Sans.
_FONT = "DejaVu Sans, Verdana, sans-serif"
# Characters of DejaVu Sans by their width in hundredths of the font size, rounded up.
_WIDTHS = {
    28: "'ijl",
    30: "IJ",
    34: " ,.·/:;\\|",
    36: "f",
    40: "-()[]t",
    46: '!r"',
    56: "*_`–?szLc",
    62: "FkvxyPTYaeo",
    66: "$0123456789ESbdghnpqu{}K",
    70: "ABCRVXZ",
    78: "UHN&DG",
    84: "OQw#+<=>^~",
    88: "M",
    100: "%m@W…",
}
_WIDTH_OF = {c: width / 100 for width, characters in _WIDTHS.items() for c in characters}
# Bold ones are wider by a quarter at most.
_OTHERS, _BOLD = 1.1, 1.25
_LONGEST = 200


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width that a text takes at most."""
    ems = sum(_WIDTH_OF.get(c, _OTHERS) for c in text)
    return ems * size * (_BOLD if bold else 1)


class Canvas:
    """Shapes, in the order in which they are drawn."""

    def __init__(self) -> None:
        self._shapes: list[ElementTree.Element] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, edge: str, radius: float
    ) -> ElementTree.Element:
        """Draw a box; its height may be set later."""
        return self._add(
            "rect", x=x, y=y, width=width, height=height, rx=radius, fill=fill, stroke=edge
        )

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1.6) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._add("polyline", points=path, fill="none", stroke=colour, stroke_width=width)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 10,
        fill: str = INK,
        anchor: str = "start",
        bold: bool = False,
        within: float = 0,
    ) -> float:
        """
        Draw a text, if it is not empty, and return its width.

        A text wider than ``within``, if given, is shortened; a viewer shows all of it on demand.
        """
        if not text:
            return 0
        shown = _shortened(text, size, bold, within) if within else text
        weight = "bold" if bold else "normal"
        shape = self._add(
            "text", x=x, y=y, fill=fill, font_size=size, text_anchor=anchor, font_weight=weight
        )
        shape.text = shown
        if shown != text:
            ElementTree.SubElement(shape, "title").text = text
        return text_width(shown, size, bold)

    def finish(self, width: float, height: float) -> str:
        """Return the document, on paper of its own colour: a page may be dark."""
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
        ElementTree.SubElement(svg, "rect", {**size, "rx": "8", "fill": PAPER})
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


def _shortened(text: str, size: float, bold: bool, width: float) -> str:
    if text_width(text, size, bold) <= width:
        return text
    text = text[:_LONGEST]
    while text and text_width(f"{text}…", size, bold) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"
