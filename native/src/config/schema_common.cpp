// Common keys, memory regions, interfaces, sockets.
#include "config/formats.h"
#include "config/schema.h"

namespace daqiri::config {
namespace {

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

void walk_endpoint(Fields& fields, std::string_view name, SocketEndpoint& endpoint) {
  const auto parse = [&](std::string_view text) { return read_endpoint(text, endpoint); };
  fields.formatted(optional(name), ENDPOINT_FORM, parse, [&] { return write_endpoint(endpoint); });
}

/// Keys from before endpoints were URIs; the transport then comes from another endpoint or the
/// engine.
void walk_legacy_endpoint(Fields& fields, const std::string& side, SocketEndpoint& endpoint) {
  if (fields.writing()) return;
  const std::string address = side + "_addr";
  const std::string ip = side + "_ip";
  const std::string port = side + "_port";
  SocketEndpoint legacy;
  const auto parse = [&](std::string_view text) -> std::string {
    if (!is_ip_address(text)) return "not an address";
    legacy.host_ = text;
    return {};
  };
  fields.formatted(optional(side == "local" ? "local_ip" : "remote_ip"), IP_FORM, parse, {});
  fields.number(optional(side == "local" ? "local_port" : "remote_port"), legacy.port_, PORT);
  for (const std::string& key : {ip, port}) {
    if (fields.given(key) && fields.given(address)) {
      fields.problem(key, "stands beside " + address + ", which holds address and port; remove it");
    }
  }
  if (fields.given(port) && !fields.given(ip) && !fields.given(address)) {
    fields.problem(port, "has no " + ip + " beside it; accepts " + address +
                             ": scheme://ip:port instead of both");
  }
  if (fields.given(ip) && !fields.given(address)) endpoint = std::move(legacy);
}

bool has_rx(const RxConfig& rx) { return rx != RxConfig{}; }
bool has_tx(const TxConfig& tx) { return tx != TxConfig{}; }

}  // namespace

void walk_config(Fields& fields, NetworkConfig& config) {
  CommonConfig& common = config.common_;
  fields.refused("manager",
                 "is no key any more: 'engine' names what moves the packets; accepts engine: " +
                     alternatives(ENGINES) + ", or nothing to have it inferred");
  fields.refused("protocol",
                 "is no key any more: the transport is the scheme of socket_config.local_addr and "
                 "remote_addr; "
                 "accepts udp://ip:port, tcp://ip:port or roce://ip[:port] there");
  fields.number(required("version"), common.version, VERSION);
  fields.number(required("master_core"), common.master_core_, CPU_CORE);
  fields.choice(required("stream_type"), common.stream_type, STREAM_TYPES);
  fields.word(optional("engine"), common.engine, ENGINES);
  fields.choice(optional("log_level"), config.log_level_, LOG_LEVELS);
  fields.flag(optional("debug"), config.debug_);
  fields.choice(optional("loopback"), common.loopback_, LOOPBACK_TYPES);
  fields.number(optional("tx_meta_buffers"), config.tx_meta_buffers_, META_BUFFERS);
  fields.number(optional("rx_meta_buffers"), config.rx_meta_buffers_, META_BUFFERS);
  fields.list(optional("memory_regions"), config.mrs_,
              [&](MemoryRegionConfig& region) { walk_memory_region(fields, region); });
  fields.list(required("interfaces"), config.ifs_,
              [&](InterfaceConfig& interface) { walk_interface(fields, interface); });
}

void walk_memory_region(Fields& fields, MemoryRegionConfig& region) {
  fields.text(required("name"), region.name_);
  fields.choice(required("kind"), region.kind_, MEMORY_KINDS);
  fields.number(optional("affinity"), region.affinity_, AFFINITY);
  walk_access(fields, region.access_);
  fields.number(required("num_bufs"), region.num_bufs_, NUM_BUFS);
  fields.number(required("buf_size"), region.buf_size_, BUF_SIZE);
  fields.flag(optional("owned"), region.owned_);
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
  bool rx = has_rx(interface.rx_);
  fields.map(optional("rx"), rx, [&] { walk_rx(fields, interface.rx_); });
  bool tx = has_tx(interface.tx_);
  fields.map(optional("tx"), tx, [&] { walk_tx(fields, interface.tx_); });
}

void walk_socket(Fields& fields, SocketConfig& socket) {
  fields.choice(required("mode"), socket.mode_, SOCKET_MODES);
  walk_endpoint(fields, "local_addr", socket.local_addr_);
  walk_endpoint(fields, "remote_addr", socket.remote_addr_);
  walk_legacy_endpoint(fields, "local", socket.local_addr_);
  walk_legacy_endpoint(fields, "remote", socket.remote_addr_);
  fields.number(optional("max_payload_size"), socket.max_payload_size_, PAYLOAD_SIZE);
  fields.number(optional("max_burst_interval_ms"), socket.max_burst_interval_ms_, MILLISECONDS);
  fields.number(optional("min_ipg_ns"), socket.min_ipg_ns_, NANOSECONDS);
  fields.number(optional("retry_connect_s"), socket.retry_connect_s_, RETRY);
}

}  // namespace daqiri::config
