"""udp_receive recv_into|spead2 SIZE RECEIVE_BUFFER: other receivers that a Python program can use.

`recv_into` is a plain loop over a socket. `spead2` takes heaps from a stream whose packets are
received in C++, with heaps in memory that is used again.
"""

import logging
import os
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from answers import answer_lines
from receive_buffer import set_receive_buffer

HEAP_BYTES = 1 << 20


def recv_into(size: int, buffer: int) -> None:
    """Count packets, each received into the same memory."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        granted = set_receive_buffer(receiver, buffer)
        packets = latest = 0
        answer_lines(
            lambda: {"packets": packets, "latest": latest},
            port=receiver.getsockname()[1],
            receive_buffer=granted,
        )
        memory = bytearray(size)
        receive, now = receiver.recv_into, time.monotonic_ns
        while True:
            receive(memory)
            packets += 1
            latest = now()


def sockets() -> set[int]:
    """File descriptors of this process that are sockets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.add(int(name))
        except OSError:
            pass
    return found


def spead(size: int, buffer: int) -> None:
    """Receive heaps from a spead2 stream."""
    try:
        import spead2
        import spead2.recv
    except ImportError:
        print('{"missing": "spead2 is not installed (pip install spead2)"}', flush=True)
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    logging.getLogger("spead2").setLevel(logging.ERROR)
    pool = spead2.MemoryPool(HEAP_BYTES // 2, HEAP_BYTES + 4096, 64, 64)
    stream = spead2.recv.Stream(
        spead2.ThreadPool(),
        spead2.recv.StreamConfig(memory_allocator=pool, max_heaps=4),
        spead2.recv.RingStreamConfig(heaps=32),
    )
    before = sockets()
    stream.add_udp_reader(port, max_size=size, buffer_size=0, bind_hostname="127.0.0.1")
    # spead2 requests its buffer within the system's limit; set the same as for all others.
    (descriptor,) = sockets() - before
    with socket.socket(fileno=os.dup(descriptor)) as receiver:
        granted = set_receive_buffer(receiver, buffer)
    latest = 0
    answer_lines(
        lambda: {"packets": stream.stats["packets"], "latest": latest},
        port=port,
        receive_buffer=granted,
    )
    for heap in stream:
        latest = time.monotonic_ns()
        del heap


{"recv_into": recv_into, "spead2": spead}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
