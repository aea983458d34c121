#include "flow_rules.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "api/call.h"
#include "bindings.h"
#include "burst_params.h"
#include "config/schema.h"
#include "daqiri/daqiri.h"
#include "gil.h"
#include "session/flow_changes.h"

namespace daqiri::python {

namespace py = pybind11;

namespace {

using Rules = std::vector<FlowRuleConfig>;

/// `text` is YAML: a map `flows` with a list of flows, as in a configuration file. `names` are the
/// names of the flows and may be empty. Throws Error INVALID_PARAMETER with all errors.
Rules read_rules(const std::string& text, const std::vector<std::string>& names) {
  config::Findings findings("<flows>");
  config::Document document;
  if (const auto problem = config::parse_yaml(text, document))
    throw Error(Status::INVALID_PARAMETER, problem->message);
  std::vector<FlowConfig> flows;
  config::Fields fields(document.root, config::Place(findings), config::UnknownKeys::REFUSED);
  fields.run([&](config::Fields& root) {
    root.list(config::required("flows"), flows, [](config::Fields& inner, FlowConfig& flow) {
      config::walk_flow(inner, flow, true);
    });
  });
  std::string wrong;
  for (const ConfigProblem& problem : std::move(findings).report().problems_) {
    if (problem.severity_ == ConfigProblem::Severity::ERROR)
      wrong += (wrong.empty() ? "" : "\n") + problem.path_ + ": " + problem.message_;
  }
  if (!wrong.empty()) throw Error(Status::INVALID_PARAMETER, wrong);
  Rules rules;
  rules.reserve(flows.size());
  for (std::size_t i = 0; i < flows.size(); ++i) {
    FlowConfig& flow = flows[i];
    rules.push_back({i < names.size() ? names[i] : flow.name_, std::move(flow.action_),
                     std::move(flow.actions_), flow.match_});
  }
  return rules;
}

/// (status, operation)
template <typename Begin>
py::tuple begun(const char* call, Begin begin) {
  FlowOpId op = 0;
  Status status{};
  {
    const GilRelease released;
    status = api::guarded(call, [&] { return begin(&op); });
  }
  return py::make_tuple(status_object(status), op);
}

/// [(flow, key, whether it was added at run time), ...]
py::list listed(const OpenSession& open, int port) {
  py::list flows;
  for (const steering::InstalledFlow& flow : open.session().port(port).flows->listed())
    flows.append(py::make_tuple(*flow.config, flow.key, flow.added));
  return flows;
}

}  // namespace

void bind_flow_calls(py::module_& m) {
  m.def(
      "add_rx_flow_async",
      [](int port, const std::string& text, const std::vector<std::string>& names) {
        return begun("add_rx_flow_async", [&](FlowOpId* op) {
          return add_rx_flow_async(port, read_rules(text, names).at(0), op);
        });
      },
      py::arg("port"), py::arg("flows"), py::arg("names"),
      "Begin to add a flow; return the status and the operation.");
  m.def(
      "add_rx_flows_async",
      [](int port, const std::string& text, const std::vector<std::string>& names) {
        return begun("add_rx_flows_async", [&](FlowOpId* op) {
          return add_rx_flows_async(port, read_rules(text, names), op);
        });
      },
      py::arg("port"), py::arg("flows"), py::arg("names"),
      "Begin to add flows; return the status and the operation.");
  m.def(
      "delete_flow_async",
      [](FlowId flow) {
        return begun("delete_flow_async",
                     [&](FlowOpId* op) { return delete_flow_async(flow, op); });
      },
      py::arg("flow_id"), "Begin to delete an added flow; return the status and the operation.");
  m.def(
      "poll_flow_op",
      [] {
        FlowOpResult done;
        const Status status = poll_flow_op(&done);
        return py::make_tuple(status_object(status), done.op_id_, static_cast<int>(done.type_),
                              status_object(done.status_), done.flow_id_, done.flow_ids_);
      },
      "Return the status and the members of a completed operation.");
}

void bind_session_flows(py::class_<OpenSession, std::shared_ptr<OpenSession>>& bound) {
  bound.def("flows", &listed, py::arg("port"))
      .def(
          "flow_counters",
          [](const OpenSession& open, int port, std::uint64_t key) {
            const FlowSnapshot counts = open.session().port(port).flows->counts(key);
            return std::make_pair(counts.packets.value, counts.bytes.value);
          },
          py::arg("port"), py::arg("key"))
      .def(
          "flow_offload",
          [](const OpenSession& open, int port, std::uint64_t key) {
            return open.session().port(port).flows->find(key).offload;
          },
          py::arg("port"), py::arg("key"))
      .def(
          "flow_offload_reason",
          [](const OpenSession& open, int port, std::uint64_t key) {
            return open.session().port(port).flows->find(key).offload_reason;
          },
          py::arg("port"), py::arg("key"))
      .def(
          "add_flows",
          [](const OpenSession& open, int port, const std::string& text) {
            Session& session = open.session();
            std::vector<steering::Addition> added;
            {
              const GilRelease unlocked;
              added = session.flow_changes().add(port, read_rules(text, {}));
            }
            py::list flows;
            for (const steering::Addition& each : added)
              flows.append(py::make_tuple(each.flow, each.key, true));
            return flows;
          },
          py::arg("port"), py::arg("flows"))
      .def(
          "remove_flow",
          [](const OpenSession& open, FlowId flow) {
            Session& session = open.session();
            const GilRelease unlocked;
            session.flow_changes().remove(flow);
          },
          py::arg("flow"))
      .def(
          "change_flows",
          [](const OpenSession& open, const NetworkConfig& config) {
            Session& session = open.session();
            const GilRelease unlocked;
            session.configure_flows(config);
          },
          py::arg("config"))
      .def(
          "check_flows",
          [](const OpenSession& open, const NetworkConfig& config) {
            const Session& session = open.session();
            const GilRelease unlocked;
            session.flow_changes().check(config);
          },
          py::arg("config"));
}

}  // namespace daqiri::python
