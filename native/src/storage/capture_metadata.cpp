#include "storage/capture_metadata.h"

#include <sys/timex.h>
#include <sys/utsname.h>

#include <fstream>
#include <string_view>

#include "config/formats.h"
#include "daqiri/version.h"
#include "io/session_memory.h"
#include "metrics/json_object.h"

namespace daqiri {

namespace {

/// Packets by reason, and their sum. Reasons without packets are omitted.
struct Reasons {
  JsonObject object;
  std::uint64_t total{0};

  void add(std::string_view reason, std::uint64_t packets) {
    if (packets > 0) object.number(reason, packets);
    total += packets;
  }
};

std::string counters_json(const RxSnapshot& counters) {
  JsonObject object;
  for (const Counter& counter : counters_of(counters)) object.number(counter.name, counter.value);
  Reasons dropped;
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r)
    dropped.add(drop_reason_name(static_cast<DropReason>(r)), counters.dropped[r]);
  object.json("dropped", dropped.object.line());
  return object.line();
}

std::string counters_json(const reorder::ReorderSnapshot& counters) {
  JsonObject object;
  for (const Counter& counter : counters_of(counters)) object.number(counter.name, counter.value);
  return object.line();
}

std::string counters_json(const SourceCounters& counters) {
  return std::visit([](const auto& known) { return counters_json(known); }, counters);
}

/// What the source lost, and what it omitted on request.
struct SourceLosses {
  void operator()(const RxSnapshot& now) {
    const auto& then = std::get<RxSnapshot>(before);
    for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r) {
      const auto reason = static_cast<DropReason>(r);
      const bool intended = reason == DropReason::FILTERED || reason == DropReason::FLUSHED;
      (intended ? left_out : lost).add(drop_reason_name(reason), now.dropped[r] - then.dropped[r]);
    }
  }
  void operator()(const reorder::ReorderSnapshot& now) {
    const auto& then = std::get<reorder::ReorderSnapshot>(before);
    lost.add("lost", now.lost - then.lost);
    lost.add("skipped", now.skipped - then.skipped);
  }

  const SourceCounters& before;
  Reasons& lost;
  Reasons& left_out;
};

/// The kernel's offset of TAI from UTC, in s; null if it was not set (the kernel then reports 0,
/// which is never the real offset).
std::string tai_offset() {
  timex state{};
  return adjtimex(&state) >= 0 && state.tai != 0 ? std::to_string(state.tai) : "null";
}

std::string match_json(const FlowMatch& match) {
  JsonObject object;
  const auto write_ports = config::ports_form.write;
  if (!match.udp_src_.any()) object.text("udp_src", write_ports(match.udp_src_));
  if (!match.udp_dst_.any()) object.text("udp_dst", write_ports(match.udp_dst_));
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

/// The flows of the source's ports that lead to it.
std::string flows_json(const Session& session, const RecordingSource& source) {
  std::string list;
  for (const int port : source.ports()) {
    const InterfaceConfig& interface = session.port(port).config;
    for (const FlowConfig& flow : interface.rx_.flows_) {
      if (!source.has_flow(flow)) continue;
      JsonObject object;
      object.number("id", flow.id_);
      object.text("name", flow.name_);
      if (source.interface().empty()) object.text("interface", interface.name_);
      object.json("match", match_json(flow.match_));
      list += (list.empty() ? "" : ", ") + object.line();
    }
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
  object.text("engine", "daqiri-ophyd " DAQIRI_VERSION);
  return object.line();
}

}  // namespace

CaptureOrigin::CaptureOrigin(const RecorderOptions& chosen, const Session& session,
                             const RecordingSource& from)
    : options(chosen),
      source(from),
      name(from.interface() + (from.interface().empty() ? "" : "/") + from.name()),
      flows(flows_json(session, from)),
      host(host_json()),
      configuration(session.config_text()) {}

CaptureMetadata describe(const CaptureOrigin& origin, const RunMetadata& run,
                         const FileTally& tally, std::uint64_t begun_ns,
                         const CaptureLosses& before, const CaptureLosses& now) {
  Reasons lost;
  Reasons left_out;
  std::visit(SourceLosses{before.counters, lost, left_out}, now.counters);
  const auto not_written = [&](CaptureLosses::Reason reason) {
    return now.not_written[reason] - before.not_written[reason];
  };
  lost.add("write_error", not_written(CaptureLosses::WRITE_ERROR));
  left_out.add("paused", not_written(CaptureLosses::PAUSED));
  left_out.add("before_start", not_written(CaptureLosses::BEFORE_START));
  left_out.add("after_limit", not_written(CaptureLosses::AFTER_LIMIT));
  left_out.add("held", not_written(CaptureLosses::HELD));
  left_out.add("rewound", not_written(CaptureLosses::REWOUND));

  Reasons before_engine;
  before_engine.add("card", now.port.lost_card - before.port.lost_card);
  before_engine.add("backlog", now.port.lost_backlog - before.port.lost_backlog);
  before_engine.add("errors", now.port.lost_errors - before.port.lost_errors);
  before_engine.add("dropped", now.port.lost_dropped - before.port.lost_dropped);
  const std::uint64_t lost_before_engine =
      now.port.lost_before_engine - before.port.lost_before_engine;

  const bool frames = std::holds_alternative<reorder::ReorderSnapshot>(now.counters);
  JsonObject object;
  if (frames) object.number("frames", tally.frames);
  object.number("packets", tally.packets);
  if (frames) object.number("missing", tally.missing);
  object.number("bytes", tally.bytes);
  object.number("t_first_ns", tally.t_first_ns);
  object.number("t_last_ns", tally.t_last_ns);
  object.number("dropped", lost.total);
  object.json("dropped_by_reason", lost.object.line());
  object.number("left_out", left_out.total);
  object.json("left_out_by_reason", left_out.object.line());
  object.number("lost_before_engine", lost_before_engine);
  object.json("lost_before_engine_by_reason", before_engine.object.line());
  origin.source.describe(origin.options, object);
  object.text(origin.source.kind(), origin.name);
  object.json("flows", origin.flows);
  object.text("clock", "CLOCK_REALTIME");
  object.json("tai_offset_s", tai_offset());
  object.number("begin_ns", begun_ns);
  object.number("end_ns", realtime_ns());
  object.json("counters_begin", counters_json(before.counters));
  object.json("counters_end", counters_json(now.counters));
  object.text("writer", origin.writer);
  if (!origin.cufile_mode.empty()) object.text("cufile", origin.cufile_mode);
  object.json("host", origin.host);
  if (!frames) object.number("torn_bytes", 0);
  add_to(object, run);
  object.text("configuration", origin.configuration);
  return {object.lines(), lost.total, left_out.total, lost_before_engine};
}

}  // namespace daqiri
