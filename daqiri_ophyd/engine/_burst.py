"""Received packets as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native

from ._errors import InvalidParameterError
from ._native_path import native_path

__all__ = ["Burst"]


class Burst:
    """Packets that arrived together, in the engine's buffers.

    ``burst[i]`` is packet ``i`` without a copy: a read-only uint8 array over the engine's buffer,
    or a `DeviceArray` if the packets are in a memory region of ``kind: device``. A slice is a list
    of such arrays. Arrays keep their buffers in use, in any thread, also after `release` and after
    the engine is closed; the engine cannot receive into those buffers meanwhile. To keep many
    packets for long, copy them with `gather`.

    Bursts come from `RxQueue.receive`. Dropping a burst releases it, as does the end of a ``with``
    block. After `release`, all other methods raise InvalidParameterError.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Burst) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    # Any: code written for arrays on the host cannot use arrays on a GPU.
    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._native.views(index)
        return self._native.view(index)

    def __iter__(self) -> Iterator[Any]:
        return map(self._native.view, range(len(self._native)))

    def segment(self, segment: int, index: int) -> Any:
        """Return the part of a packet in one segment, without a copy.

        Parameters
        ----------
        segment : int
            From 0; the order of the queue's ``memory_regions``.
        index : int
            Packet; negative from the end.

        Returns
        -------
        ndarray or DeviceArray of uint8, shape (length,)
            Read-only on the host.

        Raises
        ------
        IndexError
            If there is no such packet.
        InvalidParameterError
            If there is no such segment, or the burst was released.
        GenericFailureError
            If the GPU that has the packets no longer works.
        """
        return self._native.view(index, segment)

    @property
    def lengths(self) -> NDArray[np.uint32]:
        """Bytes of each packet over all segments, shape (n,)."""
        return self._native.lengths()

    def segment_lengths(self, segment: int) -> NDArray[np.uint32]:
        """Return the bytes of each packet in one segment, shape (n,)."""
        return self._native.segment_lengths(segment)

    def addresses(self, segment: int = 0) -> NDArray[np.uintp]:
        """Return the memory address of each packet, shape (n,).

        For compiled code that processes all packets in one call (Numba, ctypes, a kernel of the GPU
        that has the packets). An address is valid while the burst, this array or another array of
        the burst is held. On a GPU, the engine reuses the buffers only after kernels that were
        launched before all of these were dropped have ended.

        Parameters
        ----------
        segment : int
            From 0; the order of the queue's ``memory_regions``.

        Returns
        -------
        ndarray of uintp, shape (n,)
            Read-only.

        Raises
        ------
        InvalidParameterError
            If there is no such segment, or the burst was released.
        GenericFailureError
            If the GPU that has the packets no longer works.
        """
        return self._native.addresses(segment)

    @property
    def flow_ids(self) -> NDArray[np.uint32]:
        """Flow id of each packet, shape (n,); 0: no flow matched."""
        return self._native.flow_ids()

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Arrival time of each packet on the port's clock, ns, shape (n,)."""
        return self._native.timestamps()

    @property
    def nbytes(self) -> int:
        """Bytes of all packets."""
        return self._native.nbytes

    @property
    def port_id(self) -> int:
        """Port that received the packets."""
        return self._native.port_id

    @property
    def queue_id(self) -> int:
        """Queue that received the packets."""
        return self._native.queue_id

    @property
    def connection_id(self) -> int:
        """Connection that received the packets; 0 on streams without connections."""
        return self._native.connection_id

    @property
    def num_segments(self) -> int:
        """Number of segments of each packet."""
        return self._native.num_segments

    def gather(self, out: Any = None, segment: int | None = None) -> Any:
        """Copy the packets to the rows of one array, at memory speed.

        The interpreter lock is released during the copy. Packets in GPU memory are copied there, by
        one kernel, after kernels of yours that use arrays or addresses of these packets.

        Parameters
        ----------
        out : array of uint8, shape (n, width), optional
            Destination; C-contiguous, ``width`` at least the longest packet. For packets on a GPU,
            an array there (``__cuda_array_interface__``: CuPy, PyTorch) that nothing else uses
            meanwhile. None: a new array; on a GPU, the driver allocates its memory each time.
        segment : int, optional
            Copy only the part of each packet in this segment. None: whole packets; on a GPU, only
            if they have one segment.

        Returns
        -------
        ndarray or DeviceArray of uint8, shape (n, width)
            `out`, or a new array as wide as the longest packet; rows are padded with 0.

        Raises
        ------
        InvalidParameterError
            If `out` does not fit, there is no such segment, or the burst was released.
        NotSupportedError
            If whole packets of several segments are requested and one segment is on a GPU.
        NoFreePacketBuffersError
            If the GPU has no memory for a new array.
        GenericFailureError
            If the GPU no longer works.
        """
        return self._native.gather(out, segment)

    def gather_flat(
        self, out: NDArray[np.uint8] | None = None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Copy the packets back to back, at memory speed.

        The interpreter lock is released during the copy.

        Parameters
        ----------
        out : ndarray of uint8, shape (size,), optional
            Destination; contiguous, ``size`` at least `nbytes`. None: a new array.

        Returns
        -------
        data : ndarray of uint8, shape (nbytes,)
            The beginning of `out`, or a new array.
        offsets : ndarray of int64, shape (n + 1,)
            Packet ``i`` is ``data[offsets[i]:offsets[i + 1]]``.

        Raises
        ------
        InvalidParameterError
            If `out` does not fit, or the burst was released.
        NotSupportedError
            If packets are on a GPU; use `gather` there.
        """
        return self._native.gather_flat(out)

    def write_pcap(self, directory: str | Path, prefix: str, *, nanosecond: bool = True) -> Path:
        """Append the packets to ``<directory>/<prefix>.pcap``.

        Parameters
        ----------
        directory : str or Path
            An existing directory.
        prefix : str
            Name of the file without ``.pcap``.
        nanosecond : bool
            Resolution of a new file's time stamps: ns, else µs. An existing file must have the
            same resolution.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InvalidParameterError
            If the directory does not exist, or the file has another format; it is left unchanged.
        NotReadyError
            If another writer has the file open.
        GenericFailureError
            If writing failed; the file is cut to whole records.
        """
        folder = Path(directory).absolute()
        self._native.write_pcap(native_path(folder), prefix, nanosecond)
        return folder / f"{prefix}.pcap"

    def write_raw(self, directory: str | Path, prefix: str, offset: int = 0) -> None:
        """Write each packet to a separate file, ``<directory>/<prefix>_<index>``.

        Parameters
        ----------
        directory : str or Path
            An existing directory.
        prefix : str
            Beginning of the file names.
        offset : int
            Bytes to skip at the beginning of each packet.

        Raises
        ------
        InvalidParameterError
            If the directory does not exist, or the offset is negative.
        GenericFailureError
            If writing failed; earlier files are complete, the failed one is removed.
        """
        if offset < 0:
            raise InvalidParameterError(f"offset is {offset}; accepted is 0 or more")
        self._native.write_raw(native_path(Path(directory).absolute()), prefix, offset)

    def release(self) -> None:
        """Return the burst to the engine. Idempotent; existing arrays keep their buffers."""
        self._native.release()

    @property
    def released(self) -> bool:
        """Whether the burst was released."""
        return self._native.released

    def __enter__(self) -> Burst:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        if self.released:
            return "<Burst released>"
        return f"<Burst of {len(self)} packets, {self.nbytes} bytes, queue {self.queue_id}>"
