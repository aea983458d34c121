"""A server that answers each message on its connection, and its client: one process each."""

import argparse
import socket
import sys
import time

import daqiri

PATIENCE_S = 60


def config(scheme, role, port):
    name = "server" if role == "server" else "client"
    endpoint = {"local_addr" if role == "server" else "remote_addr": f"{scheme}://127.0.0.1:{port}"}
    queue = {"id": 0, "cpu_core": "any", "batch_size": 8}
    return {
        "daqiri": {
            "cfg": {
                "version": 1,
                "master_core": 0,
                "stream_type": "socket",
                "memory_regions": [
                    {"name": side, "kind": "host", "num_bufs": 256, "buf_size": 4096}
                    for side in ("rx", "tx")
                ],
                "interfaces": [
                    {
                        "name": name,
                        "address": "127.0.0.1",
                        "socket_config": {"mode": role, **endpoint},
                        "rx": {
                            "queues": [
                                queue | {"name": "rx", "memory_regions": ["rx"], "timeout_us": 500}
                            ]
                        },
                        "tx": {"queues": [queue | {"name": "tx", "memory_regions": ["tx"]}]},
                    }
                ],
            }
        }
    }


def send(port, queue, connection, messages):
    """Send messages, at most a burst of them."""
    end = time.monotonic() + PATIENCE_S
    while True:
        burst = daqiri.create_tx_burst_params()
        daqiri.set_header(burst, port, queue, len(messages), 1)
        if daqiri.get_tx_packet_burst(burst) == daqiri.Status.SUCCESS:
            break
        daqiri.free_tx_metadata(burst)
        assert time.monotonic() < end, daqiri.last_error()
    daqiri.set_connection_id(burst, connection)
    for idx, message in enumerate(messages):
        status = daqiri.copy_buffer_to_packet(burst, idx, message)
        assert status == daqiri.Status.SUCCESS, daqiri.last_error()
        daqiri.set_packet_lengths(burst, idx, [len(message)])
    status = daqiri.send_tx_burst(burst)
    assert status == daqiri.Status.SUCCESS, daqiri.last_error()


def received(call):
    """Return the packets of the next burst, with its connection, port and queue."""
    end = time.monotonic() + PATIENCE_S
    while True:
        status, burst = call()
        if status == daqiri.Status.SUCCESS:
            break
        assert status in (daqiri.Status.NULL_PTR, daqiri.Status.NOT_READY), daqiri.last_error()
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.0001)
    packets = []
    for idx in range(daqiri.get_num_packets(burst)):
        status, data = daqiri.get_packet_bytes(burst, idx)
        assert status == daqiri.Status.SUCCESS
        packets.append(data)
    where = burst.connection_id, burst.hdr.hdr.port_id, burst.hdr.hdr.q_id
    assert where[0] == daqiri.get_connection_id(burst)
    daqiri.free_all_packets_and_burst_rx(burst)
    return packets, *where


def serve(count_bytes):
    answered = 0
    while answered < count_bytes:
        packets, connection, port, queue = received(daqiri.get_rx_burst)
        assert daqiri.socket_get_port_queue(connection)[1] == port
        send(port, queue, connection, [packet.upper() for packet in packets])
        answered += sum(map(len, packets))
    return answered


def ask(address, count):
    port = daqiri.get_port_id("client")
    connection = 0
    if address is not None:
        status, connection = daqiri.socket_connect_to_server("127.0.0.1", address)
        assert status == daqiri.Status.SUCCESS, daqiri.last_error()
        status, port, _ = daqiri.socket_get_port_queue(connection)
        assert status == daqiri.Status.SUCCESS
        status = daqiri.socket_setsockopt(connection, socket.IPPROTO_IP, socket.IP_TOS, 0x10)
        assert status == daqiri.Status.SUCCESS, daqiri.last_error()
    answers = b""
    questions = [f"question {i:04};".encode() for i in range(count)]
    for question in questions:
        send(port, 0, connection, [question])
        wanted = len(answers) + len(question)
        while len(answers) < wanted:
            call = (
                (lambda: daqiri.get_rx_burst_for_connection(connection, False))
                if connection
                else (lambda: daqiri.get_rx_burst(port))
            )
            answers += b"".join(received(call)[0])
    return answers == b"".join(questions).upper()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("server", "client"))
    parser.add_argument("scheme", choices=("udp", "tcp"))
    parser.add_argument("port", type=int)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--connect", action="store_true", help="over a connection of its own")
    args = parser.parse_args()
    status = daqiri.daqiri_init(config(args.scheme, args.role, args.port))
    assert status == daqiri.Status.SUCCESS, daqiri.last_error()
    try:
        if args.role == "server":
            status, _ = daqiri.socket_get_server_conn_id("127.0.0.1", args.port)
            print("ready", flush=True)
            print("answered", serve(args.count * len("question 0000;")))
            # Until the client has all of it.
            sys.stdin.readline()
        else:
            print("all answered:", ask(args.port if args.connect else None, args.count))
    finally:
        daqiri.shutdown()


if __name__ == "__main__":
    main()
