"""Sphinx configuration; 'make docs' builds with warnings as errors."""

import re
import subprocess
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

from daqiri_ophyd.host import CHECKS

project = "daqiri-ophyd"
author = "daqiri-ophyd contributors"
copyright = f"2026, {author}"
release = version = installed_version("daqiri-ophyd")

extensions = [
    "breathe",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_design",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "daqiri-ophyd"
html_show_sourcelink = False
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}

ROOT = Path(__file__).parents[1]
# Configuration structs are documented; their fields are the keys of the configuration reference.
KEYS = re.compile(r"/(config|flows|reorder)\.h:\d+: warning: Member .* \(variable\) ")


def extract_headers() -> None:
    """Read the public C++ headers; what doxygen complains of ends the build."""
    (ROOT / "build").mkdir(exist_ok=True)
    run = subprocess.run(
        ["doxygen", "docs/Doxyfile"], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False
    )
    found = [line for line in run.stderr.splitlines() if not KEYS.search(line)]
    if found or run.returncode != 0:
        raise SystemExit("\n".join(found) or f"doxygen failed with {run.returncode}")


def draw_includes() -> None:
    """Write the picture of includes that the page on the layout shows."""
    picture = subprocess.check_output([ROOT / ".ci" / "includes"], text=True)
    (ROOT / "build" / "includes.txt").write_text(picture)


extract_headers()
draw_includes()
breathe_projects = {"daqiri": str(ROOT / "build" / "doxygen" / "xml")}
breathe_default_project = "daqiri"
breathe_show_include = False


class HostChecks(Directive):
    """A table of the host checks, from their declarations."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 15 40 45", ""]
        rows = [("check", "wanted", "why")]
        rows += [(f"``{c.name}``", c.wanted, c.why) for c in CHECKS.values()]
        for row in rows:
            lines += [f"   {'* -' if n == 0 else '  -'} {cell}" for n, cell in enumerate(row)]
        table = nodes.section()
        self.state.nested_parse(StringList(lines, "host-checks"), 0, table)
        return table.children


def setup(app: Sphinx) -> None:
    """Add the directive."""
    app.add_directive("host-checks", HostChecks)
