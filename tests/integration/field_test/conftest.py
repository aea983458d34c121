"""Configurations with a port that sends and one that receives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from field_parts import COMMON, TX_QUEUE, Config, flow, region, rx_queue
from free_ports import free_port

from daqiri_ophyd.engine import load_config
from daqiri_ophyd.field_test import FieldTest


@pytest.fixture
def loopback() -> Config:
    """Two queues in memory, with a flow each."""
    rx = {
        "queues": [rx_queue(0), rx_queue(1)],
        "flows": [
            flow("detector", 1, {"udp_dst": 5000}),
            flow("monitor", 2, {"udp_dst": "5001-5009"}, 1),
        ],
    }
    return {
        **COMMON,
        "stream_type": "raw",
        "loopback": "sw",
        "memory_regions": [region("rx"), region("tx", 1024)],
        "interfaces": [
            {"name": "port0", "address": "loopback", "rx": rx, "tx": {"queues": [TX_QUEUE]}}
        ],
    }


@pytest.fixture
def sockets() -> Callable[[str], Config]:
    """A server and its client, by UDP or TCP."""

    def build(scheme: str) -> Config:
        address = f"{scheme}://127.0.0.1:{free_port('udp' if scheme == 'udp' else 'tcp')}"
        return {
            **COMMON,
            "stream_type": "socket",
            "memory_regions": [region("rx"), region("tx", 1024)],
            "interfaces": [
                {
                    "name": "receiver",
                    "address": "127.0.0.1",
                    "socket_config": {"mode": "server", "local_addr": address},
                    "rx": {"queues": [rx_queue(0)]},
                },
                {
                    "name": "sender",
                    "address": "127.0.0.1",
                    "socket_config": {"mode": "client", "remote_addr": address},
                    "tx": {"queues": [TX_QUEUE]},
                },
            ],
        }

    return build


@pytest.fixture
def cards() -> Config:
    """Engine ``packet`` on both ends of a cable: flows of each kind, a split, and frames."""
    rx = {
        "queues": [
            rx_queue(0),
            rx_queue(1, "heads", "rx", split_boundary=42),
        ],
        "flows": [
            flow("plain", 1, {"udp_dst": 5000}),
            flow("range", 2, {"udp_dst": "5000-5009", "ipv4_src": "10.0.0.7"}, 1),
            flow("sized", 3, {"udp_dst": 6000, "ipv4_len": 400}),
            flow("tagged", 4, {"udp_dst": 6001})
            | {"actions": [{"type": "vlan_pop"}, {"type": "queue", "id": 0}]},
            flow("spread", 5, {"udp_dst": 6002}) | {"action": {"type": "queue", "ids": [0, 1]}},
            flow("images", 6, {"udp_dst": 6003}),
        ],
        "reorder_configs": [
            {
                "name": "images",
                "reorder_type": "cpu",
                "memory_region": "frames",
                "flow_ids": [6],
                "payload_base": "udp_payload",
                "payload_byte_offset": 4,
                "frame": {"shape": [8, 512], "dtype": "uint16"},
                "method": {
                    "seq_packets_per_batch": {
                        "sequence_number": {
                            "bit_offset": 0,
                            "bit_width": 32,
                            "base": "udp_payload",
                        },
                        "packets_per_batch": 8,
                    }
                },
            }
        ],
    }
    del rx["flows"][3]["action"]
    return {
        **COMMON,
        "stream_type": "raw",
        "memory_regions": [
            region("rx", buf_size=9216),
            region("heads", buf_size=64),
            region("tx", 1024, 9216),
            region("frames", 64, 16384),
        ],
        "interfaces": [
            {"name": "receiver", "address": "far", "rx": rx},
            {"name": "sender", "address": "near", "tx": {"queues": [TX_QUEUE]}},
        ],
    }


@pytest.fixture
def make_test(tmp_path: Path) -> Callable[..., FieldTest]:
    """Make a field test with short measurements."""

    def make(config: Config, **options: Any) -> FieldTest:
        options = {"name": "cards.yaml", "seconds": 0.05, **options}
        return FieldTest(load_config(config), options.pop("folder", tmp_path / "found"), **options)

    return make
