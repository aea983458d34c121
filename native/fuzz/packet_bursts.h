/// Bursts whose contents depend on the numbers of the packets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "burst/burst.h"
#include "memory/region.h"
#include "require.h"

namespace daqiri::fuzz {

/// Makes one burst at a time and keeps a copy of the packets.
class PacketBursts {
 public:
  static constexpr std::uint32_t CAPACITY = 64;
  static constexpr std::uint32_t LONGEST = 1500;

  explicit PacketBursts(int segments) : pool_(1, CAPACITY, segments, false) {
    for (int s = 0; s < segments; ++s) {
      MemoryRegionConfig config;
      config.name_ = "segment" + std::to_string(s);
      config.num_bufs_ = CAPACITY;
      config.buf_size_ = LONGEST;
      regions_.push_back(memory::MemoryRegion::allocate(config));
    }
  }

  /// Makes `count` packets; `next_length()` gives the lengths of the segments.
  template <typename NextLength>
  std::unique_ptr<Burst, void (*)(Burst*)> make(std::uint32_t count, NextLength&& next_length) {
    Burst* burst = pool_.take();
    require(burst != nullptr, "the burst before was released");
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::size_t s = 0; s < regions_.size(); ++s) {
        burst->owners[s] = regions_[s].get();
        require(regions_[s]->take(&burst->buffers[s][i], 1) == 1, "there are buffers for all");
        burst->pkts[s][i] = regions_[s]->address(burst->buffers[s][i]);
        const std::uint32_t length = next_length();
        burst->pkt_lens[s][i] = length;
        auto* at = static_cast<std::uint8_t*>(burst->pkts[s][i]);
        for (std::uint32_t b = 0; b < length; ++b)
          at[b] = static_cast<std::uint8_t>(number_ * 131 + s * 17 + b);
        burst->hdr.hdr.nbytes += length;
      }
      burst->timestamps[i] = 1'700'000'000'000'000'001ULL + number_ * 1'000'003;
      burst->flow_ids[i] = static_cast<FlowId>(number_ % 5);
      ++number_;
      burst->hdr.hdr.num_pkts = burst->owned = i + 1;
    }
    return {burst, [](Burst* done) { done->release(); }};
  }

 private:
  std::vector<std::unique_ptr<memory::MemoryRegion>> regions_;
  BurstPool pool_;
  std::uint64_t number_{0};
};

/// The bytes of all segments of a packet.
inline std::vector<std::uint8_t> bytes_of(const Burst& burst, std::uint32_t packet) {
  std::vector<std::uint8_t> bytes;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const auto* data = static_cast<const std::uint8_t*>(burst.pkts[s][packet]);
    bytes.insert(bytes.end(), data, data + burst.pkt_lens[s][packet]);
  }
  return bytes;
}

}  // namespace daqiri::fuzz
