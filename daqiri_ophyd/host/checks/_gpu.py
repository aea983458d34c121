"""Checks of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from .._platform import WITH_NVIDIA_NIC, Platform
from .._root import FactError
from ..facts import Gpu
from ._files import at_every_boot, module_at_boot

_DISCRETE = (Platform.IGX, Platform.GPUNETIO)
# A GPU whose SM clock is below the maximum by more than this is idle.
_CLOCK_SLACK = 500
_LEAST_BAR1 = 1 << 30
_MIB = 1 << 20


def _gpus(context: Context) -> list[Gpu]:
    if not context.facts.gpus:
        raise FactError("no NVIDIA GPU")
    return context.facts.gpus


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


@check(
    "gpudirect",
    "NICs and GPU memory",
    wanted="direct access of the NIC to GPU memory: dma-buf or nvidia-peermem",
    why="Without it every packet is copied through host memory to the GPU.",
    sources=("cuDeviceGetAttribute",),
    platforms=WITH_NVIDIA_NIC,
)
def gpudirect(context: Context) -> Iterator[Finding]:
    pinned = Remedy(note="Use memory regions of kind host_pinned, which both CPU and GPU can read.")
    gpus = _gpus(context)
    used = {region.affinity for region in context.needs.regions if region.kind == "device"}
    one_can = any(gpu.gpudirect or gpu.dma_buf for gpu in gpus)
    for gpu in gpus:
        name, unused = _name(gpu), context.needs.given and gpu.index not in used
        if gpu.integrated and not unused and context.needs.given:
            found = "memory is the host's, and the configuration has regions of kind device"
            yield Finding(Status.FAIL, found, name, pinned)
        elif gpu.integrated:
            yield skip("memory is the host's; use regions of kind host_pinned", name)
        elif gpu.gpudirect or gpu.dma_buf:
            yield ok("dma-buf" if gpu.dma_buf else "nvidia-peermem only", name)
        elif gpu.gpudirect is None:
            yield skip("not reported by CUDA", name)
        elif unused:
            yield skip("none; the configuration has no region of kind device on it", name)
        elif one_can and not context.needs.given:
            yield skip("none; another GPU can", name)
        else:
            note = (
                "GeForce GPUs do not support it; use a workstation or data center GPU. "
                + pinned.note
            )
            yield Finding(Status.FAIL, f"{gpu.name}: none", name, Remedy(note=note))


@check(
    "nvidia-peermem",
    "module nvidia-peermem",
    wanted="loaded, unless the GPUs have dma-buf",
    why="Without dma-buf, this module lets the NIC write into GPU memory.",
    sources=("/proc/modules",),
    platforms=_DISCRETE,
)
def nvidia_peermem(context: Context) -> Iterator[Finding]:
    gpus = _gpus(context)
    if all(gpu.integrated for gpu in gpus):
        yield skip("integrated GPUs have no memory of their own to map")
    elif "nvidia_peermem" in context.facts.modules:
        yield ok("loaded")
    elif all(gpu.gpudirect is False and not gpu.dma_buf for gpu in gpus):
        yield skip("not needed: NICs cannot reach the GPUs' memory at all")
    elif all(gpu.dma_buf or gpu.gpudirect is False for gpu in gpus):
        yield skip("not needed: the GPUs have dma-buf")
    else:
        remedy = Remedy(
            now=("modprobe nvidia-peermem",),
            files=(module_at_boot("nvidia-peermem"),),
            note="If it does not load: install doca-ofed, reboot, rebuild the driver's modules.",
        )
        yield Finding(Status.FAIL, "not loaded", "", remedy)


@check(
    "gpu-persistence",
    "GPU persistence mode",
    wanted="on",
    why="Otherwise the driver unloads with the last program, and the next start takes seconds.",
    sources=("NVML",),
)
def gpu_persistence(context: Context) -> Iterator[Finding]:
    for gpu in _gpus(context):
        if gpu.persistence is None:
            yield skip("not reported by the driver", _name(gpu))
        elif gpu.persistence:
            yield ok("on", _name(gpu))
        else:
            remedy = at_every_boot("gpu-persistence", "GPU persistence mode", "nvidia-smi -pm 1")
            yield Finding(Status.WARN, "off", _name(gpu), remedy)


@check(
    "gpu-clocks",
    "GPU clocks",
    wanted=f"SM clock within {_CLOCK_SLACK} MHz of its maximum, memory clock at its maximum",
    why="An idle GPU is slow to handle the first bursts.",
    sources=("NVML",),
)
def gpu_clocks(context: Context) -> Iterator[Finding]:
    for gpu in _gpus(context):
        if gpu.sm_clock is None or gpu.max_sm_clock is None:
            yield skip("not reported by the driver", _name(gpu))
            continue
        slow = gpu.sm_clock < gpu.max_sm_clock - _CLOCK_SLACK
        found = f"SM {gpu.sm_clock} of {gpu.max_sm_clock} MHz"
        # An integrated GPU has no memory clock of its own.
        if gpu.memory_clock and gpu.max_memory_clock:
            slow |= gpu.memory_clock < gpu.max_memory_clock * 0.99
            found += f", memory {gpu.memory_clock} of {gpu.max_memory_clock} MHz"
        yield Finding(Status.WARN, found, _name(gpu), _lock(gpu)) if slow else ok(found, _name(gpu))


def _lock(gpu: Gpu) -> Remedy:
    commands = [f"nvidia-smi -i {gpu.index} -lgc {gpu.max_sm_clock}"]
    if gpu.max_memory_clock:
        commands.append(f"nvidia-smi -i {gpu.index} -lmc {gpu.max_memory_clock}")
    return at_every_boot(
        f"gpu{gpu.index}-clocks",
        "GPU at full speed",
        *commands,
        note="A GPU at full clocks draws more power; -rgc and -rmc reset the clocks.",
    )


@check(
    "bar1",
    "GPU BAR1",
    wanted="at least 1 GiB, and enough for the configuration's device regions",
    why="NICs write into GPU memory through this window, so it limits what can be mapped.",
    sources=("NVML",),
    platforms=_DISCRETE,
)
def bar1(context: Context) -> Iterator[Finding]:
    for gpu in _gpus(context):
        regions = context.needs.regions
        wanted = sum(r.size for r in regions if r.kind == "device" and r.affinity == gpu.index)
        if gpu.integrated:
            yield skip("integrated: no window is needed", _name(gpu))
        elif gpu.bar1_total is None or gpu.bar1_free is None:
            yield skip("not reported by the driver", _name(gpu))
        elif wanted > gpu.bar1_total:
            found = f"{gpu.bar1_total // _MIB} MiB; the regions take {wanted // _MIB} MiB"
            yield Finding(Status.FAIL, found, _name(gpu), _RESIZE)
        elif gpu.bar1_total < _LEAST_BAR1:
            yield Finding(Status.WARN, f"{gpu.bar1_total // _MIB} MiB", _name(gpu), _RESIZE)
        elif wanted > gpu.bar1_free:
            found = f"{gpu.bar1_free // _MIB} MiB free; the regions take {wanted // _MIB} MiB"
            note = "Another program has mapped the rest: nvidia-smi lists the programs on this GPU."
            yield Finding(Status.FAIL, found, _name(gpu), Remedy(note=note))
        else:
            found = f"{gpu.bar1_free // _MIB} of {gpu.bar1_total // _MIB} MiB free"
            yield ok(found, _name(gpu))


_RESIZE = Remedy(
    note=(
        "Enable Resizable BAR in the BIOS. If BAR1 stays small, NVIDIA's Display Mode Selector can "
        "set a mode with a larger BAR1. Use it only for GPUs that its page lists: it can make "
        "others unusable."
    )
)


@check(
    "gdrcopy",
    "GDRCopy",
    wanted="module gdrdrv loaded",
    why="It maps GPU memory for the CPU; only queues that GPU and CPU share need it.",
    sources=("/proc/modules",),
    platforms=(Platform.GPUNETIO,),
)
def gdrcopy(context: Context) -> Iterator[Finding]:
    _gpus(context)
    if "gdrdrv" in context.facts.modules:
        yield ok("loaded")
    else:
        yield skip("not loaded; optional, for memory shared by GPU and CPU")


@check(
    "gpu-without-root",
    "GPU memory for users other than root",
    wanted="PeerMappingOverride=1 if the engine does not run as root",
    why="By default the driver maps GPU memory for a NIC only for root.",
    sources=("/proc/driver/nvidia/params",),
    platforms=(Platform.GPUNETIO,),
)
def gpu_without_root(context: Context) -> Iterator[Finding]:
    params = context.facts.root.text("/proc/driver/nvidia/params")
    line = next((ln for ln in params.splitlines() if ln.startswith("RegistryDwords:")), "")
    if "PeerMappingOverride=1" in line:
        yield ok("PeerMappingOverride=1")
    elif context.facts.process.user == 0:
        yield skip("runs as root")
    else:
        text = 'options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"\n'
        remedy = Remedy(
            files=(("/etc/modprobe.d/daqiri-nvidia.conf", text),),
            note="Requires a cold boot.",
        )
        yield Finding(Status.WARN, "not set", "", remedy)


@check(
    "dma-buf",
    "requirements of dma-buf",
    wanted="kernel 6.2 (IGX: 5.12), libibverbs 1.14.44, or newer; open GPU kernel modules",
    why="The kernel's mechanism for direct NIC access to GPU memory; else nvidia-peermem.",
    sources=(
        "/proc/sys/kernel/osrelease",
        "/proc/driver/nvidia/version",
        "libibverbs.so.1",
        "NVML",
    ),
    platforms=_DISCRETE,
)
def dma_buf(context: Context) -> Iterator[Finding]:
    facts = context.facts
    gpus = _gpus(context)
    if all(gpu.integrated for gpu in gpus):
        yield skip("integrated GPUs have no memory of their own to map")
        return
    lacking = []
    if facts.kernel < _KERNEL[context.platform]:
        lacking.append(f"kernel {_dotted(facts.kernel)}")
    verbs = _verbs_version(context)
    if verbs is None or verbs < _VERBS:
        lacking.append(f"libibverbs {_dotted(verbs)}" if verbs else "no libibverbs")
    driver = facts.root.optional("/proc/driver/nvidia/version")
    if driver and "Open Kernel Module" not in driver:
        lacking.append("closed GPU kernel modules")
    # Older CUDA installs open modules only on request; the loaded driver is the better evidence.
    cuda = min((gpu.cuda for gpu in gpus if gpu.cuda), default=None)
    if not driver and cuda and cuda < _CUDA:
        lacking.append(f"CUDA {_dotted(cuda)}")
    if not lacking:
        yield ok("all present")
    elif "nvidia_peermem" in facts.modules:
        yield skip(f"{', '.join(lacking)}; nvidia-peermem is loaded instead")
    else:
        note = (
            "Update what is too old (nvidia-open, rdma-core, the kernel), or load nvidia-peermem "
            "instead. CUDA up to 12.5 has open modules only if it was installed with "
            "-m=kernel-open."
        )
        remedy = Remedy(
            now=("modprobe nvidia-peermem",), files=(module_at_boot("nvidia-peermem"),), note=note
        )
        yield Finding(Status.WARN, ", ".join(lacking), "", remedy)


# Kernel that the engine needs; DOCA GPUNetIO needs a newer one.
_KERNEL = {Platform.IGX: (5, 12), Platform.GPUNETIO: (6, 2)}
_VERBS, _CUDA = (1, 14, 44), (12, 6)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _verbs_version(context: Context) -> tuple[int, ...] | None:
    """Return the version in the name of the library's file, such as libibverbs.so.1.14.50.0."""
    root = context.facts.root
    versions = []
    for pattern in ("/usr/lib/*/libibverbs.so.1.*", "/usr/lib64/libibverbs.so.1.*"):
        for path in root.glob(pattern):
            numbers = path.rpartition(".so.")[2].split(".")
            if all(number.isdecimal() for number in numbers):
                versions.append(tuple(map(int, numbers[:3])))
    # There may be libraries of several architectures.
    return max(versions, default=None)
