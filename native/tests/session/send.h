/// Sends packets of a test through a transmit queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "io/tx_queue.h"
#include "timing/clock.h"

namespace daqiri::test {

/// Sends `count` packets with the bytes of `make(i)`; waits for buffers, for at most `timeout_ns`,
/// or until the session is closed. Launch times start at `launch` and are `gap` apart; 0 for none.
template <typename Make>
bool send_packets(TxQueue& tx, std::uint32_t count, std::uint64_t launch, std::uint64_t gap,
                  std::uint64_t timeout_ns, Make&& make) {
  const std::uint64_t end = monotonic_ns() + timeout_ns;
  for (std::uint32_t sent = 0; sent < count;) {
    const std::uint32_t n = std::min(count - sent, tx.batch_size());
    Burst* burst = nullptr;
    const Status allocated = tx.allocate(n, &burst);
    if (allocated != Status::SUCCESS) {
      if (allocated == Status::NOT_READY || monotonic_ns() > end) return false;
      tx.wait_free(10'000'000);
      continue;
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto bytes = make(sent + i);
      std::memcpy(burst->pkts[0][i], bytes.data(), bytes.size());
      burst->pkt_lens[0][i] = static_cast<std::uint32_t>(bytes.size());
      if (launch != 0) burst->timestamps[i] = launch + gap * (sent + i);
    }
    if (tx.send(burst) == Status::SUCCESS) sent += n;
  }
  return true;
}

}  // namespace daqiri::test
