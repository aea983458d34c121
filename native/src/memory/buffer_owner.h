/// Who gets packet buffers back.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace daqiri::memory {

/// Buffers known by number: of a memory region, of a kernel's ring of blocks, of a driver's pool.
///
/// An engine that delivers from memory of its own implements this, and gives its session a share of
/// it (SessionMemory::owners): packets may be held long after the session is closed.
class BufferOwner {
 public:
  BufferOwner(std::string name, std::uint32_t buf_size, bool host_readable)
      : name_(std::move(name)), buf_size_(buf_size), host_readable_(host_readable) {}
  BufferOwner(const BufferOwner&) = delete;
  BufferOwner& operator=(const BufferOwner&) = delete;
  virtual ~BufferOwner() = default;

  /// Take `n` buffers back. Any thread.
  virtual void give(const std::uint32_t* buffers, std::uint32_t n) noexcept = 0;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Most bytes of packet data in a buffer.
  [[nodiscard]] std::uint32_t buf_size() const noexcept { return buf_size_; }
  /// False: an access by the CPU would fault (GPU memory).
  [[nodiscard]] bool host_readable() const noexcept { return host_readable_; }

 private:
  std::string name_;
  std::uint32_t buf_size_;
  bool host_readable_;
};

}  // namespace daqiri::memory
