// All keys of a configuration, except flows and related keys.
#include "config/schema.h"

#include "engine/modules.h"
#include "engine/registry.h"

namespace daqiri::config {
namespace {

constexpr Range META_BUFFERS{1, 1'048'576, "bursts"};

void walk_access(Fields& fields, std::uint32_t& access) {
  std::vector<std::string> words;
  for (std::uint32_t bit = 1; bit != 0; bit <<= 1U) {
    if ((access & bit) != 0) words.push_back(text_of(MEMORY_ACCESS, static_cast<int>(bit)));
  }
  fields.texts(optional("access"), words, MEMORY_ACCESS);
  if (!fields.reading()) return;
  if (words.empty())
    fields.problem("access", "found an empty list; accepts " + alternatives(MEMORY_ACCESS));
  access = 0;
  for (const std::string& word : words) {
    if (const Name* match = find_name(MEMORY_ACCESS, word))
      access |= static_cast<std::uint32_t>(match->value);
  }
}

/// Keys of an endpoint before endpoints were URIs; the transport then comes from another endpoint
/// or the engine.
struct LegacyKeys {
  std::string_view address, ip, port;
};

void walk_endpoint(Fields& fields, const LegacyKeys& keys, std::string& address, std::string& ip,
                   std::uint16_t& port) {
  Endpoint parts{.protocol = {}, .host = ip, .port = port};
  if (fields.writing() && !address.empty()) {
    Endpoint written;
    const bool good = read_endpoint(address, written).empty();
    // Parts that the address contains are not written separately.
    if (!good || written.host == ip) parts.host.clear();
    if (!good || written.port == port) parts.port = 0;
  }
  fields.formed(optional(keys.address), address, endpoint_form);
  fields.formed(optional(keys.ip), parts.host, ip_form);
  fields.number({keys.port, false, parts.port != 0}, parts.port, PORT);
  if (!fields.reading()) return;
  if (fields.given(keys.address)) {
    const auto refuse = [&](std::string_view key, const std::string& value) {
      if (fields.given(key))
        fields.problem(key,
                       concat("found ", value, " with ", keys.address, address.empty() ? "" : ": ",
                              address, ", which contains address and port; remove it"));
    };
    refuse(keys.ip, quoted(parts.host));
    refuse(keys.port, concat(parts.port));
    parts = {};
    read_endpoint(address, parts);
  } else if (fields.given(keys.port) && !fields.given(keys.ip)) {
    parts = {};
    fields.problem(keys.port, concat("found without ", keys.ip, "; accepts ", keys.address,
                                     ": scheme://ip:port instead of both"));
  }
  ip = parts.host;
  port = parts.port;
}

void walk_socket(Fields& fields, SocketConfig& socket) {
  fields.choice(required("mode"), socket.mode_, SOCKET_MODES);
  walk_endpoint(fields, {"local_addr", "local_ip", "local_port"}, socket.local_addr_,
                socket.local_ip_, socket.local_port_);
  walk_endpoint(fields, {"remote_addr", "remote_ip", "remote_port"}, socket.remote_addr_,
                socket.remote_ip_, socket.remote_port_);
  fields.number(optional("max_payload_size"), socket.max_payload_size_, BYTES);
  fields.number(optional("max_burst_interval_ms"), socket.max_burst_interval_ms_,
                {0, UINT32_MAX, "milliseconds"});
  fields.number(optional("min_ipg_ns"), socket.min_ipg_ns_, {0, UINT32_MAX, "nanoseconds"});
  std::int64_t retry = socket.retry_connect_s_;
  fields.number(optional("retry_connect_s"), retry,
                {INT32_MIN, 86400, "seconds; 0 and less mean 1"});
  if (retry < 1 && fields.reading())
    fields.warning("retry_connect_s", concat("raised from ", std::exchange(retry, 1), " to 1"));
  socket.retry_connect_s_ = static_cast<std::uint32_t>(retry);
}

void walk_memory_region(Fields& fields, MemoryRegionConfig& region) {
  fields.name(required("name"), region.name_);
  fields.choice(required("kind"), region.kind_, MEMORY_KINDS);
  fields.number(optional("affinity"), region.affinity_, {0, 1023});
  walk_access(fields, region.access_);
  fields.number(required("num_bufs"), region.num_bufs_, {1, 2'147'483'648, "buffers"});
  fields.number(required("buf_size"), region.buf_size_, {1, UINT32_MAX, "bytes"});
  fields.flag(optional("owned"), region.owned_);
}

/// Stores regions by name; of several with the same name, the first.
void walk_memory_regions(Fields& fields, NetworkConfig& config) {
  std::vector<MemoryRegionConfig> regions;
  for (const MemoryRegionConfig* region : memory_regions(config)) regions.push_back(*region);
  fields.list(optional("memory_regions"), regions, walk_memory_region);
  if (!fields.reading()) return;
  for (std::uint32_t i = 0; i < regions.size(); ++i) {
    regions[i].position_ = i;
    const std::string name = regions[i].name_;
    const auto [first, is_new] = config.mrs_.emplace(name, regions[i]);
    if (is_new || name.empty()) continue;
    fields.problem(concat("memory_regions[", i, "].name"),
                   concat("found ", quoted(name), ", also the name of memory_regions[",
                          first->second.position_, "]; accepts unique names"));
  }
  config.mrs_.erase(std::string());
}

/// Common keys of both kinds of queue.
template <class Queue>
void walk_queue(Fields& fields, Queue& queue, bool rx) {
  CommonQueueConfig& common = queue.common_;
  fields.name(required("name"), common.name_);
  fields.number(required("id"), common.id_, WORD);
  fields.choice(optional("poll_mode"), queue.poll_mode_, POLL_MODES);
  const bool direct = queue.poll_mode_ == QueuePollMode::DIRECT;
  const bool worker = !direct && !fields.bad("poll_mode");
  // Keys that direct mode forbids are written if a struct sets them, so that they are rejected.
  fields.formed({"cpu_core", worker}, common.cpu_core_, core_form);
  fields.number({"batch_size", worker, !direct || common.batch_size_ != 0}, common.batch_size_,
                {1, 1'048'576, "packets"});
  fields.texts(optional("memory_regions"), common.mrs_);
  fields.number({"timeout_us", false, !direct || !rx || queue.timeout_us_ != 0}, queue.timeout_us_,
                {0, UINT32_MAX, "microseconds"});
}

void walk_rx_queue(Fields& fields, RxQueueConfig& queue) {
  walk_queue(fields, queue, true);
  fields.number(optional("split_boundary"), queue.common_.split_boundary_, {0, INT32_MAX, "bytes"});
  // Not a key of this map: written so that a struct that sets it is rejected.
  if (fields.writing() && !queue.common_.offloads_.empty())
    fields.texts(optional("offloads"), queue.common_.offloads_, OFFLOADS);
}

void walk_tx_queue(Fields& fields, TxQueueConfig& queue) {
  walk_queue(fields, queue, false);
  fields.texts(optional("offloads"), queue.common_.offloads_, OFFLOADS);
  fields.number(optional("pacing_mbps"), queue.pacing_mbps_, {0, UINT32_MAX, "Mb/s"});
  const bool worker = queue.poll_mode_ != QueuePollMode::DIRECT || queue.realtime_priority_ != 0;
  fields.number({"realtime_priority", false, worker}, queue.realtime_priority_, {0, 99});
  // For the same reason as the offloads of a receive queue.
  if (fields.writing() && queue.common_.split_boundary_ != 0)
    fields.number(optional("split_boundary"), queue.common_.split_boundary_, {});
}

void walk_rx(Fields& fields, RxConfig& rx) {
  fields.flag(optional("flow_isolation"), rx.flow_isolation_);
  fields.flag(optional("hardware_timestamps"), rx.hardware_timestamps_);
  fields.number(optional("dynamic_flow_capacity"), rx.dynamic_flow_capacity_,
                {0, 8'388'608, "flows"});
  // Empty means no filter.
  if (!fields.writing() || !rx.filter_.empty()) fields.text(optional("filter"), rx.filter_);
  fields.choice(optional("receive_path"), rx.receive_path_, RECEIVE_PATHS);
  fields.list(required("queues"), rx.queues_, walk_rx_queue);
  fields.list(optional("flex_items"), rx.flex_items_, walk_flex_item);
  fields.list(optional("flows"), rx.flows_,
              [](Fields& inner, FlowConfig& flow) { walk_flow(inner, flow, true); });
  fields.list(optional("reorder_configs"), rx.reorder_configs_,
              [](Fields& inner, ReorderConfig& plan) { walk_reorder(inner, plan, false); });
}

void walk_tx(Fields& fields, TxConfig& tx) {
  fields.flag(optional("accurate_send"), tx.accurate_send_);
  fields.list(required("queues"), tx.queues_, walk_tx_queue);
  fields.list(optional("flows"), tx.flows_,
              [](Fields& inner, FlowConfig& flow) { walk_flow(inner, flow, false); });
}

void walk_interface(Fields& fields, InterfaceConfig& interface) {
  fields.name(required("name"), interface.name_);
  fields.text(required("address"), interface.address_, false);
  fields.refused(
      "rdma_config",
      "is no longer a key: socket_config has the side and the address (mode, local_addr: "
      "roce://ip:port), and roce_config the transport_mode");
  interface.has_socket_ =
      fields.map(optional("socket_config"), interface.socket_, walk_socket, interface.has_socket_);
  interface.has_roce_ = fields.map(
      optional("roce_config"), interface.roce_,
      [](Fields& inner, RoCEConfig& roce) {
        inner.word(optional("transport_mode"), roce.transport_mode_, TRANSPORT_MODES);
      },
      interface.has_roce_);
  fields.map(optional("rx"), interface.rx_, walk_rx);
  fields.map(optional("tx"), interface.tx_, walk_tx);
}

constexpr std::string_view DEFAULT_ENGINE = "default";

/// Names of all engines, also of those that are not loaded, as alternatives.
std::string engine_words() {
  std::vector<Name> names(std::begin(ENGINES), std::end(ENGINES));
  const auto add = [&](std::string_view name) {
    if (find_name(names, name) == nullptr) names.emplace_back(name, EngineType::OTHER);
  };
  add(DEFAULT_ENGINE);
  for (const EngineEntry& engine : engines()) add(engine.traits.name);
  const std::vector<std::string> modules = engines_with_module();
  for (const std::string& name : modules) add(name);
  return alternatives(names);
}

std::string read_engine(std::string_view text, std::string& word) {
  const std::string problem = load_engine(text);
  if (find_name(ENGINES, text) == nullptr && text != DEFAULT_ENGINE && !traits_named(text))
    return problem.empty() ? "unknown word" : problem;
  word = text;
  return {};
}

std::string write_engine(const std::string& word) { return word; }

void walk_engine(Fields& fields, CommonConfig& common, std::string_view accepts) {
  std::string word = engine_word(common);
  fields.formed(optional("engine"), word, Form<std::string>{accepts, read_engine, write_engine});
  if (!fields.reading()) return;
  const bool named = !word.empty() && word != DEFAULT_ENGINE;
  const Name* match = find_name(ENGINES, word);
  common.engine = match != nullptr ? static_cast<EngineType>(match->value)
                  : named          ? EngineType::OTHER
                                   : EngineType::DEFAULT;
  if (common.engine == EngineType::OTHER) common.engine_name_ = word;
}

void walk_config(Fields& fields, NetworkConfig& config) {
  CommonConfig& common = config.common_;
  const std::string engines = fields.reading() ? engine_words() : std::string();
  fields.refused("manager",
                 "is no longer a key: 'engine' selects the packet engine; accepts engine: " +
                     engines + ", or no key to infer it");
  fields.refused("protocol",
                 "is no longer a key: the transport is the scheme of socket_config.local_addr and "
                 "remote_addr; accepts udp://ip:port, tcp://ip:port or roce://ip[:port] there");
  fields.number(required("version"), common.version, {1, 1});
  fields.number(required("master_core"), common.master_core_, CPU_CORE);
  fields.choice(required("stream_type"), common.stream_type, STREAM_TYPES);
  walk_engine(fields, common, engines);
  fields.choice(optional("log_level"), config.log_level_, LOG_LEVELS, true);
  fields.flag(optional("debug"), config.debug_);
  fields.choice(optional("loopback"), common.loopback_, LOOPBACK_TYPES);
  fields.flag(optional("loopback_drops"), common.loopback_drops_);
  fields.number(optional("tx_meta_buffers"), config.tx_meta_buffers_, META_BUFFERS);
  fields.number(optional("rx_meta_buffers"), config.rx_meta_buffers_, META_BUFFERS);
  fields.formed(optional("ship_to"), config.ship_to_, store_form);
  walk_memory_regions(fields, config);
  fields.list(required("interfaces"), config.ifs_, walk_interface);
  fields.list({"reorder_configs", false, !config.reorder_configs_.empty()}, config.reorder_configs_,
              [](Fields& inner, ReorderConfig& plan) { walk_reorder(inner, plan, true); });
}

Node written(NetworkConfig config, bool listing) {
  Findings none;
  return Fields(Place(none), listing).run([&](Fields& fields) { walk_config(fields, config); });
}

}  // namespace

void read_config(const Node& root, UnknownKeys unknown, Findings& findings, NetworkConfig& config) {
  Fields(root, Place(findings), unknown).run([&](Fields& fields) { walk_config(fields, config); });
}

Node write_config(const NetworkConfig& config) { return written(config, false); }

Node default_config() { return written({}, true); }

}  // namespace daqiri::config
