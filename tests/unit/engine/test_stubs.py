import ast
import inspect
from pathlib import Path

import daqiri_ophyd.engine
from daqiri_ophyd import _native

STUB = Path(daqiri_ophyd.engine.__file__).resolve().parents[1] / "_native.pyi"


def members(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Names that a class of the stub declares, its own and those of its bases there."""
    names: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            names.add(item.name)
        elif isinstance(item, ast.Assign):
            names |= {target.id for target in item.targets if isinstance(target, ast.Name)}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            names |= members(classes[base.id], classes)
    return names


def test_the_stub_names_what_the_extension_has() -> None:
    tree = ast.parse(STUB.read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in vars(_native) if not name.startswith("_")}
    assert public == {name for name in classes if not name.startswith("_")} | functions
    for name, node in classes.items():
        if name.startswith("_"):
            continue
        real = {
            member
            for member in vars(getattr(_native, name))
            if not member.startswith("_") or member == "__len__"
        }
        declared = members(node, classes)
        if name == "Status":
            real = {status.name for status in _native.Status}
        assert declared - {"__len__"} == real - {"__len__"}, name


def test_everything_public_is_documented() -> None:
    for name in daqiri_ophyd.engine.__all__:
        thing = getattr(daqiri_ophyd.engine, name)
        if isinstance(thing, int) or not (inspect.isclass(thing) or callable(thing)):
            continue
        assert inspect.getdoc(thing), name
