"""Headers and data in separate segments, written to files: a configuration built in code."""

import sys

import daqiri

HEADERS, DATA, COUNT = 42, 64, 16


def region(name, size):
    config = daqiri.MemoryRegionConfig()
    config.name = name
    config.kind = daqiri.MemoryKind.HOST
    config.access = daqiri.MEM_ACCESS_LOCAL
    config.num_bufs = 256
    config.buf_size = size
    config.owned = True
    return config


def queue(kind, name, regions):
    config = kind()
    config.common.name = name
    config.common.id = 0
    config.common.cpu_core = "any"
    config.common.batch_size = COUNT
    config.common.memory_regions = regions
    return config


def built():
    config = daqiri.NetworkConfig()
    config.common.version = 1
    config.common.master_core = 0
    config.common.stream_type = daqiri.StreamType.RAW
    config.common.loopback = daqiri.LoopbackType.LOOPBACK_TYPE_SW
    config.log_level = daqiri.LogLevel.WARN
    config.tx_meta_buffers = config.rx_meta_buffers = 64
    regions = [region("rx_headers", 64), region("rx_data", 512)]
    regions += [region("tx_headers", 64), region("tx_data", 512)]
    config.memory_regions = {each.name: each for each in regions}
    port = daqiri.InterfaceConfig()
    port.name = "camera"
    port.address = "loopback"
    rx = queue(daqiri.RxQueueConfig, "rx", ["rx_headers", "rx_data"])
    rx.common.split_boundary = HEADERS
    rx.timeout_us = 1000
    rx.poll_mode = daqiri.QueuePollMode.INDIRECT
    port.rx.queues = [rx]
    port.tx.queues = [queue(daqiri.TxQueueConfig, "tx", ["tx_headers", "tx_data"])]
    flow = daqiri.FlowConfig()
    flow.name, flow.id = "frames", 3
    flow.action.type = daqiri.FlowType.QUEUE
    flow.action.id = 0
    flow.match.udp_dst = 5000
    port.rx.flows = [flow]
    config.interfaces = [port]
    return config


def main(folder):
    config = built()
    status = daqiri.daqiri_init(config)
    assert status == daqiri.Status.SUCCESS, daqiri.last_error()
    assert config.interfaces[0].rx.queues[0].common.batch_size == COUNT
    port = daqiri.get_port_id("camera")

    burst = daqiri.create_tx_burst_params()
    daqiri.set_header(burst, port, 0, COUNT, 2)
    assert daqiri.get_tx_packet_burst(burst) == daqiri.Status.SUCCESS, daqiri.last_error()
    for idx in range(COUNT):
        daqiri.set_eth_header(burst, idx, "02:00:00:00:00:99")
        daqiri.set_ipv4_header(burst, idx, 8 + DATA, 17, 0x0A000001, 0x0A000002)
        daqiri.set_udp_header(burst, idx, DATA, 4000, 5000)
        daqiri.set_udp_payload(burst, idx, bytes([idx]) * DATA)
    assert daqiri.set_all_packet_lengths(burst, [HEADERS, DATA]) == daqiri.Status.SUCCESS
    assert daqiri.get_burst_tot_byte(burst) == COUNT * (HEADERS + DATA)
    assert daqiri.send_tx_burst(burst) == daqiri.Status.SUCCESS

    seen = 0
    while seen < COUNT:
        status, burst = daqiri.get_rx_burst()
        if status != daqiri.Status.SUCCESS:
            continue
        assert burst.hdr.hdr.num_segs == 2
        for idx in range(daqiri.get_num_packets(burst)):
            status, header = daqiri.get_segment_packet_bytes(burst, 0, idx)
            status, data = daqiri.get_segment_packet_bytes(burst, seg=1, idx=idx)
            assert len(header) == HEADERS == daqiri.get_segment_packet_length(burst, 0, idx)
            assert data == bytes([seen + idx]) * DATA
            assert daqiri.get_packet_flow_id(burst, idx) == 3
        status = daqiri.daqiri_write_pcap_to_file(burst, folder, "frames")
        assert status == daqiri.Status.SUCCESS, daqiri.last_error()
        status = daqiri.daqiri_write_raw_to_file(
            burst, folder, f"data_{seen}", packet_data_offset=HEADERS
        )
        assert status == daqiri.Status.SUCCESS, daqiri.last_error()
        seen += daqiri.get_num_packets(burst)
        daqiri.free_all_segment_packets(burst, 0)
        daqiri.free_segment_packets_and_burst(burst, 1)
    daqiri.shutdown()
    print("written", seen)


main(sys.argv[1])
