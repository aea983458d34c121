"""Tables of the functions of a group of the C++ headers, from what doxygen read."""

import re
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

XML = Path(__file__).parents[2] / "build" / "doxygen" / "xml"


def text_of(element: ElementTree.Element) -> str:
    """Return a text of doxygen in one line of reStructuredText."""

    def plain(text: str | None) -> str:
        return re.sub(r"[\\`*_|]", r"\\\g<0>", text or "")

    def marked(part: ElementTree.Element) -> str:
        if part.tag == "computeroutput":
            return f"``{''.join(part.itertext())}``"
        return plain(part.text) + "".join(marked(each) + plain(each.tail) for each in part)

    return " ".join(marked(element).split())


class CppFunctions(Directive):
    """A table of the functions of the groups that are named, with their briefs."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        rows: dict[str, str] = {}
        for group in self.arguments[0].split():
            tree = ElementTree.parse(XML / f"group__{group}.xml")
            for member in tree.iter("memberdef"):
                if member.get("kind") == "function":
                    name = member.findtext("name", "")
                    rows.setdefault(f":cpp:func:`{name}`", text_of(member.find("briefdescription")))
        lines = [".. list-table::", "   :class: cpp-functions", ""]
        for name, brief in rows.items():
            lines += [f"   * - {name}", f"     - {brief}"]
        table = nodes.section()
        self.state.nested_parse(StringList(lines, "cpp-functions"), 0, table)
        return table.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("cpp-functions", CppFunctions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
