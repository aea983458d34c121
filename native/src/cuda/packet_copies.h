/// Copies packets to a GPU and back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "cuda/driver.h"
#include "cuda/kernel.h"
#include "memory/buffers.h"

namespace daqiri::cuda {

/// Launches one kernel per burst, in its own stream. Packets on the host are in pinned memory.
class PacketCopies final : public memory::DeviceCopies {
 public:
  /// Throws Error; `what` names the user of the copies.
  PacketCopies(std::ptrdiff_t distance, std::string what, int gpu);
  PacketCopies(const PacketCopies&) = delete;
  PacketCopies& operator=(const PacketCopies&) = delete;
  ~PacketCopies() override;

  cudaEvent_t to_device(const Packets& packets, cudaEvent_t after) override;
  void to_host(const Packets& packets, Behind behind) override;
  void gather(const Packets& packets, std::uint64_t to, std::size_t width) override;
  void wait_for(cudaEvent_t event) override;
  void finish() noexcept override;
  [[nodiscard]] int gpu() const noexcept override { return gpu_; }
  /// From now on, network cards write packets to the GPU. `flush`: what follows on the GPU sees
  /// them only after the driver was told to wait for them. Before the session runs.
  void follow_cards(bool flush) noexcept { flushes_ = flush; }
  /// What network cards have written is seen by what follows on the GPU. Returns false if the GPU
  /// has failed. Any thread.
  [[nodiscard]] bool flush() const noexcept;

 private:
  // Called with the mutex held. They return the event of the last launch.

  /// Copy packets to their address on the other side.
  using Place = void* (DeviceCopies::*)(void*) const noexcept;
  void* copy(const Context& context, const Packets& packets, Place place);
  /// Launch copies that `fill` writes, repeatedly until it has counted all packets.
  template <typename Fill>
  void* launch(const Context& context, std::uint32_t packets, Fill fill);
  void flush(const Context& context) const;
  void require(const Context& context, Result result) const;

  std::string what_;
  int gpu_;
  Kernel kernel_;
  bool flushes_{false};
  std::mutex mutex_;  // for the members below
  Stream stream_;
  std::array<PinnedLaunch, 8> launches_;
  std::size_t next_{0};
  /// Event of the latest copies to the GPU; null: there were none.
  void* begun_{nullptr};
};

}  // namespace daqiri::cuda
