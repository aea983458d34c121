#include "documents.h"

namespace daqiri::test {

const char* const RAW = R"(daqiri:
  cfg:
    version: 1
    master_core: 3
    stream_type: raw
    engine: dpdk
    log_level: info
    debug: true
    loopback: ""
    loopback_drops: false
    tx_meta_buffers: 512
    rx_meta_buffers: 128
    ship_to: s3://bucket/prefix
    memory_regions:
    - name: headers
      kind: huge
      affinity: 1
      access: [local, rdma_read]
      num_bufs: 20000
      buf_size: 128
      owned: false
    - name: payloads
      kind: device
      num_bufs: 20000
      buf_size: 8192
    - name: whole
      kind: host
      num_bufs: 20000
      buf_size: 9000
    interfaces:
    - name: rx_port
      address: 0000:05:00.0
      rx:
        flow_isolation: true
        hardware_timestamps: true
        dynamic_flow_capacity: 64
        filter: udp
        receive_path: af_packet
        queues:
        - {name: split, id: 0, cpu_core: 4, batch_size: 1024, timeout_us: 100, memory_regions: [headers, payloads], split_boundary: 42}
        - {name: whole, id: 1, cpu_core: "5", batch_size: 256, poll_mode: indirect, memory_regions: [whole]}
        - {name: direct, id: 2, cpu_core: 5, batch_size: 64, memory_regions: [whole]}
        flows:
        - name: plain
          id: 1
          match: {udp_src: 1000, udp_dst: 2000-2010, ipv4_len: 1050, ipv4_src: 10.0.0.1, ipv4_dst: 10.0.0.2}
          action: {type: queue, id: 0}
        - {name: spread, id: 2, match: {udp_dst: 3000}, action: {type: queue, ids: [0, 1]}}
        - {name: vlan, id: 3, match: {udp_dst: 3001}, actions: [{type: vlan_pop}, {type: queue, id: 1}]}
        - name: vxlan
          id: 4
          actions:
          - type: tunnel_decap
            tunnel: {type: vxlan, vni: 100, outer_eth_src: "02:00:00:00:00:01", outer_eth_dst: "02:00:00:00:00:02",
                     outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2, outer_ipv4_ttl: 32, outer_ipv4_tos: 4,
                     outer_udp_src: 49152, outer_udp_dst: 4790}
          - {type: queue, id: 1}
        - {name: gre, id: 5, actions: [{type: tunnel_decap, tunnel: {type: gre, gre_protocol: 0x6558}}, {type: queue, id: 1}]}
        - {name: nvgre, id: 6, actions: [{type: tunnel_decap, tunnel: {type: nvgre, tni: 7, flow_id: 3}}, {type: queue, id: 1}]}
        - {name: both, id: 7, actions: [{type: vlan_pop}, {type: queue, ids: [0, 1]}]}
    - name: tx_port
      address: 0000:05:00.1
      tx:
        accurate_send: true
        queues:
        - {name: out, id: 0, cpu_core: 6, batch_size: 512, timeout_us: 10, memory_regions: [whole], offloads: [tx_eth_src], pacing_mbps: 1000, realtime_priority: 10, poll_mode: indirect}
        flows:
        - {name: tag, id: 3, action: {type: vlan_push, vlan_id: 100, pcp: 3, dei: 1, ethertype: 0x88a8}}
        - name: wrap
          id: 8
          match: {udp_src: 7, udp_dst: 8, ipv4_len: 100, ipv4_src: 10.0.0.1, ipv4_dst: 10.0.0.2}
          actions:
          - {type: vlan_push, vlan_id: 5, pcp: 1, dei: 1, ethertype: 0x9100}
          - type: tunnel_encap
            tunnel: {type: vxlan, vni: 9, outer_eth_src: "02:00:00:00:00:01", outer_eth_dst: "02:00:00:00:00:02",
                     outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2, outer_ipv4_ttl: 9, outer_ipv4_tos: 1,
                     outer_udp_src: 50000, outer_udp_dst: 4791}
        - name: wrap_gre
          id: 9
          actions:
          - type: tunnel_encap
            tunnel: {type: gre, gre_protocol: 0x6558, outer_eth_src: "02:00:00:00:00:01", outer_eth_dst: "02:00:00:00:00:02",
                     outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2}
        - name: wrap_nvgre
          id: 10
          action:
            type: tunnel_encap
            tunnel: {type: nvgre, tni: 8, flow_id: 1, outer_eth_src: "02:00:00:00:00:01", outer_eth_dst: "02:00:00:00:00:02",
                     outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2, outer_ipv4_ttl: 9, outer_ipv4_tos: 1}
        - name: wrap_alone
          id: 11
          action:
            type: tunnel_encap
            tunnel: {type: vxlan, vni: 9, outer_eth_src: "02:00:00:00:00:01", outer_eth_dst: "02:00:00:00:00:02",
                     outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2, outer_udp_src: 50000, outer_udp_dst: 4791}
        - name: wrap_gre_alone
          id: 12
          action:
            type: tunnel_encap
            tunnel: {type: gre, gre_protocol: 0x6558, outer_eth_src: "02:00:00:00:00:01", outer_eth_dst: "02:00:00:00:00:02",
                     outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2}
        - name: wrap_nvgre_list
          id: 13
          actions:
          - type: tunnel_encap
            tunnel: {type: nvgre, tni: 8, flow_id: 1, outer_eth_src: "02:00:00:00:00:01", outer_eth_dst: "02:00:00:00:00:02",
                     outer_ipv4_src: 192.168.0.1, outer_ipv4_dst: 192.168.0.2}
bench_rx: {interface_name: rx_port, timout_us: 5}
)";

const char* const REORDER = R"(version: 1
master_core: 0
stream_type: raw
memory_regions:
- {name: packets, kind: huge, num_bufs: 16384, buf_size: 2048}
- {name: batches, kind: host, num_bufs: 16, buf_size: 520093696}
interfaces:
- name: port
  address: eth0
  rx:
    queues:
    - {name: q0, id: 0, cpu_core: 1, batch_size: 1024, timeout_us: 1000, memory_regions: [packets]}
    flows:
    - {name: a, id: 1, match: {udp_dst: 5000}, action: {type: queue, id: 0}}
    - {name: b, id: 2, match: {udp_dst: 5001}, action: {type: queue, id: 0}}
    - {name: c, id: 3, match: {udp_dst: 5002}, action: {type: queue, id: 0}}
    reorder_configs:
    - name: by_count
      reorder_type: cpu
      memory_region: batches
      payload_byte_offset: 64
      flow_ids: [1]
      data_types: {input_type: int16, output_type: fp32, endianness: network}
      method:
        seq_packets_per_batch:
          sequence_number: {bit_offset: 336, bit_width: 32}
          packets_per_batch: 1024
    - name: by_number
      reorder_type: cpu
      memory_region: batches
      flow_ids: [2]
      method:
        seq_batch_number:
          sequence_number: {bit_offset: 336, bit_width: 12}
          batch_number: {bit_offset: 348, bit_width: 4}
)";

const char* const FRAMES = R"(version: 1
master_core: 0
stream_type: raw
memory_regions:
- {name: packets, kind: huge, num_bufs: 16384, buf_size: 9000}
- {name: frames, kind: host, num_bufs: 16, buf_size: 67108864}
interfaces:
- name: port
  address: eth0
  rx:
    queues:
    - {name: q0, id: 0, cpu_core: 1, batch_size: 1024, memory_regions: [packets]}
    flows:
    - {name: a, id: 1, match: {udp_dst: 5000}, action: {type: queue, id: 0}}
    - {name: b, id: 2, match: {udp_dst: 5001}, action: {type: queue, id: 0}}
    - {name: c, id: 3, match: {udp_dst: 5002}, action: {type: queue, id: 0}}
    - {name: d, id: 4, match: {udp_dst: 5003}, action: {type: queue, id: 0}}
    - {name: e, id: 5, match: {udp_dst: 5004}, action: {type: queue, id: 0}}
    reorder_configs:
    - name: modules
      reorder_type: cpu
      memory_region: frames
      payload_byte_offset: 48
      payload_base: udp_payload
      flow_ids: [1, 2]
      flow_stride: 128
      cpu_core: [2, any]
      window: 4
      timeout_us: 100000
      fill: 65535
      data_types: {input_type: uint16, output_type: uint16, endianness: host}
      frame: {shape: [1024, 1024], dtype: uint16}
      method:
        batch_packet_number:
          batch_number: {bit_offset: 0, bit_width: 32, byte_order: little, base: udp_payload, step: 1}
          packet_number: {bit_offset: 96, bit_width: 32, byte_order: little, base: udp_payload, step: 1}
          packets_per_batch: 256
          first_packet: 1
          running: false
    - name: heaps
      reorder_type: cpu
      memory_region: frames
      payload_byte_offset: 64
      payload_offset_field: {bit_offset: 40, bit_width: 8, byte_order: little, base: udp_payload, unit: 8}
      payload_bytes: 1024
      flow_ids: [3]
      conditions:
      - {bit_offset: 0, bit_width: 64, byte_order: little, base: udp_payload, mask: 0xff, equal: 3}
      - {bit_offset: 64, bit_width: 16, at_least: 4, at_most: 5}
      columns:
        name: {bit_offset: 320, bit_width: 64, byte_order: little, base: udp_payload, from: sum}
      method:
        batch_byte_offset:
          batch_number: {bit_offset: 128, bit_width: 16, byte_order: little, base: udp_payload, step: 1}
          byte_offset: {bit_offset: 192, bit_width: 32, byte_order: little, base: udp_payload, unit: 1}
          batch_bytes: 1048576
          first_packet: 16
    - name: by_count
      reorder_type: cpu
      memory_region: frames
      flow_ids: [4]
      data_types: {input_type: uint12, output_type: uint16, packing: lsb}
      frame:
        shape: [210, 140]
        modules:
          shape: [60, 64]
          tile: [30, 64]
          chip: [30, 32]
          chip_gap: [2, 2]
          positions:
          - {origin: [0, 0], flip: rows, rotate: 0}
          - {origin: [70, 4], flip: both, rotate: 90}
      modes: {fast: {window: 1}}
      method:
        seq_packets_per_batch:
          sequence_number: {bit_offset: 0, bit_width: 32, byte_order: little, base: udp_payload, step: 2}
          packets_per_batch: 64
          first_packet: [5]
    - name: by_number
      reorder_type: cpu
      memory_region: frames
      flow_ids: [5]
      method:
        seq_batch_number:
          sequence_number: {bit_offset: 64, bit_width: 16, byte_order: little, base: udp_payload, step: 1}
          batch_number: {bit_offset: 32, bit_width: 8, byte_order: little, base: udp_payload, step: 2}
          first_packet: 3
)";

namespace {

std::string joint() {
  const std::string text = FRAMES;
  const std::size_t at = text.find("    reorder_configs:");
  std::string plans = text.substr(at);
  for (std::size_t line = 0; line < plans.size(); line = plans.find('\n', line) + 1)
    plans.erase(line, 4);
  const auto replace = [&](std::string_view what, std::string_view by) {
    plans.replace(plans.find(what), what.size(), by);
  };
  replace("flow_ids: [1, 2]", "flows: [port/a, port/b]");
  replace("flow_ids: [3]", "flows: [port/c]");
  replace("flow_ids: [4]", "flows: [port/d]");
  replace("flow_ids: [5]", "flows: [port/e]");
  return text.substr(0, at) + plans;
}

}  // namespace

const char* const JOINT = [] {
  static const std::string text = joint();
  return text.c_str();
}();

const char* const FLEX = R"(version: 1
master_core: 0
stream_type: raw
memory_regions:
- {name: packets, kind: huge, num_bufs: 16384, buf_size: 2048}
interfaces:
- name: port
  address: eth0
  rx:
    queues:
    - {name: q0, id: 0, cpu_core: 1, batch_size: 64, memory_regions: [packets]}
    - {name: q1, id: 1, cpu_core: 1, batch_size: 64, memory_regions: [packets]}
    flex_items:
    - {name: channel, id: 3, offset: 4, udp_dst_port: 4096}
    - {name: stream, id: 4, offset: 28, udp_dst_port: 4097}
    flows:
    - {name: a, id: 1, match: {flex_item_id: 3, val: 0x10, mask: 0xff}, action: {type: queue, id: 0}}
    - {name: b, id: 2, match: {flex_item_id: 4, val: 7}, action: {type: queue, ids: [0, 1]}}
  tx:
    queues:
    - {name: out, id: 0, cpu_core: 1, batch_size: 64, memory_regions: [packets]}
    flows:
    - {name: any, id: 1, action: {type: vlan_push, vlan_id: 3}}
)";

const char* const ECPRI = R"(version: 1
master_core: 0
stream_type: raw
memory_regions:
- {name: packets, kind: huge, num_bufs: 16384, buf_size: 2048}
interfaces:
- name: port
  address: eth0
  rx:
    queues:
    - {name: q0, id: 0, cpu_core: 1, batch_size: 64, memory_regions: [packets]}
    flows:
    - {name: data, id: 1, match: {ecpri: {msg_type: 0, pc_id: 17}}, action: {type: queue, id: 0}}
    - {name: control, id: 2, match: {ecpri: {msg_type: 2, rtc_id: 18}}, action: {type: queue, id: 0}}
    - {name: type, id: 3, match: {ecpri: {msg_type: 5}}, action: {type: queue, id: 0}}
    - {name: all, id: 4, match: {ecpri: {}}, action: {type: queue, id: 0}}
  tx:
    queues:
    - {name: out, id: 0, cpu_core: 1, batch_size: 64, memory_regions: [packets]}
    flows:
    - {name: tag, id: 1, match: {ecpri: {msg_type: 0, pc_id: 17}}, action: {type: vlan_push, vlan_id: 3}}
    - {name: tag_control, id: 2, match: {ecpri: {msg_type: 2, rtc_id: 17}}, action: {type: vlan_push, vlan_id: 4}}
)";

const char* const SOCKET = R"(version: 1
master_core: 0
stream_type: socket
memory_regions:
- {name: buffers, kind: host, num_bufs: 4096, buf_size: 2048}
interfaces:
- name: server
  address: 127.0.0.1
  socket_config: {mode: server, local_addr: "udp://127.0.0.1:5001", max_payload_size: 2048}
  rx:
    queues:
    - {name: in, id: 0, cpu_core: 1, batch_size: 16, memory_regions: [buffers]}
- name: client
  address: 127.0.0.1
  socket_config: {mode: client, local_addr: "udp://127.0.0.1:5002", remote_addr: "udp://127.0.0.1:5001"}
  tx:
    queues:
    - {name: out, id: 0, cpu_core: 1, batch_size: 16, memory_regions: [buffers]}
)";

const char* const ROCE = R"(version: 1
master_core: 0
stream_type: socket
memory_regions:
- {name: data, kind: host_pinned, num_bufs: 20, buf_size: 9000000, access: [local, rdma_read, rdma_write]}
interfaces:
- name: server
  address: 10.100.3.1
  socket_config: {mode: server, local_addr: "roce://10.100.3.1:4096", max_burst_interval_ms: 5, min_ipg_ns: 100, retry_connect_s: 2}
  roce_config: {transport_mode: UC}
  rx:
    queues:
    - {name: in, id: 0, cpu_core: 1, batch_size: 1}
- name: client
  address: 10.100.1.1
  socket_config: {mode: client, local_addr: "roce://10.100.1.1"}
  tx:
    queues:
    - {name: out, id: 0, cpu_core: 1, batch_size: 1}
)";

const char* const LEGACY = R"(version: 1
master_core: 0
stream_type: socket
memory_regions:
- {name: buffers, kind: host, num_bufs: 4096, buf_size: 2048}
interfaces:
- name: server
  address: 127.0.0.1
  socket_config: {mode: server, local_addr: "tcp://127.0.0.1:6001"}
  rx:
    queues:
    - {name: in, id: 0, cpu_core: 1, batch_size: 1, memory_regions: [buffers]}
- name: client
  address: 127.0.0.1
  socket_config: {mode: client, local_ip: 127.0.0.1, local_port: 6002, remote_ip: 127.0.0.1, remote_port: 6001}
  tx:
    queues:
    - {name: out, id: 0, cpu_core: 1, batch_size: 1, memory_regions: [buffers]}
)";

}  // namespace daqiri::test
