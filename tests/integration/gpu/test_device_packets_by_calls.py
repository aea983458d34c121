"""Packets in GPU memory with the documented interface: received there, and sent from there."""

from pathlib import Path

import pytest

from .conftest import Config, Run, loopback

# With the documented interface: `out` is filled, and `got` is the result.
TRANSMIT = """
import ctypes, json
import numpy as np
import daqiri_ophyd.compat as daqiri

OK = daqiri.Status.SUCCESS
data = np.random.default_rng(1).integers(0, 256, 500, np.uint8).tobytes()
assert daqiri.daqiri_init_from_yaml_string(json.dumps({"daqiri": {"cfg": CONFIG}})) == OK
out = daqiri.create_tx_burst_params()
daqiri.set_header(out, 0, 0, 2, SEGMENTS)
assert daqiri.get_tx_packet_burst(out) == OK
FILL
assert daqiri.send_tx_burst(out) == OK
status = None
while status != OK:
    status, got = daqiri.get_rx_burst(0, 0)
SHOW
daqiri.free_rx_burst(got)
daqiri.shutdown()
"""


def transmit(config: Config, segments: int, fill: str, show: str) -> str:
    """Return such a program."""
    text = TRANSMIT.replace("CONFIG", repr(config)).replace("SEGMENTS", str(segments))
    return text.replace("FILL", fill).replace("SHOW", show)


def test_what_a_gpu_has_written_is_sent(with_driver: Run) -> None:
    fill = """
print(daqiri.set_udp_payload(out, 0, b"12"))
for i in range(2):
    assert daqiri.set_packet_lengths(out, i, [100 + i]) == OK
    ctypes.memmove(daqiri.get_segment_packet_ptr(out, 0, i), data, 100 + i)
"""
    show = """
print(daqiri.get_packet_bytes(got, 0)[0], daqiri.synchronize_burst_event(got))
for i in range(2):
    assert daqiri.get_packet_length(got, i) == 100 + i
    print(ctypes.string_at(daqiri.get_packet_ptr(got, i), 100 + i) == data[:100 + i])
"""
    said, asked = with_driver(transmit(loopback("device"), 1, fill, show))
    refused, *rest = said.splitlines()
    assert refused == "Status.NOT_SUPPORTED"
    assert rest == ["Status.NOT_SUPPORTED Status.SUCCESS", "True", "True"]
    assert asked.count("allocate") == asked.count("free") == 2


def test_headers_of_payloads_on_a_gpu_are_the_cpus(with_driver: Run) -> None:
    config = loopback("host")
    config["memory_regions"][1] |= {"name": "payload", "kind": "device"}
    config["memory_regions"].append(
        {"name": "headers", "kind": "host", "num_bufs": 64, "buf_size": 64}
    )
    (queue,) = config["interfaces"][0]["tx"]["queues"]
    queue["memory_regions"] = ["headers", "payload"]
    fill = """
for i in range(2):
    assert daqiri.set_packet_lengths(out, i, [42, 500]) == OK
    assert daqiri.set_eth_header(out, i, "02:00:00:00:00:02") == OK
    assert daqiri.set_ipv4_header(out, i, 508, 17, 1, 2) == OK
    assert daqiri.set_udp_header(out, i, 500, 4000, 5000) == OK
    ctypes.memmove(daqiri.get_segment_packet_ptr(out, 1, i), data, 500)
"""
    show = """
for i in range(2):
    packet = daqiri.get_packet_bytes(got, i)[1]
    print(packet[42:] == data, packet[34:38].hex())
"""
    said, _ = with_driver(transmit(config, 2, fill, show))
    assert said.splitlines() == ["True 0fa01388"] * 2


@pytest.mark.parametrize(
    "call",
    [
        "daqiri.synchronize_burst_event(got)",
        "(daqiri.set_num_packets(got, 0), daqiri.daqiri_write_pcap_to_file(got, FOLDER, 'q'))[1]",
    ],
)
def test_bursts_without_packets_outlive_the_engine(
    with_driver: Run, tmp_path: Path, call: str
) -> None:
    fill = """
for i in range(2):
    assert daqiri.set_packet_lengths(out, i, [100]) == OK
"""
    show = f"""
daqiri.free_packet(got, 0)
daqiri.free_packet(got, 1)
daqiri.shutdown()
FOLDER = {str(tmp_path)!r}
print({call})
"""
    said, _ = with_driver(transmit(loopback("device"), 1, fill, show))
    assert said == "Status.SUCCESS"
