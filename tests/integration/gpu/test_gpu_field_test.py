"""Field tests of configurations whose packets are in GPU memory."""

import json

from .conftest import Config, Run
from .test_device_packets import split

PROGRAM = """
import json
from pathlib import Path
from daqiri_ophyd.engine import load_config
from daqiri_ophyd.field_test import FieldTest

config = load_config(CONFIG)
with FieldTest(config, Path("found"), name="gpu", only=["flow", "split", "gpu"]) as test:
    report = test.run(lambda _: None)
print(json.dumps({step["name"]: [step["status"], step["text"]] for step in report["steps"]}))
"""


def results(with_driver: Run, config: Config) -> dict[str, list[str]]:
    for region in config["memory_regions"]:
        region["num_bufs"] = 2048
    said, _ = with_driver(PROGRAM.replace("CONFIG", repr(config)))
    return json.loads(said.splitlines()[-1])


def test_packets_in_gpu_memory_are_compared_on_the_host(with_driver: Run) -> None:
    found = results(with_driver, split())
    assert found["flow port/any packet"][0] == "passed", found
    compared = "each byte compared: port/any packet in headers and rx"
    assert found["split"] == ["passed", f"{compared}; port/rx staged to GPU 0"]
    assert found["gpu"] == ["passed", compared]


def test_without_memory_of_a_gpu_the_step_says_so(with_driver: Run) -> None:
    found = results(with_driver, split("host"))
    assert found["split"][0] == "passed"
    assert found["gpu"] == ["skipped", "the configuration has no memory region of kind device"]
