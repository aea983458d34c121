"""Links of docstrings: within the site, and to what other projects document.

Nothing is downloaded during a build: addresses follow from names, by the patterns below.
"""

import builtins
import re
from importlib import import_module
from inspect import isclass
from typing import Any

from docutils import nodes
from numpydoc.xref import DEFAULT_LINKS
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment

# In the order in which a name that several of them have is looked for.
PACKAGES = [
    f"daqiri_ophyd.{name}"
    for name in (
        "devices plans engine replay catalog documents host host.facts simulate profiles".split()
    )
]
STANDARD = "https://docs.python.org/3/library"
BLUESKY = "https://blueskyproject.io"
# Full names -> addresses; {0} is the name, {module} what is before its last dot.
ADDRESSES = {
    r"numpy\.[\w.]+": "https://numpy.org/doc/stable/reference/generated/{0}.html",
    r"xarray\.[\w.]+": "https://docs.xarray.dev/en/stable/generated/{0}.html",
    r"pandas\.[\w.]+": "https://pandas.pydata.org/docs/reference/api/{0}.html",
    r"bluesky\.[\w.]+": BLUESKY + "/bluesky/main/generated/{0}.html",
    r"ophyd\.[\w.]+": BLUESKY + "/ophyd/user/generated/{0}.html",
    r"builtins\.\w+(Error|Exception|Interrupt)": STANDARD + "/exceptions.html#{name}",
    r"builtins\.(None|True|False)": STANDARD + "/constants.html#{name}",
    r"builtins\.(str|list|dict|tuple|set|frozenset|bytes|range)": STANDARD
    + "/stdtypes.html#{name}",
    r"builtins\.\w+": STANDARD + "/functions.html#{name}",
    r"(collections\.abc|enum|os|pathlib|threading|typing)\.\w+": STANDARD + "/{module}.html#{0}",
}
# How docstrings abbreviate names.
NAMES = {
    "Any": "typing.Any",
    "array_like": "numpy.typing.ArrayLike",
    "callable": "collections.abc.Callable",
    "dtype": "numpy.dtype",
    "generator": "collections.abc.Generator",
    "iterable": "collections.abc.Iterable",
    "mapping": "collections.abc.Mapping",
    "ndarray": "numpy.ndarray",
    "ophyd.Device": "ophyd.device.Device",
    "path": "pathlib.Path",
    "Path": "pathlib.Path",
    "PathLike": "os.PathLike",
    "RunEngine": "bluesky.run_engine.RunEngine",
    "sequence": "collections.abc.Sequence",
}
# Described on a page that has several names.
NAMES_ON_A_PAGE = {
    "numpy.typing.ArrayLike": "https://numpy.org/doc/stable/reference/typing.html#numpy.typing.ArrayLike",
    "numpy.typing.NDArray": "https://numpy.org/doc/stable/reference/typing.html#numpy.typing.NDArray",
}


def types() -> dict[str, str]:
    """Words of docstrings' type descriptions that are links, for numpydoc."""
    public = (vars(import_module(package)) for package in PACKAGES)
    ours = {name for names in public for name, value in names.items() if isclass(value)}
    basic = {"None", "bool", "bytes", "dict", "float", "frozenset", "int", "list", "set", "str"}
    words = {*NAMES, *ours, *basic, "tuple", "numpy.dtype"}
    linked = {word: f":py:obj:`{word}`" for word in words if not word.startswith("_")}
    # numpydoc's own links need an inventory.
    return {word: word for word in DEFAULT_LINKS} | linked


def address(name: str) -> str | None:
    """Return where another project documents a name."""
    name = NAMES.get(name, re.sub(r"^np\.", "numpy.", name))
    if name in NAMES_ON_A_PAGE:
        return NAMES_ON_A_PAGE[name]
    if hasattr(builtins, name):
        name = f"builtins.{name}"
    for pattern, found in ADDRESSES.items():
        if re.fullmatch(pattern, name):
            module, _, last = name.rpartition(".")
            return found.format(name, module=module, name=last)
    return None


def documented(domain: PythonDomain, name: str, package: str) -> str | None:
    """Return the full name of what this site documents as `name`."""
    # Where it is defined -> where it is imported from.
    name = re.sub(r"\b_native\.", "engine.", name)
    name = re.sub(r"\._\w+(?=\.)", "", name)
    # A field that is described in its class's docstring has no entry of its own.
    for wanted in (name, name.rpartition(".")[0]):
        for place in ["", f"{package}.", *(f"{each}." for each in PACKAGES)]:
            if place + wanted in domain.objects:
                return place + wanted
    return None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Return the link for a Python name that Sphinx does not find, or None."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    domain: Any = env.get_domain("py")
    # A name in lower case is a parameter or an attribute, unless it says of what.
    if "." in target or target[:1].isupper():
        name = documented(domain, target, node.get("py:module") or "")
        if name is not None:
            entry = domain.objects[name]
            uri = app.builder.get_relative_uri(node["refdoc"], entry.docname)
            uri = f"{uri}#{entry.node_id}"
            return nodes.reference("", "", content, internal=True, refuri=uri)
    found = address(target)
    if found is None:
        return None
    return nodes.reference("", "", content, internal=False, refuri=found)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
