/// Losses that drivers count under names of their own only (xstats).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace daqiri::dpdk {

class NamedLosses {
 public:
  /// Find the counters of a device that has its queues. Some drivers have others before.
  void find(std::uint16_t device) noexcept;

  struct Counts {
    /// The memory of the card was full.
    std::uint64_t card{0};
    /// Damaged frames, and frames of wrong length.
    std::uint64_t errors{0};
  };
  /// Since the device counts.
  [[nodiscard]] Counts read(std::uint16_t device) const noexcept;

 private:
  static constexpr std::size_t MOST = 3;

  std::array<std::uint64_t, MOST> ids_{};
  std::array<std::uint64_t Counts::*, MOST> kinds_{};
  unsigned count_{0};
};

}  // namespace daqiri::dpdk
