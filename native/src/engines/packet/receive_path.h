/// Selects how the frames of an interface are received: AF_PACKET or AF_XDP.
#pragma once

#include <cstdint>
#include <memory>

#include "engines/packet/frame_ring.h"
#include "engines/packet/interface.h"
#include "io/io_engine.h"

namespace daqiri::packet {

/// Opens a ring of about `bytes` as configured for the port (rx.receive_path); logs the path, and
/// the reason if there was a choice. `patience_ms`: see ReceiveRing. Throws Error.
std::shared_ptr<FrameRing> open_receive_path(const Port& port, const NetworkInterface& interface,
                                             std::uint64_t bytes, std::uint32_t patience_ms);

}  // namespace daqiri::packet
