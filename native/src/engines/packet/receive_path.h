/// Selects how the frames of an interface are received: AF_PACKET or AF_XDP.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engines/packet/frame_ring.h"
#include "engines/packet/interface.h"
#include "io/io_engine.h"

namespace daqiri::packet {

/// A thread that reads a ring: its first queue, and the size of its ring.
struct Reader {
  RxQueue* first;
  std::uint64_t ring_bytes;
};

/// Opens rings as configured for the port (rx.receive_path): one for each reader, among which the
/// kernel distributes frames by their queues, or one for all. Logs the path, and the reason if
/// there was a choice. `patience_ms`: see ReceiveRing. Throws Error.
std::vector<std::shared_ptr<FrameRing>> open_receive_path(const Port& port,
                                                          const NetworkInterface& interface,
                                                          const std::vector<Reader>& readers,
                                                          std::uint32_t patience_ms);

}  // namespace daqiri::packet
