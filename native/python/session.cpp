// Open sessions and their ports.
#include <pybind11/stl.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "connections.h"
#include "daqiri/error.h"
#include "engine/modules.h"
#include "engine/registry.h"
#include "flow_rules.h"
#include "frames.h"
#include "gil.h"
#include "lifecycle.h"
#include "queues.h"
#include "recorder.h"
#include "session/rates.h"
#include "session/snapshot.h"
#include "system/log.h"

namespace daqiri::python {

namespace py = pybind11;

namespace {

std::shared_ptr<OpenSession> open_session(const NetworkConfig& config) {
  const GilRelease unlocked;
  return OpenSession::open(config);
}

void close_session(OpenSession& open) {
  require_not_reducing("close the engine");
  const GilRelease unlocked;
  open.close();
}

/// Values of the configuration that were adjusted.
py::list warnings(const OpenSession& open) {
  py::list lines;
  for (const ConfigProblem& problem : open.session().report().problems_) {
    if (problem.severity_ == ConfigProblem::Severity::WARNING)
      lines.append(problem.path_ + ": " + problem.message_);
  }
  return lines;
}

std::string mac_address(const OpenSession& open, int port) {
  const std::array<std::uint8_t, 6> mac = open.session().port(port).io->mac_address();
  std::array<char, 18> text{};
  std::snprintf(text.data(), text.size(), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2],
                mac[3], mac[4], mac[5]);
  return text.data();
}

/// State, speed in Mb/s, MTU.
py::tuple link(const OpenSession& open, int port) {
  const Port& found = open.session().port(port);
  const LinkState link = [&] {
    // A driver may take long, while flows are installed too.
    const GilRelease unlocked;
    return found.io->link_state();
  }();
  return py::make_tuple(link.state, link.speed, link.mtu);
}

/// What the host has lost before the engine; `max_age`: ns.
std::vector<std::uint64_t> port_counters(const OpenSession& open, int port, std::uint64_t max_age) {
  const Port& found = open.session().port(port);
  const GilRelease unlocked;
  const PortSnapshot losses = found.io->losses(max_age);
  const auto counters = counters_of(losses);
  return {counters.begin(), counters.end()};
}

std::vector<std::uint64_t> plan_losses(const OpenSession& open, int port, std::size_t position,
                                       std::uint64_t max_age) {
  const Session& session = open.session();
  const auto& plan = session.reorder_plans(port).at(position);
  const GilRelease unlocked;
  const PortSnapshot losses = session.losses(plan.ports(), max_age);
  const auto counters = counters_of(losses);
  return {counters.begin(), counters.end()};
}

/// (file descriptor, address on the device, bytes, distance of buffers, bytes before the data)
const memory::MemoryRegion& region_of(const OpenSession& open, const std::string& name) {
  const auto& regions = open.session().memory()->regions;
  const auto found = regions.find(name);
  if (found == regions.end()) {
    std::string names;
    for (const auto& [each, region] : regions) names += (names.empty() ? "'" : ", '") + each + "'";
    throw Error(Status::INVALID_PARAMETER, "no memory region '" + name + "'; there are " + names);
  }
  return *found->second;
}

py::tuple export_dma_buf(const OpenSession& open, const std::string& name) {
  const memory::MemoryRegion& region = region_of(open, name);
  if (open.session().closed()) {
    throw Error(Status::NOT_READY,
                "memory region '" + name + "': the engine is closed; open it again");
  }
  const memory::RegionExtent extent = region.device_extent();
  int file = -1;
  {
    const GilRelease unlocked;
    file = region.export_dma_buf();
  }
  return py::make_tuple(file, reinterpret_cast<std::uintptr_t>(extent.base), extent.bytes,
                        extent.stride, extent.headroom);
}

void set_drop_all(const OpenSession& open, int port, bool on) {
  const Port& found = open.session().port(port);
  const GilRelease unlocked;
  for (const auto& queue : found.rx) queue->set_drop_all(on);
}

/// For each io engine, "available" or the reason why it is not.
py::dict capabilities() {
  const std::map<std::string, std::string> problems = load_engines();
  py::dict states;
  for (const EngineEntry& engine : engines()) {
    const std::string missing = engine.missing();
    states[py::str(std::string(engine.traits.name))] = missing.empty() ? "available" : missing;
  }
  for (const auto& [name, problem] : problems) {
    std::string text = "engine '";
    states[py::str(name)] = text.append(name).append("': ").append(problem);
  }
  return states;
}

/// (names of the counters of a port, of a receive queue, of a transmit queue, of a flow and of a
/// reorder plan, drop reasons)
py::tuple counter_names() {
  std::vector<std::string_view> reasons;
  reasons.reserve(NUM_DROP_REASONS);
  for (std::size_t r = 0; r < NUM_DROP_REASONS; ++r)
    reasons.push_back(drop_reason_name(static_cast<DropReason>(r)));
  return py::make_tuple(SessionSnapshot::port_names(), SessionSnapshot::rx_names(),
                        SessionSnapshot::tx_names(), SessionSnapshot::flow_names(),
                        SessionSnapshot::reorder_names(), reasons);
}

/// The line may have been cut within a character.
py::str text_of(std::string_view line) {
  auto text = py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(line.data(), static_cast<py::ssize_t>(line.size()), "replace"));
  if (!text) throw py::error_already_set();
  return text;
}

/// ([(level, ns, text, interface, queue), ...], lost)
py::tuple log_lines() {
  const LogLines taken = take_log_records();
  py::list lines;
  for (const LogRecord& record : taken.records) {
    lines.append(py::make_tuple(std::string(log_level_name(record.level)), record.time,
                                text_of(record.text), text_of(record.interface),
                                text_of(record.queue)));
  }
  return py::make_tuple(lines, taken.lost);
}

}  // namespace

void bind_session(py::module_& m) {
  py::class_<OpenSession, std::shared_ptr<OpenSession>> bound(
      m, "Session", "A running configuration; wrapped by daqiri_ophyd.engine.Engine.");
  bind_connections(bound);
  bind_record_frames(bound);
  bind_frame_kernel(bound);
  bind_session_flows(bound);
  bound.def_static("open", &open_session, py::arg("config"))
      .def("close", &close_session)
      .def_property_readonly("closed", &OpenSession::closed)
      .def_property_readonly(
          "config", [](const OpenSession& open) { return open.session().current_config(); })
      .def_property_readonly("warnings", &warnings)
      .def(
          "rx_queue",
          [](const std::shared_ptr<OpenSession>& open, int port, int queue) {
            return ReceiveQueue(open, open->session().rx_queue(port, queue));
          },
          py::arg("port"), py::arg("queue"))
      .def(
          "tx_queue",
          [](const std::shared_ptr<OpenSession>& open, int port, int queue) {
            return TransmitQueue(open, open->session().tx_queue(port, queue));
          },
          py::arg("port"), py::arg("queue"))
      .def(
          "take_frames",
          [](const std::shared_ptr<OpenSession>& open, int port, std::size_t position) {
            return std::make_unique<FrameTaker>(open,
                                                open->session().reorder_plans(port).at(position));
          },
          py::arg("port"), py::arg("position"))
      .def(
          "preview_frame",
          [](const OpenSession& open, int port, std::size_t position, std::uint64_t after) {
            return preview_frame(open.session().reorder_plans(port).at(position), after);
          },
          py::arg("port"), py::arg("position"), py::arg("after"))
      .def(
          "reorder_counters",
          [](const OpenSession& open, int port, std::size_t position) {
            auto& plan = open.session().reorder_plans(port).at(position);
            std::vector<std::uint64_t> values;
            // Pollers also take the lock of the plan.
            const GilRelease unlocked;
            const auto counters = plan.counters();
            for (const Counter& counter : counters_of(counters)) values.push_back(counter);
            return values;
          },
          py::arg("port"), py::arg("position"))
      .def(
          "set_mode",
          [](const OpenSession& open, int port, std::size_t position, const std::string& name) {
            auto& plan = open.session().reorder_plans(port).at(position);
            // Pollers also take the lock of the plan.
            const GilRelease unlocked;
            plan.set_mode(name);
          },
          py::arg("port"), py::arg("position"), py::arg("name"))
      .def(
          "mode",
          [](const OpenSession& open, int port, std::size_t position) {
            return open.session().reorder_plans(port).at(position).mode_name();
          },
          py::arg("port"), py::arg("position"))
      .def(
          "frame_rate",
          [](const OpenSession& open, int port, std::size_t position) {
            const Session& session = open.session();
            const auto& plan = session.reorder_plans(port).at(position);
            const GilRelease unlocked;
            return frame_rate_of(session, plan);
          },
          py::arg("port"), py::arg("position"))
      .def(
          "free_buffers",
          [](const OpenSession& open, const std::string& region) {
            return region_of(open, region).levels().free;
          },
          py::arg("region"))
      .def("snapshot",
           [](const OpenSession& open) {
             const Session& session = open.session();
             const GilRelease unlocked;
             return SessionSnapshot::of(session).json();
           })
      .def("counters",
           [](const OpenSession& open) {
             return take_vector<std::uint64_t>(open.session().latest()->row());
           })
      .def(
          "now",
          [](const OpenSession& open, int port) { return open.session().port(port).io->clock()(); },
          py::arg("port"))
      .def("mac_address", &mac_address, py::arg("port"))
      .def("link", &link, py::arg("port"))
      .def("port_counters", &port_counters, py::arg("port"), py::arg("max_age"))
      .def("plan_losses", &plan_losses, py::arg("port"), py::arg("position"), py::arg("max_age"))
      .def("export_dma_buf", &export_dma_buf, py::arg("region"))
      .def(
          "receive_path",
          [](const OpenSession& open, int port, int queue) {
            const Session& session = open.session();
            return receive_path_of(session.port(port), session.rx_queue(port, queue));
          },
          py::arg("port"), py::arg("queue"))
      .def(
          "link_type",
          [](const OpenSession& open, int port) {
            const Session& session = open.session();
            return session.memory()->link_layers.at(session.port(port).id)->link_type();
          },
          py::arg("port"))
      .def("set_drop_all", &set_drop_all, py::arg("port"), py::arg("on"));

  m.def("capabilities", &capabilities);
  m.def("counter_names", &counter_names);
  m.def("attach_log", &attach_log);
  m.def("detach_log", &detach_log);
  m.def("take_log_records", &log_lines);
  watch_forks();
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    const GilRelease unlocked;
    close_all_sessions();
  }));
}

}  // namespace daqiri::python
