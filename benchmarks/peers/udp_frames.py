"""udp_frames PAYLOAD RECEIVE_BUFFER: a loop that makes frames on a GPU with cupy.

recvmmsg fills pinned memory; each burst is copied to the GPU at once, and an index of arrays puts
its payloads into frames there. numpy finds the places in the headers.
"""

from __future__ import annotations

import ctypes
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from answers import answer_lines
from receive_buffer import set_receive_buffer

HEADER = 48
FRAME = 1 << 20
FRAMES = 64
BURST = 1024
WAIT_FOR_ONE = 0x10000


class Vector(ctypes.Structure):
    """iovec of the kernel."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Message(ctypes.Structure):
    """mmsghdr of the kernel."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vectors_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("received", ctypes.c_uint32),
        ("_end", ctypes.c_uint32),
    )


def messages_for(memory: np.ndarray) -> tuple[Any, Any]:
    """Return the arguments of recvmmsg, for a packet in each row, and their memory."""
    messages, vectors = (Message * len(memory))(), (Vector * len(memory))()
    for i, row in enumerate(memory):
        vectors[i].base, vectors[i].length = row.ctypes.data, memory.shape[1]
        messages[i].vectors = ctypes.addressof(vectors[i])
        messages[i].vectors_length = 1
    return messages, vectors


def big_endian(words: np.ndarray) -> np.ndarray:
    """Read a number of four bytes in each row."""
    return np.ascontiguousarray(words).view(">u4")[:, 0].astype(np.int64)


def main() -> None:
    """Receive until the input ends."""
    try:
        import cupy
        import cupyx

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001  # cupy is missing, or its GPU, in many ways
        print(json.dumps({"missing": f"{error}"}), flush=True)
        return
    payload, buffer = int(sys.argv[1]), int(sys.argv[2])
    packets = FRAME // (payload + HEADER)
    pinned = cupyx.empty_pinned((BURST, payload + HEADER), np.uint8)
    burst = cupy.empty(pinned.shape, cupy.uint8)
    frames = cupy.zeros((FRAMES * packets, payload), cupy.uint8)
    messages, _vectors = messages_for(pinned)
    receive = ctypes.CDLL(None, use_errno=True).recvmmsg
    stream = cupy.cuda.get_current_stream()
    counts = {"packets": 0, "latest": 0}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        granted = set_receive_buffer(receiver, buffer)
        answer_lines(lambda: counts, port=receiver.getsockname()[1], receive_buffer=granted)
        while True:
            count = receive(receiver.fileno(), messages, BURST, WAIT_FOR_ONE, None)
            if count < 0:
                raise OSError(ctypes.get_errno(), "recvmmsg")
            heaps = big_endian(pinned[:count, 12:16])
            places = heaps % FRAMES * packets + big_endian(pinned[:count, 28:32]) // payload
            burst[:count].set(pinned[:count], stream)
            frames[cupy.asarray(places)] = burst[:count, HEADER:]
            stream.synchronize()
            counts["packets"] += count
            counts["latest"] = time.monotonic_ns()


main()
