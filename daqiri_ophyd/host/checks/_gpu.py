"""Checks of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from .._check import Context, DoesNotApplyError, check, ok, skip
from .._finding import Finding, Remedy, Status
from .._root import FactError
from ..facts import Gpu
from ._files import at_every_boot, module_at_boot

# A GPU whose SM clock is below the maximum by more than this is idle.
_CLOCK_SLACK = 500
_LEAST_BAR1 = 1 << 30
_MIB = 1 << 20
# Workstation boards of which BAR1 covers the whole memory once the BIOS allows it.
_LARGE_BAR1 = {"RTX PRO 6000 Blackwell Server": 32 << 30}


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


def _named(context: Context) -> list[Gpu]:
    """Return GPUs in use that NICs may write to."""
    context.require_direct_gpu()
    return context.gpus


@check(
    "gpu-driver",
    "NVIDIA driver",
    wanted="present, with the GPUs that the configuration uses, and a compiler for their kernels",
    why="Without it the engine rejects GPU memory and reorder plans on a GPU.",
)
def gpu_driver(context: Context) -> Iterator[Finding]:
    needs, facts = context.needs, context.facts
    try:
        gpus, problem = facts.gpus, "the driver reports no GPU"
    except FactError as error:
        gpus, problem = [], str(error)
    if needs.given:
        yield from _for_configuration(context, gpus)
    elif not any(device.is_nvidia_gpu for device in facts.pci.values()):
        raise DoesNotApplyError("no NVIDIA GPU")
    elif not gpus:
        yield Finding(Status.WARN, problem + _bound(context), "", _INSTALL)
    for gpu in gpus:
        if not needs.given or gpu.affinity in needs.gpus:
            yield ok(f"{gpu.name}, driver {gpu.driver or 'of unknown version'}", _name(gpu))


_INSTALL = Remedy(
    note=(
        "Install NVIDIA's driver (Debian, Ubuntu: nvidia-driver; Red Hat: nvidia-driver:open-dkms "
        "of NVIDIA's repository) and reboot. A container is started with `--gpus all`."
    )
)


def _for_configuration(context: Context, gpus: list[Gpu]) -> Iterator[Finding]:
    """Report what the engine would reject."""
    needs = context.needs
    if not needs.gpus:
        raise DoesNotApplyError("the configuration uses no GPU")
    refusals = context.facts.gpu_refusals
    if refusals.memory:
        use = next(iter(needs.gpus.values()))
        found = f"{use} needs CUDA, and {refusals.memory}{_bound(context)}"
        yield Finding(Status.FAIL, found, "", _INSTALL)
        return
    visible = [gpu for gpu in gpus if not gpu.hidden]
    for number, use in needs.gpus.items():
        if gpus and number >= len(visible):
            found = f"{use}: there is no GPU {number}, only {len(visible)} in all"
            note = "Set affinity to the number of a GPU: nvidia-smi lists them, from 0."
            if hidden := len(gpus) - len(visible):
                found += f"; CUDA_VISIBLE_DEVICES hides {hidden}"
                note = "Set affinity to a number among the GPUs of CUDA_VISIBLE_DEVICES, from 0, "
                note += "or change that variable."
            yield Finding(Status.FAIL, found, "", Remedy(note=note))
    if refusals.kernels and (needs.gpu_plans or needs.by_engine().staged):
        note = "Install the CUDA toolkit, or name the folder of a libnvrtc in LD_LIBRARY_PATH."
        yield Finding(Status.FAIL, refusals.kernels, "", Remedy(note=note))


def _bound(context: Context) -> str:
    """Return which kernel driver has the GPUs instead."""
    cards = [device for device in context.facts.pci.values() if device.is_nvidia_gpu]
    if not cards:
        return "; no NVIDIA GPU is on the PCI bus"
    drivers = {device.driver or "no driver" for device in cards}
    return f"; kernel driver of the GPUs: {', '.join(sorted(drivers))}"


@check(
    "gpudirect",
    "NICs and GPU memory",
    wanted="direct access of the NIC to GPU memory: dma-buf, or the module nvidia-peermem",
    why="An engine that drives the NIC itself lets it write packets to the GPU.",
)
def gpudirect(context: Context) -> Iterator[Finding]:
    pinned = "Use memory regions of kind host_pinned, which both CPU and GPU can read."
    gpus, lacking = _named(context), _dma_buf_lacks(context)
    peermem = "nvidia_peermem" in context.facts.modules
    copies = context.needs.copies_without_nic
    for gpu in gpus:
        name = _name(gpu)
        if gpu.integrated and context.needs.given:
            found = "memory is the host's, and the configuration has regions of kind device"
            yield Finding(context.wrong_for_gpu, found, name, Remedy(note=pinned))
        elif gpu.integrated:
            yield skip("memory is the host's; use regions of kind host_pinned", name)
        # DPDK gives its drivers addresses, and no dma-bufs.
        elif gpu.dma_buf and not lacking and not copies:
            old = context.facts.kernel < _GPUNETIO_KERNEL
            yield ok("dma-buf" + (" (DOCA GPUNetIO requires kernel 6.2)" if old else ""), name)
        elif gpu.gpudirect is False and not gpu.dma_buf:
            note = "GeForce GPUs do not support it; use a workstation or data center GPU. "
            yield Finding(
                context.wrong_for_gpu, f"{gpu.name}: none", name, Remedy(note=note + pinned)
            )
        elif peermem:
            yield ok("nvidia-peermem", name)
        elif copies:
            found = f"nvidia-peermem is not loaded: engine {context.needs.engine} copies packets"
            yield Finding(Status.WARN, found, name, _load_peermem())
        else:
            why = [*lacking] if gpu.dma_buf or gpu.dma_buf is None else ["no dma-buf of the GPU"]
            found = f"nvidia-peermem is not loaded, and dma-buf lacks: {', '.join(why)}"
            if not why:
                yield skip("not reported by CUDA; all that dma-buf requires is present", name)
                continue
            note = (
                " Or update what dma-buf lacks: nvidia-open, rdma-core, the kernel. CUDA up to "
                "12.5 has open modules only if it was installed with -m=kernel-open."
            )
            yield Finding(context.wrong, found, name, _load_peermem(note))


def _load_peermem(note: str = "") -> Remedy:
    return Remedy(
        now=("modprobe nvidia-peermem",),
        files=(module_at_boot("nvidia-peermem"),),
        note=(
            "If the module does not load, rebuild the driver's modules for this kernel "
            f"(dpkg-reconfigure nvidia-dkms-VERSION, or dkms autoinstall).{note}"
        ),
        verify=("grep -q ^nvidia_peermem /proc/modules",),
    )


# dma-buf of the RDMA stack; DOCA GPUNetIO needs a newer kernel.
_KERNEL, _GPUNETIO_KERNEL = (5, 12), (6, 2)
_VERBS, _CUDA = (1, 14, 44), (12, 6)


def _dma_buf_lacks(context: Context) -> list[str]:
    """Return what dma-buf requires and this host does not have."""
    facts = context.facts
    lacking = []
    if facts.kernel < _KERNEL:
        lacking.append(f"kernel {_dotted(_KERNEL)} (found {_dotted(facts.kernel)})")
    verbs = _verbs_version(context)
    if verbs is None or verbs < _VERBS:
        has = f" (found {_dotted(verbs)})" if verbs else ""
        lacking.append(f"libibverbs {_dotted(_VERBS)}{has}")
    driver = facts.root.optional("/proc/driver/nvidia/version")
    if driver and "Open Kernel Module" not in driver:
        lacking.append("open GPU kernel modules")
    # Older CUDA installs open modules only on request; the loaded driver is the better evidence.
    cuda = min((gpu.cuda for gpu in facts.gpus if gpu.cuda), default=None)
    if not driver and cuda and cuda < _CUDA:
        lacking.append(f"CUDA {_dotted(_CUDA)} (found {_dotted(cuda)})")
    return lacking


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


@check(
    "gpu-persistence",
    "GPU persistence mode",
    wanted="on",
    why="Otherwise the driver unloads with the last program, and the next start takes seconds.",
)
def gpu_persistence(context: Context) -> Iterator[Finding]:
    for gpu in context.gpus:
        if gpu.persistence is None:
            yield skip("not reported by the driver", _name(gpu))
        elif gpu.persistence:
            yield ok("on", _name(gpu))
        else:
            query = f"nvidia-smi -i {gpu.index} --query-gpu=persistence_mode --format=csv,noheader"
            remedy = at_every_boot(
                30,
                f"gpu{gpu.index}-persistence",
                f"nvidia-smi -i {gpu.index} -pm 1",
                verify=(f"{query} | grep -q Enabled",),
            )
            yield Finding(Status.WARN, "off", _name(gpu), remedy)


@check(
    "gpu-clocks",
    "GPU clocks",
    wanted=f"SM clock within {_CLOCK_SLACK} MHz of its maximum, memory clock at its maximum",
    why="An idle GPU is slow to handle the first bursts.",
)
def gpu_clocks(context: Context) -> Iterator[Finding]:
    for gpu in context.gpus:
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
    query = f"nvidia-smi -i {gpu.index} --query-gpu=clocks.sm --format=csv,noheader,nounits"
    least = (gpu.max_sm_clock or 0) - _CLOCK_SLACK
    return at_every_boot(
        # After persistence mode: locked clocks are lost when the driver unloads.
        31,
        f"gpu{gpu.index}-clocks",
        *commands,
        verify=(f'sleep 1; test "$({query})" -ge {least}',),
        note="A GPU at full clocks draws more power; -rgc and -rmc reset the clocks.",
    )


@check(
    "bar1",
    "GPU BAR1",
    wanted="at least 1 GiB, and enough for the configuration's device regions",
    why="NICs write into GPU memory through this window, so it limits what can be mapped.",
)
def bar1(context: Context) -> Iterator[Finding]:
    for gpu in _named(context):
        wanted = sum(r.size for r in context.needs.mapped_regions if r.affinity == gpu.affinity)
        least = next((size for name, size in _LARGE_BAR1.items() if name in gpu.name), _LEAST_BAR1)
        if gpu.integrated:
            yield skip("integrated: no window is needed", _name(gpu))
        elif gpu.bar1_total is None or gpu.bar1_free is None:
            yield skip("not reported by the driver", _name(gpu))
        elif wanted > gpu.bar1_total:
            found = f"{gpu.bar1_total // _MIB} MiB; the regions take {wanted // _MIB} MiB"
            yield Finding(context.wrong_for_gpu, found, _name(gpu), _resize(context, gpu))
        elif gpu.bar1_total < least:
            found = f"{gpu.bar1_total // _MIB} MiB (need {least // _MIB})"
            yield Finding(Status.WARN, found, _name(gpu), _resize(context, gpu))
        elif wanted > gpu.bar1_free:
            found = f"{gpu.bar1_free // _MIB} MiB free; the regions take {wanted // _MIB} MiB"
            note = "Another program has mapped the rest: nvidia-smi lists the programs on this GPU."
            yield Finding(context.wrong_for_gpu, found, _name(gpu), Remedy(note=note))
        else:
            found = f"{gpu.bar1_free // _MIB} of {gpu.bar1_total // _MIB} MiB free"
            yield ok(found, _name(gpu))


def _resize(context: Context, gpu: Gpu) -> Remedy:
    bios = "Enable Resizable BAR and Above 4G Decoding in the BIOS."
    selector = (
        "NVIDIA's Display Mode Selector can set a mode with a larger BAR1 (--gpumode "
        "physical_display_enabled_8GB_bar1), with no driver loaded: rmmod nvidia_drm "
        "nvidia_modeset nvidia_uvm nvidia. Use it only for GPUs that its page lists: it can make "
        "others unusable. Secure Boot forbids it."
    )
    device = context.facts.pci.get(gpu.pci_address)
    try:
        largest = device.largest_bar1 if device else None
    except FactError:
        return Remedy(note=f"{bios} If BAR1 stays small: {selector}")
    if largest is not None and largest > (gpu.bar1_total or 0):
        return Remedy(note=f"{bios} This GPU can have up to {largest // _MIB} MiB.")
    return Remedy(note=f"Its BAR cannot be resized now. {selector} Then: {bios}")


@check(
    "gdrcopy",
    "GDRCopy",
    wanted="module gdrdrv loaded",
    why="It maps GPU memory for the CPU; only queues that GPU and CPU share need it.",
)
def gdrcopy(context: Context) -> Iterator[Finding]:
    _named(context)
    if "gdrdrv" in context.facts.modules:
        yield ok("loaded")
    else:
        yield skip("not loaded; optional, for memory shared by GPU and CPU")


@check(
    "gpu-without-root",
    "GPU memory for users other than root",
    wanted="PeerMappingOverride=1 if the engine does not run as root",
    why="By default the driver maps GPU memory for a NIC only for root.",
)
def gpu_without_root(context: Context) -> Iterator[Finding]:
    context.require_direct_gpu()
    params = context.facts.root.text("/proc/driver/nvidia/params")
    line = next((ln for ln in params.splitlines() if ln.startswith("RegistryDwords:")), "")
    if "PeerMappingOverride=1" in line:
        yield ok("PeerMappingOverride=1")
    elif context.facts.process.user == 0:
        yield skip("runs as root")
    elif not context.needs.given:
        yield skip("not set; give a configuration to check whether it matters")
    else:
        text = 'options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"\n'
        remedy = Remedy(
            files=(("/etc/modprobe.d/daqiri-nvidia.conf", text),),
            note=(
                "Requires a cold boot. Where the initramfs has the driver, rebuild it first: "
                "update-initramfs -u, or dracut -f."
            ),
        )
        yield Finding(Status.WARN, "not set", "", remedy)
