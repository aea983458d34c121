"""Unpacks gzip, zstd and pcapng captures to classic pcap."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from daqiri_ophyd import _native

from ._errors import GenericFailureError, InvalidParameterError, NotSupportedError
from ._native_path import shown_path

__all__ = ["open_classic", "open_regular"]

_GZIP, _ZSTD, _PCAPNG = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x0a\x0d\x0d\x0a"
_CHUNK = 1 << 20
# The densest zstd data of this size unpacks to about 100 MB.
_ZSTD_CHUNK = 1 << 12


@dataclass
class Classic:
    """A capture as classic pcap.

    Parameters
    ----------
    file
        The file itself, or the unpacked one. It may be something other than a pcap file.
    wrapping
        Compression and format that were unpacked, outermost first: ``gzip``, ``zstd``, ``pcapng``.
    pcapng_end
        Of pcapng: offset after the last whole block, and the number of torn bytes after it.
    """

    file: BinaryIO
    wrapping: tuple[str, ...] = ()
    pcapng_end: tuple[int, int] | None = None


def open_classic(path: Path) -> Classic:
    """Open a capture for reading as classic pcap.

    A compressed or pcapng file is unpacked to an unnamed file in ``$TMPDIR``, which is deleted when
    it is closed.

    Raises
    ------
    OSError
        If the file cannot be read.
    GenericFailureError
        If there is not enough space for the unpacked file.
    InvalidParameterError
        If it is damaged, or a pcapng file with several link types. A pcapng file whose writer
        ended within a block is not damaged; the blocks before it are read.
    NotSupportedError
        If it is pcapng and libpcap is not installed, or zstd and zstandard is not installed.

    Notes
    -----
    Formats: RFC 1952 (gzip), RFC 8878 (zstd), draft-ietf-opsawg-pcapng, read by libpcap.
    """
    found = Classic(open_regular(path))
    try:
        magic = _magic(found.file)
        if magic[:2] == _GZIP:
            found.file = _unpacked(found.file, path, _gunzip)
            found.wrapping += ("gzip",)
        elif magic == _ZSTD:
            found.file = _unpacked(found.file, path, _unzstd)
            found.wrapping += ("zstd",)
        if _magic(found.file) == _PCAPNG:

            def convert(source: BinaryIO, target: BinaryIO, path: Path) -> None:
                found.pcapng_end = _native.unpack_pcapng(
                    source.fileno(), target.fileno(), shown_path(path)
                )

            found.file = _unpacked(found.file, path, convert)
            found.wrapping += ("pcapng",)
    except BaseException:
        found.file.close()
        raise
    return found


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; opening a named pipe would wait for a writer.

    Raises
    ------
    OSError
        If it cannot be read.
    InvalidParameterError
        If it is a pipe, a device or a socket.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise InvalidParameterError(f"{path} is not a regular file; give a capture file")


def _magic(file: BinaryIO) -> bytes:
    return os.pread(file.fileno(), 4, 0)


def _unpacked(
    source: BinaryIO, path: Path, unpack: Callable[[BinaryIO, BinaryIO, Path], None]
) -> BinaryIO:
    folder = tempfile.gettempdir()
    target = tempfile.TemporaryFile(dir=folder)
    try:
        with source:
            unpack(source, target, path)
        target.flush()
    except BaseException as error:
        unpacked = os.fstat(target.fileno()).st_size
        full = _is_full(folder, error)
        target.close()
        if full:
            raise GenericFailureError(
                f"{path} does not fit into {folder} when unpacked: it holds more than "
                f"{unpacked:,} bytes; set TMPDIR to a directory with more space"
            ) from error
        raise
    return target


def _is_full(folder: str, error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return isinstance(error, GenericFailureError) and shutil.disk_usage(folder).free < _CHUNK


def _gunzip(source: BinaryIO, target: BinaryIO, path: Path) -> None:
    try:
        with gzip.GzipFile(fileobj=source) as packed:
            while block := packed.read(_CHUNK):
                target.write(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, "gzip", source.tell(), str(error)) from error


def _unzstd(source: BinaryIO, target: BinaryIO, path: Path) -> None:
    """Unpack frame by frame; the library's streams do not detect an incomplete frame."""
    # Imported here: there are no wheels for free-threaded interpreters.
    try:
        import zstandard
    except ImportError as error:
        raise NotSupportedError(
            f"{path} is compressed with zstd, and the Python package zstandard is not "
            f"installed ({error}); install it, or unpack the file first: zstd -d {path}"
        ) from error
    frame = None
    block = b""
    try:
        while block := block or source.read(_ZSTD_CHUNK):
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            target.write(frame.decompress(block))
            block = b""
            if frame.eof:
                block, frame = frame.unused_data, None
    except zstandard.ZstdError as error:
        raise _damaged(path, "zstd", source.tell() - len(block), str(error)) from error
    if frame is not None:
        raise _damaged(path, "zstd", source.tell(), "it ends within a frame")


def _damaged(path: Path, kind: str, near: int, reason: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"{path}: damaged {kind} data near byte {near:,}: {reason}; copy the file again, or unpack "
        "as much as possible with the program that compressed it"
    )
