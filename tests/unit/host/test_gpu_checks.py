"""Checks of NVIDIA GPUs."""

import re

import pytest

from daqiri_ophyd.engine import Engine, NotSupportedError, capabilities, load_config
from daqiri_ophyd.host import Status, check_host

from .conftest import assert_shell

MIB = 1 << 20
OF_DIRECT_ACCESS = ["gpudirect", "bar1", "gdrcopy", "gpu-without-root"]
OF_ANY_USE = ["gpu-driver", "gpu-persistence", "gpu-clocks"]


@pytest.fixture
def gpu_host(describe):
    """Return the description of the host with A100s, with changes to one of its GPUs."""

    def changed(index=0, only=True, **changes):
        host = describe("a100")
        gpus = host["recorded"]["gpus"]
        gpus[index] |= changes
        if only:
            host["recorded"]["gpus"] = [gpus[index] | {"index": 0}]
        return host

    return changed


@pytest.fixture
def staged(profile):
    """A configuration whose packets are copied to the memory of GPU 0."""
    config = profile("udp")
    for region in config["daqiri"]["cfg"]["memory_regions"]:
        region["kind"] = "device"
    return config


@pytest.mark.parametrize("check", [*OF_DIRECT_ACCESS, *OF_ANY_USE])
def test_a_configuration_without_a_gpu_is_not_judged_by_gpus(result_of, gpu_host, profile, check):
    host = gpu_host(persistence=False, sm_clock=210, bar1_total=1, **geforce())
    result = result_of(check, host, profile("udp"), modules=[])
    assert result.status is Status.SKIP
    assert result.found in (
        "the configuration uses no GPU",
        "the configuration has no region of kind device",
    )


@pytest.mark.parametrize("check", OF_DIRECT_ACCESS)
def test_packets_that_are_copied_to_the_gpu_need_no_direct_access(
    result_of, gpu_host, staged, check
):
    host = gpu_host(bar1_total=1, bar1_free=0, **geforce())
    result = result_of(check, host, staged, modules=[])
    assert (result.status, result.found) == (
        Status.SKIP,
        "engine socket copies packets to the GPU",
    )


@pytest.mark.parametrize("check", [*OF_DIRECT_ACCESS, *OF_ANY_USE])
def test_hosts_without_a_gpu(result_of, check):
    result = result_of(check, "laptop")
    assert (result.status, result.found) == (Status.SKIP, "no NVIDIA GPU")


def test_malformed_recordings_of_gpus_name_what_is_accepted(result_of):
    result = result_of("bar1", "a100", recorded={"gpus": [{"index": 0, "bar": 1}]})
    assert result.status is Status.SKIP
    assert "accepted are objects with index, name" in result.found


# gpu-driver


def test_gpus_with_a_driver_are_ok(result_of, profile):
    result = result_of("gpu-driver", "a100")
    assert (result.status, result.found) == (
        Status.OK,
        "GPU 0: NVIDIA A100-PCIE-80GB, driver 560.35.03; GPU 1: NVIDIA A100X, driver 560.35.03",
    )
    result = result_of("gpu-driver", "a100", profile("jungfrau-gpu"))
    assert result.found == "GPU 0: NVIDIA A100-PCIE-80GB, driver 560.35.03"


@pytest.mark.parametrize("name", ["jungfrau-gpu", "spark", "igx"])
def test_without_a_driver_a_configuration_with_a_gpu_fails(
    result_of, describe, device, profile, name
):
    host = describe("a100")
    device(host, "0000:31:00.0")["driver"] = device(host, "0000:b6:00.0")["driver"] = "nouveau"
    result = result_of("gpu-driver", host, profile(name), recorded={"gpus": []})
    assert result.status is Status.FAIL
    assert result.found.startswith("memory region '")
    assert result.found.endswith(
        "needs CUDA, and this host has no NVIDIA driver; kernel driver of the GPUs: nouveau"
    )
    assert "Install NVIDIA's driver" in result.remedies[0].note


def test_a_reorder_plan_on_a_gpu_needs_a_driver(result_of, profile):
    config = profile("jungfrau")
    plans = config["daqiri"]["cfg"]["interfaces"][0]["rx"]["reorder_configs"]
    plans[0]["reorder_type"] = "gpu"
    result = result_of("gpu-driver", "laptop", config)
    assert (result.status, result.found) == (
        Status.FAIL,
        "reorder config 'images' needs CUDA, and this host has no NVIDIA driver; "
        "no NVIDIA GPU is on the PCI bus",
    )


def test_on_this_host_the_check_fails_where_the_engine_refuses(profile):
    config = profile("jungfrau-gpu")
    result = check_host(config, only=["gpu-driver"])["gpu-driver"]
    try:
        Engine.open(load_config(config)).close()
    except NotSupportedError as error:
        assert result.status is Status.FAIL
        [why] = re.findall(r"needs CUDA, and (.+?); kernel|needs CUDA, and (.+?); no", result.found)
        assert "".join(why) in str(error)
    else:
        assert result.status is Status.OK


def test_a_gpu_that_is_not_there_fails(result_of, staged):
    for region in staged["daqiri"]["cfg"]["memory_regions"]:
        region["affinity"] = 5
    result = result_of("gpu-driver", "a100", staged)
    assert result.status is Status.FAIL
    assert result.found == (
        "memory region 'rx_buffers' of kind device: there is no GPU 5, only 2 in all"
    )


@pytest.fixture
def visible(describe):
    """Return the host with two A100s, of which CUDA sees the second one only."""
    host = describe("a100")
    first, second = host["recorded"]["gpus"]
    first["hidden"] = True
    second |= {"cuda_index": 0, "bar1_total": 1 << 20, "persistence": False}
    return host


def test_a_configuration_counts_the_gpus_that_cuda_sees(result_of, visible, staged):
    result = result_of("gpu-driver", visible, staged)
    assert (result.status, result.found) == (
        Status.OK,
        "GPU 1: NVIDIA A100X, driver 560.35.03",
    )
    # The other GPU is in order; commands name GPUs as nvidia-smi does.
    result = result_of("gpu-persistence", visible, staged)
    assert (result.status, result.found) == (Status.WARN, "GPU 1: off")
    assert result.remedies[0].now == ("nvidia-smi -i 1 -pm 1",)


def test_regions_are_those_of_the_gpu_that_cuda_counts(result_of, visible, profile):
    # Its regions on GPU 0, which is the second one.
    result = result_of("bar1", visible, profile("igx:ibverbs"))
    assert result.status is Status.FAIL
    assert result.found.startswith("GPU 1: 1 MiB; the regions take ")


def test_a_gpu_that_is_hidden_fails(result_of, visible, staged):
    for region in staged["daqiri"]["cfg"]["memory_regions"]:
        region["affinity"] = 1
    result = result_of("gpu-driver", visible, staged)
    assert (result.status, result.found) == (
        Status.FAIL,
        "memory region 'rx_buffers' of kind device: there is no GPU 1, only 1 in all; "
        "CUDA_VISIBLE_DEVICES hides 1",
    )
    assert "among the GPUs of CUDA_VISIBLE_DEVICES" in result.remedies[0].note


def test_gpus_in_another_order(result_of, visible, staged):
    first, second = visible["recorded"]["gpus"]
    first |= {"hidden": False, "cuda_index": 1}
    result = result_of("gpu-persistence", visible, staged)
    assert (result.status, result.found) == (Status.WARN, "GPU 1: off")
    for region in staged["daqiri"]["cfg"]["memory_regions"]:
        region["affinity"] = 1
    result = result_of("gpu-persistence", visible, staged)
    assert (result.status, result.found) == (Status.OK, "GPU 0: on")


@pytest.mark.parametrize("address", ["31:00.0", "00000000:31:00.0", "0000:31:00.0"])
def test_addresses_of_gpus_in_any_form(result_of, gpu_host, address):
    described = gpu_host(pci_address=address)
    assert (
        result_of("pcie-topology", described).found == result_of("pcie-topology", gpu_host()).found
    )
    result = result_of("bar1", gpu_host(pci_address=address, bar1_total=1 << 20))
    assert result.found == result_of("bar1", gpu_host(bar1_total=1 << 20)).found
    assert result.remedies == result_of("bar1", gpu_host(bar1_total=1 << 20)).remedies


def test_kernels_need_a_compiler(result_of, describe, staged, profile):
    missing = "a GPU's kernels are compiled with NVRTC, and libnvrtc is not installed"
    recorded = describe("a100")["recorded"] | {"gpu-refusals": {"memory": "", "kernels": missing}}
    for config in (staged, profile("jungfrau-gpu")):
        result = result_of("gpu-driver", "a100", config, recorded=recorded)
        assert (result.status, result.found) == (Status.FAIL, missing)
    only_pinned = profile("udp")
    for region in only_pinned["daqiri"]["cfg"]["memory_regions"]:
        region["kind"] = "host_pinned"
    assert result_of("gpu-driver", "a100", only_pinned, recorded=recorded).status is Status.OK


def test_gpus_without_a_driver_warn_without_a_configuration(result_of):
    result = result_of("gpu-driver", "a100", recorded={"gpus": []})
    assert (result.status, result.found) == (
        Status.WARN,
        "the driver reports no GPU; kernel driver of the GPUs: nvidia",
    )
    for check in ("gpu-persistence", "gpu-clocks", "bar1"):
        result = result_of(check, "a100", recorded={"gpus": []})
        assert result.found == "not known: no NVIDIA driver; see gpu-driver"


# gpudirect


def test_gpus_that_nics_reach_are_ok(result_of, gpu_host):
    assert result_of("gpudirect", "a100").found == "GPU 0, GPU 1: dma-buf"
    result = result_of("gpudirect", gpu_host(dma_buf=False))
    assert (result.status, result.found) == (Status.OK, "GPU 0: nvidia-peermem")


def geforce(**changes):
    return {"name": "NVIDIA GeForce RTX 4090", "gpudirect": False, "dma_buf": False, **changes}


@pytest.mark.parametrize(("config", "status"), [("igx:ibverbs", Status.FAIL), (None, Status.WARN)])
def test_a_geforce_is_of_no_use_to_nics(result_of, gpu_host, profile, config, status):
    result = result_of("gpudirect", gpu_host(**geforce()), config and profile(config))
    assert (result.status, result.found) == (status, "GPU 0: NVIDIA GeForce RTX 4090: none")
    [remedy] = result.remedies
    assert remedy.now == ()
    assert "GeForce" in remedy.note and "host_pinned" in remedy.note


@pytest.fixture
def copied(profile):
    """A configuration with which NICs write to GPUs where they can."""
    if capabilities()["dpdk"] != "available":
        pytest.skip("needs engine dpdk (built where libdpdk is found: libdpdk-dev)")
    return profile("igx")


def test_where_the_engine_copies_instead_nothing_fails(result_of, gpu_host, copied):
    result = result_of("gpudirect", gpu_host(), copied, modules=[])
    assert (result.status, result.found) == (
        Status.WARN,
        "GPU 0: nvidia-peermem is not loaded: engine dpdk copies packets",
    )
    [remedy] = result.remedies
    assert remedy.now == ("modprobe nvidia-peermem",)
    assert_shell(remedy)
    result = result_of("gpudirect", gpu_host(dma_buf=False), copied)
    assert (result.status, result.found) == (Status.OK, "GPU 0: nvidia-peermem")
    assert result_of("gpudirect", gpu_host(**geforce()), copied).status is Status.WARN
    assert result_of("gpudirect", "spark", copied).status is Status.WARN
    # The region that is received into, and not the one that is sent from.
    result = result_of("bar1", gpu_host(bar1_total=256 * MIB, bar1_free=256 * MIB), copied)
    assert (result.status, result.found) == (
        Status.WARN,
        "GPU 0: 256 MiB; the regions take 400 MiB",
    )
    result = result_of("bar1", gpu_host(bar1_free=300 * MIB), copied)
    assert (result.status, result.found) == (
        Status.WARN,
        "GPU 0: 300 MiB free; the regions take 400 MiB",
    )


def test_gpus_without_regions_are_left_alone(result_of, gpu_host, profile):
    """The configuration's regions are in GPU 0."""
    host = gpu_host(1, only=False, **geforce())
    assert result_of("gpudirect", host, profile("igx:ibverbs")).status is Status.OK
    result = result_of("gpudirect", gpu_host(**geforce()), profile("spark"))
    assert (result.status, result.found) == (
        Status.SKIP,
        "the configuration has no region of kind device",
    )


def test_what_cuda_does_not_say_may_be_known_otherwise(result_of, describe):
    # The driver does not report it, and nvidia-peermem is loaded.
    result = result_of("gpudirect", "igx")
    assert (result.status, result.found) == (Status.OK, "GPU 0: nvidia-peermem")
    host = describe("igx")
    host["modules"].remove("nvidia_peermem")
    files = {"/usr/lib/aarch64-linux-gnu/libibverbs.so.1.14.50.0": ""}
    result = result_of("gpudirect", host, files=files)
    assert (result.status, result.found) == (
        Status.SKIP,
        "GPU 0: not reported by CUDA; all that dma-buf requires is present",
    )


def test_an_integrated_gpu_takes_pinned_regions(result_of):
    result = result_of("gpudirect", "spark")
    assert (result.status, result.found) == (
        Status.SKIP,
        "GPU 0: memory is the host's; use regions of kind host_pinned",
    )


def test_device_regions_on_an_integrated_gpu_fail(result_of, profile):
    result = result_of("gpudirect", "spark", profile("igx:ibverbs"))
    assert result.status is Status.FAIL
    assert "host_pinned" in result.remedies[0].note


def lacking(host, **changes):
    """Return a host without nvidia-peermem, with other files."""
    host["modules"].remove("nvidia_peermem")
    for path, text in changes.pop("files", {}).items():
        host["files"].pop(path)
        if text is not None:
            host["files"][path] = text
    return host | changes


VERSION = "/proc/driver/nvidia/version"
VERBS = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.50.0"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15"


def test_all_that_dma_buf_needs_is_ok(result_of, describe):
    result = result_of("gpudirect", lacking(describe("a100")))
    assert (result.status, result.found) == (Status.OK, "GPU 0, GPU 1: dma-buf")
    result = result_of("gpudirect", lacking(describe("a100"), kernel="5.15.0-1"))
    assert result.status is Status.OK
    assert "DOCA GPUNetIO requires kernel 6.2" in result.found


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"kernel": "5.10.0-26-amd64"}, "kernel 5.12 (found 5.10)"),
        ({"files": {VERBS: None}}, "libibverbs 1.14.44"),
        ({"files": {VERSION: CLOSED}}, "open GPU kernel modules"),
        (
            {"kernel": "5.10.0-1", "files": {VERBS: None, VERSION: CLOSED}},
            "kernel 5.12 (found 5.10), libibverbs 1.14.44, open GPU kernel modules",
        ),
    ],
)
def test_what_dma_buf_lacks(result_of, describe, profile, changes, found):
    host = lacking(describe("a100"), **changes)
    result = result_of("gpudirect", host, profile("igx:ibverbs"))
    assert (result.status, result.found) == (
        Status.FAIL,
        f"GPU 0: nvidia-peermem is not loaded, and dma-buf lacks: {found}",
    )
    [remedy] = result.remedies
    assert remedy.now == ("modprobe nvidia-peermem",)
    assert remedy.files == (("/etc/modules-load.d/daqiri-nvidia-peermem.conf", "nvidia-peermem\n"),)
    assert remedy.verify == ("grep -q ^nvidia_peermem /proc/modules",)
    assert "-m=kernel-open" in remedy.note and "dkms" in remedy.note
    assert_shell(remedy)
    assert result_of("gpudirect", host).status is Status.WARN


def test_peermem_does_without_dma_buf(result_of, describe):
    result = result_of("gpudirect", "a100", kernel="5.4.0")
    assert (result.status, result.found) == (Status.OK, "GPU 0, GPU 1: nvidia-peermem")


def test_old_cuda_counts_if_the_modules_do_not_say_what_they_are(result_of, gpu_host):
    # Installed with open modules on request.
    assert result_of("gpudirect", lacking(gpu_host(cuda=[12, 4]))).status is Status.OK
    result = result_of("gpudirect", lacking(gpu_host(cuda=[12, 4]), files={VERSION: None}))
    assert result.status is Status.WARN
    assert result.found.endswith("lacks: CUDA 12.6 (found 12.4)")


@pytest.mark.parametrize(
    ("version", "status"),
    [("1.14.44.0", Status.OK), ("1.14.43.0", Status.WARN), ("1.9.50", Status.WARN)],
)
def test_version_of_libibverbs(result_of, describe, version, status):
    host = lacking(describe("a100"), files={VERBS: None})
    host["files"] |= {
        f"/usr/lib/aarch64-linux-gnu/libibverbs.so.1.{version.removeprefix('1.')}": "",
        "/usr/lib/aarch64-linux-gnu/libibverbs.so.1.x": "",
        "/usr/lib/i386-linux-gnu/libibverbs.so.1.1.0": "",
    }
    assert result_of("gpudirect", host).status is status


def test_a_gpu_without_dma_buf_needs_the_module(result_of, gpu_host):
    result = result_of("gpudirect", lacking(gpu_host(dma_buf=False)))
    assert result.status is Status.WARN
    assert result.found.endswith("dma-buf lacks: no dma-buf of the GPU")


# gpu-persistence


def test_persistence_that_is_on_is_ok(result_of):
    result = result_of("gpu-persistence", "spark")
    assert (result.status, result.found) == (Status.OK, "GPU 0: on")


def test_persistence_that_is_off_warns(result_of, gpu_host):
    host = gpu_host(persistence=False)
    result = result_of("gpu-persistence", host)
    assert (result.status, result.found) == (Status.WARN, "GPU 0: off")
    [remedy] = result.remedies
    assert remedy.now == ("nvidia-smi -i 0 -pm 1",)
    assert remedy.files[0][0] == "/etc/daqiri-host.d/30-gpu0-persistence.sh"
    assert_shell(remedy)


def test_persistence_that_the_platform_lacks_is_skipped(result_of, gpu_host):
    result = result_of("gpu-persistence", gpu_host(persistence=None))
    assert (result.status, result.found) == (Status.SKIP, "GPU 0: not reported by the driver")


# gpu-clocks


def test_clocks_as_high_as_they_hold_are_ok(result_of):
    result = result_of("gpu-clocks", "igx")
    assert result.status is Status.OK
    assert result.found == "GPU 0: SM 1920 of 2100 MHz, memory 8000 of 8001 MHz"


def test_resting_clocks_are_locked(result_of, gpu_host):
    result = result_of("gpu-clocks", gpu_host(sm_clock=210, memory_clock=405))
    assert result.status is Status.WARN
    assert result.found == "GPU 0: SM 210 of 1410 MHz, memory 405 of 1512 MHz"
    [remedy] = result.remedies
    assert remedy.now == ("nvidia-smi -i 0 -lgc 1410", "nvidia-smi -i 0 -lmc 1512")
    # After persistence mode: else the clocks are lost with the last program.
    assert remedy.files[0][0] == "/etc/daqiri-host.d/31-gpu0-clocks.sh"
    assert "nvidia-smi -i 0 -lgc 1410\nnvidia-smi -i 0 -lmc 1512\n" in remedy.files[0][1]
    assert "-rgc" in remedy.note
    assert_shell(remedy)


@pytest.mark.parametrize(
    ("sm", "memory", "status"),
    [
        (910, 1512, Status.OK),
        (909, 1512, Status.WARN),
        (1410, 1500, Status.OK),
        (1410, 1200, Status.WARN),
    ],
)
def test_clocks_near_the_maximum(result_of, gpu_host, sm, memory, status):
    assert result_of("gpu-clocks", gpu_host(sm_clock=sm, memory_clock=memory)).status is status


def test_a_spark_has_no_memory_clock_to_lock(result_of, describe):
    host = describe("spark")
    host["recorded"]["gpus"][0]["sm_clock"] = 208
    result = result_of("gpu-clocks", host)
    assert (result.status, result.found) == (Status.WARN, "GPU 0: SM 208 of 3003 MHz")
    assert result.remedies[0].now == ("nvidia-smi -i 0 -lgc 3003",)


def test_clocks_that_the_driver_hides_are_skipped(result_of, gpu_host):
    result = result_of("gpu-clocks", gpu_host(sm_clock=None))
    assert (result.status, result.found) == (Status.SKIP, "GPU 0: not reported by the driver")


# bar1


def test_a_large_bar1_is_ok(result_of, profile):
    result = result_of("bar1", "igx", profile("igx:ibverbs"))
    assert (result.status, result.found) == (Status.OK, "GPU 0: 8179 of 8192 MiB free")


@pytest.mark.parametrize(
    ("total", "free", "config", "status", "found"),
    [
        (256, 243, None, Status.WARN, "256 MiB (need 1024)"),
        (256, 243, "igx:ibverbs", Status.FAIL, "256 MiB; the regions take 800 MiB"),
        (1024, 1000, "igx:ibverbs", Status.OK, "1000 of 1024 MiB free"),
        (1024, 700, "igx:ibverbs", Status.FAIL, "700 MiB free; the regions take 800 MiB"),
        (None, None, "igx:ibverbs", Status.SKIP, "not reported by the driver"),
    ],
)
def test_bar1(result_of, gpu_host, profile, total, free, config, status, found):
    size = {"bar1_total": total and total * MIB, "bar1_free": free and free * MIB}
    result = result_of("bar1", gpu_host(**size), profile(config) if config else None)
    assert (result.status, result.found) == (status, f"GPU 0: {found}")
    for remedy in result.remedies:
        assert (remedy.now, remedy.files) == ((), ())
        small = total == 256
        assert ("Resizable BAR" in remedy.note) is small
        assert ("nvidia-smi" in remedy.note) is not small


@pytest.mark.parametrize(
    ("largest", "said", "not_said"),
    [
        (131072, "Above 4G Decoding in the BIOS. This GPU can have up to 131072 MiB", "gpumode"),
        (None, "--gpumode physical_display_enabled_8GB_bar1", "This GPU can have"),
    ],
)
def test_a_bar_that_can_be_resized(result_of, gpu_host, device, largest, said, not_said):
    host = gpu_host(bar1_total=256 * MIB, bar1_free=243 * MIB)
    device(host, "0000:31:00.0")["bar1"] = largest
    [remedy] = result_of("bar1", host).remedies
    assert said in remedy.note and not_said not in remedy.note


def test_a_large_board_wants_a_large_bar1(result_of, gpu_host):
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    size = {"bar1_total": 8192 * MIB, "bar1_free": 8000 * MIB}
    result = result_of("bar1", gpu_host(name=name, **size))
    assert (result.status, result.found) == (Status.WARN, "GPU 0: 8192 MiB (need 32768)")


def test_bar1_is_judged_by_the_regions_in_that_gpu(result_of, gpu_host, profile):
    size = {"bar1_total": 512 * MIB, "bar1_free": 512 * MIB}
    result = result_of("bar1", gpu_host(1, only=False, **size), profile("igx:ibverbs"))
    assert result.status is Status.OK
    assert "GPU 1" not in result.found


# gdrcopy


def test_gdrcopy_is_ok_and_its_lack_no_fault(result_of, describe):
    assert result_of("gdrcopy", "a100").found == "loaded"
    result = result_of("gdrcopy", "a100", modules=["nvidia"])
    assert result.status is Status.SKIP
    assert "optional" in result.found


# gpu-without-root


PARAMS = "/proc/driver/nvidia/params"
USER = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000"


def test_peer_mapping_for_users_is_ok(result_of, describe):
    files = describe("a100")["files"] | {"/proc/self/status": USER}
    result = result_of("gpu-without-root", "a100", files=files)
    assert (result.status, result.found) == (Status.OK, "PeerMappingOverride=1")


@pytest.mark.parametrize("params", ['RegistryDwords: ""', "ModifyDeviceFiles: 1"])
def test_peer_mapping_that_users_lack_warns(result_of, describe, profile, params):
    files = describe("a100")["files"] | {"/proc/self/status": USER, PARAMS: params}
    assert result_of("gpu-without-root", "a100", files=files).status is Status.SKIP
    result = result_of("gpu-without-root", "a100", profile("igx:ibverbs"), files=files)
    assert (result.status, result.found) == (Status.WARN, "not set")
    [remedy] = result.remedies
    assert remedy.files == (
        (
            "/etc/modprobe.d/daqiri-nvidia.conf",
            'options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"\n',
        ),
    )
    assert "cold boot" in remedy.note


def test_root_needs_no_peer_mapping(result_of, describe):
    files = describe("a100")["files"] | {PARAMS: 'RegistryDwords: ""'}
    result = result_of("gpu-without-root", "a100", files=files)
    assert (result.status, result.found) == (Status.SKIP, "runs as root")


def test_without_a_driver_peer_mapping_is_not_known(result_of):
    files = {"/proc/self/status": USER}
    result = result_of("gpu-without-root", "a100", files=files)
    assert result.status is Status.SKIP
    assert result.found == f"not known: {PARAMS}: no such file or directory"
