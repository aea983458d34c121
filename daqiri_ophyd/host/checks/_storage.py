"""Checks of the folder for captures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from ..facts import Volume
from ._files import module_at_boot

_LEAST_FREE = 10 << 30
_GIB = 1 << 30
# File systems whose O_DIRECT reaches the disk.
_DIRECT = ("ext4", "xfs", "btrfs", "f2fs", "ext3", "ext2", "lustre", "gpfs", "beegfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse")


@check(
    "storage",
    "folder of the captures",
    wanted="a local disk with O_DIRECT and space; from GPU memory: ext4 or xfs, with nvidia-fs",
    why="If the disk is full or slower than the stream, the capture fails.",
    sources=("/proc/mounts", "statvfs", "/proc/modules"),
)
def storage(context: Context) -> Iterator[Finding]:
    volume = context.facts.volume(context.folder)
    folder = context.folder
    where = f"{volume.kind} on {volume.mounted_at}"
    if volume.kind == "tmpfs":
        note = "Files there use memory and are lost at the next boot: choose a folder on a disk."
        yield Finding(Status.WARN, f"{where}: memory, not a disk", folder, Remedy(note=note))
    elif volume.kind in _REMOTE:
        note = "Capture to a local disk and copy afterwards: the network is shared."
        yield Finding(Status.WARN, f"{where}: over a network", folder, Remedy(note=note))
    elif volume.kind in _DIRECT:
        yield ok(f"{where}, with O_DIRECT; `daqiri-ophyd host measure` measures its rate", folder)
    else:
        yield skip(f"{where}: whether it has O_DIRECT is not known", folder)
    yield from _room(volume, folder)
    if any(region.kind == "device" for region in context.needs.regions):
        yield _gpudirect_storage(context, volume)


def _room(volume: Volume, folder: str) -> Iterator[Finding]:
    if "ro" in volume.options:
        remedy = Remedy(now=(f"mount -o remount,rw {shlex.quote(volume.mounted_at)}",))
        yield Finding(Status.FAIL, "mounted read-only", folder, remedy)
    if volume.free is None:
        yield skip("free space is not known", folder)
    elif volume.free < _LEAST_FREE:
        note = "A minute at 10 Gb/s takes 75 GB: free space, or use another folder."
        yield Finding(Status.WARN, f"{volume.free / _GIB:.1f} GiB free", folder, Remedy(note=note))
    else:
        yield ok(f"{volume.free // _GIB} GiB free", folder)


def _gpudirect_storage(context: Context, volume: Volume) -> Finding:
    subject = "GPUDirect Storage"
    good = volume.kind == "xfs" or (
        volume.kind == "ext4" and not {"data=journal", "data=writeback"} & volume.options
    )
    if "nvidia_fs" in context.facts.modules and good:
        return ok(f"nvidia-fs loaded, {volume.kind}", subject)
    lacking = [] if good else [f"{volume.kind} cannot; ext4 with data=ordered and xfs can"]
    if "nvidia_fs" not in context.facts.modules:
        lacking.append("nvidia-fs is not loaded")
    note = "Without it, cuFile copies through the host."
    remedy = Remedy(note=f"{note} Use a folder on ext4 or xfs.")
    if good:
        remedy = Remedy(("modprobe nvidia-fs",), (module_at_boot("nvidia-fs"),), note=note)
    return Finding(Status.WARN, "; ".join(lacking), subject, remedy)
