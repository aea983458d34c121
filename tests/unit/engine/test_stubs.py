import ast
import inspect
import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import pytest

import daqiri_ophyd.engine
from daqiri_ophyd import _native

STUB = Path(daqiri_ophyd.engine.__file__).resolve().parents[1] / "_native.pyi"
TREE = ast.parse(STUB.read_text())
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in TREE.body if isinstance(node, ast.FunctionDef)}
PUBLIC_CLASSES = sorted(name for name in CLASSES if not name.startswith("_"))
ENUMS = [name for name in PUBLIC_CLASSES if issubclass(getattr(_native, name), IntEnum)]
# What every class of an extension has.
GIVEN = {"__module__", "__weakref__", "__dict__", "__getstate__", "__setstate__"}


@dataclass(frozen=True)
class Parameter:
    name: str
    optional: bool
    keyword_only: bool


def declared(function: ast.FunctionDef) -> list[Parameter]:
    """Parameters of a function of the stub."""
    args = function.args
    assert args.vararg is None, function.name
    assert args.kwarg is None, function.name
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    found = [Parameter(a.arg, i >= required, False) for i, a in enumerate(positional)]
    for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(Parameter(a.arg, default is not None, True))
    return found


def real(function: object) -> list[Parameter]:
    """Parameters of a function of the extension, from the line that pybind11 writes."""
    line = (inspect.getdoc(function) or "").partition("\n")[0]
    written = re.fullmatch(r"\w+\((.*)\) -> .*", line)
    assert written, line
    found: list[Parameter] = []
    keyword_only = False
    for text in split(written[1]):
        if text == "*":
            keyword_only = True
        elif text != "/":
            name = re.match(r"\w+", text)
            assert name, line
            found.append(Parameter(name[0], " = " in text, keyword_only))
    return found


def split(arguments: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    parts, depth, begin = [], 0, 0
    for i, character in enumerate(arguments):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(arguments[begin:i].strip())
            begin = i + 1
    parts.append(arguments[begin:].strip())
    return [part for part in parts if part]


def members(node: ast.ClassDef) -> dict[str, ast.stmt]:
    """What a class of the stub declares, its own and that of its bases there."""
    found: dict[str, ast.stmt] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found |= members(CLASSES[base.id])
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            found[item.name] = item
        elif isinstance(item, ast.Assign):
            found |= {target.id: item for target in item.targets if isinstance(target, ast.Name)}
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found[item.target.id] = item
    return found


def kind_of(item: ast.stmt) -> str:
    decorators = item.decorator_list if isinstance(item, ast.FunctionDef) else []
    names = {decorator.id for decorator in decorators if isinstance(decorator, ast.Name)}
    if "property" in names:
        return "property"
    return "staticmethod" if "staticmethod" in names else "method"


def test_the_stub_names_what_the_extension_has() -> None:
    public = {name for name in vars(_native) if not name.startswith("_")}
    assert public == set(PUBLIC_CLASSES) | set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_take_what_the_stub_says(name: str) -> None:
    assert declared(FUNCTIONS[name]) == real(getattr(_native, name))


@pytest.mark.parametrize("name", [name for name in PUBLIC_CLASSES if name not in ENUMS])
def test_classes_have_what_the_stub_says(name: str) -> None:
    native = getattr(_native, name)
    stub = members(CLASSES[name])
    own = {
        member
        for base in native.__mro__
        if base.__module__ == native.__module__
        for member in vars(base)
        if not member.startswith("_") or (member.endswith("__") and not hasattr(object, member))
    }
    assert set(stub) - {"__init__"} == own - GIVEN
    for member, item in stub.items():
        found = inspect.getattr_static(native, member)
        if isinstance(item, ast.AnnAssign):
            assert isinstance(found, property), member
            assert found.fset is not None, f"{name}.{member} cannot be set"
            continue
        if not isinstance(item, ast.FunctionDef):
            continue
        if kind_of(item) == "property":
            assert isinstance(found, property), member
            assert found.fset is None, f"{name}.{member} can be set, and the stub does not say so"
            continue
        assert isinstance(found, staticmethod) == (kind_of(item) == "staticmethod"), member
        wanted, has = declared(item), real(getattr(native, member))
        if kind_of(item) == "method":
            # The first is called self in the stub, and what pybind11 likes in the extension.
            wanted, has = wanted[1:], has[1:]
        assert wanted == has, f"{name}.{member}"


def test_results_are_declared() -> None:
    """Every function of the stub declares its result, and no type is left open."""
    for node in ast.walk(TREE):
        if isinstance(node, ast.FunctionDef):
            assert node.returns is not None, node.name
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                assert argument.arg == "self" or argument.annotation is not None, node.name


@pytest.mark.parametrize("name", ENUMS)
def test_enumerators_are_numbered_as_in_the_engine(name: str) -> None:
    values = {
        target.id: ast.literal_eval(item.value)
        for item in CLASSES[name].body
        if isinstance(item, ast.Assign)
        for target in item.targets
        if isinstance(target, ast.Name)
    }
    assert values == {member.name: member.value for member in getattr(_native, name)}


def test_everything_public_is_documented() -> None:
    for name in daqiri_ophyd.engine.__all__:
        thing = getattr(daqiri_ophyd.engine, name)
        if isinstance(thing, int) or not (inspect.isclass(thing) or callable(thing)):
            continue
        assert inspect.getdoc(thing), name
