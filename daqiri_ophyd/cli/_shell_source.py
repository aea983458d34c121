"""Simulated packets in a session, whose intensity follows a motor."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..devices import Daq
from ..engine import DaqiriError
from ..simulate import INSTRUMENTS, Chunk, Instrument
from ._simulate_senders import Destination, SocketSender
from ._stimulus import numbered_payloads, udp_stimulus

__all__ = ["Source", "make_source"]

# Profiles that make frames of an instrument of another name.
_OF_PROFILES = {"jungfrau-gpu": "jungfrau"}
# Transmit queue of a profile, and the UDP port to send to if frames leave it.
_QUEUES = {"loopback": ("port0", "tx_q0", 5000), "udp": ("sender", "tx_q0", 0)}
_FRAMES_PER_S = 10
_PACKETS_PER_S = 1000
# Packets that are sent at once; more would not fit into the buffer of a socket.
_GROUP = 16
_PERIOD_S = 0.05
_PAYLOAD = 64
_WIDTH, _BACKGROUND = 0.5, 0.1


class Source:
    """Packets of a simulated instrument, for plans to try.

    Their intensity is that of a peak at position 0 of the motor: the brightness of frames, or the
    rate of packets.

    Parameters
    ----------
    text : str
        What is sent.
    motor : object
        Motor with a ``position``.
    steps : callable
        ``steps(intensity)`` returns an iterator that sends, and yields the time to wait, s.
    """

    def __init__(
        self, text: str, motor: Any, steps: Callable[[Callable[[], float]], Iterator[float]]
    ) -> None:
        self._text = text
        self._motor = motor
        self._steps = steps
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_sending(self) -> bool:
        """Whether packets are sent."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Send until `stop`; does nothing while it sends."""
        if self.is_sending:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._send, name="source", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _send(self) -> None:
        for wait in self._steps(self._intensity):
            if self._stop.wait(wait):
                return

    def _intensity(self) -> float:
        peak = math.exp(-0.5 * (self._motor.position / _WIDTH) ** 2)
        return _BACKGROUND + (1 - _BACKGROUND) * peak

    def __repr__(self) -> str:
        state = "sending" if self.is_sending else "not sending; source.start()"
        return f"<source: {self._text}, {state}>"


def make_source(profile: str, daq: Daq, motor: Any) -> Source | None:
    """Return the source for a profile; None if there is no simulation of what it receives."""
    if profile in _QUEUES:
        text = f"{_PACKETS_PER_S} packets/s at most"
        return Source(text, motor, lambda intensity: _packets(daq, *_QUEUES[profile], intensity))
    instrument = INSTRUMENTS.get(_OF_PROFILES.get(profile, profile))
    if instrument is None:
        return None
    text = f"{instrument.name}, {_FRAMES_PER_S} frames/s"
    return Source(text, motor, _Frames(instrument).steps)


def _packets(
    daq: Daq, port: str, queue: str, udp_port: int, intensity: Callable[[], float]
) -> Iterator[float]:
    """Send packets through the engine of the session, while it is open."""
    while True:
        count = round(_PACKETS_PER_S * _PERIOD_S * intensity())
        packets = (
            udp_stimulus(count, _PAYLOAD, [udp_port])
            if udp_port
            else numbered_payloads(count, _PAYLOAD)
        )
        if daq.is_open:
            try:
                daq.tx_queue(port, queue).send(packets, timeout=_PERIOD_S)
            except DaqiriError:
                pass  # it is being closed, or a plan has all buffers
        yield _PERIOD_S


class _Frames:
    """Frames of an instrument over UDP; their numbers go on when they are sent again."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._number = 0

    def steps(self, intensity: Callable[[], float]) -> Iterator[float]:
        """Send frames, some packets at a time."""
        instrument = self._instrument
        rng = np.random.default_rng(0)
        # Waits are between groups: packets that are late are not sent all at once, and lost.
        pause = _GROUP / (_FRAMES_PER_S * instrument.packets_per_frame)
        last = f"-{instrument.port + instrument.streams - 1}" if instrument.needs_own_ports else ""
        to = Destination(f"127.0.0.1:{instrument.port}{last}", instrument)
        sender = SocketSender(to, instrument, rate=0.0)
        try:
            while True:
                frames = instrument.frames(self._number, 1, rng)
                frames = (frames * intensity()).astype(frames.dtype)
                packets, sizes = instrument.packets(frames, self._number), instrument.sizes()
                order = np.arange(len(packets))
                self._number += 1
                for first in range(0, len(order), _GROUP):
                    part = order[first : first + _GROUP]
                    streams = part % instrument.streams
                    sender.send(Chunk(frames, packets[part], sizes[part], part, streams, 0, 0))
                    yield pause
        finally:
            sender.close()
