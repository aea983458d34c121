"""Checks of the folder for captures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from .._check import Context, check, ok, skip
from .._finding import Finding, Remedy, Status
from ..facts import Volume

_LEAST_FREE = 10 << 30
_GIB = 1 << 30
# File systems whose O_DIRECT reaches the disk.
_DIRECT = ("ext4", "xfs", "btrfs", "f2fs", "ext3", "ext2", "lustre", "gpfs", "beegfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse")


@check(
    "storage",
    "folder of the captures",
    wanted="a local disk with O_DIRECT and space",
    why="If the disk is full or slower than the stream, the capture fails.",
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
        yield _cufile(context, volume)


def _room(volume: Volume, folder: str) -> Iterator[Finding]:
    if "ro" in volume.options:
        # Writing to a disk with errors makes them worse.
        remedy = Remedy(
            note=(
                "The kernel mounts a disk read-only after errors: check `dmesg` first. If it has "
                f"none: mount -o remount,rw {shlex.quote(volume.mounted_at)}"
            )
        )
        yield Finding(Status.FAIL, "mounted read-only", folder, remedy)
    if volume.free is None:
        yield skip("free space is not known", folder)
    elif volume.free < _LEAST_FREE:
        note = "A minute at 10 Gb/s takes 75 GB: free space, or use another folder."
        yield Finding(Status.WARN, f"{volume.free / _GIB:.1f} GiB free", folder, Remedy(note=note))
    else:
        yield ok(f"{volume.free // _GIB} GiB free", folder)


def _cufile(context: Context, volume: Volume) -> Finding:
    """Report how cuFile would write; by default the engine chooses what works."""
    root = context.facts.root
    subject = "cuFile"
    if not any(next(root.glob(pattern), None) for pattern in _CUFILE):
        return skip("no libcufile: `writer: cufile` fails, `auto` copies to the host", subject)
    direct = volume.kind == "xfs" or (
        volume.kind == "ext4" and not {"data=journal", "data=writeback"} & volume.options
    )
    if "nvidia_fs" in context.facts.modules and direct:
        return ok(f"libcufile, from GPU memory to {volume.kind}", subject)
    return ok("libcufile in compatibility mode, which copies through the host", subject)


_CUFILE = (
    "/usr/lib/*/libcufile.so.0",
    "/usr/lib64/libcufile.so.0",
    "/usr/local/cuda/lib64/libcufile.so.0",
    "/usr/local/cuda/targets/*/lib/libcufile.so.0",
)
