"""Rate of UDP packets that one core sends and another receives, without loss."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time

__all__ = ["udp_loopback"]

# linux/udp.h; the socket module does not have them.
_UDP_SEGMENT = 103
_UDP_GRO = 104
_SIZE = 8000
_RUN = 8
_BUFFER = 16 << 20
_STEPS = 5


def udp_loopback(seconds: float, _folder: str) -> tuple[dict[str, float], str]:
    """
    Return the highest loss-free rate of packets of 8000 B, found by bisection.

    Packets are sent in groups of eight (UDP_SEGMENT) and received in groups (UDP_GRO), as the
    socket engine does.

    Raises
    ------
    OSError
        If there is no UDP on 127.0.0.1.
    """
    each = seconds / (_STEPS + 1)
    most, lost = _attempt(each, 0)
    best = most if lost == 0 else 0.0
    low, high = best, most
    for _ in range(_STEPS if lost else 0):
        rate = (low + high) / 2
        sent, lost = _attempt(each, rate)
        if lost:
            high = rate
        else:
            low = best = max(best, sent)
    values = {"packets_s": best / _SIZE, "Gb_s": best * 8 / 1e9}
    how = "" if best < most else ", limited by the sender"
    return values, f"{values['Gb_s']:.1f} Gb/s, {values['packets_s']:,.0f} packets of 8000 B{how}"


def _attempt(seconds: float, rate: float) -> tuple[float, int]:
    """Send at a rate in bytes/s (0: unlimited); return the rate reached, and the bytes lost."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        receiver.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.2)
        port = receiver.getsockname()[1]
        # Another process: two Python threads would take turns.
        with subprocess.Popen(
            [sys.executable, "-S", __file__, str(port), str(seconds), str(rate)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        ) as sender:
            received = _receive(receiver, time.monotonic() + seconds + 5, sender)
            output, errors = sender.communicate(timeout=10)
    if sender.returncode:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"the sender failed: {reason or f'exit code {sender.returncode}'}")
    sent, elapsed = output.split()
    return int(sent) / float(elapsed), int(sent) - received


def _receive(receiver: socket.socket, end: float, sender: subprocess.Popen[bytes]) -> int:
    received = 0
    while time.monotonic() < end:
        try:
            received += receiver.recv_into(_scratch)
        except TimeoutError:
            if sender.poll() is not None:
                break
    return received


_scratch = bytearray(1 << 16)


def _send(port: int, seconds: float, rate: float) -> None:
    """Send to a port of this host; print the bytes sent and the time, s."""
    packet = bytes(_SIZE * _RUN)
    size = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", _SIZE))]
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        begin = now = time.perf_counter()
        while now - begin < seconds:
            if rate and sent > rate * (now - begin):
                now = time.perf_counter()
                continue
            sent += sender.sendmsg([packet], size)
            now = time.perf_counter()
    sys.stdout.write(f"{sent} {now - begin}\n")


if __name__ == "__main__":
    _send(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
