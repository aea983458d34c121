"""Checks of NVIDIA GPUs."""

import subprocess

import pytest

from daqiri_ophyd.host import Status

MIB = 1 << 20
CHECKS = [
    "gpudirect",
    "dma-buf",
    "nvidia-peermem",
    "gpu-persistence",
    "gpu-clocks",
    "bar1",
    "gdrcopy",
]


def assert_shell(remedy):
    """Assert that a shell takes the commands."""
    for command in (*remedy.now, *remedy.lasting):
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=20)


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


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_gpu_there_is_nothing_to_judge(result_of, check):
    result = result_of(check, "a100", recorded={"gpus": []})
    assert (result.status, result.found) == (Status.SKIP, "not known: no NVIDIA GPU")


def test_malformed_recordings_of_gpus_name_what_is_accepted(result_of):
    result = result_of("bar1", "a100", recorded={"gpus": [{"index": 0, "bar": 1}]})
    assert result.status is Status.SKIP
    assert "accepted are objects with index, name" in result.found


# gpudirect


def test_gpus_that_nics_reach_are_ok(result_of, gpu_host):
    assert result_of("gpudirect", "a100").found == "GPU 0, GPU 1: dma-buf"
    result = result_of("gpudirect", gpu_host(dma_buf=False))
    assert (result.status, result.found) == (Status.OK, "GPU 0: nvidia-peermem only")


def geforce(**changes):
    return {"name": "NVIDIA GeForce RTX 4090", "gpudirect": False, "dma_buf": False, **changes}


def test_a_geforce_fails(result_of, gpu_host):
    result = result_of("gpudirect", gpu_host(**geforce()))
    assert (result.status, result.found) == (Status.FAIL, "GPU 0: NVIDIA GeForce RTX 4090: none")
    [remedy] = result.remedies
    assert remedy.now == ()
    assert "GeForce" in remedy.note and "host_pinned" in remedy.note


def test_a_geforce_beside_a_gpu_that_can_is_left_alone(result_of, gpu_host):
    assert result_of("gpudirect", gpu_host(only=False, **geforce())).status is Status.OK


def test_a_geforce_matters_if_the_configuration_has_regions_in_it(result_of, gpu_host, profile):
    host = gpu_host(only=False, **geforce())
    assert result_of("gpudirect", host, profile("igx")).status is Status.FAIL
    result = result_of("gpudirect", gpu_host(**geforce()), profile("spark"))
    assert (result.status, result.found) == (
        Status.SKIP,
        "GPU 0: none; the configuration has no region of kind device on it",
    )


def test_what_cuda_does_not_say_is_skipped(result_of):
    result = result_of("gpudirect", "igx")
    assert (result.status, result.found) == (Status.SKIP, "GPU 0: not reported by CUDA")


@pytest.mark.parametrize("config", [None, "spark"])
def test_an_integrated_gpu_takes_pinned_regions(result_of, profile, config):
    result = result_of("gpudirect", "spark", profile(config) if config else None)
    assert (result.status, result.found) == (
        Status.SKIP,
        "GPU 0: memory is the host's; use regions of kind host_pinned",
    )


def test_device_regions_on_an_integrated_gpu_fail(result_of, profile):
    result = result_of("gpudirect", "spark", profile("igx"))
    assert result.status is Status.FAIL
    assert "host_pinned" in result.remedies[0].note


# dma-buf


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


def test_all_that_dma_buf_needs_is_ok(result_of):
    result = result_of("dma-buf", "a100")
    assert (result.status, result.found) == (Status.OK, "all present")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"kernel": "6.1.0-26-amd64"}, "kernel 6.1"),
        ({"files": {VERBS: None}}, "no libibverbs"),
        ({"files": {VERSION: CLOSED}}, "closed GPU kernel modules"),
        (
            {"kernel": "5.15.0-1", "files": {VERBS: None, VERSION: CLOSED}},
            "kernel 5.15, no libibverbs, closed GPU kernel modules",
        ),
    ],
)
def test_what_dma_buf_lacks_warns(result_of, describe, changes, found):
    result = result_of("dma-buf", lacking(describe("a100"), **changes))
    assert (result.status, result.found) == (Status.WARN, found)
    [remedy] = result.remedies
    assert remedy.now == ("modprobe nvidia-peermem",)
    assert remedy.files == (("/etc/modules-load.d/daqiri-nvidia-peermem.conf", "nvidia-peermem\n"),)
    assert "-m=kernel-open" in remedy.note


def test_old_cuda_counts_if_the_modules_do_not_say_what_they_are(result_of, gpu_host):
    # Installed with open modules on request.
    assert result_of("dma-buf", lacking(gpu_host(cuda=[12, 4]))).status is Status.OK
    result = result_of("dma-buf", lacking(gpu_host(cuda=[12, 4]), files={VERSION: None}))
    assert (result.status, result.found) == (Status.WARN, "CUDA 12.4")
    result = result_of("dma-buf", lacking(gpu_host(cuda=[12, 4]), files={VERSION: CLOSED}))
    assert (result.status, result.found) == (Status.WARN, "closed GPU kernel modules")


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
    assert result_of("dma-buf", host).status is status


def test_peermem_serves_instead(result_of, describe):
    result = result_of("dma-buf", "a100", kernel="5.4.0")
    assert (result.status, result.found) == (
        Status.SKIP,
        "kernel 5.4; nvidia-peermem is loaded instead",
    )


def test_the_kernel_of_an_igx_is_new_enough(result_of, describe):
    host = describe("igx")
    host["modules"].remove("nvidia_peermem")
    files = {"/usr/lib/aarch64-linux-gnu/libibverbs.so.1.14.50.0": ""}
    assert result_of("dma-buf", host, files=files).status is Status.OK
    assert result_of("dma-buf", host, files=files, kernel="5.10.120-tegra").found == "kernel 5.10"


@pytest.mark.parametrize("check", ["dma-buf", "nvidia-peermem", "bar1"])
def test_integrated_gpus_need_no_mapping(result_of, check):
    assert result_of(check, "spark").found == "does not apply to platform spark"
    result = result_of(check, "spark", platform="igx")
    assert result.status is Status.SKIP
    assert "integrated" in result.found


# nvidia-peermem


def test_loaded_peermem_is_ok(result_of):
    result = result_of("nvidia-peermem", "igx")
    assert (result.status, result.found) == (Status.OK, "loaded")


def test_missing_peermem_fails_without_dma_buf(result_of, gpu_host):
    result = result_of("nvidia-peermem", lacking(gpu_host(dma_buf=False)))
    assert (result.status, result.found) == (Status.FAIL, "not loaded")
    [remedy] = result.remedies
    assert remedy.now == ("modprobe nvidia-peermem",)
    assert remedy.files == (("/etc/modules-load.d/daqiri-nvidia-peermem.conf", "nvidia-peermem\n"),)
    assert "doca-ofed" in remedy.note
    assert_shell(remedy)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "not needed: the GPUs have dma-buf"),
        (geforce(), "not needed: NICs cannot reach the GPUs' memory at all"),
    ],
)
def test_peermem_that_would_not_help_is_not_asked_for(result_of, gpu_host, changes, found):
    result = result_of("nvidia-peermem", lacking(gpu_host(**changes)))
    assert (result.status, result.found) == (Status.SKIP, found)


# gpu-persistence


def test_persistence_that_is_on_is_ok(result_of):
    result = result_of("gpu-persistence", "spark")
    assert (result.status, result.found) == (Status.OK, "GPU 0: on")


def test_persistence_that_is_off_warns(result_of, gpu_host):
    host = gpu_host(persistence=False)
    result = result_of("gpu-persistence", host)
    assert (result.status, result.found) == (Status.WARN, "GPU 0: off")
    [remedy] = result.remedies
    assert remedy.now == ("nvidia-smi -pm 1",)
    [(path, text)] = remedy.files
    assert path == "/etc/systemd/system/daqiri-gpu-persistence.service"
    assert "ExecStart=/usr/bin/nvidia-smi -pm 1\n" in text
    assert remedy.lasting == ("systemctl enable --now daqiri-gpu-persistence.service",)
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
    [(path, text)] = remedy.files
    assert path == "/etc/systemd/system/daqiri-gpu0-clocks.service"
    assert "ExecStart=/usr/bin/nvidia-smi -i 0 -lgc 1410\n" in text
    assert "ExecStart=/usr/bin/nvidia-smi -i 0 -lmc 1512\n" in text
    assert remedy.lasting == ("systemctl enable --now daqiri-gpu0-clocks.service",)
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
    result = result_of("bar1", "igx", profile("igx"))
    assert (result.status, result.found) == (Status.OK, "GPU 0: 8179 of 8192 MiB free")


@pytest.mark.parametrize(
    ("total", "free", "config", "status", "found"),
    [
        (256, 243, None, Status.WARN, "256 MiB"),
        (256, 243, "igx", Status.FAIL, "256 MiB; the regions take 800 MiB"),
        (256, 243, "spark", Status.WARN, "256 MiB"),
        (1024, 1000, "igx", Status.OK, "1000 of 1024 MiB free"),
        (1024, 700, "igx", Status.FAIL, "700 MiB free; the regions take 800 MiB"),
        (None, None, "igx", Status.SKIP, "not reported by the driver"),
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


def test_bar1_is_judged_by_the_regions_in_that_gpu(result_of, gpu_host, profile):
    size = {"bar1_total": 512 * MIB, "bar1_free": 512 * MIB}
    result = result_of("bar1", gpu_host(1, only=False, **size), profile("igx"))
    assert (result.status, result.found) == (Status.WARN, "GPU 1: 512 MiB")


# gdrcopy


def test_gdrcopy_is_ok_and_its_lack_no_fault(result_of, describe):
    assert result_of("gdrcopy", "a100").found == "loaded"
    result = result_of("gdrcopy", "a100", modules=["nvidia"])
    assert result.status is Status.SKIP
    assert "optional" in result.found
    assert result_of("gdrcopy", "igx").found == "does not apply to platform igx"


# gpu-without-root


PARAMS = "/proc/driver/nvidia/params"
USER = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000"


def test_peer_mapping_for_users_is_ok(result_of, describe):
    files = describe("a100")["files"] | {"/proc/self/status": USER}
    result = result_of("gpu-without-root", "a100", files=files)
    assert (result.status, result.found) == (Status.OK, "PeerMappingOverride=1")


@pytest.mark.parametrize("params", ['RegistryDwords: ""', "ModifyDeviceFiles: 1"])
def test_peer_mapping_that_users_lack_warns(result_of, describe, params):
    files = describe("a100")["files"] | {"/proc/self/status": USER, PARAMS: params}
    result = result_of("gpu-without-root", "a100", files=files)
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
