"""Sends numbered frames through a port in memory and receives them: two threads, one process."""

import argparse
import ipaddress
import struct
import sys
import threading
import time

import daqiri

PAYLOAD = 100
HEADERS = 42
BATCH = 32


def wanted(status, call):
    if status != daqiri.Status.SUCCESS:
        raise SystemExit(f"{call}: {status}")


def send(port, count):
    source, target = (int(ipaddress.IPv4Address(text)) for text in ("10.0.0.1", "10.0.0.2"))
    sent = 0
    while sent < count:
        burst = daqiri.create_tx_burst_params()
        if burst is None:
            time.sleep(0.0001)
            continue
        size = min(BATCH, count - sent)
        daqiri.set_header(burst, port, 0, size, 1)
        ready = daqiri.is_tx_burst_available(burst)
        if not ready or daqiri.get_tx_packet_burst(burst) != daqiri.Status.SUCCESS:
            daqiri.free_tx_metadata(burst)
            time.sleep(0.0001)
            continue
        for idx in range(daqiri.get_num_packets(burst)):
            payload = struct.pack("!I", sent + idx).ljust(PAYLOAD, b"x")
            wanted(daqiri.set_eth_header(burst, idx, "02:00:00:00:00:99"), "set_eth_header")
            wanted(
                daqiri.set_ipv4_header(burst, idx, 8 + PAYLOAD, daqiri.IPPROTO_UDP, source, target),
                "set_ipv4_header",
            )
            wanted(daqiri.set_udp_header(burst, idx, PAYLOAD, 4000, 5000), "set_udp_header")
            wanted(daqiri.set_udp_payload(burst, idx, payload), "set_udp_payload")
            wanted(daqiri.set_packet_lengths(burst, idx, [HEADERS + PAYLOAD]), "lengths")
        status = daqiri.send_tx_burst(burst)
        if status == daqiri.Status.NO_SPACE_AVAILABLE:
            continue
        wanted(status, "send_tx_burst")
        sent += size


def receive(port, count, result):
    numbers, flows, stamped = [], set(), 0
    while len(numbers) < count:
        status, burst = daqiri.get_rx_burst(port, 0)
        if status != daqiri.Status.SUCCESS:
            time.sleep(0.0001)
            continue
        for idx in range(daqiri.get_num_packets(burst)):
            status, data = daqiri.get_packet_bytes(burst, idx)
            wanted(status, "get_packet_bytes")
            assert len(data) == daqiri.get_packet_length(burst, idx) == HEADERS + PAYLOAD
            numbers.append(struct.unpack_from("!I", data, HEADERS)[0])
            flows.add(daqiri.get_packet_flow_id(burst, idx))
            status, _ = daqiri.get_packet_rx_timestamp(burst, idx)
            stamped += status == daqiri.Status.SUCCESS
        daqiri.free_all_packets_and_burst_rx(burst)
    result.update(numbers=numbers, flows=flows, stamped=stamped)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--count", type=int, default=1000)
    args = parser.parse_args()
    wanted(daqiri.daqiri_init(args.config), "daqiri_init")
    port = daqiri.get_port_id("camera")
    result = {}
    receiver = threading.Thread(target=receive, args=(port, args.count, result))
    receiver.start()
    send(port, args.count)
    receiver.join()
    daqiri.print_stats()
    daqiri.shutdown()
    in_order = result["numbers"] == list(range(args.count))
    print(
        f"received {len(result['numbers'])} in order: {in_order} "
        f"flows: {sorted(result['flows'])} stamped: {result['stamped']}"
    )
    return 0 if in_order else 1


if __name__ == "__main__":
    sys.exit(main())
