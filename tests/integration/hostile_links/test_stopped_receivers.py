"""Receivers that do not run for a while, lose their link, or share it with another program."""

import errno
import re
import socket
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from receiving_process import ReceivingProcess, numbered_frames, receiving
from waiting import wait_for

from daqiri_ophyd.engine import DaqiriError, Engine

Config = dict[str, Any]
Configure = Callable[..., Config]
pytestmark = pytest.mark.root
PATHS = ["af_packet", "dpdk", "af_xdp", "udp"]
# More than any ring or socket here has space for: 8 MiB at least.
COUNT, FLOWS = 32_000, 16
# The ring of a veth interface with an XDP program has space for 256 frames, and the core that
# empties it may be busy.
AT_ONCE = 200


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    if request.param == "af_xdp":
        request.getfixturevalue("has_af_xdp")
    return str(request.param)


@pytest.fixture
def configure(path: str, receiver: Callable[..., Config]) -> Configure:
    """A configuration of the path with so many buffers, and queues for the same flow."""

    def build(buffers: int = 1024, queues: int = 1) -> Config:
        config = receiver(path)
        config["memory_regions"][0]["num_bufs"] = buffers
        rx = config["interfaces"][0]["rx"]
        if path != "udp":
            rx["flow_isolation"] = True
        rx["queues"] = [
            {**rx["queues"][0], "name": f"rx{i}", "id": i, "cpu_core": "any" if i == 0 else str(i)}
            for i in range(queues)
        ]
        return config

    return build


def payload_frames(link: Any, numbers: range, source_port: int) -> list[bytes]:
    """Numbered frames for ``far`` and its address."""
    mac = link.call(address_of, "far")
    made = numbered_frames(numbers, source_port, "10.9.0.2", "10.9.0.1")
    return [mac + frame[6:] for frame in made]


def address_of(interface: str) -> bytes:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        return wire.getsockname()[4]


def put_on_the_wire(frames: list[bytes]) -> int:
    """From ``near``, as the kernel distributes them to its queues; how many the link refused."""
    refused = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("near", 0))
        for frame in frames:
            try:
                assert wire.send(frame) == len(frame)
            except OSError as error:
                assert error.errno == errno.ENOBUFS  # noqa: PT017 - others are raised
                refused += 1
    return refused


def deliver(link: Any, receiver: ReceivingProcess, frames: list[bytes]) -> None:
    """Send no faster than frames are received; what the backlog loses is another test's doing."""

    def taken() -> int:
        received, _ = receiver.counters()
        return received + receiver.lost.lost_backlog

    def all_taken(count: int) -> bool:
        return taken() == count

    before = taken()
    for first in range(0, len(frames), AT_ONCE):
        some = frames[first : first + AT_ONCE]
        link.call(put_on_the_wire, some)
        before += len(some)
        wait_for(partial(all_taken, before))


def counted(receiver: ReceivingProcess) -> int:
    received, _ = receiver.counters()
    return received + receiver.lost.lost_before_engine


def put_on_link(link: Any) -> int:
    """Frames that the near end took: what is full at its other end refuses some."""
    near = link.counts("near")
    return int(near["sent"] + near["refused"])


def arrived(link: Any, path: str) -> int:
    """Of these, the ones that the far end has counted, as received or as lost in its backlog.

    A ring that is full at the XDP program of the far end is known to the near end only.
    """
    return int(link.counts("near")["sent"]) if path == "af_xdp" else put_on_link(link)


def full_buffers(link: Any) -> int:
    """Datagrams for which a socket of the namespace had no space (RcvbufErrors)."""
    lines = link.call(Path("/proc/thread-self/net/snmp").read_text).splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    return int(values[names.index("RcvbufErrors")])


def redirects_refused(link: Any) -> int:
    """Frames that the XDP program passed to a socket without space."""
    show = partial(
        subprocess.run, ["ethtool", "-S", "far"], check=True, capture_output=True, text=True
    )
    return sum(map(int, re.findall(r"rx_queue_\d+_drops: (\d+)", link.call(show).stdout)))


def unread(receiver: ReceivingProcess, path: str) -> int:
    """Frames that found no space in rings or sockets.

    Those of a ring of DPDK's were lost before the engine.
    """
    _, dropped = receiver.counters()
    return receiver.lost.lost_dropped if path == "dpdk" else dropped["kernel"]


@pytest.mark.parametrize("queues", [1, 16])
def test_what_finds_no_space_while_the_process_is_stopped_is_counted(
    link: Any, configure: Configure, path: str, queues: int
) -> None:
    """Sent: the counters of both ends. Lost: the kernel's, and the numbers that are missing."""
    link.remake(queues)
    flows = [
        payload_frames(link, range(i * COUNT // FLOWS, (i + 1) * COUNT // FLOWS), 4000 + i)
        for i in range(FLOWS)
    ]
    frames = [frame for frames in zip(*flows, strict=True) for frame in frames]
    with receiving(link.network, configure()) as receiver:
        before, full = link.counts("far"), full_buffers(link)
        sent, refused = put_on_link(link), redirects_refused(link)
        arrived_before = arrived(link, path)
        receiver.stop()
        link.call(put_on_the_wire, frames)
        receiver.proceed()

        wait_for(lambda: put_on_link(link) - sent == COUNT)
        count = arrived(link, path) - arrived_before
        wait_for(lambda: counted(receiver) == count)
        receiver.check_frames()
        received, dropped = receiver.counters()
        after = link.counts("far")
        assert after["received"] - before["received"] + receiver.lost.lost_backlog == count
        assert received - receiver.different == sum(dropped.values())
        assert unread(receiver, path) > COUNT // 4
        if path == "udp":
            assert full_buffers(link) - full == dropped["kernel"]
        if path == "af_xdp":
            assert redirects_refused(link) - refused == dropped["kernel"]
            # What the backlog loses meanwhile are others' frames.
            assert receiver.lost.lost_before_engine == 0
        receiver.end()


def test_a_stopped_process_costs_another_nothing(
    link: Any, configure: Configure, path: str
) -> None:
    """Of two programs on one interface, or one port, the second is refused or receives all."""
    with receiving(link.network, configure()) as stopped:
        config = configure(65536)
        if path not in ("af_packet", "dpdk"):
            named = "udp://10.9.0.1:5000.*in use" if path == "udp" else "'far'.*another program"
            for queues in (1, 2) if path == "udp" else (1,):
                with pytest.raises(DaqiriError, match=named):
                    link.call(Engine.open, configure(queues=queues))
            return
        with receiving(link.network, config) as other:
            stopped.stop()
            frames = payload_frames(link, range(COUNT), 4000)
            for first in range(0, COUNT, 500):
                link.call(put_on_the_wire, frames[first : first + 500])
                wait_for(lambda sent=first + 500: counted(other) == sent)
            stopped.proceed()
            wait_for(lambda: counted(stopped) == COUNT)
            stopped.check_frames()
            other.check_frames()
            full = unread(stopped, path)
            assert full > COUNT // 4
            lost = link.counts()["dropped"]
            assert other.counters() == (COUNT - lost, {})
            assert other.lost.lost_before_engine == lost
            if path == "dpdk":
                assert stopped.counters() == (COUNT - lost - full, {})
                lost += full
            else:
                assert stopped.counters() == (COUNT - lost, {"kernel": full})
            assert stopped.lost.lost_before_engine == lost


def test_a_link_that_goes_down_loses_what_was_sent_meanwhile(
    link: Any, configure: Configure
) -> None:
    """Its counters say that nothing arrived; afterwards all do again."""
    with receiving(link.network, configure(65536)) as receiver:
        frames = payload_frames(link, range(3000), 4000)
        deliver(link, receiver, frames[:1000])
        link.network.run("ip link set far down")
        before = link.counts("far")
        link.call(put_on_the_wire, frames[1000:2000])
        assert link.counts("far") == before
        link.network.up("near", "far")
        deliver(link, receiver, frames[2000:])
        receiver.check_frames()
        assert receiver.counters() == (2000 - receiver.lost.lost_backlog, {})
        assert receiver.lost.lost_before_engine == receiver.lost.lost_backlog


def test_frames_above_a_smaller_mtu_are_lost_by_name(
    link: Any, configure: Configure, path: str
) -> None:
    """Traffic goes on while the MTU is lowered, and raised again."""
    with receiving(link.network, configure(65536)) as receiver:
        frames = payload_frames(link, range(3000), 4000)
        deliver(link, receiver, frames[:1000])
        link.network.run("ip link set far mtu 900")
        assert link.call(put_on_the_wire, frames[1000:2000]) == 1000
        link.network.run("ip link set far mtu 1500")
        deliver(link, receiver, frames[2000:])
        receiver.check_frames()
        wait_for(lambda: counted(receiver) > 0 and receiver.lost.lost_dropped == 1000)
        backlog = receiver.lost.lost_backlog
        assert link.counts("far")["received"] == 2000 - backlog
        for end, name in (("near", "refused"), ("far", "dropped")):
            assert link.counts(end)[name] == 1000 + backlog
        # Where the kernel may drop unwanted frames, these are no certain loss.
        certain = 1000 if path in ("af_packet", "dpdk") else 0
        assert receiver.lost.lost_before_engine == certain + backlog
