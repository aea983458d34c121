// The documented functions on the engine, its ports and its connections, for Python.
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "api/call.h"
#include "bindings.h"
#include "buffer_bytes.h"
#include "burst_params.h"
#include "session/snapshot.h"
#include "system/log.h"

namespace daqiri::python {

namespace {

/// Wraps a function without a burst; it runs without the interpreter lock.
template <typename Result, typename... Args>
auto without_lock(Result (*function)(Args...)) {
  return [function](Args... args) {
    const auto call = [&] {
      const GilRelease released;
      return function(args...);
    };
    if constexpr (std::is_void_v<Result>) {
      call();
    } else {
      return as_result(call());
    }
  };
}

/// The message may have been cut within a character.
py::str reason_text() {
  const std::string_view text = last_error();
  auto decoded = py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace"));
  if (!decoded) throw py::error_already_set();
  return decoded;
}

void print_table() {
  std::string table;
  api::with_session("print_stats",
                    [&](const Session& session) { table = SessionSnapshot::of(session).table(); });
  // Print to sys.stdout.
  py::print(table, py::arg("end") = "", py::arg("flush") = true);
}

/// (status, configuration, engine)
py::tuple with_engine(Status status, NetworkConfig config) {
  const auto engine = static_cast<int>(config.common_.engine_type);
  return py::make_tuple(status_object(status), std::move(config), engine);
}

auto reading(Status (*parse)(const std::string&, NetworkConfig&)) {
  return [parse](const std::string& source) {
    NetworkConfig config;
    Status status{};
    {
      const GilRelease released;
      status = parse(source, config);
    }
    return with_engine(status, std::move(config));
  };
}

/// (status, address)
py::tuple port_address(int port) {
  std::array<char, 6> mac{};
  const Status status = get_mac_addr(port, mac.data());
  std::string text;
  if (status == Status::SUCCESS) {
    for (const char byte : mac) {
      std::array<char, 4> pair{};
      std::snprintf(pair.data(), pair.size(), ":%02x", static_cast<std::uint8_t>(byte));
      text += text.empty() ? pair.data() + 1 : pair.data();
    }
  }
  return py::make_tuple(status_object(status), text);
}

py::bytes mac_bytes(const std::string& address) {
  std::array<char, 6> mac{};
  format_eth_addr(mac.data(), address);
  return {mac.data(), mac.size()};
}

using ConnectFrom = Status (*)(const std::string&, std::uint16_t, const std::string&,
                               std::uintptr_t*);
using FindServer = Status (*)(const std::string&, std::uint16_t, std::uintptr_t*);
using FindQueue = Status (*)(std::uintptr_t, std::uint16_t*, std::uint16_t*);

/// (status, connection)
auto connecting(ConnectFrom connect) {
  return [connect](const std::string& address, std::uint16_t port, const std::string& source) {
    std::uintptr_t connection = 0;
    Status status{};
    {
      const GilRelease released;
      status = connect(address, port, source, &connection);
    }
    return py::make_tuple(status_object(status), connection);
  };
}

auto finding_server(FindServer find) {
  return [find](const std::string& address, std::uint16_t port) {
    std::uintptr_t connection = 0;
    const Status status = find(address, port, &connection);
    return py::make_tuple(status_object(status), connection);
  };
}

/// (status, port, queue)
auto finding_queue(FindQueue find) {
  return [find](std::uintptr_t connection) {
    std::uint16_t port = 0;
    std::uint16_t queue = 0;
    const Status status = find(connection, &port, &queue);
    return py::make_tuple(status_object(status), port, queue);
  };
}

/// A number becomes an int in C; text becomes its bytes.
py::object set_any_option(std::uintptr_t connection, int level, int option,
                          const py::object& value) {
  const auto set = [&](const void* data, std::size_t size) {
    return status_object(socket_setsockopt(connection, level, option, data, size));
  };
  if (py::isinstance<py::int_>(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow != 0 || number < std::numeric_limits<int>::min() ||
        number > std::numeric_limits<int>::max()) {
      return status_object(api::fail(Status::INVALID_PARAMETER, "socket_setsockopt",
                                     "the value does not fit a C int; pass the option's bytes"));
    }
    const auto narrow = static_cast<int>(number);
    return set(&narrow, sizeof narrow);
  }
  if (py::isinstance<py::str>(value)) {
    const auto text = value.cast<std::string>();
    return set(text.data(), text.size());
  }
  if (PyObject_CheckBuffer(value.ptr()) == 0) {
    throw py::type_error("socket_setsockopt: value is " +
                         py::repr(py::type::of(value)).cast<std::string>() +
                         "; accepted are bool, int, str and bytes");
  }
  const BufferBytes bytes(value);
  return set(bytes.data(), bytes.size());
}

void bind_connection_calls(py::module_& m) {
  m.def("socket_connect_to_server", connecting(&socket_connect_to_server), py::arg("server_addr"),
        py::arg("server_port"), py::arg("src_addr") = "",
        "Connect to a server; return the status and the connection.");
  m.def("socket_get_server_conn_id", finding_server(&socket_get_server_conn_id),
        py::arg("server_addr"), py::arg("server_port"),
        "Return the status and the connection of the server that listens at this address.");
  m.def("socket_get_port_queue", finding_queue(&socket_get_port_queue), py::arg("conn_id"),
        "Return the status, and the port and queue of a connection.");
  m.def("socket_setsockopt", &set_any_option, py::arg("conn_id"), py::arg("level"),
        py::arg("optname"), py::arg("value"), "Set an option of a connection's socket.");
  m.def("rdma_connect_to_server", connecting(&rdma_connect_to_server), py::arg("server_addr"),
        py::arg("server_port"), py::arg("src_addr") = "",
        "Connect to a server; return the status and the connection.");
  m.def("rdma_get_server_conn_id", finding_server(&rdma_get_server_conn_id), py::arg("server_addr"),
        py::arg("server_port"),
        "Return the status and the connection of the server that listens at this address.");
  m.def("rdma_get_port_queue", finding_queue(&rdma_get_port_queue), py::arg("conn_id"),
        "Return the status, and the port and queue of a connection.");
}

}  // namespace

void bind_engine_calls(py::module_& m) {
  m.def(
      "daqiri_init",
      [](const NetworkConfig& config) {
        NetworkConfig completed = config;
        Status status{};
        {
          const GilRelease released;
          status = daqiri_init(completed);
        }
        py::dict sizes;
        for (const auto& [name, region] : completed.mrs_)
          sizes[py::str(name)] = py::make_tuple(region.adj_size_, region.ttl_size_);
        return with_engine(status, std::move(completed)) + py::make_tuple(sizes);
      },
      py::arg("config"),
      "Start the engine; return the status, the adjustments, the engine's number, and the "
      "distance of buffers and the total bytes, by memory region.");
  m.def("parse_network_config", reading(&parse_network_config), py::arg("yaml_string_or_path"),
        "Return the status, the configuration, and the engine's number.");
  m.def("parse_network_config_from_yaml_string", reading(&parse_network_config_from_yaml_string),
        py::arg("yaml_string"), "Return the status, the configuration, and the engine's number.");
  m.def("parse_network_config_from_yaml_file", reading(&parse_network_config_from_yaml_file),
        py::arg("yaml_path"), "Return the status, the configuration, and the engine's number.");
  m.def("daqiri_init_from_path_or_text",
        without_lock(static_cast<Status (*)(const std::string&)>(&daqiri_init)), py::arg("config"),
        "Start from a file named by the text, or from the text itself.");
  m.def("daqiri_init_from_yaml_string", without_lock(&daqiri_init_from_yaml_string),
        py::arg("yaml_string"), "Start from text.");
  m.def("daqiri_init_from_yaml_file", without_lock(&daqiri_init_from_yaml_file),
        py::arg("yaml_path"), "Start from a file.");
  m.def("shutdown", without_lock(&shutdown), "Stop; bursts that are held stay readable.");
  m.def("print_stats", &print_table, "Print the counters of every queue.");
  m.def(
      "get_engine_type", [] { return static_cast<int>(get_engine_type()); },
      "Running engine; -1 if there is none.");
  m.def("last_error", &reason_text, "Cause of this thread's last failed call.");
  m.def(
      "fail",
      [](int status, const std::string& call, const std::string& text) {
        return status_object(api::fail(static_cast<Status>(status), call.c_str(), text));
      },
      py::arg("status"), py::arg("call"), py::arg("reason"),
      "Set last_error, log it, and return the status.");
  m.def(
      "log_warning", [](const std::string& text) { log(LogLevel::WARN, text); }, py::arg("text"),
      "Write a line to the engine's log.");
  m.def("abi_version", &abi_version,
        "Programs built against one value run with any library that has the same value.");

  m.def("get_mac_addr", &port_address, py::arg("port"),
        "Return the status and a port's Ethernet address.");
  m.def("format_eth_addr", &mac_bytes, py::arg("addr"),
        "The 6 bytes of aa:bb:cc:dd:ee:ff; zeros for anything else.");
  m.def("get_port_id", &get_port_id, py::arg("key"), "Port with this name or address; -1 if none.");
  m.def("get_num_rx_queues", &get_num_rx_queues, py::arg("port_id"),
        "Receive queues of a port; 0 if there is no such port.");
  m.def("drop_all_traffic", without_lock(&drop_all_traffic), py::arg("port"),
        "Drop arriving packets and queued packets.");
  m.def("allow_all_traffic", without_lock(&allow_all_traffic), py::arg("port"),
        "End drop_all_traffic.");
  m.def("flush_port_queue", without_lock(&flush_port_queue), py::arg("port"), py::arg("queue"),
        "Drop queued packets.");
  bind_connection_calls(m);
}

}  // namespace daqiri::python
