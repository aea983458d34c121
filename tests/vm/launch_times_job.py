"""In the guest: packets with launch times through disciplines, as the receiver saw them."""

import ctypes
import json
import os
import shlex
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from daqiri_ophyd.engine import Engine, NotSupportedError

Result = dict[str, Any]
ADDRESSES = {4: ("10.77.0.1/24", "10.77.0.2"), 6: ("fd77::1/64", "fd77::2")}
PORT = 5000
SIZE = 1000


def command(line: str) -> None:
    subprocess.run(shlex.split(line), check=True)


def connect_namespaces() -> None:
    """Make a veth pair: v0 here, v1 in a namespace that stays known as /run/netns/far."""
    command("ip netns add far")
    near, far = "02:00:00:00:00:01", "02:00:00:00:00:02"
    command(f"ip link add v0 address {near} numtxqueues 2 type veth peer name v1 netns far")
    command(f"ip -n far link set v1 address {far}")
    command("ip -n far link set lo up")
    for device, where, index in (("v0", "", 1), ("v1", "-n far", 2)):
        command(f"ip {where} addr add 10.77.0.{index}/24 dev {device}")
        command(f"ip {where} addr add fd77::{index}/64 dev {device} nodad")
        command(f"ip {where} link set {device} up")
    # One processor takes all that arrives at v1: two would change the order.
    steer = "echo 1 >/sys/class/net/v1/queues/rx-0/rps_cpus"
    subprocess.run(["ip", "netns", "exec", "far", "sh", "-c", steer], check=True)
    # etf drops the packets that would ask for it.
    for _, address in ADDRESSES.values():
        command(f"ip neighbour replace {address} lladdr {far} dev v0 nud permanent")


def enter_namespace(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def receiver_in_far(family: int) -> socket.socket:
    """Return a socket of the other namespace; this thread comes back from there."""
    here, far = (os.open(path, os.O_RDONLY) for path in ("/proc/self/ns/net", "/run/netns/far"))
    enter_namespace(far)
    try:
        receiver = socket.socket(
            socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM
        )
        receiver.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        receiver.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        receiver.bind((ADDRESSES[family][1], PORT))
        receiver.settimeout(2)
    finally:
        enter_namespace(here)
        os.close(here)
        os.close(far)
    return receiver


def configuration(family: int, timed: bool = True) -> Result:
    host = ADDRESSES[family][1]
    written = f"[{host}]" if family == 6 else host
    queue = {"name": "tx0", "id": 0, "cpu_core": "any", "batch_size": 64}
    return {
        "version": 1,
        "master_core": 0,
        "stream_type": "socket",
        "log_level": "info",
        "memory_regions": [{"name": "tx", "kind": "host", "num_bufs": 1024, "buf_size": 2048}],
        "interfaces": [
            {
                "name": "sender",
                "address": host,
                "socket_config": {"mode": "client", "remote_addr": f"udp://{written}:{PORT}"},
                "tx": {"accurate_send": timed, "queues": [{**queue, "memory_regions": ["tx"]}]},
            }
        ],
    }


def send(family: int, count: int, gap_ms: float, lead_ms: float = 200, last: int = 0) -> Result:
    """Send timed packets, then `last` without a launch time; return what came when."""
    received: list[tuple[int, int]] = []
    with receiver_in_far(family) as receiver, Engine.open(configuration(family)) as engine:
        port = engine.port("sender")
        first = port.now() + int(lead_ms * 1e6)
        launch = [first + int(i * gap_ms * 1e6) for i in range(count)]
        packets = [i.to_bytes(4, "big").ljust(SIZE, b".") for i in range(count + last)]
        port.tx[0].send(packets, launch_times=launch + [0] * last)
        assert port.tx[0].wait_sent(60)
        counted_at = port.now()
        receiver.settimeout(0.5)
        while True:
            try:
                data, control, _, _ = receiver.recvmsg(2048, 128)
            except TimeoutError:
                break
            (stamp,) = [d for level, _, d in control if level == socket.SOL_SOCKET]
            seconds, ns = struct.unpack("qq", stamp[:16])
            received.append((int.from_bytes(data[:4], "big"), seconds * 10**9 + ns))
        counters = port.tx[0].counters()
        state = engine.snapshot().tx[0]
        lateness = port.tx[0].lateness()
        return {
            "launch": launch,
            "received": received,
            "counted_at": counted_at,
            "sent": counters.sent,
            "sent_bytes": counters.sent_bytes,
            "submitted": counters.submitted,
            "held": counters.held,
            "late": counters.late,
            "dropped": dict(counters.dropped),
            "handed_over_in_time": int(lateness.binned()[0]),
            "launch_times": state.launch_times,
        }


def send_many(count: int) -> Result:
    """Send packets without launch times at once; return how often each came."""
    came = [0] * count
    with receiver_in_far(4) as receiver, Engine.open(configuration(4, timed=False)) as engine:
        queue = engine.port("sender").tx[0]
        queue.send([i.to_bytes(4, "big").ljust(SIZE, b".") for i in range(count)])
        assert queue.wait_sent(60)
        receiver.settimeout(0.5)
        while True:
            try:
                came[int.from_bytes(receiver.recv(2048)[:4], "big")] += 1
            except TimeoutError:
                break
        counters = queue.counters()
    shown = subprocess.run(
        shlex.split("tc -s -json qdisc show dev v0"), check=True, capture_output=True, text=True
    )
    return {
        "came": came,
        "sent": counters.sent,
        "dropped": dict(counters.dropped),
        "refused": json.loads(shown.stdout)[0]["drops"],
    }


def send_undisturbed(family: int, count: int, gap_ms: float) -> Result:
    """Send anew while the guest had no turn for the whole schedule, five times at most."""
    for _ in range(5):
        result = send(family, count, gap_ms)
        if result["handed_over_in_time"] > 0 and result["sent"] > 0:
            break
    return result


def refusal(family: int) -> str:
    try:
        Engine.open(configuration(family)).close()
    except NotSupportedError as error:
        return str(error)
    return ""


def main() -> None:
    connect_namespaces()
    time.sleep(1)
    results: Result = {}
    etf = "etf clockid CLOCK_TAI delta"
    for disciplines, name, work in (
        (["root fq"], "fq", lambda: send_undisturbed(4, 50, 4)),
        (["root fq"], "fq_past", lambda: send(4, 300, 0.1, lead_ms=-1000, last=50)),
        (["root fq flow_limit 2 maxrate 100mbit"], "fq_many", lambda: send_many(4000)),
        (["root fq flow_limit 20"], "fq_short", lambda: send(4, 500, 0.02)),
        ([f"root {etf} 5000000"], "etf", lambda: send_undisturbed(4, 50, 4)),
        ([f"root {etf} 5000000"], "etf_untimed", lambda: send(6, 20, 1, last=50)),
        # 8 ms a packet: most have to wait for longer than the 5 ms that etf lets them be late.
        (
            [
                "root handle 1: tbf rate 1mbit burst 1600 latency 9s",
                f"parent 1:1 {etf} 5000000",
            ],
            "etf_late",
            lambda: send_undisturbed(4, 60, 1),
        ),
        (
            [
                "root handle 1: tbf rate 1mbit burst 1600 latency 9s",
                f"parent 1:1 {etf} 5000000",
            ],
            "etf_late_ipv6",
            lambda: send_undisturbed(6, 60, 1),
        ),
        (
            ["root handle 1: mq", "parent 1:1 fq", "parent 1:2 fq"],
            "mq",
            lambda: send_undisturbed(4, 50, 4),
        ),
        (["root handle 1: mq", "parent 1:1 fq"], "half", lambda: refusal(4)),
        (["root pfifo"], "pfifo", lambda: refusal(6)),
        ([f"root {etf} 0"], "no_delta", lambda: refusal(4)),
        ([f"root {etf} 5000000 deadline_mode"], "deadline", lambda: refusal(4)),
    ):
        subprocess.run(shlex.split("tc qdisc del dev v0 root"), stderr=subprocess.DEVNULL)
        for discipline in disciplines:
            command(f"tc qdisc replace dev v0 {discipline}")
        results[name] = work()
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
