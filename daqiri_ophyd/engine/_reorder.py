"""Reorder plans and their frames."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native
from daqiri_ophyd._native import DeviceArray, ReorderColumnConfig, ReorderConfig

from ._block_means import block_means, require_binning, values_of
from ._counters import ReorderCounters
from ._errors import InvalidParameterError, NotReadyError
from ._frame_kernel import ProcessedPlan
from ._frame_reductions import FrameReductions
from ._native_path import native_path
from ._plugins import plugin_folder
from ._port_counters import PortCounters
from ._recorder import (
    Recorder,
    RecorderGroup,
    RecordMetadata,
    metadata_text,
    require_counts,
)

__all__ = ["Frame", "FramePreview", "Frames", "ReorderPlan", "frame_form"]

# NumPy has no bf16: its elements appear as their bits.
_DTYPES = {"same": "uint8", "fp16": "float16", "bf16": "uint16", "fp32": "float32"}
_DTYPES |= {"fp64": "float64"}


def frame_form(config: ReorderConfig, binning: int = 1) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of a plan's frames as configured, or of their previews.

    Without ``frame``, the shape is (-1,), for a variable number of elements, and the type is that
    of the output.

    Parameters
    ----------
    config : ReorderConfig
        The plan.
    binning : int
        As for `ReorderPlan.preview`.

    Raises
    ------
    InvalidParameterError
        If frames have no previews with that binning.
    TypeError
        If binning is not an integer.
    """
    binning = require_binning(config, binning)
    shape = tuple(config.frame.shape) if config.frame else (-1,)
    if binning > 1:
        blocks = (size // binning for size in shape[-2:])
        return (*shape[:-2], *blocks), np.dtype(np.float32)
    if config.frame and config.frame.dtype:
        return shape, np.dtype(config.frame.dtype)
    output = config.data_types.output_type if config.data_types else "same"
    return shape, np.dtype(_DTYPES.get(output, output))


@dataclass(frozen=True, slots=True)
class FramePreview:
    """A copy of a frame, for displays.

    Attributes
    ----------
    number : int
        Number of the copy, from 1, whatever the binning.
    data : ndarray
        Array of the plan's shape and dtype, or means as float32 (`ReorderPlan.preview`);
        read-only.
    batch, packets, missing, timestamp, last_timestamp : int
        As for a `Frame`.
    columns : dict
        As for a `Frame`.
    """

    number: int
    data: NDArray[Any]
    batch: int
    packets: int
    missing: int
    timestamp: int
    last_timestamp: int
    columns: dict[str, Any]


def _by_name(columns: Sequence[ReorderColumnConfig], numbers: NDArray[np.uint64]) -> dict[str, Any]:
    """Return the numbers of a frame by the names of the plan's columns."""
    single = sum(column.source != "packets" for column in columns)
    each = (len(numbers) - single) // max(1, len(columns) - single)
    found: dict[str, Any] = {}
    begin = 0
    for column in columns:
        if column.source == "packets":
            found[column.name] = numbers[begin : begin + each]
            begin += each
        else:
            found[column.name] = int(numbers[begin])
            begin += 1
    return found


class Frame:
    """Packets that were assembled into an array.

    Attributes
    ----------
    data : ndarray or DeviceArray
        Array of the plan's shape and dtype, in the engine's buffer, without a copy. The array keeps
        the buffer in use, in any thread, also after the engine is closed; the engine cannot
        assemble another frame there meanwhile. Copy frames that are kept for long. An ndarray is
        read-only; with a memory region of ``kind: device`` it is a `DeviceArray`.
    batch : int
        Number of the batch, from its packets.
    packets : int
        Packets in it.
    missing : int
        Missing packets (elements with ``batch_byte_offset``); their data is the fill value.
    valid : ndarray of bool, shape (n,)
        Whether each packet is present, in their order in the frame. With ``batch_byte_offset``:
        whether each element of the input is present.
    timed_out : bool
        Whether the plan closed the frame because of a timeout.
    timestamp, last_timestamp : int
        Arrival time of its first and last packet, ns on the port's clock.
    columns : dict
        Numbers from its packets, by the names in the plan's ``columns``: an int, or with ``from:
        packets`` an ndarray of uint64, shape (n,), with a number for each packet, as in `valid`; 0
        for one that is missing.

    Notes
    -----
    Libraries accept a frame in place of its data, without a copy: ``numpy.asarray(frame)``, and for
    a frame in GPU memory ``cupy.asarray(frame)`` and ``torch.from_dlpack(frame)``. The resulting
    array keeps the buffer in use, too.
    """

    __slots__ = (
        "_burst",
        "_columns",
        "_valid",
        "batch",
        "data",
        "last_timestamp",
        "missing",
        "packets",
        "timed_out",
        "timestamp",
    )

    def __init__(
        self,
        burst: _native.Burst,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        columns: tuple[ReorderColumnConfig, ...] = (),
    ) -> None:
        # Any: it depends on the configuration, which a type checker does not read.
        self.data: NDArray[Any] | Any = (
            burst.view(0).view(dtype).reshape(shape)
            if burst.host_readable
            else burst.device_array(shape, dtype)
        )
        (
            self.batch,
            self.packets,
            self.missing,
            self.timed_out,
            self.timestamp,
            self.last_timestamp,
        ) = burst.frame_info()
        self._burst = burst
        self._columns = columns
        self._valid: NDArray[np.bool_] | None = None

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Whether each packet, or element, is present."""
        if self._valid is None:
            bits, units = self._burst.valid()
            self._valid = np.unpackbits(bits, count=units, bitorder="little").view(np.bool_)
        return self._valid

    @property
    def columns(self) -> dict[str, Any]:
        """Numbers from its packets, by the names in the plan's ``columns``."""
        return _by_name(self._columns, self._burst.columns())

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        return np.array(self.data, dtype, copy=copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA array interface of a frame in GPU memory; frames on the host have none."""
        if isinstance(self.data, DeviceArray):
            return self.data.__cuda_array_interface__
        raise AttributeError(
            "this frame is in the CPU's memory; use frame.data, or have frames assembled in GPU "
            "memory: a memory region of kind 'device'"
        )

    def __dlpack__(self, **options: Any) -> object:
        """Return the data as a DLPack capsule, with the options of the array API standard."""
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of the data: (1, 0) is the CPU, (2, n) is GPU n."""
        return self.data.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<Frame {self.batch}: {self.data.dtype} {self.data.shape}, {self.missing} missing>"


class Frames(Iterator[Frame]):
    """Iterator over the frames of a plan as they are assembled; a context manager."""

    def __init__(
        self,
        native: _native.FrameTaker,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        columns: tuple[ReorderColumnConfig, ...],
        timeout: float | None,
    ) -> None:
        self._native = native
        self._form = shape, dtype, columns
        self._timeout = timeout

    def __next__(self) -> Frame:
        try:
            burst = self._native.receive(self._timeout)
        except NotReadyError:
            raise StopIteration from None
        if burst is None:
            raise StopIteration
        return Frame(burst, *self._form)

    def close(self) -> None:
        """Stop taking the frames, so that another receiver can."""
        self._native.release()

    def __enter__(self) -> Self:
        """Return the frames."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop taking the frames, so that another receiver can."""
        self.close()


class ReorderPlan(ProcessedPlan):
    """A reorder plan of a port, or of several: packets of its flows become frames.

    Attributes
    ----------
    config : ReorderConfig
        Its part of the configuration, in the mode in use.
    """

    @property
    def modes(self) -> tuple[str, ...]:
        """Names of the modes in the configuration."""
        return tuple(self._written.modes)

    @property
    def mode(self) -> str:
        """The mode in use; empty: the plan as it is written."""
        return self._session.mode(*self._place)

    def set_mode(self, name: str) -> None:
        """Use a mode of the plan from now on, without opening the engine anew.

        Frames that no receiver has are given up (``untaken``), also those that are being assembled.
        `shape`, `dtype` and `config` are those of the mode. Each packet is placed by one mode.

        Parameters
        ----------
        name : str
            One of `modes`; empty: the plan as it is written.

        Raises
        ------
        InvalidParameterError
            If there is no such mode.
        NotReadyError
            If a receiver takes the frames, a recorder or `frames`, or the engine is closed.
        TypeError
            If it is no text.
        """
        if not isinstance(name, str):
            accepted = ", ".join(map(repr, ("", *self.modes)))
            raise TypeError(f"the mode is {name!r}, no text; accepted are {accepted}")
        # A lone surrogate is in no name.
        self._session.set_mode(*self._place, name.encode(errors="backslashreplace").decode())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of frames as configured; (-1,), of variable length, without ``frame``."""
        return frame_form(self.config)[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements of frames: that of ``frame``, or of the output."""
        return frame_form(self.config)[1]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers from packets that frames have."""
        return tuple(column.name for column in self.config.columns)

    def frames(self, timeout: float | None = None) -> Frames:
        """Take the frames; no other receiver gets them from now on.

        Frames that wait come first. If they are taken too slowly, all buffers
        of the plan's memory region are eventually in use; frames are then lost, and counted.

        Parameters
        ----------
        timeout : float, optional
            Longest wait for a frame, s; default: no limit.

        Returns
        -------
        Frames
            Iterator; it ends when no frame arrives within the timeout, or when the engine is closed
            and all frames were taken. Waiting uses no CPU time.

        Raises
        ------
        NotReadyError
            If another receiver takes the frames, or the engine is closed.
        """
        native = self._session.take_frames(*self._place)
        return Frames(native, self.shape, self.dtype, self.config.columns, timeout)

    def preview(self, after: int = 0, *, binning: int = 1) -> FramePreview | None:
        """Return a copy of a recent frame, independent of receivers of the frames.

        It is the first frame that was delivered since the previous call. Each call makes the engine
        keep the next frame, and no other, until the following call copies it: a plan with previews
        uses one more buffer of its memory region. While frames have a receiver, none is kept unless
        two other buffers are free (in a smaller region: all others); frames that find no buffer all
        the same count as ``lost``. Without a receiver, waiting frames are freed for new ones, and
        count as ``untaken``.

        Parameters
        ----------
        after : int
            `FramePreview.number` of the latest copy that the caller has.
        binning : int
            1: the frame as it is. n > 1: the mean of each block of n x n pixels of the last two
            axes, as float32; the shape ends with ``(rows // n, columns // n)``. Rows and columns at
            the end that fill no block are left out. n is up to the shorter of the two axes.

        Returns
        -------
        FramePreview or None
            None if there is no copy, or no newer one.

        Raises
        ------
        InvalidParameterError
            If frames have no previews with that binning: it is beyond the axes, or frames have
            fewer than two axes.
        TypeError
            If binning is not an integer.

        Notes
        -----
        The calling thread copies the frame to the host, also from GPU memory, and makes the means;
        threads that receive packets wait for neither. Integers are summed exactly, floats as
        float64 in the order of rows; the sum is divided by n * n as float64 and rounded once to
        float32. Frames of bf16, which NumPy does not have, have means of their numbers. The mean of
        a block is NaN if a pixel is NaN or the mean is undefined.

        A kept frame is thrown away together with frames that wait for a receiver. When the engine
        is closed, it is copied.
        """
        config = self.config
        shape, dtype = frame_form(config)
        binning = require_binning(config, binning)
        found = self._session.preview_frame(*self._place, after)
        if found is None:
            return None
        number, data, *rest, columns = found
        if -1 not in shape and data.nbytes != math.prod(shape) * dtype.itemsize:
            return None  # another mode was set meanwhile
        data = data.view(dtype).reshape(shape)
        if binning > 1:
            data = block_means(values_of(config, data), binning)
            data.flags.writeable = False
        return FramePreview(number, data, *rest, columns=_by_name(config.columns, columns))

    def record(
        self,
        directory: str | Path,
        prefix: str = "frames",
        *,
        first_number: int = 0,
        layout: None = None,
        compression: Literal["none", "bitshuffle-lz4"] = "none",
        compression_threads: int = 1,
        writer: Literal["buffered", "direct", "auto", "cufile"] = "buffered",
        on_error: Literal["stop", "resume"] = "stop",
        durable: bool = False,
        roll_frames: int = 0,
        roll_bytes: int = 0,
        roll_seconds: float = 0.0,
        max_frames: int = 0,
        max_seconds: float = 0.0,
        start_flow: int | None = None,
        held: bool = False,
        group: RecorderGroup | None = None,
        reductions: FrameReductions | None = None,
        metadata: RecordMetadata | None = None,
    ) -> Recorder:
        """Record the frames to HDF5 files, on a native thread; no other receiver gets them.

        Files are named ``<prefix>_<number>.h5``, with six digits. Each has a metadata file
        ``<prefix>_<number>.h5.json``. Frames are in ``/entry/data/data`` (NeXus), each in a chunk
        of its own. Next to them are ``batch``, ``timestamp``, ``last_timestamp`` (ns since the
        epoch), ``packets``, ``missing``, ``timed_out``, ``lossy`` (its frame did not come, or some
        were lost since the row before) and ``valid``, with a row for each frame. Bit ``i`` of a row
        of ``valid`` is set if packet ``i`` is present (`numpy.unpackbits` with
        ``bitorder="little"``). Each of the plan's ``columns`` is a dataset, too: 0 for a frame, or
        a packet, that did not come. Other processes can read the file meanwhile (SWMR), and see at
        least the frames that are older than a second.

        Parameters
        ----------
        directory : str or Path
            An existing directory.
        prefix : str
            Beginning of the file names.
        first_number : int
            Number of the first file.
        layout : None
            Leave it out: files of frames are always chunked. Earlier versions had a choice.
        compression : {"none", "bitshuffle-lz4"}
            Compression of chunks. ``bitshuffle-lz4`` is HDF5's filter 32008; writing and reading
            the files requires hdf5plugin.
        compression_threads : int
            Threads that compress, 1 to 64. Each holds up to two frames, whose buffers are in use
            until they are compressed.
        writer : {"buffered", "direct", "auto", "cufile"}
            As for `RxQueue.record`. ``direct`` writes frames straight from their buffers if the
            sizes of buffers and frames are multiples of 4096 bytes: up to 16 buffers of the plan
            are in use until the disk has them. Each frame then occupies whole pages of 4 KiB.
            ``cufile``, for frames in a memory region of kind ``device`` and without compression,
            writes them from GPU memory with cuFile (GPUDirect Storage); it raises if that is not
            possible. ``auto`` uses cuFile if possible. Otherwise, and with ``direct`` and
            ``buffered``, such frames are copied to the CPU first.
        on_error, durable
            As for `RxQueue.record`.
        roll_frames, roll_bytes : int
            Begin a new file after this many frames, or bytes of frames; 0: no limit.
        roll_seconds : float
            Begin a new file after this time, s; 0: no limit.
        max_frames : int
            Stop after exactly this many frames; 0: no limit.
        max_seconds : float
            Stop after this time, s, with the data that has arrived; 0: no limit. The clock stops
            while the recorder is paused.
        start_flow : int, optional
            Id of a flow that leads to one of the plan's queues: begin with the first frame whose
            first packet arrives after a packet of this flow. Earlier frames are left out
            (``before_start`` in the metadata file) and do not count towards limits.
        held : bool
            Record only frames requested by `Recorder.acquire`; other frames are left out (``held``
            in the metadata file).
        group : RecorderGroup, optional
            Group of recorders of other plans whose files belong together with those of this plan.
            The limits are then those of the group.
        reductions : FrameReductions, optional
            Numbers to compute from each frame. Each is another dataset next to the frames, float64;
            NaN for a frame that did not come.
        metadata : mapping, optional
            Run and detector that files report, as for `Recorder.describe`.
            Without it, a file of frames has no place for a run that becomes known later.

        Returns
        -------
        Recorder
            Running; a context manager that stops it.

        Raises
        ------
        InvalidParameterError
            If the plan has no ``frame``, the directory does not exist, the first file exists,
            ``layout`` is given, a number is negative, a choice is not one of those above, a
            reduction has the name of another dataset, ``start_flow`` leads to another queue, or
            there is a limit in addition to those of a group.
        NotReadyError
            If another receiver takes the frames, or the engine is closed.
        NotSupportedError
            If the compression's plugin is not installed, or ``writer`` is ``cufile`` and cuFile is
            not installed, does not start, or cannot write to this directory.
        GenericFailureError
            If the first file cannot be written.
        """
        if layout is not None:
            raise InvalidParameterError(
                f"layout is {layout!r}; files of frames are always chunked, one chunk per frame: "
                "leave layout out"
            )
        numbers = {
            "first_number": first_number,
            "roll_frames": roll_frames,
            "roll_bytes": roll_bytes,
            "max_frames": max_frames,
            "compression_threads": compression_threads,
        }
        require_counts(numbers | ({} if start_flow is None else {"start_flow": start_flow}))
        native = self._session.record_frames(
            *self._place,
            native_path(Path(directory).absolute()),
            prefix,
            compression=compression,
            plugin_folder="" if compression == "none" else plugin_folder(),
            writer=writer,
            on_error=on_error,
            durable=durable,
            roll_seconds=roll_seconds,
            max_seconds=max_seconds,
            start_flow=start_flow,
            held=held,
            group=group,
            metadata=metadata_text(metadata),
            reductions=reductions.names if reductions else [],
            # Without numbers to compute, no frame waits for Python.
            reduce=partial(reductions, self._with_numbers) if reductions else None,
            **numbers,
        )
        return Recorder(native)

    def _with_numbers(self, burst: _native.Burst) -> Frame:
        """Return a frame whose pixels are numbers: NumPy has no bf16."""
        frame = Frame(burst, self.shape, self.dtype, self.config.columns)
        if self._has_bits:
            pixels = frame.data
            if isinstance(pixels, DeviceArray):
                import cupy  # pyright: ignore[reportMissingImports]

                pixels = cupy.asarray(pixels)
            frame.data = values_of(self.config, pixels)
        return frame

    @property
    def _has_bits(self) -> bool:
        """Whether pixels are stored as their bits."""
        none = np.empty(0, self.dtype)
        return values_of(self.config, none) is not none

    def counters(self) -> ReorderCounters:
        """Return the current counters; a closed engine keeps its last values."""
        return ReorderCounters(*self._session.reorder_counters(*self._place))

    def port_counters(self, max_age: float = 0.0) -> PortCounters:
        """Return what the host lost on the ports of its flows, before the engine.

        See `Port.counters`. Ports of one network interface have the same losses, which count once.

        Parameters
        ----------
        max_age : float
            How old the statistics may be, s.
        """
        return PortCounters(*self._session.plan_losses(*self._place, round(max_age * 1e9)))

    def frame_rate(self) -> float:
        """Return frames made per second, over the last second; see `RxQueue.rates`."""
        return self._session.frame_rate(*self._place)

    def __repr__(self) -> str:
        return f"<ReorderPlan {self.name!r}>"
