/// The io engine of kernel sockets: one UDP socket per interface.
#pragma once

#include <memory>

#include "session/io_engine.h"

namespace daqiri {

/// An engine for the socket interfaces of a validated configuration; `IoEngine::open` makes the
/// sockets. Throws Error NOT_SUPPORTED, naming the interface, for endpoints that are not UDP.
std::unique_ptr<IoEngine> make_socket_engine(const NetworkConfig& config);

}  // namespace daqiri
