"""GPU data from NVML compared with nvidia-smi on this machine."""

import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from daqiri_ophyd.host import Facts

pytestmark = pytest.mark.skipif(not shutil.which("nvidia-smi"), reason="needs nvidia-smi")


@pytest.fixture(scope="module")
def nvidia_smi():
    command = ["nvidia-smi", "-q", "-x"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return ElementTree.fromstring(text).findall("gpu")


def _number(gpu, path):
    text = gpu.findtext(path)
    return None if text in (None, "N/A") else int(text.split()[0])


def test_gpu_facts_agree_with_nvidia_smi(nvidia_smi):
    gpus = Facts().gpus
    assert len(gpus) == len(nvidia_smi)
    for gpu, wanted in zip(gpus, nvidia_smi, strict=True):
        assert gpu.name == wanted.findtext("product_name")
        assert gpu.pci_address == wanted.get("id").lower().removeprefix("0000")
        assert gpu.persistence == (wanted.findtext("persistence_mode") == "Enabled")
        assert gpu.max_sm_clock == _number(wanted, "max_clocks/sm_clock")
        assert gpu.max_memory_clock == _number(wanted, "max_clocks/mem_clock")
        assert gpu.memory_clock == _number(wanted, "clocks/mem_clock")
        assert gpu.bar1_total == _number(wanted, "bar1_memory_usage/total") << 20
        # What is free changes with every program that comes and goes.
        assert abs(gpu.bar1_free - (_number(wanted, "bar1_memory_usage/free") << 20)) < 64 << 20
        assert None not in (gpu.integrated, gpu.gpudirect, gpu.dma_buf)
