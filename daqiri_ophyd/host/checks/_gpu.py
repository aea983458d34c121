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
# SM clocks below the maximum by more than this are a GPU that rests.
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
    wanted="a way for the NIC into GPU memory: dma-buf or nvidia-peermem",
    why="Without one every packet goes through host memory before it reaches the GPU.",
    sources=("cuDeviceGetAttribute",),
    platforms=WITH_NVIDIA_NIC,
)
def gpudirect(context: Context) -> Iterator[Finding]:
    pinned = Remedy(note="Give the memory regions kind host_pinned: CPU and GPU read them alike.")
    gpus = _gpus(context)
    used = {region.affinity for region in context.needs.regions if region.kind == "device"}
    one_can = any(gpu.gpudirect or gpu.dma_buf for gpu in gpus)
    for gpu in gpus:
        name, unused = _name(gpu), context.needs.given and gpu.index not in used
        if gpu.integrated and not unused and context.needs.given:
            found = "memory is the host's, and the configuration has regions of kind device"
            yield Finding(Status.FAIL, found, name, pinned)
        elif gpu.integrated:
            yield skip("memory is the host's; regions of kind host_pinned", name)
        elif gpu.gpudirect or gpu.dma_buf:
            yield ok("dma-buf" if gpu.dma_buf else "nvidia-peermem only", name)
        elif gpu.gpudirect is None:
            yield skip("CUDA does not say", name)
        elif unused:
            yield skip("none; the configuration has no region of kind device on it", name)
        elif one_can and not context.needs.given:
            yield skip("none; another GPU can", name)
        else:
            note = "GeForce GPUs cannot; take a workstation or data centre GPU. " + pinned.note
            yield Finding(Status.FAIL, f"{gpu.name}: none", name, Remedy(note=note))


@check(
    "nvidia-peermem",
    "module nvidia-peermem",
    wanted="loaded, unless the GPUs have dma-buf",
    why="Where there is no dma-buf, this module lets the NIC write into GPU memory.",
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
            note="If it does not load: install doca-ofed, boot, rebuild the driver's modules.",
        )
        yield Finding(Status.FAIL, "not loaded", "", remedy)


@check(
    "gpu-persistence",
    "GPU persistence mode",
    wanted="on",
    why="Else the driver unloads when the last program ends, and the next start takes seconds.",
    sources=("NVML",),
)
def gpu_persistence(context: Context) -> Iterator[Finding]:
    for gpu in _gpus(context):
        if gpu.persistence is None:
            yield skip("the driver does not say", _name(gpu))
        elif gpu.persistence:
            yield ok("on", _name(gpu))
        else:
            remedy = at_every_boot("gpu-persistence", "GPU driver stays", "nvidia-smi -pm 1")
            yield Finding(Status.WARN, "off", _name(gpu), remedy)


@check(
    "gpu-clocks",
    "GPU clocks",
    wanted=f"SM clock within {_CLOCK_SLACK} MHz of its maximum, memory clock at its maximum",
    why="A GPU that rests takes the first bursts late.",
    sources=("NVML",),
)
def gpu_clocks(context: Context) -> Iterator[Finding]:
    for gpu in _gpus(context):
        if gpu.sm_clock is None or gpu.max_sm_clock is None:
            yield skip("the driver does not say", _name(gpu))
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
        note="A GPU at full clocks draws more power; -rgc and -rmc give the clocks free again.",
    )


@check(
    "bar1",
    "GPU BAR1",
    wanted="1 GiB at least, and room for the configuration's device regions",
    why="What a NIC writes into a GPU goes through this window; more cannot be mapped.",
    sources=("NVML",),
    platforms=_DISCRETE,
)
def bar1(context: Context) -> Iterator[Finding]:
    for gpu in _gpus(context):
        regions = context.needs.regions
        wanted = sum(r.size for r in regions if r.kind == "device" and r.affinity == gpu.index)
        if gpu.integrated:
            yield skip("integrated: no window to its memory is needed", _name(gpu))
        elif gpu.bar1_total is None or gpu.bar1_free is None:
            yield skip("the driver does not say", _name(gpu))
        elif wanted > gpu.bar1_total:
            found = f"{gpu.bar1_total // _MIB} MiB; the regions take {wanted // _MIB} MiB"
            yield Finding(Status.FAIL, found, _name(gpu), _RESIZE)
        elif gpu.bar1_total < _LEAST_BAR1:
            yield Finding(Status.WARN, f"{gpu.bar1_total // _MIB} MiB", _name(gpu), _RESIZE)
        elif wanted > gpu.bar1_free:
            found = f"{gpu.bar1_free // _MIB} MiB free; the regions take {wanted // _MIB} MiB"
            note = "Another program has mapped the rest: nvidia-smi shows which run on this GPU."
            yield Finding(Status.FAIL, found, _name(gpu), Remedy(note=note))
        else:
            found = f"{gpu.bar1_free // _MIB} of {gpu.bar1_total // _MIB} MiB free"
            yield ok(found, _name(gpu))


_RESIZE = Remedy(
    note=(
        "Switch Resizable BAR on in the BIOS. If BAR1 stays small, NVIDIA's Display Mode Selector "
        "sets the GPU to a mode with a larger one; only on a GPU that its page lists: it can make "
        "another unusable."
    )
)


@check(
    "gdrcopy",
    "GDRCopy",
    wanted="module gdrdrv loaded",
    why="It maps GPU memory into the CPU's; only queues that GPU and CPU share need it.",
    sources=("/proc/modules",),
    platforms=(Platform.GPUNETIO,),
)
def gdrcopy(context: Context) -> Iterator[Finding]:
    _gpus(context)
    if "gdrdrv" in context.facts.modules:
        yield ok("loaded")
    else:
        yield skip("not loaded; optional: without it there is no memory that GPU and CPU share")


@check(
    "gpu-without-root",
    "GPU memory for users other than root",
    wanted="PeerMappingOverride=1, where the engine does not run as root",
    why="The driver maps GPU memory for a NIC on behalf of root only, unless told so.",
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
            note="It takes a cold boot.",
        )
        yield Finding(Status.WARN, "not set", "", remedy)


@check(
    "dma-buf",
    "what dma-buf needs",
    wanted="kernel 6.2 (IGX: 5.12), libibverbs 1.14.44, or newer; open GPU kernel modules",
    why="The kernel's own way for a NIC into GPU memory; nvidia-peermem is the way without.",
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
    # Older ones come with open modules only on request, so that what is loaded tells more.
    cuda = min((gpu.cuda for gpu in gpus if gpu.cuda), default=None)
    if not driver and cuda and cuda < _CUDA:
        lacking.append(f"CUDA {_dotted(cuda)}")
    if not lacking:
        yield ok("all there")
    elif "nvidia_peermem" in facts.modules:
        yield skip(f"{', '.join(lacking)}; nvidia-peermem is loaded and serves instead")
    else:
        note = (
            "Install what is older than wanted (nvidia-open, rdma-core, a newer kernel), or load "
            "nvidia-peermem instead. CUDA up to 12.5 has open modules only if it was installed "
            "with -m=kernel-open."
        )
        remedy = Remedy(
            now=("modprobe nvidia-peermem",), files=(module_at_boot("nvidia-peermem"),), note=note
        )
        yield Finding(Status.WARN, ", ".join(lacking), "", remedy)


# What the engine needs; DOCA GPUNetIO wants a newer kernel.
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
    # Another architecture's may lie beside.
    return max(versions, default=None)
