// The configuration without flows: common keys, regions, interfaces, queues.
#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "bindings.h"
#include "config/formats.h"
#include "daqiri/config.h"
#include "daqiri/error.h"
#include "gil.h"
#include "structs.h"

namespace daqiri::python {

namespace {

/// (configuration, problems)
py::tuple as_tuple(NetworkConfig config, const ConfigReport& report) {
  py::list problems;
  for (const ConfigProblem& p : report.problems_) {
    problems.append(
        py::make_tuple(p.severity_ == ConfigProblem::Severity::ERROR ? "error" : "warning", p.file_,
                       p.line_, p.column_, p.path_, p.message_));
  }
  return py::make_tuple(std::move(config), problems);
}

py::tuple parse_config(const std::string& text, const std::string& file, bool positions) {
  NetworkConfig config;
  ConfigReport report = load_config_text(text, file, config);
  if (!positions) {
    for (ConfigProblem& problem : report.problems_) problem.line_ = problem.column_ = 0;
  }
  return as_tuple(std::move(config), report);
}

py::tuple read_config(const std::string& path) {
  NetworkConfig config;
  ConfigReport report;
  {
    const GilRelease unlocked;
    report = load_config_file(path, config);
  }
  return as_tuple(std::move(config), report);
}

py::object to_dict(const NetworkConfig& config) {
  const auto yaml = py::module_::import("yaml");
  // Nine times as fast, where PyYAML has libyaml.
  const auto safe = py::getattr(yaml, "CSafeLoader", yaml.attr("SafeLoader"));
  return yaml.attr("load")(config_to_yaml(config), safe);
}

std::vector<std::string> access_words(const MemoryRegionConfig& region) {
  std::vector<std::string> words;
  for (const config::Name& name : config::MEMORY_ACCESS) {
    if ((region.access_ & static_cast<std::uint32_t>(name.value)) != 0)
      words.emplace_back(name.text);
  }
  return words;
}

/// In the order of the configuration file.
std::vector<MemoryRegionConfig> regions(const NetworkConfig& config) {
  std::vector<MemoryRegionConfig> all;
  for (const MemoryRegionConfig* region : memory_regions(config)) all.push_back(*region);
  return all;
}

template <typename Queue>
Struct<Queue> queue_struct(py::module_& m, const char* name, const char* doc) {
  Struct<Queue> queue(m, name, doc);
  queue.value("name", [](const Queue& q) { return q.common_.name_; })
      .value("id", [](const Queue& q) { return q.common_.id_; })
      .value("poll_mode",
             [](const Queue& q) { return config::text_of(config::POLL_MODES, q.poll_mode_); })
      .value("cpu_core", [](const Queue& q) { return q.common_.cpu_core_; })
      .value("batch_size", [](const Queue& q) { return q.common_.batch_size_; })
      .value("memory_regions", [](const Queue& q) { return q.common_.mrs_; })
      .value("timeout_us", [](const Queue& q) { return q.timeout_us_; });
  return queue;
}

void bind_queue_structs(py::module_& m) {
  queue_struct<RxQueueConfig>(m, "RxQueueConfig", "A receive queue of the configuration.")
      .value("split_boundary", [](const RxQueueConfig& q) { return q.common_.split_boundary_; })
      .finish();
  queue_struct<TxQueueConfig>(m, "TxQueueConfig", "A transmit queue of the configuration.")
      .value("offloads", [](const TxQueueConfig& q) { return q.common_.offloads_; })
      .member("pacing_mbps", &TxQueueConfig::pacing_mbps_)
      .member("realtime_priority", &TxQueueConfig::realtime_priority_)
      .finish();
}

void bind_interface_structs(py::module_& m) {
  Struct<MemoryRegionConfig>(m, "MemoryRegionConfig", "A memory region of the configuration.")
      .member("name", &MemoryRegionConfig::name_)
      .word("kind", &MemoryRegionConfig::kind_, config::MEMORY_KINDS)
      .member("affinity", &MemoryRegionConfig::affinity_)
      .value("access", &access_words)
      .member("num_bufs", &MemoryRegionConfig::num_bufs_)
      .member("buf_size", &MemoryRegionConfig::buf_size_)
      .member("owned", &MemoryRegionConfig::owned_)
      .finish();
  Struct<SocketConfig>(m, "SocketConfig", "The socket of an interface.")
      .word("mode", &SocketConfig::mode_, config::SOCKET_MODES)
      .value("local_addr", [](const SocketConfig& s) { return given_text(s.local_addr_); })
      .value("remote_addr", [](const SocketConfig& s) { return given_text(s.remote_addr_); })
      .member("max_payload_size", &SocketConfig::max_payload_size_)
      .member("max_burst_interval_ms", &SocketConfig::max_burst_interval_ms_)
      .member("min_ipg_ns", &SocketConfig::min_ipg_ns_)
      .member("retry_connect_s", &SocketConfig::retry_connect_s_)
      .finish();
  Struct<RoCEConfig>(m, "RoCEConfig", "RoCE settings of an interface.")
      .member("transport_mode", &RoCEConfig::transport_mode_)
      .finish();
  Struct<RxConfig>(m, "RxConfig", "The receive side of an interface.")
      .member("flow_isolation", &RxConfig::flow_isolation_)
      .member("hardware_timestamps", &RxConfig::hardware_timestamps_)
      .member("dynamic_flow_capacity", &RxConfig::dynamic_flow_capacity_)
      .member("filter", &RxConfig::filter_)
      .word("receive_path", &RxConfig::receive_path_, config::RECEIVE_PATHS)
      .member("queues", &RxConfig::queues_)
      .member("flex_items", &RxConfig::flex_items_)
      .member("flows", &RxConfig::flows_)
      .member("reorder_configs", &RxConfig::reorder_configs_)
      .finish();
  Struct<TxConfig>(m, "TxConfig", "The transmit side of an interface.")
      .member("accurate_send", &TxConfig::accurate_send_)
      .member("queues", &TxConfig::queues_)
      .member("flows", &TxConfig::flows_)
      .finish();
  Struct<InterfaceConfig>(m, "InterfaceConfig", "An interface of the configuration.")
      .member("name", &InterfaceConfig::name_)
      .member("address", &InterfaceConfig::address_)
      .value("socket_config",
             [](const InterfaceConfig& i) { return optional_value(i.has_socket_, i.socket_); })
      .value("roce_config",
             [](const InterfaceConfig& i) { return optional_value(i.has_roce_, i.roce_); })
      .member("rx", &InterfaceConfig::rx_)
      .member("tx", &InterfaceConfig::tx_)
      .finish();
}

}  // namespace

void bind_config(py::module_& m) {
  bind_queue_structs(m);
  bind_interface_structs(m);
  const auto common = [](auto CommonConfig::* at) {
    return [at](const NetworkConfig& c) { return c.common_.*at; };
  };
  Struct<NetworkConfig> config(m, "NetworkConfig", R"doc(A validated configuration.

Attributes have the names of the keys of the configuration file and cannot be set. Words of the file
(``stream_type``, ``kind``, ...) are str, lists are tuples, and omitted keys have their defaults.
Created by `load_config`; compares by value; can be pickled.)doc");
  config.value("version", common(&CommonConfig::version))
      .value("master_core", common(&CommonConfig::master_core_))
      .value("stream_type",
             [](const NetworkConfig& c) {
               return config::text_of(config::STREAM_TYPES, c.common_.stream_type);
             })
      .value("engine", [](const NetworkConfig& c) { return config::engine_name(c.common_); })
      .word("log_level", &NetworkConfig::log_level_, config::LOG_LEVELS)
      .member("debug", &NetworkConfig::debug_)
      .value("loopback",
             [](const NetworkConfig& c) {
               return config::text_of(config::LOOPBACK_TYPES, c.common_.loopback_);
             })
      .value("loopback_drops", common(&CommonConfig::loopback_drops_))
      .member("tx_meta_buffers", &NetworkConfig::tx_meta_buffers_)
      .member("rx_meta_buffers", &NetworkConfig::rx_meta_buffers_)
      .member("ship_to", &NetworkConfig::ship_to_)
      .value("memory_regions", &regions)
      .member("interfaces", &NetworkConfig::ifs_)
      .member("reorder_configs", &NetworkConfig::reorder_configs_);
  config.finish()
      .def("to_yaml", &config_to_yaml,
           R"doc(Return the configuration as YAML, with all defaults written out.

Returns
-------
str
    Text that `load_config` reads back to an equal configuration.)doc")
      .def("to_dict", &to_dict,
           R"doc(Return the configuration as plain Python, with all defaults written out.

Returns
-------
dict
    The contents of the YAML of `to_yaml`.)doc")
      .def(py::pickle([](const NetworkConfig& c) { return config_to_yaml(c); },
                      [](const std::string& yaml) {
                        NetworkConfig c;
                        const ConfigReport report = load_config_text(yaml, "<pickle>", c);
                        if (!report.ok()) throw Error(Status::INVALID_PARAMETER, report.text());
                        return c;
                      }));
  m.def("parse_config", &parse_config, py::arg("text"), py::arg("file"), py::arg("positions"));
  m.def("read_config", &read_config, py::arg("path"));
  m.def("store_address_error", &config::store_address_error, py::arg("text"));
}

}  // namespace daqiri::python
