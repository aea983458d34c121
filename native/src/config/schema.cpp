// Common keys, memory regions, interfaces, sockets, queues, reorder plans.
#include "config/schema.h"

namespace daqiri::config {
namespace {

constexpr Range META_BUFFERS{1, 1'048'576, "bursts"};
constexpr Range BYTES{0, UINT32_MAX, "bytes"};
constexpr Range MICROSECONDS{0, UINT32_MAX, "microseconds"};
constexpr Range FLEX_OFFSET{0, 28, "bytes, a multiple of 4"};

void walk_access(Fields& fields, std::uint32_t& access) {
  std::vector<std::string> words;
  for (std::uint32_t bit = 1; bit != 0; bit <<= 1U) {
    if ((access & bit) != 0) words.push_back(text_of(MEMORY_ACCESS, static_cast<int>(bit)));
  }
  fields.words(optional("access"), words, MEMORY_ACCESS);
  if (!fields.reading()) return;
  if (words.empty())
    fields.problem("access", "found an empty list; accepts " + alternatives(MEMORY_ACCESS));
  access = 0;
  for (const std::string& word : words) {
    if (const Name* match = find_name(MEMORY_ACCESS, word))
      access |= static_cast<std::uint32_t>(match->value);
  }
}

/// Keys of an endpoint from before endpoints were URIs; the transport then comes from another
/// endpoint or the engine.
struct LegacyKeys {
  std::string_view address, ip, port;
};

void walk_endpoint(Fields& fields, const LegacyKeys& keys, SocketEndpoint& endpoint) {
  fields.formed(optional(keys.address), endpoint, ENDPOINT);
  if (fields.writing()) return;
  SocketEndpoint legacy;
  fields.formed(optional(keys.ip), legacy.host_, IP);
  fields.number(optional(keys.port), legacy.port_, PORT);
  if (fields.given(keys.address)) {
    for (const std::string_view key : {keys.ip, keys.port}) {
      if (fields.given(key))
        fields.problem(key, concat("stands beside ", keys.address,
                                   ", which holds address and port; remove it"));
    }
  } else if (fields.given(keys.ip)) {
    endpoint = std::move(legacy);
  } else if (fields.given(keys.port)) {
    fields.problem(keys.port, concat("has no ", keys.ip, " beside it; accepts ", keys.address,
                                     ": scheme://ip:port instead of both"));
  }
}

void walk_socket(Fields& fields, SocketConfig& socket) {
  fields.choice(required("mode"), socket.mode_, SOCKET_MODES);
  walk_endpoint(fields, {"local_addr", "local_ip", "local_port"}, socket.local_addr_);
  walk_endpoint(fields, {"remote_addr", "remote_ip", "remote_port"}, socket.remote_addr_);
  fields.number(optional("max_payload_size"), socket.max_payload_size_, BYTES);
  fields.number(optional("max_burst_interval_ms"), socket.max_burst_interval_ms_,
                {0, UINT32_MAX, "milliseconds"});
  fields.number(optional("min_ipg_ns"), socket.min_ipg_ns_, {0, UINT32_MAX, "nanoseconds"});
  fields.number(optional("retry_connect_s"), socket.retry_connect_s_, {1, 86400, "seconds"});
}

void walk_memory_region(Fields& fields, MemoryRegionConfig& region) {
  fields.text(required("name"), region.name_);
  fields.choice(required("kind"), region.kind_, MEMORY_KINDS);
  fields.number(optional("affinity"), region.affinity_, {0, 1023});
  walk_access(fields, region.access_);
  fields.number(required("num_bufs"), region.num_bufs_, {1, 2'147'483'648, "buffers"});
  fields.number(required("buf_size"), region.buf_size_, {1, UINT32_MAX, "bytes"});
  fields.flag(optional("owned"), region.owned_);
}

/// Keys that both kinds of queue have. In direct mode the caller polls: there is no core, no batch,
/// and no timeout of a receive queue.
void walk_queue(Fields& fields, QueueConfig& queue, bool rx) {
  fields.text(required("name"), queue.name_);
  fields.number(required("id"), queue.id_, WORD);
  fields.choice(optional("poll_mode"), queue.poll_mode_, POLL_MODES);
  const bool direct = queue.poll_mode_ == PollMode::DIRECT;
  const bool worker = !direct && !fields.bad("poll_mode");
  // A struct that has what direct mode forbids is written with it, and refused.
  const bool write_all = !fields.writing() || !direct;
  if (write_all || !queue.cpu_core_.empty())
    fields.formed({"cpu_core", worker}, queue.cpu_core_, CORE);
  if (write_all || queue.batch_size_ != 0)
    fields.number({"batch_size", worker}, queue.batch_size_, {1, 1'048'576, "packets"});
  fields.texts(optional("memory_regions"), queue.mrs_);
  if (write_all || !rx || queue.timeout_us_ != 0)
    fields.number(optional("timeout_us"), queue.timeout_us_, MICROSECONDS);
  for (const std::string_view key : {"cpu_core", "batch_size", "timeout_us"}) {
    if (direct && fields.given(key) && (rx || key != "timeout_us"))
      fields.problem(key, "a queue with poll_mode: direct is polled by its caller; remove the key");
  }
}

void walk_rx_queue(Fields& fields, RxQueueConfig& queue) {
  walk_queue(fields, queue, true);
  fields.number(optional("split_boundary"), queue.split_boundary_, BYTES);
  // No key here: written so that a struct that has them is refused.
  if (fields.writing() && !queue.offloads_.empty())
    fields.words(optional("offloads"), queue.offloads_, OFFLOADS);
}

void walk_tx_queue(Fields& fields, TxQueueConfig& queue) {
  walk_queue(fields, queue, false);
  fields.words(optional("offloads"), queue.offloads_, OFFLOADS);
  fields.number(optional("pacing_mbps"), queue.pacing_mbps_, {0, UINT32_MAX, "Mb/s"});
  fields.number(optional("realtime_priority"), queue.realtime_priority_, {0, 99});
}

void walk_flex_item(Fields& fields, FlexItemConfig& item) {
  fields.text(required("name"), item.name_);
  fields.number(required("id"), item.id_, {0, INT32_MAX});
  fields.number(required("offset"), item.offset_, FLEX_OFFSET);
  if (item.offset_ % 4 != 0)
    fields.problem(
        "offset", concat("found ", item.offset_, "; accepts a multiple of 4 from 0 to 28 (bytes)"));
  fields.number(required("udp_dst_port"), item.udp_dst_port_, PORT);
}

void walk_bit_field(Fields& fields, std::string_view name, BitFieldConfig& field) {
  fields.map(required(name), [&] {
    fields.number(required("bit_offset"), field.bit_offset_, {0, UINT32_MAX, "bits"});
    fields.number(required("bit_width"), field.bit_width_, {1, 32, "bits"});
  });
}

void walk_method(Fields& fields, ReorderConfig& reorder) {
  bool by_batch = reorder.method_ == ReorderMethod::SEQ_BATCH_NUMBER;
  bool by_count = reorder.method_ == ReorderMethod::SEQ_PACKETS_PER_BATCH;
  fields.map(optional("seq_batch_number"), by_batch, [&] {
    walk_bit_field(fields, "sequence_number", reorder.sequence_number_);
    walk_bit_field(fields, "batch_number", reorder.batch_number_);
  });
  fields.map(optional("seq_packets_per_batch"), by_count, [&] {
    walk_bit_field(fields, "sequence_number", reorder.sequence_number_);
    fields.number(required("packets_per_batch"), reorder.packets_per_batch_,
                  {1, UINT32_MAX, "packets"});
  });
  if (!fields.reading()) return;
  reorder.method_ =
      by_batch ? ReorderMethod::SEQ_BATCH_NUMBER : ReorderMethod::SEQ_PACKETS_PER_BATCH;
  if (by_batch == by_count)
    fields.problem("", concat(by_batch ? "found two methods" : "found no method",
                              "; accepts one of seq_batch_number and seq_packets_per_batch"));
}

void walk_reorder(Fields& fields, ReorderConfig& reorder) {
  fields.text(required("name"), reorder.name_);
  fields.choice(required("reorder_type"), reorder.type_, REORDER_TYPES);
  fields.text(required("memory_region"), reorder.memory_region_);
  fields.number(optional("payload_byte_offset"), reorder.payload_byte_offset_, BYTES);
  fields.numbers(required("flow_ids"), reorder.flow_ids_, {0, MAX_STATIC_FLOW_ID});
  fields.map(optional("data_types"), reorder.has_data_types_, [&] {
    DataTypesConfig& types = reorder.data_types_;
    fields.choice(required("input_type"), types.input_type_, INPUT_TYPES);
    fields.choice(required("output_type"), types.output_type_, OUTPUT_TYPES);
    fields.choice(optional("endianness"), types.endianness_, ENDIANNESS);
  });
  fields.map(required("method"), [&] { walk_method(fields, reorder); });
}

void walk_rx(Fields& fields, RxConfig& rx) {
  fields.flag(optional("flow_isolation"), rx.flow_isolation_);
  fields.flag(optional("hardware_timestamps"), rx.hardware_timestamps_);
  fields.number(optional("dynamic_flow_capacity"), rx.dynamic_flow_capacity_,
                {0, 8'388'608, "flows"});
  fields.list(required("queues"), rx.queues_, [&](auto& queue) { walk_rx_queue(fields, queue); });
  fields.list(optional("flex_items"), rx.flex_items_,
              [&](auto& item) { walk_flex_item(fields, item); });
  fields.list(optional("flows"), rx.flows_, [&](auto& flow) { walk_rx_flow(fields, flow); });
  fields.list(optional("reorder_configs"), rx.reorder_configs_,
              [&](auto& reorder) { walk_reorder(fields, reorder); });
}

void walk_tx(Fields& fields, TxConfig& tx) {
  fields.flag(optional("accurate_send"), tx.accurate_send_);
  fields.list(required("queues"), tx.queues_, [&](auto& queue) { walk_tx_queue(fields, queue); });
  fields.list(optional("flows"), tx.flows_, [&](auto& flow) { walk_tx_flow(fields, flow); });
}

void walk_interface(Fields& fields, InterfaceConfig& interface) {
  fields.text(required("name"), interface.name_);
  fields.text(required("address"), interface.address_);
  bool socket = interface.has_socket_ || interface.socket_ != SocketConfig{};
  fields.map(optional("socket_config"), socket, [&] { walk_socket(fields, interface.socket_); });
  interface.has_socket_ = socket;
  bool roce = interface.has_roce_ || interface.roce_ != RoceConfig{};
  fields.map(optional("roce_config"), roce, [&] {
    fields.word(optional("transport_mode"), interface.roce_.transport_mode_, TRANSPORT_MODES);
  });
  interface.has_roce_ = roce;
  bool rx = interface.rx_ != RxConfig{};
  fields.map(optional("rx"), rx, [&] { walk_rx(fields, interface.rx_); });
  bool tx = interface.tx_ != TxConfig{};
  fields.map(optional("tx"), tx, [&] { walk_tx(fields, interface.tx_); });
}

}  // namespace

void walk_config(Fields& fields, NetworkConfig& config) {
  CommonConfig& common = config.common_;
  fields.refused("manager",
                 "is no key any more: 'engine' names what moves the packets; accepts engine: " +
                     alternatives(engine_names()) + ", or nothing to have it inferred");
  fields.refused("protocol",
                 "is no key any more: the transport is the scheme of socket_config.local_addr and "
                 "remote_addr; accepts udp://ip:port, tcp://ip:port or roce://ip[:port] there");
  fields.number(required("version"), common.version, {1, 1});
  fields.number(required("master_core"), common.master_core_, CPU_CORE);
  fields.choice(required("stream_type"), common.stream_type, STREAM_TYPES);
  fields.word(optional("engine"), common.engine, engine_names());
  fields.choice(optional("log_level"), config.log_level_, LOG_LEVELS);
  fields.flag(optional("debug"), config.debug_);
  fields.choice(optional("loopback"), common.loopback_, LOOPBACK_TYPES);
  fields.number(optional("tx_meta_buffers"), config.tx_meta_buffers_, META_BUFFERS);
  fields.number(optional("rx_meta_buffers"), config.rx_meta_buffers_, META_BUFFERS);
  fields.list(optional("memory_regions"), config.mrs_,
              [&](auto& region) { walk_memory_region(fields, region); });
  fields.list(required("interfaces"), config.ifs_,
              [&](auto& interface) { walk_interface(fields, interface); });
}

}  // namespace daqiri::config
