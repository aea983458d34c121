"""In the guest: a ``net_tap`` of DPDK, whose rules are filters of the kernel (flower)."""

import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from daqiri_ophyd.engine import Engine

SUITE = Path("build/dpdk/native/test_engines")
CAPTURE = "/tmp/dtap0.pcap"
FRAMES = 100
CONFIG = """
version: 1
stream_type: raw
engine: dpdk
master_core: 1
log_level: warn
memory_regions:
  - {name: rx, kind: host, num_bufs: 4096, buf_size: 2048}
  - {name: tx, kind: host, num_bufs: 1024, buf_size: 2048}
interfaces:
  - name: tap
    address: "net_tap0,iface=dtap0"
    rx:
      queues:
        - {name: a, id: 0, cpu_core: 0, batch_size: 64, timeout_us: 1000, memory_regions: [rx]}
        - {name: b, id: 1, cpu_core: any, batch_size: 64, timeout_us: 1000, memory_regions: [rx]}
      flows:
        - {name: one, id: 1, match: {udp_dst: 5001}, action: {type: queue, id: 0}}
        - name: two
          id: 2
          match: {udp_dst: 5002, ipv4_src: 10.0.0.1}
          action: {type: queue, id: 1}
        - {name: ports, id: 3, match: {udp_dst: 6000-6010}, action: {type: queue, id: 1}}
        - name: length
          id: 4
          match: {ipv4_len: 128, udp_dst: 7000}
          action: {type: queue, id: 0}
    tx:
      queues:
        - {name: ta, id: 0, cpu_core: any, batch_size: 64, memory_regions: [tx]}
        - {name: tb, id: 1, cpu_core: any, batch_size: 64, memory_regions: [tx]}
"""
PORTS = {5001: (0, 1), 5002: (1, 2), 6005: (1, 3), 7000: (0, 4), 8000: (0, 0)}


def frame(port: int) -> bytes:
    addresses = bytes((10, 0, 0, 1, 10, 0, 0, 2))
    ip = bytes((0x45, 0, 0, 128, 0, 0, 0, 0, 64, 17, 0, 0)) + addresses
    udp = (5000).to_bytes(2, "big") + port.to_bytes(2, "big") + (108).to_bytes(2, "big") + bytes(2)
    return bytes((2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0)) + ip + udp + bytes(100)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def packets_of_rules() -> dict[str, int]:
    """Packets that each rule has matched, by what it compares."""
    found = {}
    for each in json.loads(output("tc", "-s", "-j", "filter", "show", "dev", "dtap0")):
        options = each.get("options", {})
        keys = options.get("keys", {})
        if "dst_port" not in keys:
            continue
        (action,) = options["actions"]
        name = " ".join(str(keys[key]) for key in ("eth_type", "src_ip", "dst_port") if key in keys)
        found[name] = action["stats"]["packets"]
    return found


def main() -> None:
    result: dict[str, Any] = {}
    with Engine.open(yaml.safe_load(CONFIG)) as engine:
        (port,) = engine.ports
        output("ip", "link", "set", "dtap0", "up")
        result["offload"] = {flow.name: [flow.offload, flow.offload_reason] for flow in port.flows}
        shark = subprocess.Popen(
            ["tshark", "-i", "dtap0", "-f", "udp src port 5000", "-w", CAPTURE],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert shark.stderr is not None
        for line in shark.stderr:
            if "Capturing on" in line:
                break
        # It says so before it does.
        time.sleep(3)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as kernel:
            kernel.bind(("dtap0", 0x0800))
            for each in PORTS:
                for _ in range(FRAMES):
                    kernel.send(frame(each))
        arrived: Counter[str] = Counter()
        end = time.monotonic() + 60
        while arrived.total() < FRAMES * len(PORTS) and time.monotonic() < end:
            for queue in port.rx:
                burst = queue.receive(timeout=0.1)
                if burst is None:
                    continue
                with burst:
                    for number, packet in enumerate(burst):
                        data = bytes(packet)
                        if data[12:14] == b"\x08\x00" and data[34:36] == (5000).to_bytes(2, "big"):
                            to = int.from_bytes(data[36:38], "big")
                            arrived[f"{to} {queue.id} {burst.flow_ids[number]}"] += 1
        result["arrived"] = arrived
        result["rules"] = packets_of_rules()
        time.sleep(1)
        shark.terminate()
        shark.wait(30)
        said = output("tshark", "-r", CAPTURE, "-T", "fields", "-e", "udp.dstport")
        result["tshark"] = Counter(re.findall(r"\d+", said))
    told = subprocess.run(
        [SUITE, "-#", "[#test_dpdk_rules]"], capture_output=True, text=True, timeout=300
    )
    result["suite"] = told.stdout[-4000:]
    Path(sys.argv[1]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
