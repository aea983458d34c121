"""Conversion of pixels: every type of pixels in packets, to NumPy's and to fp32.

Payloads of about 8 KiB, in buffers of packets, become frames of 1 MiB of payloads: 16 MiB of
packets, one after the other, and four frames in turn. GB/s count bytes of packets, and seconds of
processor time: other programs on the core do not count, but those that use the memory do.

`memcpy` copies each payload: the least work, but it writes fewer bytes. Bare loops are compiled for
the same instruction sets; of packed pixels, one makes each pixel of single bytes, which compilers
make vectors of, the other of words of 64 bits. NumPy unpacks contiguous payloads of a whole frame,
in three ways: a stack of `astype`s; shifts into an array that is used again; a view of overlapping
words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from programs import Program, cores, engine_program
from runner import Comparison, Measurement, Want, arguments

Bytes = NDArray[np.uint8]

PACKED = (4, 10, 12, 14)
NATURAL = {4: 8, 10: 16, 12: 16, 14: 16, 24: 32}
FRAME = 1 << 20
LOOPS = {"bytes": "bare loop of bytes", "words": "bare loop of words"}


def cases() -> list[tuple[str, str, str]]:
    """Return input, output and order of all conversions."""
    made = []
    for sign in ("", "u"):
        for bits in (4, 8, 10, 12, 14, 16, 24, 32, 64):
            orders = ("msb", "lsb") if bits in PACKED else ("host", "network")
            outputs = (f"{sign}int{NATURAL.get(bits, bits)}", "fp32")
            made += [
                (f"{sign}int{bits}", output, order)
                for output in outputs
                for order in (orders if bits != 8 else orders[:1])
            ]
    floats = (("fp16", "fp16"), ("fp16", "fp32"), ("fp32", "fp32"), ("fp32", "fp64"))
    for kind, output in (*floats, ("fp64", "fp64")):
        made += [(kind, output, order) for order in ("host", "network")]
    return made


def rate(program: Program, what: str, case: tuple[str, str, str], seconds: float) -> Measurement:
    """GB/s of payloads."""
    done = program.ask(f"{what} {' '.join(case)} {seconds}")
    return Measurement(done["bytes"] / done["ns"])


def stacked(payload: Bytes, order: str, _: Bytes) -> NDArray[np.uint16]:
    """Return pixels of 12 bits as most people write it."""
    first, middle, last = (payload[i::3].astype(np.uint16) for i in range(3))
    if order == "msb":
        pixels = [first << 4 | middle >> 4, (middle & 15) << 8 | last]
    else:
        pixels = [first | (middle & 15) << 8, middle >> 4 | last << 4]
    return np.stack(pixels, axis=-1).reshape(-1)


def shifted(payload: Bytes, order: str, room: Bytes) -> NDArray[np.uint16]:
    """Return pixels of 12 bits in an array that exists."""
    out = room.view(np.uint16)[: len(payload) // 3 * 2]
    first, middle, last = (payload[i::3] for i in range(3))
    a, b = out[0::2], out[1::2]
    if order == "msb":
        np.left_shift(first, 4, out=a, dtype=np.uint16)
        a |= middle >> 4
        np.left_shift(middle & 15, 8, out=b, dtype=np.uint16)
        b |= last
    else:
        np.left_shift(middle & 15, 8, out=a, dtype=np.uint16)
        a |= first
        np.left_shift(last, 4, out=b, dtype=np.uint16)
        b |= middle >> 4
    return out


def viewed(payload: Bytes, order: str, room: Bytes) -> NDArray[np.uint16]:
    """Return pixels of 12 bits of words that overlap: the last byte belongs to the next two."""
    out = room.view(np.uint16)[: len(payload) // 3 * 2]
    count = len(payload) // 3 - 1
    big = order == "msb"
    words = np.ndarray(count, ">u4" if big else "<u4", payload, strides=(3,))
    halves = out[: 2 * count].reshape(-1, 2)
    np.right_shift(words, 20 if big else 0, out=halves[:, 0], casting="unsafe")
    np.right_shift(words, 8 if big else 12, out=halves[:, 1], casting="unsafe")
    halves &= 0xFFF
    out[2 * count :] = stacked(payload[3 * count :], order, room)
    return out


NUMPY: dict[str, Callable[[Bytes, str, Bytes], NDArray[np.uint16]]] = {
    "numpy, stacked": stacked,
    "numpy, shifted in place": shifted,
    "numpy, overlapping words": viewed,
}


def numpy_rate(how: str, order: str, seconds: float) -> Measurement:
    """GB/s of payloads that numpy unpacks from 12 bits."""
    size = FRAME // 3 * 3
    payloads = np.random.default_rng(1).integers(0, 256, (16, size), np.uint8)
    room = np.zeros(size // 3 * 4, np.uint8)
    np.testing.assert_array_equal(
        NUMPY[how](payloads[0], order, room), stacked(payloads[0], order, room)
    )
    begun = now = time.thread_time()
    times = 0
    while now - begun < seconds:
        NUMPY[how](payloads[times % 16], order, room)
        times += 1
        now = time.thread_time()
    return Measurement(times * size / (now - begun) / 1e9)


def main() -> None:
    """Measure all conversions."""
    args = arguments(__doc__, seconds=0.05, rounds=5)
    comparison = Comparison("pixels", "Conversion of pixels", __doc__, args)
    with Program([engine_program("bench_pixels")], cores()[1]) as program:
        for case in cases():
            kind, output, order = case
            measured = partial(rate, program, case=case, seconds=args.seconds)
            contenders = {"ours": partial(measured, "ours"), "memcpy": partial(measured, "memcpy")}
            parts = kind.endswith(("10", "12", "14", "24"))
            loops = tuple(LOOPS.values() if parts else [LOOPS["bytes"]])
            for what, name in LOOPS.items():
                if name in loops:
                    contenders[name] = partial(measured, what)
            wants = [Want("ours", loops, at_least=0.8), Want("ours", ("memcpy",))]
            if kind == "uint12" and output == "uint16":
                contenders |= {how: partial(numpy_rate, how, order, args.seconds) for how in NUMPY}
                wants.append(Want("ours", tuple(NUMPY), at_least=5))
            comparison.case(f"{kind} to {output}, {order}", "GB/s", contenders, wants=tuple(wants))
    comparison.finish()


if __name__ == "__main__":
    main()
