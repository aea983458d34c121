"""AF_XDP on a card with several queues: frames of a flow arrive on one of them."""

import socket
from functools import partial
from typing import Any

import pytest
from networks import Network, link_counts, xdp_frames_by_queue
from receiving_process import ReceivingProcess, numbered_frames, receiving
from waiting import wait_for

Config = dict[str, Any]
pytestmark = [pytest.mark.root, pytest.mark.usefixtures("has_af_xdp")]

BUFFERS, BUFFER_SIZE = 16_384, 2048
PAUSE = 8000
PORT = 5000


def configuration(interface: str) -> Config:
    queue = {
        "name": "rx0",
        "id": 0,
        "cpu_core": "any",
        "batch_size": 64,
        "timeout_us": 1000,
        "memory_regions": ["buffers"],
    }
    flow = {
        "name": "data",
        "id": 1,
        "match": {"udp_dst": PORT},
        "action": {"type": "queue", "id": 0},
    }
    rx = {"receive_path": "af_xdp", "flow_isolation": True, "queues": [queue], "flows": [flow]}
    region = {"name": "buffers", "kind": "host", "num_bufs": BUFFERS, "buf_size": BUFFER_SIZE}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "raw",
        "log_level": "info",
        "memory_regions": [region],
        "interfaces": [{"name": "receiver", "address": interface, "rx": rx}],
    }


class Sender:
    """Frames of one flow after the other, from one end of a cable."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.socket = network.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
        self.socket.bind(("near", 0))
        self.made = 0

    def send(self, count: int, source_port: int) -> None:
        for frame in numbered_frames(range(self.made, self.made + count), source_port):
            assert self.socket.send(frame) == len(frame)
        self.made += count

    @property
    def sent(self) -> int:
        """All but those for which the ring at the other end was full; once it has been emptied."""
        near: dict[str, int] = {}

        def all_are_counted() -> bool:
            near.update(link_counts(self.network, "near"))
            return near["sent"] + near["refused"] == self.made

        wait_for(all_are_counted)
        return near["sent"]


def warm_up(receiver: ReceivingProcess, sender: Sender, source_port: int) -> None:
    """Send more and more at once, and never more than a queue without traffic can store."""
    for count in [50] * 20 + [200] * 20:
        sender.send(count, source_port)
        wait_for(partial(has_received, receiver, sender.sent))


def has_received(receiver: ReceivingProcess, count: int) -> bool:
    return receiver.counters()[0] == count


def pause(receiver: ReceivingProcess, sender: Sender, source_port: int) -> dict[str, int]:
    """Send while the receiver is stopped; what is dropped."""
    _, before = receiver.counters()
    receiver.stop()
    sender.send(PAUSE, source_port)
    receiver.proceed()
    wait_for(partial(has_received, receiver, sender.sent))
    _, after = receiver.counters()
    return {reason: n for reason in after if (n := after[reason] - before.get(reason, 0))}


@pytest.mark.parametrize(("queues", "mib"), [(1, 2), (4, 9), (16, 38), (64, 152)])
def test_the_memory_goes_to_the_queue_of_the_flow(card: Any, queues: int, mib: int) -> None:
    network = card(queues, mtu=1500)
    sender = Sender(network)
    with sender.socket, receiving(network, configuration("far")) as receiver:
        warm_up(receiver, sender, 4000)
        assert len(xdp_frames_by_queue(network)) == 1
        assert pause(receiver, sender, 4000) == {}
        receiver.check_frames()
        logged = receiver.end()
    named = f"{queues} queue{'s' * (queues > 1)}"
    memory = f"the card has {named}, for which the kernel needs {mib} MiB, and frames have 32 MiB"
    assert f"frames of 'far' are received by af_xdp native; {memory}\n" in logged
    warning = f"'far' has more queues than AF_XDP needs here: {memory}; run `ethtool -L far"
    assert (warning in logged) == (mib > 32)


def test_the_memory_follows_a_flow_to_another_queue(card: Any) -> None:
    network = card(16, mtu=1500)
    sender = Sender(network)
    used: set[int] = set()
    with sender.socket, receiving(network, configuration("far")) as receiver:
        # By their source ports, the kernel distributes flows to queues as network cards do.
        for source_port in range(4000, 4012):
            warm_up(receiver, sender, source_port)
            found = set(xdp_frames_by_queue(network))
            moved = not found <= used
            used = found
            if not moved:
                continue
            # The queue before has to give back what it has, once it is idle.
            wait_for(lambda port=source_port: pause_is_survived(receiver, sender, port))
        receiver.check_frames()
    assert len(used) > 2


def pause_is_survived(receiver: ReceivingProcess, sender: Sender, source_port: int) -> bool:
    warm_up(receiver, sender, source_port)
    return pause(receiver, sender, source_port) == {}
