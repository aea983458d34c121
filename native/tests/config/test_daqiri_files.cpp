// Files in DAQIRI's style: quoted texts, a version directive, block lists, sections of others.
#include "documents.h"

using namespace daqiri;
using namespace daqiri::test;

TEST_CASE("files written for DAQIRI load", "[config][load]") {
  const Loaded hds = load(R"(# Two ports.
%YAML 1.2
---
daqiri:
  cfg:
    version: 1
    stream_type: "raw"
    master_core: 3
    debug: false
    log_level: "info"
    loopback: ""

    memory_regions:
    - name: "TX_CPU"
      kind: "huge"
      affinity: 0
      access:
        - local
      num_bufs: 51200
      buf_size: 64
    - name: "TX_GPU"
      kind: "device"
      affinity: 0
      num_bufs: 51200
      buf_size: 1064
    interfaces:
    - name: "sender"
      address: 0005:03:00.0
      tx:
        queues:
        - name: "q"
          id: 0
          batch_size: 10240
          cpu_core: 11
          memory_regions:
            - "TX_CPU"
            - "TX_GPU"
          offloads:
            - "tx_eth_src"
    - name: "receiver"
      address: 0005:03:00.1
      rx:
        flow_isolation: true
        queues:
        - name: "q"
          id: 0
          cpu_core: 9
          batch_size: 10240
          memory_regions:
            - "TX_CPU"
            - "TX_GPU"
        flows:
        - name: "flow"
          id: 0
          action:
            type: queue
            id: 0
          match:
            udp_src: 4096
            udp_dst: 4096
            ipv4_len: 1050
bench_tx:
  eth_dst_addr: <00:00:00:00:00:00>
)");
  INFO(hds.report.text());
  CHECK(hds.report.ok());
  CHECK(warnings(hds.report) == 1);
  CHECK(hds.config.ifs_[1].rx_.queues_[0].common_.mrs_.size() == 2);
  CHECK(hds.config.ifs_[1].rx_.flows_[0].match_.ipv4_len_ == 1050);
  CHECK(hds.config.ifs_[1].rx_.flows_[0].match_.udp_src_ == PortRange{4096, 4096});

  const Loaded memory = load(R"(daqiri:
  cfg:
    version: 1
    stream_type: "raw"
    master_core: 3
    loopback: "sw"
    memory_regions:
    - {name: "tx", kind: "host", affinity: 0, num_bufs: 16384, buf_size: 2048}
    - {name: "rx", kind: "host", affinity: 0, num_bufs: 16384, buf_size: 2048}
    - {name: "out", kind: "host", affinity: 0, num_bufs: 128, buf_size: 2031616}
    interfaces:
    - name: "ports"
      address: "loopback"
      tx:
        queues:
        - {name: "q", id: 0, batch_size: 1024, cpu_core: 11, timeout_us: 1000, memory_regions: ["tx"], offloads: ["tx_eth_src"]}
      rx:
        flow_isolation: true
        queues:
        - {name: "q", id: 0, cpu_core: 9, timeout_us: 1000, batch_size: 1024, memory_regions: ["rx"]}
        flows:
        - {name: "flow", id: 0, action: {type: queue, id: 0}, match: {udp_src: 5000, udp_dst: 5000}}
        reorder_configs:
        - name: "plan"
          reorder_type: "cpu"
          memory_region: "out"
          payload_byte_offset: 64
          flow_ids:
            - 0
          method:
            seq_packets_per_batch:
              sequence_number:
                bit_offset: 512
                bit_width: 32
              packets_per_batch: 1024
)");
  INFO(memory.report.text());
  CHECK(memory.report.ok());
  CHECK(memory.config.ifs_[0].rx_.reorder_configs_[0].seq_packets_per_batch_.sequence_number_ ==
        ReorderBitFieldConfig{512, 32});
}
