"""Frames of reorder plans, with what is known of them."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from daqiri_ophyd import compat
from daqiri_ophyd.compat import Status
from daqiri_ophyd.engine import ethernet

HEADERS = 42


def test_a_frame_has_its_columns_after_it_was_freed(
    engine: Callable[..., int], loopback: Callable[..., dict[str, Any]]
) -> None:
    config = loopback()
    config["memory_regions"].append(
        {"name": "frames", "kind": "host", "num_bufs": 4, "buf_size": 4096}
    )
    plan = {
        "name": "images",
        "reorder_type": "cpu",
        "memory_region": "frames",
        "flow_ids": [7],
        "payload_byte_offset": HEADERS + 16,
        "columns": {
            "pulse_id": {"bit_offset": 64, "bit_width": 64, "base": "udp_payload"},
            "sequence": {
                "bit_offset": 0,
                "bit_width": 64,
                "base": "udp_payload",
                "from": "packets",
            },
            "pulses": {"bit_offset": 64, "bit_width": 64, "base": "udp_payload", "from": "sum"},
        },
        "method": {
            "seq_packets_per_batch": {
                "sequence_number": {"bit_offset": 0, "bit_width": 32, "base": "udp_payload"},
                "packets_per_batch": 2,
            }
        },
    }
    config["interfaces"][0]["rx"]["reorder_configs"] = [plan]
    port = engine(**config)
    numbers = [[0, 2**63 + 5], [1, 2**63 + 1]]
    payloads = np.zeros((2, 20), np.uint8)
    for payload, (sequence, pulse) in zip(payloads, numbers, strict=True):
        payload[:4] = list(sequence.to_bytes(4, "big"))
        payload[8:16] = list(pulse.to_bytes(8, "big"))
    packets = ethernet.udp_frames(
        payloads,
        src_mac="02:00:00:00:00:01",
        dst_mac="02:00:00:00:00:02",
        src_ip="192.0.2.1",
        dst_ip="192.0.2.2",
        src_port=4000,
        dst_port=5000,
    )
    burst = compat.create_tx_burst_params()
    assert burst is not None
    compat.set_header(burst, port, 0, 2, 1)
    assert compat.get_tx_packet_burst(burst) == Status.SUCCESS
    for idx in (0, 1):  # the second one comes first
        compat.copy_buffer_to_packet(burst, idx, packets[1 - idx].tobytes())
    compat.set_all_packet_lengths(burst, [packets.shape[1]])
    assert compat.send_tx_burst(burst) == Status.SUCCESS
    end, received = time.monotonic() + 60, None
    while received is None and time.monotonic() < end:
        _, received = compat.get_rx_burst(port)
    assert received is not None
    status, info = compat.get_reorder_burst_info(received)
    assert status == Status.SUCCESS
    compat.free_rx_burst(received)
    assert (info.source_packet_count, info.columns) == (2, [2**63 + 5, 0, 1 << 32, 6])
