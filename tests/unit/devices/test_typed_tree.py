"""What an editor knows of a device tree, by pyright and by the running tree."""

import json
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest

import daqiri_ophyd
from daqiri_ophyd import profiles
from daqiri_ophyd.devices import make_daq, typed_tree
from daqiri_ophyd.engine import ConfigError, load_config

USED = """
from typing import TYPE_CHECKING, assert_type

import bluesky.plan_stubs as bps
import bluesky.plans as bp
from daqiri_ophyd.devices import (
    Capture, Daq, EngineSignal, EngineSignalRO, Fact, FlowKey, HostReadiness, MemoryRegion,
    Owner, ReadingSignal, ReorderPlan, RxQueue, TxQueue, UdpFlow, make_daq,
)
from daqiri_ophyd.engine import RxQueueConfig

if TYPE_CHECKING:
    from loopback_tree import DaqTree

daq: "DaqTree" = make_daq("loopback.yaml", "daq")
capture = daq.port0.capture
queue = daq.port0.rx.rx_q0
assert_type(capture, Capture)
assert_type(capture.num_packets, EngineSignal[int])
assert_type(capture.acquire_time.get(), float)
assert_type(capture.file_prefix.get(), str)
assert_type(capture.packets, ReadingSignal[int])
assert_type(capture.packets.get(), int)
assert_type(capture.lossy.get(), bool)
capture.num_packets.set(10).wait(1)
assert_type(queue, RxQueue)
assert_type(queue.capture, Capture)
assert_type(queue.received, EngineSignalRO[int])
assert_type(queue.rate.get(), float)
assert_type(queue.batch_size.get(), int)
assert_type(queue.configured, RxQueueConfig)
assert_type(daq.port0.tx.tx_q0, TxQueue)
assert_type(daq.port0.tx.tx_q0.lateness_histogram.get(), list[int])
assert_type(daq.port0.address, Fact[str])
daq.port0.drop_all_traffic.set(True)
assert_type(daq.port0.flows.detector, UdpFlow)
assert_type(daq.port0.flows.detector.packets.get(), int)
assert_type(daq.port0.flows.detector.udp_dst, FlowKey)
assert_type(daq.regions.rx_buffers.free.get(), int)
assert_type(queue.daq, Owner)
readiness = HostReadiness(name="readiness")
assert_type(readiness.state.get(), str)
bp.count([daq, daq.port0, queue, capture, queue.received, capture.num_packets, readiness])
bp.scan([capture], capture.num_packets, 1, 10, 10)
bp.fly([capture, daq.port0.tx.tx_q0])
bps.abs_set(capture.num_packets, 10)
bps.stage(daq)

plain = make_daq("loopback.yaml")
assert_type(plain, Daq)
print(plain.port0.capture, plain.regions.rx_buffers)
"""
MISTAKES = """
from typing import TYPE_CHECKING
from daqiri_ophyd.devices import make_daq
if TYPE_CHECKING:
    from loopback_tree import DaqTree

daq: "DaqTree" = make_daq("loopback.yaml", "daq")
daq.port1
daq.port0.captures
daq.port0.rx.rx_q7
daq.port0.tx.tx_q0.capture
daq.port0.reorder.plan
daq.port0.capture.num_packet
daq.port0.rx.rx_q0.recieved
daq.port0.capture.num_packets.set("ten")
"""


def trees():
    for name in profiles.names():
        try:
            yield name, make_daq(load_config(profiles.path(name)), "daq")
        except ConfigError as error:
            assert "<" in str(error)  # a template that waits for addresses


def odd_names():
    """Names that are keywords, numbers or classes, and such that would be the same class."""
    document = load_config(profiles.path("loopback")).to_dict()
    inner = document["daqiri"]["cfg"]
    port = inner["interfaces"][0]
    inner["memory_regions"][0]["name"] = port["rx"]["queues"][0]["memory_regions"][0] = "0"
    port["rx"]["queues"][1]["memory_regions"] = ["0"]
    for queue, name in zip(port["rx"]["queues"], ("größe 1", "class"), strict=True):
        queue["name"] = name
    ports = []
    for index, name in enumerate(("0000:03:00.0", "rx-queue", "true", "a-b", "ab", "daq_tree")):
        rx = {**port["rx"], "flows": port["rx"]["flows"] if index == 0 else []}
        ports.append({**port, "name": name, "rx": rx})
    inner["interfaces"] = ports
    return make_daq(document, "daq")


def names_of_classes():
    """Names that are those of classes in the stub: of devices, and of ports and groups there."""
    document = load_config(profiles.path("loopback")).to_dict()
    inner = document["daqiri"]["cfg"]
    port = inner["interfaces"][0]
    port["name"] = "PortRx"
    inner["memory_regions"][1]["name"] = port["tx"]["queues"][0]["memory_regions"][0] = "Regions"
    for queue, name in zip(port["rx"]["queues"], ("RxQueue", "int"), strict=True):
        queue["name"] = name
    port["tx"]["queues"][0]["name"] = "Group"
    for flow, name in zip(port["rx"]["flows"], ("UdpFlow", "UdpFlow_"), strict=True):
        flow["name"] = name
    bare = {**port, "rx": {**port["rx"], "flows": []}}
    inner["interfaces"] = [port, *({**bare, "name": name} for name in ("port", "Capture", "Port"))]
    return make_daq(document, "daq")


def module_of(daq):
    """Return the module as it would run, which needs no more than the package."""
    module = types.ModuleType("daq_tree")
    exec(typed_tree(daq), vars(module))
    return module


def pyright(folder: Path) -> dict[str, list[dict[str, typing.Any]]]:
    """Return errors and warnings by file, with an editor's settings."""
    (folder / "packages").mkdir()
    (folder / "packages" / "daqiri_ophyd").symlink_to(Path(daqiri_ophyd.__file__).parent)
    settings = {"extraPaths": ["packages"], "exclude": ["packages"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py"))), done.stderr
    problems = {}
    for problem in found["generalDiagnostics"]:
        problems.setdefault(Path(problem["file"]).name, []).append(problem)
    return problems


def test_a_type_checker_knows_the_tree_and_finds_misspelt_names(tmp_path):
    pytest.importorskip("pyright")
    for name, daq in [*trees(), ("odd", odd_names()), ("classes", names_of_classes())]:
        (tmp_path / f"{name}_tree.py").write_text(typed_tree(daq))
    (tmp_path / "used.py").write_text(USED)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    problems = pyright(tmp_path)
    found = problems.pop("mistakes.py")
    assert problems == {}
    lines = MISTAKES.splitlines()
    first = lines.index("daq.port1")
    errors = {p["range"]["start"]["line"] for p in found if p["severity"] == "error"}
    assert errors == set(range(first, len(lines)))
    assert found[0]["message"].startswith('Cannot access attribute "port1" for class "DaqTree"')


@pytest.mark.parametrize(
    "daq",
    [
        pytest.param(daq, id=name)
        for name, daq in [*trees(), ("odd names", odd_names()), ("classes", names_of_classes())]
    ],
)
def test_the_types_are_those_of_the_running_tree(daq):
    module = module_of(daq)
    parts = [(daq, module.DaqTree)]
    for part, declared in parts:
        hints = typing.get_type_hints(declared, vars(daqiri_ophyd.devices))
        for name in part.component_names:
            if hasattr(declared, name):  # in the class, for all configurations
                assert isinstance(getattr(part, name), getattr(declared, name).cls)
            else:
                parts.append((getattr(part, name), hints[name]))
        written = declared.__module__ == module.__name__
        assert isinstance(part, declared.__base__ if written else declared)
        if written:
            assert set(declared.__annotations__) - {"__getattr__"} <= set(part.component_names)
    assert len(parts) == 1 + len(list(daq.walk_subdevices()))


def test_names_become_the_attributes_that_the_tree_has():
    module = module_of(odd_names())
    assert {name for name in module.DaqTree.__annotations__ if name[0] != "_"} == {
        "regions", "port_0000_03_00_0", "rx_queue_", "true", "a_b", "ab", "daq_tree"
    }  # fmt: skip
    port = typing.get_type_hints(module.DaqTree)["port_0000_03_00_0"]
    queues = typing.get_type_hints(port)["rx"].__annotations__
    assert set(queues) == {"gro_e_1", "class_", "__getattr__"}


def test_no_class_has_the_name_of_an_attribute():
    daq = names_of_classes()
    attributes = {name.split(".")[-1] for name in daq.component_names}
    attributes |= {part.attr_name for _, part in daq.walk_subdevices()}
    assert {"PortRx", "RxQueue", "Group", "UdpFlow", "UdpFlow_", "Capture"} <= attributes
    classes = {name for name, found in vars(module_of(daq)).items() if isinstance(found, type)}
    assert "DaqTree" in classes
    assert attributes & classes == set()


def test_a_name_that_every_class_has_is_declared():
    document = load_config(profiles.path("loopback")).to_dict()
    document["daqiri"]["cfg"]["interfaces"][0]["name"] = "mro"
    assert "    mro: Mro\n" in typed_tree(make_daq(document, "daq"))


def test_a_running_tree_lists_its_parts():
    daq = make_daq(profiles.path("loopback"), "daq")
    assert {"port0", "regions"} <= set(dir(daq))
    assert {"capture", "rx", "tx", "flows", "address"} <= set(dir(daq.port0))
    assert {"rx_q0", "rx_q1"} <= set(dir(daq.port0.rx))
    assert {"num_packets", "packets", "kickoff"} <= set(dir(daq.port0.capture))
