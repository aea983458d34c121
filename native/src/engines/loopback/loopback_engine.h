/// Transmit queues feed receive queues in memory: no NIC, no privileges.
#pragma once

#include <memory>

#include "session/io_engine.h"

namespace daqiri {

std::unique_ptr<IoEngine> make_loopback_engine();

}  // namespace daqiri
