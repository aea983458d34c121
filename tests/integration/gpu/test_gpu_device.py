"""A GPU as a device in runs, with a driver and NVML that need no GPU."""

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import event_model
import pytest

from daqiri_ophyd.devices import make_daq

from .conftest import Run, loopback

NOT_SUPPORTED = 3
UNKNOWN_ERROR = 999
Found = dict[str, Any]

READ = f"""
import json
from pathlib import Path
from bluesky import RunEngine, plan_stubs as bps, plans as bp
from daqiri_ophyd.devices import make_daq
daq = make_daq({loopback()!r}, "daq")
gpu = daq.gpus.gpu_0
documents, error = [], ""
RE = RunEngine({{}}, context_managers=[])
RE.subscribe(lambda name, doc: documents.append((name, doc)))
HOOK
try:
    RE(PLAN)
except Exception as raised:
    error = f"{{raised}}"
daq.close()
print(json.dumps({{"documents": documents, "error": error}}))
"""

MONITOR = f"""
import threading
from pathlib import Path
from daqiri_ophyd.devices import make_daq
with make_daq({loopback()!r}, "daq") as daq:
    told, lost = [], threading.Event()
    def take(value, **_):
        told.append(value)
        if value != value:
            lost.set()
    daq.gpus.gpu_0.temperature.subscribe(take)
    Path(LOST).touch()
    assert lost.wait(60)
    print(told)
"""


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """The file that marks the GPU as lost."""
    return tmp_path / "lost"


@pytest.fixture
def nvml(tmp_path: Path, lost: Path) -> Callable[..., None]:
    """Compile an NVML that gives such answers."""

    def compile_one(**answers: int) -> None:
        source = Path(__file__).with_name("nvml.c")
        defines = [
            f"-D{name}={value}" for name, value in {"MEMORY": 0, "POWER": 0, **answers}.items()
        ]
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-Wall", *defines, f'-DLOST="{lost}"', source]
            + ["-o", tmp_path / "libnvidia-ml.so.1"],
            check=True,
        )

    return compile_one


@pytest.fixture
def run_plan(with_driver: Run, lost: Path) -> Callable[..., Found]:
    """Run a plan; its documents by name, and its error."""

    def run(plan: str = "bp.count([gpu], 2)", hook: str = "", **answers: int) -> Found:
        program = READ.replace("PLAN", plan).replace("HOOK", hook)
        said, _ = with_driver(program.replace("LOST", repr(str(lost))), **answers)
        found = json.loads(said)
        names: Found = {"error": found["error"], "start": [], "descriptor": [], "event": []}
        for name, doc in found["documents"]:
            event_model.schema_validators[event_model.DocumentNames[name]].validate(doc)
            names.setdefault(name, []).append(doc)
        return names

    return run


def of_gpu(values: Found) -> Found:
    return {
        key.removeprefix("daq_gpus_gpu_0_"): value
        for key, value in values.items()
        if key.startswith("daq_gpus_gpu_0_")
    }


def test_a_run_reads_the_gpu_that_cuda_uses(nvml: Any, run_plan: Any) -> None:
    nvml()
    found = run_plan()
    assert found["error"] == ""
    (descriptor,) = found["descriptor"]
    keys = of_gpu(descriptor["data_keys"])
    assert {name: key["units"] for name, key in keys.items()} == {
        "utilization": "percent",
        "memory_utilization": "percent",
        "memory_used": "byte",
        "bar1_used": "byte",
        "temperature": "degC",
        "power": "W",
        "sm_clock": "MHz",
    }
    assert {(key["dtype"], key["dtype_numpy"]) for key in keys.values()} == {("number", "<f8")}
    assert descriptor["hints"]["daq_gpus_gpu_0"] == {"fields": ["daq_gpus_gpu_0_utilization"]}
    assert of_gpu(descriptor["configuration"]["daq_gpus_gpu_0"]["data"]) == {
        "gpu_name": "NVIDIA Fake",
        "uuid": "GPU-12345678-0000-0000-0000-123456789abc",
        "pci_address": "0000:c1:00.0",
        "driver_version": "580.65.06",
        "memory_total": 80 << 30,
        "bar1_total": 128 << 30,
    }
    assert [of_gpu(event["data"]) for event in found["event"]] == 2 * [
        {
            "utilization": 37,
            "memory_utilization": 0,
            "memory_used": 20 << 30,
            "bar1_used": 32 << 30,
            "temperature": 41,
            "power": 71.234,
            "sm_clock": 1980,
        }
    ]


def test_what_is_not_reported_is_nan_and_0(nvml: Any, run_plan: Any) -> None:
    nvml(MEMORY=NOT_SUPPORTED, POWER=NOT_SUPPORTED)
    found = run_plan()
    (descriptor,) = found["descriptor"]
    used = of_gpu(descriptor["configuration"]["daq_gpus_gpu_0"]["data"])
    assert (used["memory_total"], used["bar1_total"]) == (0, 0)
    for event in found["event"]:
        data = of_gpu(event["data"])
        unknown = {name for name, value in data.items() if math.isnan(value)}
        assert unknown == {"memory_used", "bar1_used", "power"}


def test_a_gpu_that_is_lost_in_a_run_fails_it(nvml: Any, run_plan: Any) -> None:
    nvml()
    found = run_plan(hook="RE.subscribe(lambda *_: Path(LOST).touch(), 'event')")
    assert len(found["event"]) == 1
    (stop,) = found["stop"]
    assert stop["exit_status"] == "fail"
    told = "daq_gpus_gpu_0: trigger failed: GPU 0 (0000:c1:00.0): NVML: GPU is lost"
    assert told in stop["reason"]
    assert told in found["error"]


def test_other_errors_are_not_taken_for_unknown_values(nvml: Any, run_plan: Any) -> None:
    nvml(POWER=UNKNOWN_ERROR)
    assert "NVML: Unknown Error" in run_plan()["error"]


def test_reading_without_nvml_says_so(tmp_path: Path, run_plan: Any) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()  # hides one that there may be
    told = "GPU 0 (0000:c1:00.0): NVML: NVML Shared Library Not Found"
    assert told in run_plan()["error"]
    # Not used by the engine.
    assert run_plan("bp.count([daq])")["error"] == ""


def test_reading_without_nvmls_package_says_so(nvml: Any, run_plan: Any) -> None:
    nvml()
    found = run_plan(hook="import sys; sys.modules['pynvml'] = None")
    assert "trigger failed: GPU 0: NVML: import of pynvml halted" in found["error"]


def test_reading_without_a_gpu_says_so(run_plan: Any) -> None:
    found = run_plan("bps.trigger(gpu, wait=True)", GPUS=0)
    assert "the NVIDIA driver finds 0 GPUs (CUDA_VISIBLE_DEVICES may hide others)" in found["error"]
    found = run_plan("bps.trigger(gpu, wait=True)", INIT=100)
    assert "GPU 0: CUDA: what went wrong" in found["error"]


def test_a_tree_is_made_and_described_without_a_driver(tmp_path: Path, with_driver: Run) -> None:
    program = (
        "from daqiri_ophyd.devices import make_daq, typed_tree; import os; "
        f"os.truncate({str(tmp_path / 'libcuda.so.1')!r}, 0); "
        f"daq = make_daq({loopback()!r}); gpu = daq.gpus.gpu_0; "
        "assert 'gpu_0: Gpu\\n' in typed_tree(daq); "
        "print(len(gpu.describe()), len(gpu.describe_configuration()))\n"
        "try: gpu.read()\n"
        "except Exception as error: print(error)"
    )
    said, asked = with_driver(program)
    keys, told = said.splitlines()
    assert keys == "7 9"
    assert told.startswith("GPU 0: this host has no NVIDIA driver (")
    assert asked == []


def test_subscribers_are_told_that_a_gpu_is_lost(nvml: Any, with_driver: Run, lost: Path) -> None:
    nvml()
    said, _ = with_driver(MONITOR.replace("LOST", repr(str(lost))))
    assert said == "[41.0, nan]"


@pytest.mark.parametrize("error", ["OSError('no rights')", "RuntimeError('no reason')"])
def test_subscribers_are_told_that_a_reading_failed(
    nvml: Any, with_driver: Run, lost: Path, error: str
) -> None:
    nvml()
    program = MONITOR.replace(
        "Path(LOST).touch()",
        "def fail(*_): raise "
        + error
        + "\n    import pynvml\n    pynvml.nvmlDeviceGetTemperature = fail",
    )
    said, _ = with_driver(program)
    assert said == "[41.0, nan]"


@pytest.mark.gpu
def test_a_real_gpu_is_the_one_that_cuda_uses() -> None:
    import cupy

    daq = make_daq(loopback(), "daq")
    gpu = daq.gpus.gpu_0
    address = cupy.cuda.runtime.deviceGetPCIBusId(0)
    _, total = cupy.cuda.runtime.memGetInfo()
    assert gpu.pci_address.get() == address.lower()
    # Without the memory that the driver reserves.
    assert gpu.memory_total.get() in (0, pytest.approx(total, rel=0.1))
    gpu.trigger().wait(60)
    values = of_gpu({name: reading["value"] for name, reading in gpu.read().items()})
    assert 0 <= values["utilization"] <= 100
    for name in ("memory_used", "temperature", "power", "sm_clock"):
        assert 0 < values[name] < math.inf, name
    assert gpu.describe_configuration().keys() == gpu.read_configuration().keys()
