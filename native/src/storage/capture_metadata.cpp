#include "storage/capture_metadata.h"

#include <sys/timex.h>
#include <sys/utsname.h>

#include <fstream>

#include "config/formats.h"
#include "daqiri/version.h"
#include "metrics/json_object.h"

namespace daqiri {

namespace {

std::string counts_json(const CountsByReason& counts) {
  JsonObject object;
  for (const auto& [reason, packets] : counts) {
    if (packets > 0) object.number(reason, packets);
  }
  return object.line();
}

std::string counters_json(const RxSnapshot& counters) {
  JsonObject object;
  for (const Counter& counter : counters_of(counters)) object.number(counter.name, counter.value);
  CountsByReason dropped;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r)
    dropped.emplace_back(drop_reason_name(static_cast<DropReason>(r)), counters.dropped[r]);
  object.json("dropped", counts_json(dropped));
  return object.line();
}

/// The kernel's offset of TAI from UTC in s; 0, which it never is, stands for one that nobody set.
std::string tai_offset() {
  timex state{};
  return adjtimex(&state) >= 0 && state.tai != 0 ? std::to_string(state.tai) : "null";
}

std::string ports_text(const PortRange& ports) {
  std::string text = std::to_string(ports.lo);
  if (ports.hi != ports.lo) text += "-" + std::to_string(ports.hi);
  return text;
}

std::string match_json(const FlowMatch& match) {
  JsonObject object;
  if (!match.udp_src_.any()) object.text("udp_src", ports_text(match.udp_src_));
  if (!match.udp_dst_.any()) object.text("udp_dst", ports_text(match.udp_dst_));
  if (match.ipv4_len_ != 0) object.number("ipv4_len", match.ipv4_len_);
  if (match.ipv4_src_ != 0) object.text("ipv4_src", config::write_ipv4(match.ipv4_src_));
  if (match.ipv4_dst_ != 0) object.text("ipv4_dst", config::write_ipv4(match.ipv4_dst_));
  return object.line();
}

std::string processor() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(": ");
    if (line.starts_with("model name") && at != std::string::npos) return line.substr(at + 2);
  }
  return {};
}

}  // namespace

std::uint64_t total(const CountsByReason& counts) noexcept {
  std::uint64_t sum = 0;
  for (const auto& [reason, packets] : counts) sum += packets;
  return sum;
}

std::string CaptureMetadata::json() const {
  JsonObject object;
  object.number("packets", tally.packets);
  object.number("bytes", tally.wire_bytes);
  object.number("t_first_ns", tally.first_ns);
  object.number("t_last_ns", tally.last_ns);
  object.number("dropped", total(lost));
  object.json("dropped_by_reason", counts_json(lost));
  object.number("left_out", total(left_out));
  object.json("left_out_by_reason", counts_json(left_out));
  object.text("format", origin.format);
  object.number("link_type", origin.link_type);
  object.flag("nanosecond", origin.nanosecond);
  object.flag("headers_reconstructed", origin.headers_reconstructed);
  if (origin.format == "raw") object.number("packet_data_offset", origin.packet_data_offset);
  object.text("queue", origin.queue);
  object.json("flows", origin.flows);
  object.text("clock", "CLOCK_REALTIME");
  object.json("tai_offset_s", tai_offset());
  object.number("begin_ns", begin_ns);
  object.number("end_ns", end_ns);
  object.json("counters_begin", counters_json(begin));
  object.json("counters_end", counters_json(end));
  object.text("writer", origin.writer);
  object.json("host", origin.host);
  object.number("torn_bytes", 0);
  return object.lines();
}

std::string flows_json(const Session& session, const RxQueue& queue) {
  std::string list;
  for (const FlowConfig& flow : session.port(queue.port_id()).config.rx_.flows_) {
    if (flow.action_.type_ != FlowActionType::QUEUE || flow.action_.id_ != queue.config().id_)
      continue;
    JsonObject object;
    object.number("id", flow.id_);
    object.text("name", flow.name_);
    object.json("match", match_json(flow.match_));
    list += (list.empty() ? "" : ", ") + object.line();
  }
  return "[" + list + "]";
}

std::string host_json() {
  utsname system{};
  uname(&system);
  JsonObject object;
  object.text("name", system.nodename);
  object.text("kernel", std::string(system.sysname) + " " + system.release);
  object.text("machine", system.machine);
  object.text("cpu", processor());
  object.text("engine", std::string("daqiri-ophyd ") + VERSION_TEXT);
  return object.line();
}

}  // namespace daqiri
