/// Memory in which AF_XDP sockets receive frames.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "memory/buffers.h"

namespace daqiri::packet {

/// Chunks of equal size, each with a frame or a part of one; buffer numbers are chunk numbers.
class Umem final : public memory::BufferOwner {
 public:
  /// Free bytes before a frame (XDP_PACKET_HEADROOM of the kernel).
  static constexpr std::uint32_t HEADROOM = 256;

  /// `bytes` is rounded down to whole chunks. Throws Error.
  Umem(const std::string& interface, std::uint64_t bytes, std::uint32_t chunk_bytes);
  ~Umem() override;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return std::size_t{chunks_} * chunk_bytes_; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] std::uint32_t chunk_bytes() const noexcept { return chunk_bytes_; }
  [[nodiscard]] std::uint32_t chunk_at(std::uint64_t place) const noexcept {
    return static_cast<std::uint32_t>(place / chunk_bytes_);
  }

  // --- Poller.

  /// Take up to `n` free chunks. Returns how many were taken.
  std::uint32_t take(std::uint32_t* chunks, std::uint32_t n) noexcept {
    return free_.take(chunks, n);
  }
  /// Return chunks that are not kept.
  void put_back(const std::uint32_t* chunks, std::uint32_t n) noexcept { free_.give(chunks, n); }
  /// Keep a taken chunk until it was freed `times` times.
  void keep(std::uint32_t chunk, std::uint32_t times) noexcept {
    uses_[chunk].store(times, std::memory_order_relaxed);
    ++kept_;
  }
  [[nodiscard]] std::uint32_t kept() const noexcept {
    return kept_ - given_.load(std::memory_order_relaxed);
  }
  /// Number of free chunks.
  [[nodiscard]] std::uint32_t available() const noexcept { return free_.available(); }
  /// Note that the kernel has a taken chunk, for a queue of the network card.
  void lend(std::uint32_t chunk, std::uint32_t queue) noexcept {
    uses_[chunk].store(LENT | queue, std::memory_order_relaxed);
  }
  /// Free the chunks that the kernel had for a queue and can no longer write to. Returns their
  /// number.
  std::uint32_t recover(std::uint32_t queue);

  /// Any thread.
  void give(const std::uint32_t* chunks, std::uint32_t n) noexcept override;

 private:
  static constexpr std::uint32_t LENT = 1U << 31U;

  /// A child made by fork(2) does not have the memory.
  pid_t process_{getpid()};
  std::uint32_t chunk_bytes_;
  std::uint32_t chunks_;
  std::byte* base_{nullptr};
  memory::FreeList free_;
  /// Uses of each kept chunk; of one that the kernel has, LENT and the queue, which stay there
  /// until it is kept or lent again.
  std::unique_ptr<std::atomic<std::uint32_t>[]> uses_;
  /// Chunks kept until now, counted by the poller, and those of them that are free again. Two
  /// counts, because threads that change one would wait for each other.
  std::uint32_t kept_{0};
  alignas(64) std::atomic<std::uint32_t> given_{0};
};

}  // namespace daqiri::packet
