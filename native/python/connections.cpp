// Connections of socket streams.
#include "connections.h"

#include <string>
#include <string_view>
#include <vector>

#include "daqiri/error.h"
#include "gil.h"

namespace daqiri::python {

namespace py = pybind11;

namespace {

const char* name_of(ConnectionState state) noexcept {
  switch (state) {
    case ConnectionState::LISTENING:
      return "listening";
    case ConnectionState::CONNECTING:
      return "connecting";
    case ConnectionState::CONNECTED:
      return "connected";
    case ConnectionState::CLOSED:
      break;
  }
  return "closed";
}

/// Rows of id, peer, local, state, error.
py::list connections(const OpenSession& open, int port) {
  std::vector<ConnectionInfo> all;
  {
    const std::uint16_t id = open.session().port(port).id;
    const GilRelease unlocked;
    const Connections* connections = open.session().find_connections();
    if (connections != nullptr) all = connections->list(id);
  }
  py::list rows;
  for (const ConnectionInfo& each : all) {
    rows.append(py::make_tuple(each.id, each.peer, each.local, name_of(each.state), each.error));
  }
  return rows;
}

std::uintptr_t connect(const OpenSession& open, const std::string& address, std::uint16_t port,
                       const std::string& source) {
  Session& session = open.session();
  if (session.closed())
    throw Error(Status::NOT_READY, "cannot connect: the engine is closed; open it again");
  const GilRelease unlocked;
  return session.connections().connect(address, port, source);
}

std::uintptr_t server_connection(const OpenSession& open, const std::string& address,
                                 std::uint16_t port) {
  const GilRelease unlocked;
  return open.session().connections().server_at(address, port);
}

void set_option(const OpenSession& open, std::uintptr_t connection, int level, int option,
                const std::string& value) {
  const GilRelease unlocked;
  open.session().connections().set_socket_option(connection, level, option, value.data(),
                                                 value.size());
}

}  // namespace

void bind_connections(py::class_<OpenSession, std::shared_ptr<OpenSession>>& session) {
  session.def("connections", &connections, py::arg("port"))
      .def("connect", &connect, py::arg("address"), py::arg("port"), py::arg("source"))
      .def("server_connection", &server_connection, py::arg("address"), py::arg("port"))
      .def(
          "set_socket_option",
          [](const OpenSession& open, std::uintptr_t connection, int level, int option,
             const py::bytes& value) { set_option(open, connection, level, option, value); },
          py::arg("connection"), py::arg("level"), py::arg("option"), py::arg("value"));
}

}  // namespace daqiri::python
