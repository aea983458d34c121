"""Sphinx configuration; 'make docs' builds with warnings as errors."""

import inspect
import re
import subprocess
import sys
from abc import ABC
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, Generic, get_origin

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

from daqiri_ophyd.host import CHECKS

project = "daqiri-ophyd"
author = "daqiri-ophyd contributors"
copyright = f"2026, {author}"
release = version = metadata(project)["Version"]

sys.path.insert(0, str(Path(__file__).with_name("extensions")))

import links  # noqa: E402

extensions = [
    "breathe",
    "cpp_reference",
    "links",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Prompts and what is printed are not copied.
copybutton_exclude = ".linenos, .gp, .go"

# What docstrings have in single backticks is a name.
default_role = "py:obj"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autosummary_generate = False
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = links.types()

# Of pyproject.toml, by label.
URLS = dict(line.split(", ") for line in metadata(project).get_all("Project-URL") or ())
html_theme = "pydata_sphinx_theme"
html_title = "daqiri-ophyd"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "logo": {"text": "daqiri-ophyd"},
    "navigation_with_keys": False,
    "show_prev_next": False,
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "icon_links": [
        {"name": name, "url": URLS[name], "icon": f"fa-solid {icon}"}
        for name, icon in (("Repository", "fa-code-branch"), ("Issues", "fa-circle-dot"))
        if name in URLS
    ],
}

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
        rows = [("check", "expected", "why")]
        rows += [(f"``{c.name}``", c.wanted, c.why) for c in CHECKS.values()]
        for row in rows:
            lines += [f"   {'* -' if n == 0 else '  -'} {cell}" for n, cell in enumerate(row)]
        table = nodes.section()
        self.state.nested_parse(StringList(lines, "host-checks"), 0, table)
        return table.children


def hide_signature(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str] | None:
    """Leave out the parameters of classes that only the package constructs.

    The docstring of a class that users construct describes its parameters.
    """
    if (
        what == "class"
        and signature
        and "\nParameters\n" not in inspect.cleandoc(value.__doc__ or "")
    ):
        return "", ""
    return None


def edit_docstring(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Show the text of a package once, and that of a constant, which has none of its own.

    A page begins with the docstring of its package; tables come between it and the members.
    """
    package, _, last = name.rpartition(".")
    if what == "module" and package == "daqiri_ophyd" and options.get("members"):
        lines.clear()
    if what == "data":
        modules = [module for module in sys.modules if f"{module}.".startswith(f"{package}.")]
        texts = (ModuleAnalyzer.for_module(module).find_attr_docs() for module in modules)
        lines[:] = next(text["", last] for text in texts if ("", last) in text)


def public_bases(app: Sphinx, name: str, value: type, options: Any, bases: list[type]) -> None:
    """Name base classes that users can import, instead of those that only the package uses."""

    def public(base: type) -> list[type]:
        kind = get_origin(base) or base
        if not kind.__module__.startswith("daqiri_ophyd.") or kind.__name__ in links.types():
            return [base]
        return [each for above in kind.__bases__ for each in public(above)]

    found = dict.fromkeys(each for base in bases for each in public(base))
    said = [base for base in found if base not in (object, ABC, Generic)]
    bases[:] = [base for base in said if base.__module__ != "pybind11_builtins"] or [object]


def forget_extension(app: Sphinx, env: BuildEnvironment) -> None:
    """Keep the extension, whose source viewcode cannot show, out of viewcode's list."""
    vars(env)["_viewcode_modules"].pop("daqiri_ophyd._native", None)


def setup(app: Sphinx) -> None:
    """Add the directive."""
    app.add_directive("host-checks", HostChecks)
    app.connect("env-check-consistency", forget_extension)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-process-docstring", edit_docstring)
    app.connect("autodoc-process-bases", public_bases)
