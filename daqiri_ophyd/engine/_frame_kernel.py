"""Kernels that process the frames of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daqiri_ophyd import _native
from daqiri_ophyd._native import ReorderConfig

from ._errors import InvalidParameterError

__all__ = ["ProcessedPlan"]


class ProcessedPlan:
    """A reorder plan whose frames a kernel can process.

    Attributes
    ----------
    config : ReorderConfig
        Its part of the configuration, in the mode in use.
    """

    def __init__(
        self, port: int, position: int, config: ReorderConfig, session: _native.Session
    ) -> None:
        self._place = (port, position)
        self._session = session
        self._written = config
        self._stream: Any = None

    @property
    def name(self) -> str:
        """Name of the plan."""
        return self._written.name

    @property
    def config(self) -> ReorderConfig:
        """Its part of the configuration, in the mode in use."""
        modes = self._written.modes
        return (
            modes.get(self._session.mode(*self._place), self._written) if modes else self._written
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements of frames."""
        raise NotImplementedError

    def set_kernel(
        self, source: str | Path | Any, arrays: Sequence[Any] = (), *, name: str | None = None
    ) -> None:
        """Process each frame on the GPU, in place, before it is delivered.

        The kernel runs once all payloads of a frame are present and converted, and missing data is
        filled. Recorders, `frames` and `preview` see its result. It takes effect with frames that
        are closed from now on, and replaces the previous kernel. When this returns, the previous
        kernel is no longer in use, and its arrays are freed. Each mode of a plan has a kernel of
        its own: this is for the mode in use.

        Parameters
        ----------
        source : str or Path or cupy.RawKernel
            CUDA C++, the path of a file with it (UTF-8), or a CuPy kernel with it as its ``code``,
            without compiler options, another ``backend`` or cooperative groups. It defines
            ``extern "C" __global__ void frame(T* data, unsigned long long elements, const A0* a0,
            ...)``, with a pointer for each array, in their order. ``elements`` is the number of
            bytes of the frame divided by the size of `dtype`. There are 256 threads per block, and
            at least as many threads as elements: the kernel must check ``i < elements``. It is
            compiled with the headers of NVRTC only.
        arrays : sequence of array_like
            Copied to the GPU now, with their type, in C order: integers, floats, complex numbers
            or bool, in the byte order of this machine. CuPy arrays are copied, too.
        name : str, optional
            Name of the kernel in the source. None: ``frame``, or the name of the CuPy kernel.

        Raises
        ------
        InvalidParameterError
            If the source does not compile (the message has the compiler's log), has no such kernel,
            or has one with other parameter types; or if an array is empty or of another type.
        NotSupportedError
            If the plan is not on a GPU (``reorder_type: gpu``), or there is no compiler (NVRTC).
        NotReadyError
            If the engine is closed.
        GenericFailureError
            If the arrays do not fit into the GPU's memory.
        OSError
            If the file cannot be read.

        See Also
        --------
        remove_kernel

        Notes
        -----
        A kernel that fails, such as by an access beyond the frame, ends the work of the GPU in this
        process: later frames are counted as ``lost``. A kernel that does not end cannot be stopped:
        every call that waits for the GPU, such as this one and closing the engine, waits until the
        process is killed (SIGKILL).
        """
        text, given = self._source_of(source)
        name = given if name is None else name
        if not (name.isascii() and name.isidentifier()):
            raise InvalidParameterError(
                f"reorder plan {self.name!r}: the name of the kernel is {name!r}; accepted is an "
                "identifier of C++, such as 'frame'"
            )
        self._session.set_frame_kernel(
            *self._place,
            text,
            name,
            self.dtype,
            [self._kernel_array(number, array) for number, array in enumerate(arrays)],
        )

    def remove_kernel(self) -> None:
        """Deliver frames that are closed from now on unprocessed; undoes `set_kernel`.

        When this returns, the kernel is no longer in use, and its arrays are freed.
        """
        self._session.remove_frame_kernel(*self._place)

    def set_stream(self, stream: Any = None) -> None:
        """Assemble frames on the GPU in a stream of yours, after other work launched there.

        When this returns, work launched earlier in the previous stream is done.

        Parameters
        ----------
        stream : object or int, optional
            A stream of the plan's GPU: a stream of CuPy, PyTorch or another library with
            ``__cuda_stream__``, or its address. A stream object is kept until another is set. An
            address must stay valid until then, or until the engine is closed. Default, and 0: the
            plan's own stream.

        Raises
        ------
        InvalidParameterError
            If it is not a stream, or not a stream of the plan's GPU.
        NotSupportedError
            If the plan is not on a GPU (``reorder_type: gpu``).
        NotReadyError
            If the engine is closed.
        GenericFailureError
            If the GPU no longer works.

        Notes
        -----
        Frames are delivered once they are finished: work that you launch for them, in any stream,
        need not wait. Other work in your stream delays the frames.
        """
        self._session.set_stream(*self._place, self._stream_address(stream))
        self._stream = stream

    def _stream_address(self, stream: Any) -> int:
        address = stream
        if stream is None:
            address = 0
        elif hasattr(stream, "__cuda_stream__"):
            _, address = stream.__cuda_stream__()
        else:
            for name in ("ptr", "cuda_stream"):  # of CuPy; of PyTorch
                address = getattr(stream, name, address)
        if isinstance(address, int) and not isinstance(address, bool) and 0 <= address < 1 << 64:
            return address
        raise InvalidParameterError(
            f"reorder plan {self.name!r}: the stream is {stream!r}; accepted is a CUDA stream of "
            "cupy, torch or others with __cuda_stream__, its address, or None"
        )

    def _source_of(self, source: Any) -> tuple[str, str]:
        """Return the source, and the name of the kernel unless another is given."""
        name = "frame"
        try:
            text = source.read_text("utf-8-sig") if isinstance(source, Path) else source
        except UnicodeDecodeError:
            text = "\0"
        if type(source).__module__.split(".")[0] == "cupy":
            text, name = self._source_of_cupy(source), source.name
        if not isinstance(text, str):
            raise InvalidParameterError(
                f"reorder plan {self.name!r}: the kernel is {type(source).__qualname__}; accepted "
                "is CUDA C++ (str), the pathlib.Path of a file that has it, or a cupy.RawKernel"
            )
        if "\0" in text:
            raise InvalidParameterError(
                f"reorder plan {self.name!r}: the source of the kernel is not text"
                + (f" ({source})" if isinstance(source, Path) else "")
                + "; give CUDA C++, or the pathlib.Path of a file that has it"
            )
        return text, name

    def _source_of_cupy(self, kernel: Any) -> str:
        kind = type(kernel).__qualname__
        if kind != "RawKernel" or kernel.code is None:
            raise InvalidParameterError(
                f"reorder plan {self.name!r}: the kernel is cupy's {kind}"
                + (" of a compiled file" if kind == "RawKernel" else "")
                + "; accepted is a cupy.RawKernel of CUDA C++: others have no source until they "
                "are called"
            )
        if kernel.options:
            raise InvalidParameterError(
                f"reorder plan {self.name!r}: the kernel has the options {kernel.options}; "
                "accepted is one without: write #define and #pragma in its source"
            )
        # Other options (jitify, translate_cucomplex) cannot be read. If the source needs their
        # headers, the compiler reports it.
        for setting, accepted in (("backend", "nvrtc"), ("enable_cooperative_groups", False)):
            found = getattr(kernel, setting, accepted)
            if found != accepted:
                raise InvalidParameterError(
                    f"reorder plan {self.name!r}: the kernel has {setting}={found!r}; accepted is "
                    f"{accepted!r}, as frames' kernels are compiled and launched here"
                )
        return kernel.code

    def _kernel_array(self, number: int, given: Any) -> NDArray[Any]:
        if isinstance(given, np.ma.MaskedArray):
            raise InvalidParameterError(
                f"reorder plan {self.name!r}: array {number} of the kernel is a masked array, and "
                "kernels have no masks; give array.filled(value)"
            )
        if hasattr(given, "__cuda_array_interface__") and hasattr(given, "get"):
            given = given.get()
        array = np.asarray(given, order="C")
        if array.dtype.kind in "biufc" and array.dtype.isnative and array.size:
            return array
        raise InvalidParameterError(
            f"reorder plan {self.name!r}: array {number} of the kernel has type {array.dtype} and "
            f"shape {array.shape}; accepted are integers, floats, complex numbers and bool in this "
            "machine's byte order, and one element or more: convert it with numpy's astype"
        )
