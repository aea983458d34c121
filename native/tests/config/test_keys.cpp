// Every key of the schema with another valid value, which must change the configuration, and an
// invalid one, which must be the only problem, reported at its place.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "config/schema.h"
#include "documents.h"

using daqiri::config::Document;
using daqiri::config::Node;
using namespace daqiri::test;

namespace {

struct Case {
  const char* document;
  /// Path of one occurrence of the key.
  std::string path;
  std::string good;
  std::string bad;
  /// Where the invalid value is reported, if not at the key.
  std::string below{};
  /// The valid value is the only one, or the default.
  bool same{false};
};

const char* const RX = "interfaces[0].rx.";
const char* const RXQ = "interfaces[0].rx.queues[0].";
const char* const RXF = "interfaces[0].rx.flows[0].";
const char* const RXM = "interfaces[0].rx.flows[0].match.";
const char* const RXT = "interfaces[0].rx.flows[3].actions[0].tunnel.";
const char* const TXQ = "interfaces[1].tx.queues[0].";
const char* const TXF = "interfaces[1].tx.flows[1].";
const char* const TXM = "interfaces[1].tx.flows[1].match.";
const char* const TXA = "interfaces[1].tx.flows[0].action.";
const char* const TXL = "interfaces[1].tx.flows[1].actions[0].";
const char* const TXT = "interfaces[1].tx.flows[1].actions[1].tunnel.";
const char* const TX1 = "interfaces[1].tx.flows[3].action.tunnel.";
const char* const SOCK = "interfaces[1].socket_config.";
const char* const PLAN = "interfaces[0].rx.reorder_configs[0].";
const char* const PLAN2 = "interfaces[0].rx.reorder_configs[1].method.seq_batch_number.";
const std::string MACS = "outer_eth_src: '02:00:00:00:00:01', outer_eth_dst: '02:00:00:00:00:02', ";
const std::string IPS = "outer_ipv4_src: 1.2.3.4, outer_ipv4_dst: 5.6.7.8";

std::string at(const char* prefix, const char* key) { return std::string(prefix) + key; }

std::vector<Case> common_cases() {
  return {
      {RAW, "version", "1", "2", {}, true},
      {RAW, "master_core", "7", "-1"},
      {RAW, "stream_type", "raw", "stream", {}, true},
      {RAW, "engine", "ibverbs", "rdma"},
      {RAW, "log_level", "trace", "loud"},
      {RAW, "debug", "no", "maybe"},
      {RAW, "loopback", "sw", "cable"},
      {RAW, "loopback_drops", "true", "maybe"},
      {RAW, "tx_meta_buffers", "64", "0"},
      {RAW, "rx_meta_buffers", "64", "12.5"},
      {RAW, "ship_to", "gs://bucket", "http://bucket"},
      {ROCE, "memory_regions[0].name", "other", "''"},
      {RAW, "memory_regions[0].kind", "host", "gpu"},
      {RAW, "memory_regions[0].affinity", "0", "two"},
      {RAW, "memory_regions[0].access", "[rdma_write]", "[local, write]", "[1]"},
      {RAW, "memory_regions[0].num_bufs", "30000", "0"},
      {RAW, "memory_regions[0].buf_size", "0x100", "4k"},
      {RAW, "memory_regions[0].owned", "true", "2"},
      {RAW, "interfaces[0].name", "port_a", "[port]"},
      {RAW, "interfaces[0].address", "0000:06:00.0", "0000:05:00"},
      {SOCKET, "interfaces[1].socket_config", "{mode: client, remote_addr: 'udp://127.0.0.1:9'}",
       "client"},
      {SOCKET, at(SOCK, "mode"), "server", "peer"},
      {SOCKET, at(SOCK, "local_addr"), "udp://127.0.0.1:6000", "127.0.0.1:6000"},
      {SOCKET, at(SOCK, "remote_addr"), "udp://127.0.0.2:6000", "http://127.0.0.1:80"},
      {SOCKET, "interfaces[0].socket_config.max_payload_size", "1000", "1 kB"},
      {ROCE, "interfaces[0].socket_config.max_burst_interval_ms", "1", "1ms"},
      {ROCE, "interfaces[0].socket_config.min_ipg_ns", "5", "-5"},
      {ROCE, "interfaces[0].socket_config.retry_connect_s", "9", "soon"},
      {LEGACY, at(SOCK, "local_ip"), "127.0.0.3", "localhost"},
      {LEGACY, at(SOCK, "local_port"), "7000", "70000"},
      {LEGACY, at(SOCK, "remote_ip"), "127.0.0.3", "300.0.0.1"},
      {LEGACY, at(SOCK, "remote_port"), "7000", "0"},
      {ROCE, "interfaces[0].roce_config", "{}", "RC"},
      {ROCE, "interfaces[0].roce_config.transport_mode", "UD", "XRC"},
  };
}

std::vector<Case> queue_cases() {
  return {
      {SOCKET, "interfaces[0].rx",
       "{queues: [{name: a, id: 5, cpu_core: 1, batch_size: 1, memory_regions: [buffers]}]}", "[]"},
      {SOCKET, "interfaces[1].tx",
       "{queues: [{name: a, id: 5, cpu_core: 1, batch_size: 1, memory_regions: [buffers]}]}", "1"},
      {RAW, at(RX, "flow_isolation"), "false", "maybe"},
      {RAW, at(RX, "hardware_timestamps"), "off", "5"},
      {RAW, at(RX, "dynamic_flow_capacity"), "0", "many"},
      {RAW, at(RX, "filter"), "udp and port 5", "''"},
      {RAW, at(RX, "receive_path"), "af_xdp", "af_inet"},
      {SOCKET, at(RX, "queues"),
       "[{name: a, id: 5, cpu_core: 1, batch_size: 1, memory_regions: [buffers]}]", "{name: a}"},
      {RAW, at(RXQ, "name"), "first", "{}"},
      {SOCKET, at(RXQ, "id"), "9", "65536"},
      {RAW, at(RXQ, "cpu_core"), "'8'", "8192"},
      {RAW, at(RXQ, "batch_size"), "64", "-5"},
      {RAW, at(RXQ, "memory_regions"), "[whole, payloads]", "[headers, nowhere]", "[1]"},
      {RAW, at(RXQ, "timeout_us"), "0", "1ms"},
      {RAW, "interfaces[0].rx.queues[1].poll_mode", "indirect", "sometimes", {}, true},
      {RAW, at(RXQ, "split_boundary"), "64", "200"},
      {FLEX, at(RX, "flex_items"),
       "[{name: a, id: 3, offset: 8, udp_dst_port: 1}, {name: b, id: 4, offset: 8, udp_dst_port: "
       "2}]",
       "3"},
      {FLEX, "interfaces[0].rx.flex_items[0].name", "other", "null"},
      {FLEX, "interfaces[0].rx.flex_items[0].id", "3", "x", {}, true},
      {FLEX, "interfaces[0].rx.flex_items[0].offset", "0", "6"},
      {FLEX, "interfaces[0].rx.flex_items[0].udp_dst_port", "1", "0"},
      {SOCKET, "interfaces[1].tx.queues",
       "[{name: a, id: 5, cpu_core: 1, batch_size: 1, memory_regions: [buffers]}]", "[]"},
      {RAW, "interfaces[1].tx.accurate_send", "false", "ptp"},
      {RAW, at(TXQ, "name"), "wire", "~"},
      {RAW, at(TXQ, "id"), "1", "-1"},
      {RAW, at(TXQ, "cpu_core"), "any", "all"},
      {RAW, at(TXQ, "batch_size"), "1", "1e3"},
      {RAW, at(TXQ, "memory_regions"), "[headers, whole]", "[]"},
      {RAW, at(TXQ, "timeout_us"), "1", "0.5"},
      {RAW, at(TXQ, "poll_mode"), "indirect", "never", {}, true},
      {RAW, at(TXQ, "offloads"), "[]", "[checksum]", "[0]"},
      {RAW, at(TXQ, "pacing_mbps"), "40000", "10G"},
      {RAW, at(TXQ, "realtime_priority"), "99", "100"},
  };
}

std::vector<Case> rx_flow_cases() {
  return {
      {FLEX, at(RX, "flows"), "[]", "7"},
      {RAW, at(RXF, "name"), "other", "''"},
      {RAW, at(RXF, "id"), "77", "8388608"},
      {RAW, at(RXF, "match"), "{udp_dst: 1}", "udp"},
      {RAW, at(RXM, "udp_src"), "10-20", "70000"},
      {RAW, at(RXM, "udp_dst"), "65535", "2010-2000"},
      {RAW, at(RXM, "ipv4_len"), "0x40", "65536"},
      {RAW, at(RXM, "ipv4_src"), "10.1.0.1", "10.1.0"},
      {RAW, at(RXM, "ipv4_dst"), "10.1.0.1", "host"},
      {FLEX, at(RXM, "flex_item_id"), "4", "5"},
      {FLEX, at(RXM, "val"), "17", "4294967296"},
      {FLEX, at(RXM, "mask"), "0xffff", "all"},
      {ECPRI, at(RXM, "ecpri"), "{msg_type: 1}", "1"},
      {ECPRI, at(RXM, "ecpri.msg_type"), "1", "256"},
      {ECPRI, at(RXM, "ecpri.pc_id"), "1", "65536"},
      {ECPRI, "interfaces[0].rx.flows[1].match.ecpri.rtc_id", "1", "-1"},
      {RAW, at(RXF, "action"), "{type: queue, id: 1}", "queue"},
      {RAW, at(RXF, "action.type"), "queue", "drop", {}, true},
      {RAW, at(RXF, "action.id"), "1", "3"},
      {RAW, "interfaces[0].rx.flows[1].action.ids", "[1, 2]", "[0, 9]", "[1]"},
      {RAW, "interfaces[0].rx.flows[2].actions", "[{type: queue, id: 0}]", "[]"},
      {RAW, "interfaces[0].rx.flows[2].actions[0].type", "vlan_pop", "vlan_push", {}, true},
      {RAW, "interfaces[0].rx.flows[2].actions[1].id", "0", "one"},
      {RAW, "interfaces[0].rx.flows[6].actions[1].ids", "[0, 2]", "[0, 0]", "[1]"},
      {RAW, "interfaces[0].rx.flows[3].actions[0].tunnel", "{type: vxlan, vni: 1}", "vxlan"},
      {RAW, at(RXT, "type"), "vxlan", "ipip", {}, true},
      {RAW, at(RXT, "vni"), "16777215", "16777216"},
      {RAW, at(RXT, "outer_eth_src"), "02:00:00:00:00:0A", "02:00:00:00:00"},
      {RAW, at(RXT, "outer_eth_dst"), "02:00:00:00:00:0a", "0200.0000.0001"},
      {RAW, at(RXT, "outer_ipv4_src"), "1.2.3.4", "::1"},
      {RAW, at(RXT, "outer_ipv4_dst"), "1.2.3.4", "1.2.3.4.5"},
      {RAW, at(RXT, "outer_ipv4_ttl"), "1", "0"},
      {RAW, at(RXT, "outer_ipv4_tos"), "0", "256"},
      {RAW, at(RXT, "outer_udp_src"), "0", "65536"},
      {RAW, at(RXT, "outer_udp_dst"), "4789", "0"},
      {RAW, "interfaces[0].rx.flows[4].actions[0].tunnel.gre_protocol", "0x0800", "0x10000"},
      {RAW, "interfaces[0].rx.flows[5].actions[0].tunnel.tni", "0", "-7"},
      {RAW, "interfaces[0].rx.flows[5].actions[0].tunnel.flow_id", "0", "300"},
  };
}

std::vector<Case> tx_flow_cases() {
  return {
      {FLEX, "interfaces[0].tx.flows", "[]", "none"},
      {RAW, at(TXF, "name"), "other", "[]"},
      {RAW, at(TXF, "id"), "70", "1.0"},
      {RAW, at(TXF, "match"), "{}", "[]"},
      {RAW, at(TXM, "udp_src"), "0x70", "-7"},
      {RAW, at(TXM, "udp_dst"), "70-80", "70:80"},
      {RAW, at(TXM, "ipv4_len"), "0", "long"},
      {RAW, at(TXM, "ipv4_src"), "0.0.0.0", "10.0.0.256"},
      {RAW, at(TXM, "ipv4_dst"), "9.9.9.9", ""},
      {ECPRI, "interfaces[0].tx.flows[0].match.ecpri", "{}", "[]"},
      {ECPRI, "interfaces[0].tx.flows[0].match.ecpri.msg_type", "1", "iq"},
      {ECPRI, "interfaces[0].tx.flows[0].match.ecpri.pc_id", "1", "0x10000"},
      {ECPRI, "interfaces[0].tx.flows[1].match.ecpri.rtc_id", "1", "x"},
      {RAW, "interfaces[1].tx.flows[0].action", "{type: vlan_push, vlan_id: 3}", "vlan_push"},
      {RAW, at(TXA, "type"), "vlan_push", "queue", {}, true},
      {RAW, at(TXA, "vlan_id"), "4095", "4096"},
      {RAW, at(TXA, "pcp"), "7", "8"},
      {RAW, at(TXA, "dei"), "0", "2"},
      {RAW, at(TXA, "ethertype"), "0x8100", "0"},
      {RAW, "interfaces[1].tx.flows[3].action.tunnel", "{type: gre, " + MACS + IPS + "}", "gre"},
      {RAW, at(TX1, "type"), "nvgre", "vlan", {}, true},
      {RAW, at(TX1, "tni"), "1", "0x1000000"},
      {RAW, at(TX1, "flow_id"), "255", "256"},
      {RAW, at(TX1, "outer_eth_src"), "0a:00:00:00:00:01", "<02:00:00:00:00:01>"},
      {RAW, at(TX1, "outer_eth_dst"), "0a:00:00:00:00:01", "zz:00:00:00:00:01"},
      {RAW, at(TX1, "outer_ipv4_src"), "1.2.3.4", "<1.2.3.4>"},
      {RAW, at(TX1, "outer_ipv4_dst"), "1.2.3.4", "1"},
      {RAW, at(TX1, "outer_ipv4_ttl"), "255", "256"},
      {RAW, at(TX1, "outer_ipv4_tos"), "255", "low"},
      {RAW, "interfaces[1].tx.flows[4].action.tunnel.vni", "1", "''"},
      {RAW, "interfaces[1].tx.flows[4].action.tunnel.outer_udp_src", "1", "65536"},
      {RAW, "interfaces[1].tx.flows[4].action.tunnel.outer_udp_dst", "1", "0"},
      {RAW, "interfaces[1].tx.flows[5].action.tunnel.gre_protocol", "1", "65536"},
      {RAW, "interfaces[1].tx.flows[6].actions[0].tunnel.tni", "1", "1.5"},
      {RAW, "interfaces[1].tx.flows[6].actions[0].tunnel.flow_id", "2", "two"},
      {RAW, at(TXF, "actions"), "[{type: vlan_push, vlan_id: 1}]", "vlan_push"},
      {RAW, at(TXL, "type"), "vlan_push", "tunnel_decap", {}, true},
      {RAW, at(TXL, "vlan_id"), "0", "-1"},
      {RAW, at(TXL, "pcp"), "0", "high"},
      {RAW, at(TXL, "dei"), "0", "-1"},
      {RAW, at(TXL, "ethertype"), "0x88a8", "vlan"},
      {RAW, "interfaces[1].tx.flows[1].actions[1].tunnel", "{type: gre, " + MACS + IPS + "}", "[]"},
      {RAW, at(TXT, "type"), "vxlan", "geneve", {}, true},
      {RAW, at(TXT, "vni"), "0", "big"},
      {RAW, at(TXT, "outer_eth_src"), "0a:00:00:00:00:01", "0a:00:00:00:00:01:02"},
      {RAW, at(TXT, "outer_eth_dst"), "0a:00:00:00:00:01", ""},
      {RAW, at(TXT, "outer_ipv4_src"), "1.2.3.4", "1.2.3.4/24"},
      {RAW, at(TXT, "outer_ipv4_dst"), "1.2.3.4", "1.2.3"},
      {RAW, at(TXT, "outer_ipv4_ttl"), "64", "-1"},
      {RAW, at(TXT, "outer_ipv4_tos"), "0", "-1"},
      {RAW, at(TXT, "outer_udp_src"), "1", "any"},
      {RAW, at(TXT, "outer_udp_dst"), "1", "65536"},
      {RAW, "interfaces[1].tx.flows[2].actions[0].tunnel.gre_protocol", "1", "0"},
  };
}

std::vector<Case> reorder_cases() {
  return {
      {REORDER, at(RX, "reorder_configs"), "[]", "on"},
      {REORDER, at(PLAN, "name"), "other", "''"},
      {REORDER, at(PLAN, "reorder_type"), "cpu", "fpga", {}, true},
      {REORDER, at(PLAN, "memory_region"), "batches", "nowhere", {}, true},
      {REORDER, at(PLAN, "payload_byte_offset"), "42", "2048"},
      {REORDER, at(PLAN, "flow_ids"), "[1, 3]", "[1, 4]", "[1]"},
      {REORDER, at(PLAN, "data_types"), "{input_type: int8, output_type: fp16}", "int8"},
      {REORDER, at(PLAN, "data_types.input_type"), "int32", "bf16"},
      {REORDER, at(PLAN, "data_types.output_type"), "bf16", "fp8"},
      {REORDER, at(PLAN, "data_types.endianness"), "host", "big"},
      {REORDER, at(PLAN, "method"),
       "{seq_packets_per_batch: {sequence_number: {bit_offset: 0, bit_width: 8}, "
       "packets_per_batch: 16}}",
       "{}"},
      {REORDER, at(PLAN, "method.seq_packets_per_batch"),
       "{sequence_number: {bit_offset: 0, bit_width: 8}, packets_per_batch: 16}", "16"},
      {REORDER, at(PLAN, "method.seq_packets_per_batch.sequence_number"),
       "{bit_offset: 8, bit_width: 16}", "8"},
      {REORDER, at(PLAN, "method.seq_packets_per_batch.sequence_number.bit_offset"), "512",
       "20000"},
      {REORDER, at(PLAN, "method.seq_packets_per_batch.sequence_number.bit_width"), "11", "65"},
      {REORDER, at(PLAN, "method.seq_packets_per_batch.packets_per_batch"), "64", "131073"},
      {REORDER, "interfaces[0].rx.reorder_configs[1].method.seq_batch_number",
       "{sequence_number: {bit_offset: 0, bit_width: 8}, batch_number: {bit_offset: 8, bit_width: "
       "2}}",
       "2"},
      {REORDER, at(PLAN2, "sequence_number"), "{bit_offset: 8, bit_width: 16}", "[]"},
      {REORDER, at(PLAN2, "sequence_number.bit_offset"), "0", "-1"},
      {REORDER, at(PLAN2, "sequence_number.bit_width"), "16", "0"},
      {REORDER, at(PLAN2, "batch_number"), "{bit_offset: 0, bit_width: 5}", "x"},
      {REORDER, at(PLAN2, "batch_number.bit_offset"), "0", "16384"},
      {REORDER, at(PLAN2, "batch_number.bit_width"), "12", "13"},
      {SOCKET, "memory_regions", "[{name: buffers, kind: huge, num_bufs: 16, buf_size: 1}]", "5"},
      {SOCKET, "interfaces",
       "[{name: a, address: x, socket_config: {mode: server, local_addr: 'udp://127.0.0.1:1'}, rx: "
       "{queues: [{name: a, id: 5, "
       "cpu_core: 1, batch_size: 1, memory_regions: [buffers]}]}}]",
       "[]"},
  };
}

std::vector<Case> frame_cases() {
  const std::string plans = "interfaces[0].rx.reorder_configs[";
  std::vector<Case> cases{
      {FRAMES, plans + "0].payload_base", "udp_payload", "ethernet", {}, true},
      {FRAMES, plans + "0].window", "8", "65"},
      {FRAMES, plans + "0].timeout_us", "0", "-1"},
      {FRAMES, plans + "0].fill", "0", "65536"},
      {FRAMES, plans + "0].flow_stride", "128", "64", {}, true},
      {FRAMES, plans + "0].cpu_core", "any", "8192"},
      {FRAMES, plans + "0].cpu_core[1]", "3", "all"},
      {FRAMES, plans + "0].frame", "{shape: [2, 512, 1024]}", "[1024, 1024]"},
      {FRAMES, plans + "2].data_types.packing", "msb", "big"},
      {FRAMES, plans + "2].modes",
       "{slow: {window: 2, data_types: {input_type: uint8, "
       "output_type: uint16}}}",
       "[fast]"},
      {FRAMES, plans + "0].frame.shape", "[4, 256, 1024]", "[1023, 1023]"},
      {FRAMES, plans + "0].frame.dtype", "int16", "float"},
      {FRAMES, plans + "0].method.batch_packet_number",
       "{batch_number: {bit_offset: 0, bit_width: 8}, packet_number: {bit_offset: 8, bit_width: "
       "8}, "
       "packets_per_batch: 256}",
       "256"},
      {FRAMES, plans + "0].method.batch_packet_number.packets_per_batch", "256", "0", {}, true},
      {FRAMES, plans + "0].method.batch_packet_number.first_packet", "[1, 129]", "-1"},
      {FRAMES, plans + "0].method.batch_packet_number.running", "true", "maybe"},
      {FRAMES, plans + "1].method.batch_byte_offset.first_packet", "0", "[1, 2]"},
      {FRAMES, plans + "2].method.seq_packets_per_batch.first_packet", "6", "4294967296"},
      {FRAMES, plans + "3].method.seq_batch_number.first_packet", "4", "65536"},
      {FRAMES, plans + "2].frame", "{shape: [64, 128]}", "8"},
      {FRAMES, plans + "2].frame.shape", "[211, 141]", "[140]"},
      {FRAMES, plans + "2].frame.modules",
       "{shape: [60, 64], positions: [{origin: [0, 0]}, {origin: [60, 0]}]}", "[60, 64]"},
      {FRAMES, plans + "2].frame.modules.shape", "[30, 128]", "[60, 64, 1]"},
      {FRAMES, plans + "2].frame.modules.tile", "[10, 8]", "[7, 64]"},
      {FRAMES, plans + "2].frame.modules.chip", "[60, 32]", "[24, 32]"},
      {FRAMES, plans + "2].frame.modules.chip_gap", "[0, 4]", "[2]"},
      {FRAMES, plans + "2].frame.modules.positions", "[{origin: [0, 0]}, {origin: [66, 0]}]", "[]"},
      {FRAMES, plans + "2].frame.modules.positions[0].origin", "[1, 1]", "[5000, 0]"},
      {FRAMES, plans + "2].frame.modules.positions[0].flip", "none", "up"},
      {FRAMES, plans + "2].frame.modules.positions[0].rotate", "270", "45"},
      {FRAMES, plans + "1].payload_bytes", "2048", "0"},
      {FRAMES, plans + "1].payload_offset_field", "{bit_offset: 8, bit_width: 8}", "8"},
      {FRAMES, plans + "1].conditions", "[{bit_offset: 8, bit_width: 8, equal: 0}]", "8"},
      {FRAMES, plans + "1].conditions[0].mask", "0x7", "-1"},
      {FRAMES, plans + "1].conditions[0].equal", "4", "0x103"},
      {FRAMES, plans + "1].conditions[1].at_least", "5", "6"},
      {FRAMES, plans + "1].conditions[1].at_most", "18446744073709551615", "18446744073709551616"},
      {FRAMES, plans + "1].columns", "{pulse_id: {bit_offset: 8, bit_width: 8}}", "8"},
      {FRAMES, plans + "1].columns.name", "{bit_offset: 8, bit_width: 8}", "8"},
      {FRAMES, plans + "1].columns.name.from", "first", "mean"},
      {FRAMES, plans + "1].method.batch_byte_offset",
       "{batch_number: {bit_offset: 0, bit_width: 8}, byte_offset: {bit_offset: 8, bit_width: 8}, "
       "batch_bytes: 256}",
       "256"},
      {FRAMES, plans + "1].method.batch_byte_offset.batch_bytes", "4096", "0"},
  };
  const auto add_bits = [&](const std::string& path, const char* width = "8") {
    cases.push_back({FRAMES, path + ".bit_offset", "8", "72000"});
    cases.push_back({FRAMES, path + ".bit_width", width, "65"});
    cases.push_back({FRAMES, path + ".byte_order", "big", "middle"});
    cases.push_back({FRAMES, path + ".base", "packet", "ip"});
  };
  const auto add_field = [&](const char* plan, const char* method, const char* field,
                             const char* width = "8") {
    const std::string path = plans + plan + "].method." + method + "." + field;
    cases.push_back({FRAMES, path, "{bit_offset: 8, bit_width: 8}", "8"});
    add_bits(path, width);
  };
  const auto add_number = [&](const char* plan, const char* method, const char* field,
                              const char* step, const char* width = "8") {
    add_field(plan, method, field, width);
    cases.push_back(
        {FRAMES, plans + plan + "].method." + method + "." + field + ".step", step, "0"});
  };
  add_number("0", "batch_packet_number", "batch_number", "any");
  add_number("0", "batch_packet_number", "packet_number", "8");
  add_number("1", "batch_byte_offset", "batch_number", "4");
  add_field("1", "batch_byte_offset", "byte_offset");
  cases.push_back({FRAMES, plans + "1].method.batch_byte_offset.byte_offset.unit", "8", "0"});
  add_number("2", "seq_packets_per_batch", "sequence_number", "4");
  add_number("3", "seq_batch_number", "sequence_number", "4");
  add_number("3", "seq_batch_number", "batch_number", "any", "16");
  add_bits(plans + "1].payload_offset_field", "16");
  cases.push_back({FRAMES, plans + "1].payload_offset_field.unit", "1", "4294967296"});
  add_bits(plans + "1].conditions[0]", "32");
  add_bits(plans + "1].columns.name", "32");
  return cases;
}

/// Of plans at the top level: those of frames, and of keys that these leave out.
std::vector<Case> joint_cases() {
  const std::string method = "reorder_configs[2].method";
  std::vector<Case> cases{
      {JOINT, "reorder_configs", "[]", "on"},
      {JOINT, "reorder_configs[0].name", "other", "''"},
      {JOINT, "reorder_configs[0].reorder_type", "cpu", "fpga", {}, true},
      {JOINT, "reorder_configs[0].memory_region", "frames", "nowhere", {}, true},
      {JOINT, "reorder_configs[0].payload_byte_offset", "44", "9000"},
      {JOINT, "reorder_configs[0].flows", "[port/b, port/a]", "[port/a, port/z]", "[1]"},
      {JOINT, "reorder_configs[0].data_types", "{input_type: uint8, output_type: uint16}", "int8"},
      {JOINT, "reorder_configs[0].data_types.input_type", "uint8", "bf16"},
      {JOINT, "reorder_configs[0].data_types.output_type", "fp16", "fp8"},
      {JOINT, "reorder_configs[0].data_types.endianness", "network", "big"},
      {JOINT, method,
       "{seq_packets_per_batch: {sequence_number: {bit_offset: 0, bit_width: 8}, "
       "packets_per_batch: 16}}",
       "{}"},
      {JOINT, method + ".seq_packets_per_batch",
       "{sequence_number: {bit_offset: 0, bit_width: 8}, packets_per_batch: 16}", "16"},
      {JOINT, method + ".seq_packets_per_batch.packets_per_batch", "32", "131073"},
      {JOINT, "reorder_configs[3].method.seq_batch_number",
       "{sequence_number: {bit_offset: 0, bit_width: 8}, batch_number: {bit_offset: 8, bit_width: "
       "2}}",
       "2"},
  };
  for (Case each : frame_cases()) {
    each.document = JOINT;
    each.path.erase(0, std::string(RX).size());
    cases.push_back(each);
  }
  return cases;
}

void list_keys(const Node& map, const std::string& prefix, std::vector<std::string>& keys) {
  for (const auto& [key, value] : map.entries) {
    keys.push_back(prefix + key.text);
    list_keys(value, keys.back() + ".", keys);
    if (!value.items.empty()) list_keys(value.items.front(), prefix + key.text + "[].", keys);
  }
}

/// Paths of all keys, lists as `interfaces[].rx.queues[].id`.
std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  list_keys(daqiri::config::default_config(), {}, keys);
  return keys;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& group : {common_cases(), queue_cases(), rx_flow_cases(), tx_flow_cases(),
                            reorder_cases(), frame_cases(), joint_cases()}) {
    cases.insert(cases.end(), group.begin(), group.end());
  }
  return cases;
}

Document parse(const std::string& text) {
  Document document;
  const auto problem = daqiri::config::parse_yaml(text, document);
  REQUIRE_FALSE(problem.has_value());
  return document;
}

Node& member(Node& node, const std::string& key) {
  for (auto& [name, value] : node.entries) {
    if (name.text == key) return value;
  }
  FAIL("no key " << key);
  throw std::logic_error("unreachable");
}

/// The value at a path such as interfaces[0].rx.
Node& find(Node& root, std::string path) {
  Node* node =
      root.entries.front().key.text == "daqiri" ? &member(member(root, "daqiri"), "cfg") : &root;
  while (!path.empty()) {
    if (path.front() == '[') {
      const std::size_t close = path.find(']');
      node = &node->items.at(std::stoul(path.substr(1, close - 1)));
      path = path.substr(close + 1);
      continue;
    }
    if (path.front() == '.') path = path.substr(1);
    const std::size_t end = path.find_first_of(".[");
    node = &member(*node, path.substr(0, end));
    path = end == std::string::npos ? "" : path.substr(end);
  }
  return *node;
}

std::string edited(const Case& test, const std::string& value) {
  Document document = parse(test.document);
  Document replacement = parse("v: " + value);
  find(document.root, test.path) = replacement.root.entries.front().value;
  return daqiri::config::write_yaml(document.root);
}

/// interfaces[0].rx -> interfaces[].rx
std::string pattern(const std::string& path) {
  std::string result;
  for (std::size_t i = 0; i < path.size(); ++i) {
    result += path[i];
    if (path[i] == '[') i = path.find(']', i) - 1;
  }
  return result;
}

}  // namespace

TEST_CASE("the cases cover every key of the schema", "[config][keys]") {
  std::set<std::string> covered;
  for (const Case& test : all_cases()) covered.insert(pattern(test.path));
  for (const std::string& key : known_keys()) {
    INFO("no case for " << key);
    CHECK(covered.contains(key));
  }
}

TEST_CASE("documents with every key load without a word", "[config][keys]") {
  for (const char* text : {RAW, REORDER, FRAMES, JOINT, FLEX, ECPRI, SOCKET, ROCE, LEGACY})
    require_clean(text);
}

TEST_CASE("a good value of each key changes the configuration", "[config][keys]") {
  for (const Case& test : all_cases()) {
    const Loaded loaded = load(edited(test, test.good));
    INFO(test.path << ": " << test.good << "\n" << loaded.report.text());
    CHECK(loaded.report.ok());
    CHECK((loaded.config != require_clean(test.document) || test.same));
  }
}

TEST_CASE("a bad value of each key is one error with line, column and path", "[config][keys]") {
  for (const Case& test : all_cases()) {
    const std::string text = edited(test, test.bad);
    Document document = parse(text);
    const Loaded loaded = load(text);
    const std::string path = test.path + test.below;
    INFO(path << ": " << test.bad << "\n" << loaded.report.text());
    REQUIRE(errors(loaded.report) == 1);
    const auto problem = std::find_if(
        loaded.report.problems_.begin(), loaded.report.problems_.end(),
        [](const auto& each) { return each.severity_ == daqiri::ConfigProblem::Severity::ERROR; });
    CHECK(problem->path_ == path);
    CHECK(problem->line_ == find(document.root, path).mark.line);
    CHECK(problem->column_ > 0);
    CHECK_THAT(problem->message_, Catch::Contains("found") && Catch::Contains("accepts"));
  }
}

TEST_CASE("the fuzzer's dictionary has every key", "[config][keys]") {
  std::ifstream file(DAQIRI_SOURCE_DIR "/native/fuzz/config.dict");
  const std::string dictionary{std::istreambuf_iterator<char>(file), {}};
  for (const std::string& path : known_keys()) {
    const std::string key = path.substr(path.rfind('.') + 1);
    CHECK_THAT(dictionary, Catch::Contains('"' + key + ": \""));
  }
}
