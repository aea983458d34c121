"""Every documented name of DAQIRI's Python module is there, and the page on them is current."""

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from daqiri_ophyd import compat, profiles
from daqiri_ophyd.compat import Status

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "python-daqiri.md"
DOCUMENTED = tomllib.loads(Path(__file__).with_name("documented.toml").read_text())
FUNCTIONS: dict[str, Any] = {
    name: entry for group in DOCUMENTED["functions"].values() for name, entry in group.items()
}
OURS = {
    "EcpriMatch",
    "ReorderBase",
    "ReorderBatchByteOffsetConfig",
    "ReorderBatchPacketNumberConfig",
    "ReorderByteOrder",
    "ReorderColumnConfig",
    "ReorderColumnSource",
    "ReorderConditionConfig",
    "ReorderFlip",
    "ReorderModulesConfig",
    "ReorderPositionConfig",
    "ReorderFrameConfig",
    "ReorderPacking",
    "last_error",
}

PAGE_BEGIN = """\
# DAQIRI's Python module

The documented names of DAQIRI's module `daqiri`, and how those of `daqiri_ophyd.compat` differ.
`daqiri-ophyd run` makes this module importable as `daqiri`: see
[](../how-to/run-daqiri-scripts.md). Names that are *not in this build* exist all the same:
functions return `NOT_SUPPORTED`, and `last_error()` and the log name the missing part.

- Functions return a `Status`, or a tuple that begins with one, except those that return a number, a
  burst or nothing. `last_error()`, which DAQIRI does not have, gives the reason of a failure.
- With `None`, a freed or sent burst, or something that does not exist, and before `daqiri_init` and
  after `shutdown`, functions return a status other than `SUCCESS`, or 0, -1, `None`. Arguments of
  another type raise `TypeError`.
- Calls from several threads on one burst are serialized. Functions that may wait release the
  interpreter lock.
- No engine runs in a child process made by `fork` (`NOT_READY`). The parent's bursts raise
  `NotReadyError` there.
- A path may be any `os.PathLike`.
"""


def parameters(text: str) -> dict[str, str | None]:
    """Return names and defaults of `a, b=1`."""
    pairs = (part.partition("=") for part in text.split(", ") if part)
    return {name: default if equals else None for name, equals, default in pairs}


def accepted(function: Any) -> dict[str, str | None]:
    """Return names and defaults of a function's parameters."""
    if inspect.isfunction(function):
        return {
            name: None if each.default is each.empty else repr(each.default)
            for name, each in inspect.signature(function).parameters.items()
        }
    # As pybind11 writes them: `f(a: int, b: int | None = None) -> str`; commas in brackets go.
    written = re.match(r"\w+\((.*)\) -> ", function.__doc__)
    assert written, function.__doc__
    flat = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", written[1]))
    pairs = (part.partition(" = ") for part in flat.split(", ") if part)
    return {name.partition(":")[0]: default if equals else None for name, equals, default in pairs}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_what_is_documented(name: str) -> None:
    function = getattr(compat, name)
    assert callable(function)
    assert not inspect.isclass(function)
    wanted = parameters(FUNCTIONS[name]["takes"])
    assert accepted(function) == wanted
    assert function.__doc__


@pytest.mark.parametrize("name", DOCUMENTED["constants"])
def test_constants(name: str) -> None:
    value, wanted = getattr(compat, name), DOCUMENTED["constants"][name]["is"]
    assert type(value).__name__ == wanted if isinstance(wanted, str) else value == wanted


@pytest.mark.parametrize("name", DOCUMENTED["enums"])
def test_enums(name: str) -> None:
    enum = getattr(compat, name)
    assert issubclass(enum, IntEnum)
    number = 0
    for word in DOCUMENTED["enums"][name]["members"].split():
        member, _, given = word.partition("=")
        number = int(given) if given else number
        assert enum[member] == enum.__members__[member] == enum(number)
        assert (enum[member].name, enum[member].value) == (member, number)
        assert f"{enum[member]}" == str(enum[member]) == f"{name}.{member}"
        assert int(enum[member]) == number
        number += 1


@pytest.mark.parametrize("name", DOCUMENTED["classes"])
def test_classes_have_what_is_documented(name: str) -> None:
    kind = getattr(compat, name)
    assert inspect.isclass(kind)
    wanted = DOCUMENTED["classes"][name]["members"].split()
    if name in ("S3Writer", "S3WriteHandle"):
        assert all(callable(getattr(kind, member)) for member in wanted)
        return
    made = kind()
    for member in wanted:
        value = getattr(made, member)
        if (name, member) == ("BurstParams", "hdr"):
            continue
        setattr(made, member, value)
    with pytest.raises(AttributeError):
        made.no_such_member = 1


def test_configuration_classes_compare_and_print() -> None:
    for name in DOCUMENTED["classes"]:
        kind = getattr(compat, name)
        if dataclasses.is_dataclass(kind):
            assert kind() == kind()
            assert repr(kind()).startswith(f"{name}(")
            # What one has is not shared with another.
            for field in dataclasses.fields(kind):
                if not isinstance(getattr(kind(), field.name), (int, str)):
                    assert getattr(kind(), field.name) is not getattr(kind(), field.name)


MISSING: dict[str, tuple[Any, ...]] = {
    "rdma_connect_to_server": ("192.0.2.1", 4791, "192.0.2.2"),
    "rdma_get_port_queue": (1,),
    "rdma_get_server_conn_id": ("192.0.2.1", 4791),
    "rdma_set_header": ("burst", compat.RDMAOpCode.SEND, 1, False, 1, 0, "data"),
    "rdma_get_opcode": ("burst",),
}


@pytest.fixture(scope="module")
def running() -> Iterator[compat.BurstParams | None]:
    """A burst of an engine that runs."""
    assert compat.daqiri_init(profiles.path("loopback")) == Status.SUCCESS, compat.last_error()
    yield compat.create_tx_burst_params()
    compat.shutdown()


def test_all_that_is_missing_is_called() -> None:
    assert {name for name, entry in FUNCTIONS.items() if "missing" in entry} == set(MISSING)


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_says_so(name: str, running: compat.BurstParams | None) -> None:
    arguments = [running if each == "burst" else each for each in MISSING[name]]
    result = getattr(compat, name)(*arguments)
    status = result[0] if isinstance(result, tuple) else result
    assert status in (Status.NOT_SUPPORTED, compat.RDMAOpCode.INVALID)
    assert compat.last_error().startswith(f"{name}: this build ")


def test_flows_are_flows(running: compat.BurstParams | None) -> None:
    for wrong in (None, {}, compat.FlowConfig()):
        with pytest.raises(TypeError, match="accepted is FlowRuleConfig"):
            compat.add_rx_flow_async(0, wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            compat.add_rx_flows_async(0, [wrong])  # type: ignore[list-item]


def test_s3_needs_a_region(running: compat.BurstParams | None) -> None:
    config = compat.S3WriterConfig()
    config.bucket = "frames"
    with pytest.raises(RuntimeError, match=r"region is ''.* \(INVALID_PARAMETER\)"):
        compat.S3Writer(config)
    for wrong in (None, "frames"):
        with pytest.raises((TypeError, RuntimeError)):
            compat.S3Writer(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        compat.S3WriteHandle()


def test_a_burst_without_an_event_needs_no_waiting(running: compat.BurstParams | None) -> None:
    assert compat.synchronize_burst_event(running) == Status.SUCCESS


def test_nothing_else_is_public() -> None:
    documented = {name for kind in ("constants", "enums", "classes") for name in DOCUMENTED[kind]}
    assert set(compat.__all__) == documented | set(FUNCTIONS) | OURS


def test_the_list_is_complete() -> None:
    """So many names has DAQIRI's module."""
    counts = [
        len(FUNCTIONS),
        *(len(DOCUMENTED[kind]) for kind in ("constants", "enums", "classes")),
    ]
    assert counts == [92, 19, 23, 34]


def part(kind: str, entries: dict[str, dict[str, Any]]) -> str:
    """Return a table of the names that differ, and the list of the others."""
    names: dict[str, list[str]] = {}
    for name, entry in entries.items():
        missing, differs = entry.get("missing"), entry.get("differs", "")
        note = f"not in this build: {missing}" if missing else differs
        names.setdefault(note, []).append(f"`{name}`")
    same = f"The same: {', '.join(names.pop(''))}.\n" if "" in names else ""
    rows = "".join(f"| {', '.join(those)} | {note} |\n" for note, those in names.items())
    table = f"| {kind} | here |\n|---|---|\n{rows}" if rows else ""
    return f"{table}\n{same}" if table and same else table + same


def page() -> str:
    parts = [PAGE_BEGIN, "\n## Functions\n"]
    for title, group in DOCUMENTED["functions"].items():
        calls = {f"{name}({entry['takes']})": entry for name, entry in group.items()}
        parts.append(f"\n### {title}\n\n{part('function', calls)}")
    for kind, title in (("constants", "Constants"), ("enums", "Enums"), ("classes", "Classes")):
        parts.append(f"\n## {title}\n\n{part(title.lower(), DOCUMENTED[kind])}")
    return "".join(parts)


def test_the_page_is_current(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--write"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), f"{PAGE.name} is out of date; run pytest --write {__file__}"
