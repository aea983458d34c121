"""Incorrect use of the functions results in a status or an exception."""

import gc
import inspect
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_port

from daqiri_ophyd import compat
from daqiri_ophyd.compat import Status
from daqiri_ophyd.engine import InvalidParameterError, NotReadyError

Start = Callable[..., int]

COUNT = 32


def filled(port: int, count: int = COUNT, length: int = 100) -> compat.BurstParams:
    """Return a burst whose packets have lengths."""
    burst = compat.create_tx_burst_params()
    assert burst is not None
    compat.set_header(burst, port, 0, count, 1)
    assert compat.get_tx_packet_burst(burst) == Status.SUCCESS, compat.last_error()
    for idx in range(count):
        data = bytes([idx]) * length
        assert compat.copy_buffer_to_packet(burst, idx, data) == Status.SUCCESS
    assert compat.set_all_packet_lengths(burst, [length]) == Status.SUCCESS
    return burst


def received(port: int) -> compat.BurstParams:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        status, burst = compat.get_rx_burst(port)
        if burst is not None:
            return burst
        assert status in (Status.NULL_PTR, Status.NOT_READY)
    raise AssertionError("no burst came")


@pytest.fixture
def burst(engine: Start) -> compat.BurstParams:
    """A received burst of COUNT packets of 100 bytes."""
    port = engine()
    assert compat.send_tx_burst(filled(port)) == Status.SUCCESS
    return received(port)


# Valid arguments of each function in addition to the burst.
BURST_CALLS: dict[str, tuple[Any, ...]] = {
    "set_header": (0, 0, 1, 1),
    "set_num_packets": (1,),
    "get_num_packets": (),
    "get_q_id": (),
    "get_burst_tot_byte": (),
    "get_connection_id": (),
    "set_connection_id": (0,),
    "get_packet_ptr": (0,),
    "get_segment_packet_ptr": (0, 0),
    "get_packet_length": (0,),
    "get_segment_packet_length": (0, 0),
    "get_packet_flow_id": (0,),
    "get_packet_rx_timestamp": (0,),
    "get_packet_bytes": (0,),
    "get_segment_packet_bytes": (0, 0),
    "copy_buffer_to_packet": (0, b"x"),
    "copy_buffer_to_segment_packet": (0, 0, b"x"),
    "free_packet": (0,),
    "free_packet_segment": (0, 0),
    "free_all_segment_packets": (0,),
    "free_segment_packets_and_burst": (0,),
    "free_all_packets_and_burst_rx": (),
    "free_all_packets_and_burst_tx": (),
    "free_rx_burst": (),
    "free_tx_burst": (),
    "free_rx_metadata": (),
    "free_tx_metadata": (),
    "daqiri_write_raw_to_file": ("/tmp", "x", 0),
    "daqiri_write_pcap_to_file": ("/tmp", "x"),
    "is_tx_burst_available": (),
    "get_tx_packet_burst": (),
    "set_eth_header": (0, "02:00:00:00:00:01"),
    "set_ipv4_header": (0, 10, 17, 1, 2),
    "set_udp_header": (0, 10, 1, 2),
    "set_udp_payload": (0, b"x"),
    "set_packet_lengths": (0, [1]),
    "set_all_packet_lengths": ([1],),
    "set_packet_tx_time": (0, 0),
    "send_tx_burst": (),
    "rdma_set_header": (compat.RDMAOpCode.SEND, 1, False, 1, 0, "tx"),
    "rdma_get_opcode": (),
    "get_reorder_burst_info": (),
    "synchronize_burst_event": (),
}


def call(name: str, *arguments: object) -> Any:
    return getattr(compat, name)(*arguments)


def failed(name: str, result: Any) -> bool:
    """Whether a result is that of a call without effect."""
    first = result[0] if isinstance(result, tuple) else result
    if isinstance(first, Status):
        return first != Status.SUCCESS
    empty = {"get_q_id": -1, "rdma_get_opcode": compat.RDMAOpCode.INVALID}
    return first is None or first == empty.get(name, 0)


def test_the_list_of_calls_is_complete() -> None:
    """It contains every function whose first parameter is a burst."""

    def first_parameter(function: Any) -> str:
        if inspect.isfunction(function):
            return next(iter(inspect.signature(function).parameters), "")
        return (function.__doc__ or "").partition("(")[2].partition(":")[0]

    functions = {name: getattr(compat, name) for name in compat.__all__}
    taking = {name for name, each in functions.items() if first_parameter(each) == "burst"}
    assert taking == set(BURST_CALLS)


@pytest.mark.parametrize("name", BURST_CALLS)
def test_without_an_engine(name: str) -> None:
    compat.shutdown()
    assert failed(name, call(name, None, *BURST_CALLS[name]))
    assert failed(name, call(name, compat.BurstParams(), *BURST_CALLS[name]))


@pytest.mark.parametrize("name", BURST_CALLS)
def test_none_and_a_burst_made_by_hand(name: str, engine: Start) -> None:
    engine()
    for nothing in (None, compat.BurstParams()):
        assert failed(name, call(name, nothing, *BURST_CALLS[name]))
        assert compat.last_error().endswith(": the burst is null")


@pytest.mark.parametrize("name", BURST_CALLS)
def test_a_freed_burst(name: str, burst: compat.BurstParams) -> None:
    compat.free_all_packets_and_burst_rx(burst)
    assert failed(name, call(name, burst, *BURST_CALLS[name]))
    assert "the burst was freed, or sent" in compat.last_error()


@pytest.mark.parametrize("name", BURST_CALLS)
def test_a_burst_that_was_sent(name: str, engine: Start) -> None:
    sent = filled(engine())
    assert compat.send_tx_burst(sent) == Status.SUCCESS
    assert failed(name, call(name, sent, *BURST_CALLS[name]))
    assert "the burst was freed, or sent" in compat.last_error()


@pytest.mark.parametrize("name", BURST_CALLS)
def test_wrong_types(name: str, engine: Start) -> None:
    engine()
    for wrong in (0, "burst", object(), compat.BurstHeader()):
        with pytest.raises(TypeError):
            call(name, wrong, *BURST_CALLS[name])
    with pytest.raises(TypeError):
        call(name)
    for position in range(len(BURST_CALLS[name])):
        arguments: list[Any] = [*BURST_CALLS[name]]
        arguments[position] = object()
        with pytest.raises(TypeError):
            call(name, compat.BurstParams(), *arguments)


READING = [name for name, rest in BURST_CALLS.items() if rest and name.startswith("get_packet")]
WRITING = ["copy_buffer_to_packet", "set_eth_header", "set_udp_payload", "set_packet_lengths"]
NOT_THERE = [-1, COUNT, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("idx", NOT_THERE)
@pytest.mark.parametrize("name", [*READING, "free_packet"])
def test_received_packets_that_are_not_there(
    name: str, idx: int, burst: compat.BurstParams
) -> None:
    assert failed(name, call(name, burst, idx, *BURST_CALLS[name][1:]))
    assert f"packet {idx} of a burst of {COUNT}" in compat.last_error()
    assert compat.get_num_packets(burst) == COUNT


@pytest.mark.parametrize("idx", NOT_THERE)
@pytest.mark.parametrize("name", [*WRITING, "set_packet_tx_time", "get_packet_bytes"])
def test_packets_to_send_that_are_not_there(name: str, idx: int, engine: Start) -> None:
    burst = filled(engine())
    assert failed(name, call(name, burst, idx, *BURST_CALLS[name][1:]))
    assert f"packet {idx} of a burst of {COUNT}" in compat.last_error()
    assert compat.send_tx_burst(burst) == Status.SUCCESS


@pytest.mark.parametrize("seg", [-1, 1, 4, 2**31 - 1])
@pytest.mark.parametrize(
    "name",
    [
        "get_segment_packet_ptr",
        "get_segment_packet_length",
        "get_segment_packet_bytes",
        "copy_buffer_to_segment_packet",
        "free_packet_segment",
        "free_all_segment_packets",
        "free_segment_packets_and_burst",
    ],
)
def test_segments_that_are_not_there(name: str, seg: int, burst: compat.BurstParams) -> None:
    assert failed(name, call(name, burst, seg, *BURST_CALLS[name][1:]))
    assert f"the packets have no segment {seg}" in compat.last_error()
    # Not freed either.
    assert compat.get_packet_bytes(burst, 1) == (Status.SUCCESS, bytes([1]) * 100)


@pytest.mark.parametrize("idx", [2**31, 2**64, -(2**63) - 1])
def test_numbers_that_no_integer_of_c_holds(idx: int, burst: compat.BurstParams) -> None:
    with pytest.raises(TypeError):
        compat.get_packet_bytes(burst, idx)
    with pytest.raises(TypeError):
        compat.set_header(burst, 0, 0, 1 << 64, 1)


def test_bytes_end_with_the_packet(burst: compat.BurstParams) -> None:
    data = bytes([3]) * 100
    assert compat.get_packet_bytes(burst, 3) == (Status.SUCCESS, data)
    assert compat.get_packet_bytes(burst, 3, nbytes=10) == (Status.SUCCESS, data[:10])
    assert compat.get_packet_bytes(burst, 3, 10**9) == (Status.SUCCESS, data)
    assert compat.get_packet_bytes(burst, 3, 2**63, 90) == (Status.SUCCESS, data[:10])
    assert compat.get_packet_bytes(burst, 3, None, 100) == (Status.SUCCESS, b"")
    assert compat.get_packet_bytes(burst, 3, 0) == (Status.SUCCESS, b"")
    assert compat.get_packet_bytes(burst, 3, src_offset=101) == (Status.INVALID_PARAMETER, b"")
    assert "byte 101 of packet 3, which has 100" in compat.last_error()
    assert compat.get_packet_bytes(burst, 3, 1, 2**63) == (Status.INVALID_PARAMETER, b"")
    for wrong in (-1, 1.5, "1"):
        with pytest.raises(TypeError):
            compat.get_packet_bytes(burst, 3, wrong)  # type: ignore[arg-type]


def test_copies_end_with_the_buffer(engine: Start) -> None:
    burst = filled(engine())
    copy = compat.copy_buffer_to_packet
    assert copy(burst, 0, bytes(2048)) == Status.SUCCESS
    assert copy(burst, 0, b"ab", dst_offset=2046) == Status.SUCCESS
    assert copy(burst, 0, b"", dst_offset=2048) == Status.SUCCESS
    assert copy(burst, 0, b"0123456789", 4, 3, 100) == Status.SUCCESS
    assert compat.get_packet_bytes(burst, 0, 4, 100) == (Status.SUCCESS, b"3456")
    for data, arguments in (
        (bytes(2049), {}),
        (b"ab", {"dst_offset": 2047}),
        (b"", {"dst_offset": 2049}),
        (b"ab", {"dst_offset": 2**64 - 1}),
        (b"ab", {"nbytes": 3}),
        (b"ab", {"nbytes": 2**64 - 1}),
        (b"ab", {"src_offset": 3}),
        (b"ab", {"nbytes": 1, "src_offset": 2**64 - 1}),
    ):
        assert copy(burst, 0, data, **arguments) == Status.INVALID_PARAMETER, arguments
    # Neighbours are not changed.
    assert compat.get_packet_bytes(burst, 1, 100) == (Status.SUCCESS, bytes([1]) * 100)
    compat.free_all_packets_and_burst_tx(burst)


@pytest.mark.parametrize(
    "data",
    [
        b"0123",
        bytearray(b"0123"),
        memoryview(b"0123"),
        np.frombuffer(b"0123", np.uint8),
        np.frombuffer(b"0123", np.uint16).reshape(2, 1),
    ],
    ids=lambda data: type(data).__name__,
)
def test_whatever_has_bytes_can_be_copied(data: Any, engine: Start) -> None:
    burst = filled(engine())
    assert compat.copy_buffer_to_packet(burst, 5, data) == Status.SUCCESS
    assert compat.get_packet_bytes(burst, 5, 5) == (Status.SUCCESS, b"0123\x05")
    assert compat.set_udp_payload(burst, 5, data) == Status.SUCCESS


def test_bytes_with_gaps_are_refused(engine: Start) -> None:
    burst = filled(engine())
    for data in (np.arange(10, dtype=np.uint8)[::2], memoryview(b"0123")[::-1]):
        with pytest.raises((BufferError, ValueError)):
            compat.copy_buffer_to_packet(burst, 0, data)
    with pytest.raises(TypeError):
        compat.copy_buffer_to_packet(burst, 0, "text")  # type: ignore[arg-type]


def test_a_received_packet_is_read_only(burst: compat.BurstParams) -> None:
    assert compat.copy_buffer_to_packet(burst, 0, b"x") == Status.INVALID_PARAMETER
    assert "read only" in compat.last_error()
    assert compat.send_tx_burst(burst) == Status.INVALID_PARAMETER
    assert compat.get_packet_bytes(burst, 0, 1) == (Status.SUCCESS, b"\0")


def test_lengths(engine: Start) -> None:
    burst = filled(engine())
    assert compat.set_packet_lengths(burst, 0, (50,)) == Status.SUCCESS
    assert compat.set_packet_lengths(burst, 0, np.array([60])) == Status.SUCCESS
    assert compat.get_packet_length(burst, 0) == 60
    for lengths in ([], [1, 2], [1] * 100, [-1], [2049], [2**62], [2**70]):
        assert compat.set_packet_lengths(burst, 0, lengths) == Status.INVALID_PARAMETER, lengths
        assert compat.set_all_packet_lengths(burst, lengths) == Status.INVALID_PARAMETER, lengths
    for wrong in (5, None, "12", [None], ["1"], [1.5]):
        with pytest.raises(TypeError):
            compat.set_packet_lengths(burst, 0, wrong)  # type: ignore[arg-type]
    assert compat.get_packet_length(burst, 0) == 60


def test_more_packets_than_the_burst_holds(engine: Start) -> None:
    port = engine()
    burst = compat.create_tx_burst_params()
    for count in (-1, 4097, 2**31, 2**62):
        compat.set_header(burst, port, 0, count, 1)
        assert not compat.is_tx_burst_available(burst)
        assert compat.get_tx_packet_burst(burst) != Status.SUCCESS
    compat.free_tx_burst(burst)
    burst = filled(port)
    compat.set_num_packets(burst, COUNT + 1)
    assert compat.get_num_packets(burst) == COUNT
    header = burst.hdr.hdr
    with pytest.raises(InvalidParameterError, match=f"holds 0 to {COUNT}"):
        header.num_pkts = 10**6
    header.num_pkts = 5
    assert compat.get_num_packets(burst) == 5
    for name in ("port_id", "q_id", "num_segs", "nbytes", "max_pkt", "burst_flags"):
        with pytest.raises(AttributeError, match=name):
            setattr(header, name, 1)


def test_the_header_of_a_freed_burst(burst: compat.BurstParams) -> None:
    header = burst.hdr.hdr
    assert (header.num_pkts, header.nbytes, header.port_id) == (COUNT, 100 * COUNT, 0)
    compat.free_rx_burst(burst)
    with pytest.raises(InvalidParameterError, match="freed, or sent"):
        _ = header.num_pkts
    with pytest.raises(InvalidParameterError, match="freed, or sent"):
        header.num_pkts = 1
    assert burst.connection_id == 0


def test_headers_made_by_hand_have_values_of_their_own() -> None:
    header = compat.BurstHeader()
    header.hdr.num_pkts, header.hdr.burst_flags = 7, compat.DAQIRI_BURST_FLAG_REORDERED
    assert (header.hdr.num_pkts, header.hdr.burst_flags) == (7, 1 << 28)
    assert compat.BurstHeaderParams().num_pkts == 0


def test_a_freed_packet(burst: compat.BurstParams) -> None:
    compat.free_packet(burst, 2)
    compat.free_packet(burst, 2)
    assert compat.get_packet_ptr(burst, 2) == 0
    assert compat.get_packet_bytes(burst, 2) == (Status.NULL_PTR, b"")
    assert compat.get_packet_bytes(burst, 3) == (Status.SUCCESS, bytes([3]) * 100)
    compat.free_all_segment_packets(burst, 0)
    assert compat.get_packet_bytes(burst, 3) == (Status.NULL_PTR, b"")


def test_a_handle_never_stands_for_a_later_burst(engine: Start) -> None:
    """Even if the later one is at the same address."""
    engine(tx_meta_buffers=1)
    first = compat.create_tx_burst_params()
    assert compat.create_tx_burst_params() is None
    assert "tx_meta_buffers: 1" in compat.last_error()
    compat.free_tx_burst(first)
    second = compat.create_tx_burst_params()
    assert second is not None
    compat.set_header(first, 0, 0, COUNT, 1)
    compat.free_tx_burst(first)
    assert second.hdr.hdr.num_pkts == 0
    compat.set_header(second, 0, 0, COUNT, 1)
    assert compat.get_tx_packet_burst(second) == Status.SUCCESS


def test_dropping_a_burst_frees_it(engine: Start) -> None:
    engine(tx_meta_buffers=1)
    for _ in range(5):
        burst = compat.create_tx_burst_params()
        assert burst is not None
        del burst
        gc.collect()


def test_bursts_outlive_the_engine(burst: compat.BurstParams, engine: Start) -> None:
    compat.shutdown()
    assert compat.get_packet_bytes(burst, 1) == (Status.SUCCESS, bytes([1]) * 100)
    assert compat.get_rx_burst() == (Status.NOT_READY, None)
    assert compat.create_tx_burst_params() is None
    assert "daqiri_init" in compat.last_error()
    port = engine()
    other = filled(port)
    assert compat.get_packet_bytes(burst, 1) == (Status.SUCCESS, bytes([1]) * 100)
    compat.free_all_packets_and_burst_rx(burst)
    assert compat.send_tx_burst(other) == Status.SUCCESS
    assert compat.get_num_packets(received(port)) == COUNT


def test_a_second_start_leaves_the_first_running(
    engine: Start, loopback: Callable[..., dict[str, Any]]
) -> None:
    port = engine()
    for again in (loopback(), str(loopback()), compat.NetworkConfig(), "no such file.yaml"):
        assert compat.daqiri_init(again) in (Status.INTERNAL_ERROR, Status.INVALID_PARAMETER)
    assert compat.daqiri_init(loopback()) == Status.INTERNAL_ERROR
    assert compat.send_tx_burst(filled(port)) == Status.SUCCESS
    assert compat.get_num_packets(received(port)) == COUNT


def test_many_starts(engine: Start) -> None:
    for _ in range(5):
        port = engine()
        assert compat.send_tx_burst(filled(port)) == Status.SUCCESS
        held = received(port)
        compat.shutdown()
        compat.shutdown()
        assert compat.get_num_packets(held) == COUNT


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("get_rx_burst", ()),
        ("get_rx_burst", (0,)),
        ("get_rx_burst", (0, 0)),
        ("get_rx_burst_for_connection", (1, True)),
        ("get_mac_addr", (0,)),
        ("drop_all_traffic", (0,)),
        ("allow_all_traffic", (0,)),
        ("flush_port_queue", (0, 0)),
        ("socket_connect_to_server", ("127.0.0.1", 5000)),
        ("socket_get_port_queue", (1,)),
        ("socket_get_server_conn_id", ("127.0.0.1", 5000)),
        ("socket_setsockopt", (1, 1, 2, 3)),
        ("rdma_connect_to_server", ("127.0.0.1", 5000)),
        ("rdma_get_port_queue", (1,)),
        ("rdma_get_server_conn_id", ("127.0.0.1", 5000)),
        ("set_reorder_cuda_stream", ("camera", "plan")),
        ("add_rx_flow_async", (0, compat.FlowRuleConfig())),
        ("add_rx_flows_async", (0, [compat.FlowRuleConfig()])),
        ("delete_flow_async", (1,)),
        ("poll_flow_op", ()),
    ],
)
def test_functions_before_the_start(name: str, arguments: tuple[Any, ...]) -> None:
    compat.shutdown()
    result = call(name, *arguments)
    status = result[0] if isinstance(result, tuple) else result
    assert status == Status.NOT_READY
    assert compat.last_error()


@pytest.mark.parametrize("port", [-1, 1, 2**31 - 1])
def test_ports_and_queues_that_are_not_there(port: int, engine: Start) -> None:
    engine()
    assert compat.get_rx_burst(port) == (Status.INVALID_PARAMETER, None)
    assert compat.get_rx_burst(port, 0) == (Status.INVALID_PARAMETER, None)
    assert compat.get_rx_burst(0, port) == (Status.INVALID_PARAMETER, None)
    assert compat.get_mac_addr(port) == (Status.INVALID_PARAMETER, "")
    assert compat.get_num_rx_queues(port) == 0
    assert compat.drop_all_traffic(port) == Status.INVALID_PARAMETER
    assert compat.flush_port_queue(0, port) == Status.INVALID_PARAMETER
    assert compat.get_port_id("nobody") == -1
    assert "there are camera" in compat.last_error()
    with pytest.raises(TypeError, match="port"):
        compat.get_rx_burst(q=0)


def test_addresses(engine: Start) -> None:
    burst = filled(engine())
    assert compat.format_eth_addr("aa:BB:cc:00:01:fe") == bytes.fromhex("aabbcc0001fe")
    for wrong in (
        "",
        "aa",
        "aa:bb:cc:dd:ee",
        "zz:bb:cc:dd:ee:ff",
        "aa-bb-cc-dd-ee-ff",
        "x" * 10**6,
    ):
        assert compat.format_eth_addr(wrong) == bytes(6)
        assert compat.set_eth_header(burst, 0, wrong) == Status.INVALID_PARAMETER
    assert compat.set_eth_header(burst, 0, "00:00:00:00:00:00") == Status.SUCCESS
    assert compat.get_packet_bytes(burst, 0, 6) == (Status.SUCCESS, bytes(6))


def test_files_that_cannot_be_written(burst: compat.BurstParams, tmp_path: Any) -> None:
    pcap, raw = compat.daqiri_write_pcap_to_file, compat.daqiri_write_raw_to_file
    assert pcap(burst, tmp_path, "with_a_path_object") == Status.SUCCESS
    for folder in ("relative", "", str(tmp_path / "none")):
        assert pcap(burst, folder, "x") != Status.SUCCESS
        assert raw(burst, folder, "x", 0) != Status.SUCCESS
    for prefix in ("", "a/b", "x" * 5000):
        assert pcap(burst, str(tmp_path), prefix) != Status.SUCCESS
    with pytest.raises((ValueError, TypeError)):
        pcap(burst, "/tmp\0", "x")
    assert raw(burst, str(tmp_path), "beyond", 2**63) == Status.SUCCESS
    assert (tmp_path / "beyond_0").read_bytes() == b""
    assert compat.get_packet_bytes(burst, 0, 1) == (Status.SUCCESS, b"\0")


@pytest.mark.parametrize(
    "config", [None, 5, [], object(), {}, {"daqiri": 5}, "", "\0", b"\xff\xfe", {1: {2: 3}}]
)
def test_what_is_no_configuration(config: Any) -> None:
    assert compat.daqiri_init(config) == Status.INVALID_PARAMETER
    assert compat.last_error().startswith("daqiri_init")
    assert compat.get_engine_type() == compat.EngineType.UNKNOWN


def test_two_threads_on_one_burst(engine: Start) -> None:
    """One of them frees it; the other gets bytes of that burst, or none."""
    port = engine()
    data = {bytes([i]) * 100 for i in range(COUNT)}
    for _ in range(20):
        assert compat.send_tx_burst(filled(port)) == Status.SUCCESS
        burst = received(port)
        outcomes = set()

        def read(burst: compat.BurstParams = burst, outcomes: set = outcomes) -> None:
            for idx in range(COUNT):
                status, packet = compat.get_packet_bytes(burst, idx)
                outcomes.add(status)
                assert packet in data if status == Status.SUCCESS else packet == b""

        threads = [threading.Thread(target=read) for _ in range(3)]
        threads += [
            threading.Thread(target=compat.free_all_packets_and_burst_rx, args=(burst,))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes <= {Status.SUCCESS, Status.INVALID_PARAMETER}


def test_threads_that_share_queues(engine: Start) -> None:
    """Two send, two receive; every packet arrives once."""
    # Fewer packets than there are buffers, so that none is lost however slow the receivers are.
    port, bursts = engine(rx_meta_buffers=1024), 50
    senders = [
        threading.Thread(target=send_numbered, args=(port, first, bursts)) for first in (0, bursts)
    ]
    arrived: list[bytes] = []
    wanted = 2 * bursts * COUNT
    end = time.monotonic() + 100

    def receive() -> None:
        while len(arrived) < wanted and time.monotonic() < end:
            _, burst = compat.get_rx_burst(port, 0)
            if burst is None:
                continue
            count = compat.get_num_packets(burst)
            arrived.extend(compat.get_packet_bytes(burst, idx)[1] for idx in range(count))
            compat.free_all_packets_and_burst_rx(burst)

    receivers = [threading.Thread(target=receive) for _ in range(2)]
    for thread in senders + receivers:
        thread.start()
    for thread in senders + receivers:
        thread.join()
    assert sorted(arrived) == sorted(
        number.to_bytes(4, "big") + bytes([idx])
        for number in range(2 * bursts)
        for idx in range(COUNT)
    )


def send_numbered(port: int, first: int, bursts: int) -> None:
    """Send bursts, each packet with the number of its burst, and its own."""
    for number in range(first, first + bursts):
        while (burst := compat.create_tx_burst_params()) is None:
            time.sleep(0)
        compat.set_header(burst, port, 0, COUNT, 1)
        while compat.get_tx_packet_burst(burst) != Status.SUCCESS:
            time.sleep(0)
        for idx in range(COUNT):
            compat.copy_buffer_to_packet(burst, idx, number.to_bytes(4, "big") + bytes([idx]))
        compat.set_all_packet_lengths(burst, [5])
        assert compat.send_tx_burst(burst) == Status.SUCCESS


def test_a_garbage_collection_may_free_the_burst(burst: compat.BurstParams) -> None:
    """During a call on it."""

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            compat.free_all_packets_and_burst_rx(burst)

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        Garbage()
        outcomes = {compat.get_packet_bytes(burst, idx % COUNT)[0] for idx in range(1000)}
        outcomes |= {compat.get_packet_rx_timestamp(burst, 0)[0] for _ in range(100)}
    finally:
        gc.set_threshold(*before)
    assert outcomes <= {Status.SUCCESS, Status.INVALID_PARAMETER}
    gc.collect()
    assert compat.get_packet_bytes(burst, 0) == (Status.INVALID_PARAMETER, b"")


def test_a_long_write_lets_other_threads_run(engine: Start, tmp_path: Any) -> None:
    port = engine()
    assert compat.send_tx_burst(filled(port)) == Status.SUCCESS
    burst = received(port)
    fifo = tmp_path / "pipe_0"
    os.mkfifo(fifo)
    opened = threading.Event()

    def reader() -> None:
        with fifo.open("rb") as pipe:
            opened.set()
            pipe.read()

    thread = threading.Thread(target=reader)
    thread.start()
    # It waits for the reader, which needs the interpreter lock.
    compat.daqiri_write_raw_to_file(burst, tmp_path, "pipe", 0)
    thread.join(timeout=60)
    assert opened.is_set()


def test_a_forked_child_has_no_engine(burst: compat.BurstParams) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert compat.get_rx_burst() == (Status.NOT_READY, None)
            with pytest.raises(NotReadyError, match="forked"):
                compat.get_packet_bytes(burst, 0)
            with pytest.raises(NotReadyError, match="forked"):
                compat.free_all_packets_and_burst_rx(burst)
            assert compat.create_tx_burst_params() is None
            compat.shutdown()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert compat.get_packet_bytes(burst, 1) == (Status.SUCCESS, bytes([1]) * 100)


def test_a_child_may_start_an_engine_of_its_own(engine: Start) -> None:
    port = engine()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert engine() == port
            assert compat.send_tx_burst(filled(port)) == Status.SUCCESS
            assert compat.get_num_packets(received(port)) == COUNT
            compat.shutdown()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert compat.send_tx_burst(filled(port)) == Status.SUCCESS


def test_socket_options_of_wrong_types(engine: Start) -> None:
    engine()
    for wrong in (None, 1.5, [1], object()):
        with pytest.raises(TypeError, match="accepted are bool, int, str and bytes"):
            compat.socket_setsockopt(1, 1, 2, wrong)  # type: ignore[arg-type]
    assert compat.socket_setsockopt(1, 1, 2, 2**31) == Status.INVALID_PARAMETER
    assert "C int" in compat.last_error()
    for value in (True, 5, "eth0", b"1234", bytearray(4), np.zeros(1, np.int32)):
        # The loopback engine has no connections.
        assert compat.socket_setsockopt(1, 1, 2, value) == Status.NOT_SUPPORTED


def test_a_server_that_knows_nobody(loopback: Callable[..., dict[str, Any]]) -> None:
    """Its burst is freed, whether the packets are rejected immediately or counted later."""
    config = loopback() | {"stream_type": "socket", "loopback": ""}
    port = free_port("udp")
    config["interfaces"][0] |= {
        "address": "127.0.0.1",
        "socket_config": {"mode": "server", "local_addr": f"udp://127.0.0.1:{port}"},
    }
    try:
        assert compat.daqiri_init(config) == Status.SUCCESS, compat.last_error()
        burst = filled(compat.get_port_id("camera"))
        assert compat.send_tx_burst(burst) in (Status.SUCCESS, Status.CONNECT_FAILURE)
        assert compat.get_num_packets(burst) == 0
        assert "freed, or sent" in compat.last_error()
        assert compat.get_rx_burst_for_connection(2**40, True) == (Status.INVALID_PARAMETER, None)
        assert compat.socket_get_port_queue(2**40) == (Status.INVALID_PARAMETER, 0, 0)
        status, connection = compat.socket_get_server_conn_id("192.0.2.1", 5)
        assert (status, connection) == (Status.INVALID_PARAMETER, 0)
        for wrong in ("", "localhost", "x" * 5000, "\0"):
            assert compat.socket_connect_to_server(wrong, 5000)[0] != Status.SUCCESS
    finally:
        compat.shutdown()


def test_a_configuration_built_in_code_gets_what_was_made_of_it(
    loopback: Callable[..., dict[str, Any]], run: Callable[..., Any], tmp_path: Path
) -> None:
    keys = loopback(debug=True)
    keys["memory_regions"][0]["num_bufs"] = 8
    keys["memory_regions"].append({"name": "spare", "kind": "host", "num_bufs": 8, "buf_size": 64})
    script = tmp_path / "script.py"
    script.write_text(
        f"""
import json, sys
import daqiri

keys = {keys!r}
if sys.argv[1] == "parsed":
    status, config = daqiri.parse_network_config_from_yaml_string(json.dumps(keys))
    print("---", file=sys.stderr)
else:
    config = keys
assert daqiri.daqiri_init(config) == daqiri.Status.SUCCESS, daqiri.last_error()
if sys.argv[1] == "parsed":
    regions = config.memory_regions
    assert regions["rx"].num_bufs > 8
    for region in regions.values():
        assert region.adj_size >= region.buf_size
        assert region.ttl_size >= region.adj_size * region.num_bufs
daqiri.shutdown()
"""
    )
    for kind in ("dict", "parsed"):
        status, _, errors = run(script, kind)
        assert status == 0, errors
        # All of them where the file is read; values adjusted then are not adjusted again.
        for part, adjusted in zip(errors.split("---\n"), (1, 0), strict=False):
            lines = [line for line in part.splitlines() if line.startswith("daqiri: warning: ")]
            assert sum("num_bufs: raised" in line for line in lines) == adjusted, errors
            assert sum("debug: found" in line for line in lines) == 1, errors
            assert sum("is used by no queue" in line for line in lines) == 1, errors
            assert len(lines) == 2 + adjusted, errors


def test_a_port_that_is_not_there_is_a_status(engine: Start) -> None:
    engine()
    missing = compat.get_port_id("typo")
    assert missing == -1
    for port, queue in ((missing, 0), (0, -1), (0, 70_000), (1 << 40, 0)):
        burst = compat.create_tx_burst_params()
        compat.set_header(burst, port, queue, 1, 1)
        assert compat.get_tx_packet_burst(burst) == Status.INVALID_PARAMETER
        compat.free_tx_burst(burst)


def test_texts_that_are_no_configuration_are_a_status(tmp_path: Path) -> None:
    assert compat.daqiri_init(str(tmp_path)) == Status.INVALID_PARAMETER
    assert "cannot be read: Is a directory" in compat.last_error()
    assert compat.daqiri_init("version: \udc80") == Status.INVALID_PARAMETER
    endless: dict[str, Any] = {}
    endless["version"] = [endless]
    assert compat.daqiri_init(endless) == Status.INVALID_PARAMETER
    assert "nested without end" in compat.last_error()
