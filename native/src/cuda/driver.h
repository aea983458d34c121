/// NVIDIA's driver, loaded when a GPU is first used.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace daqiri::cuda {

/// CUDA's error codes; 0: success.
using Result = int;

/// CU_STREAM_NON_BLOCKING: does not wait for work of other libraries in the default stream.
inline constexpr unsigned STREAM_FLAGS = 1;

/// CU_EVENT_BLOCKING_SYNC and CU_EVENT_DISABLE_TIMING.
inline constexpr unsigned EVENT_FLAGS = 1U | 2U;

/// Host memory for all GPUs of the process, mapped to their address space: PORTABLE and DEVICEMAP
/// of CU_MEMHOSTALLOC and CU_MEMHOSTREGISTER.
inline constexpr unsigned HOST_FLAGS = 0x01U | 0x02U;

/// Address as the driver and kernels expect it.
inline std::uint64_t address_of(const void* memory) noexcept {
  return reinterpret_cast<std::uintptr_t>(memory);
}

/// Functions of CUDA's driver interface (libcuda), with the C types of cuda.h: the interface is
/// binary compatible between versions, so that building needs no CUDA header.
struct Functions {
  Result (*init)(unsigned);
  Result (*error_name)(Result, const char**);
  Result (*error_string)(Result, const char**);
  Result (*version)(int*);
  Result (*device_count)(int*);
  Result (*retain_context)(void**, int);
  Result (*push_context)(void*);
  Result (*pop_context)(void**);
  Result (*synchronize)();
  Result (*pin)(void*, std::size_t, unsigned);
  Result (*unpin)(void*);
  Result (*allocate_host)(void**, std::size_t, unsigned);
  Result (*free_host)(void*);
  Result (*allocate)(std::uint64_t*, std::size_t);
  Result (*free)(std::uint64_t);
  Result (*memory)(std::size_t*, std::size_t*);
  Result (*copy_to_host)(void*, std::uint64_t, std::size_t, void*);
  /// On a stream, like the next one.
  Result (*fill)(std::uint64_t, unsigned char, std::size_t, void*);
  Result (*copy_to_gpu)(std::uint64_t, const void*, std::size_t, void*);
  Result (*attribute)(int*, int, int);
  Result (*pointer_attribute)(void*, int, std::uint64_t);
  Result (*load_module)(void**, const void*);
  Result (*unload_module)(void*);
  Result (*find_function)(void**, void*, const char*);
  Result (*function_attribute)(int*, int, void*);
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**);
  Result (*make_stream)(void**, unsigned);
  Result (*destroy_stream)(void*);
  Result (*wait_for_stream)(void*);
  Result (*context_of_stream)(void*, void**);
  /// Later work in the stream waits for an event.
  Result (*let_stream_wait)(void*, void*, unsigned);
  Result (*make_event)(void**, unsigned);
  Result (*destroy_event)(void*);
  Result (*record_event)(void*, void*);
  Result (*wait_for_event)(void*);
  Result (*set_pointer_attribute)(const void*, int, std::uint64_t);
  /// Null before CUDA 11.3.
  Result (*flush_writes)(int, int);
  /// Null before CUDA 11.7.
  Result (*export_range)(void*, std::uint64_t, std::size_t, int, unsigned long long);
};

/// The driver of this process, loaded once. Any thread. Not in a child made by fork(2) of a process
/// that has used it: CUDA does not work there.
class Driver {
 public:
  /// Throws Error NOT_SUPPORTED with `why_absent`; `what` names the user of the driver.
  static const Driver& get(const std::string& what);
  /// Why there is no driver or no GPU; empty: both are available.
  static const std::string& why_absent();
  /// Whether this is a child made by fork(2) of a process that has used it.
  static bool forked() noexcept { return loaded().process_ != getpid(); }

  [[nodiscard]] const Functions& call() const noexcept { return functions_; }
  /// "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
  [[nodiscard]] std::string text_of(Result result) const;
  /// Advice for the user.
  static const char* remedy(Result result) noexcept;
  /// Throws Error GENERIC_FAILURE if a call has failed; `what` names its user.
  void require(Result result, const std::string& what, int gpu) const;

 private:
  Driver();
  static const Driver& loaded();
  /// Returns why they are missing; empty: all were found.
  std::string find_functions();

  Functions functions_{};
  std::string why_absent_;
  pid_t process_{getpid()};
};

/// Makes the primary context of a GPU, which other libraries of the process use too, current on
/// this thread during its lifetime.
class Context {
 public:
  /// Throws Error: NOT_SUPPORTED if there is no GPU, INVALID_PARAMETER if there is none with that
  /// number, GENERIC_FAILURE; `what` names the user of the context.
  explicit Context(const std::string& what, int gpu = 0);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] int gpu() const noexcept { return gpu_; }
  /// CUcontext.
  [[nodiscard]] void* handle() const noexcept { return handle_; }

 private:
  const Driver& driver_;
  int gpu_;
  void* handle_;
};

/// Calls `use` with the GPU current on this thread. No effect if the GPU has failed, and in a
/// forked child, which has the objects of its parent.
template <typename Use>
void with_context(int gpu, Use use) noexcept {
  if (Driver::forked()) return;
  try {
    const Context context("CUDA", gpu);
    use(context.driver().call());
  } catch (const std::exception&) {
    return;
  }
}

/// Owns what the driver has made, and destroys it with `destroy`.
template <typename Handle, Result (*Functions::*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Handle handle, int gpu) noexcept : handle_(handle), gpu_(gpu) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, {})), gpu_(other.gpu_) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() { reset(); }

  [[nodiscard]] Handle get() const noexcept { return handle_; }
  /// For the function that makes it.
  [[nodiscard]] Handle* out(const Context& context) noexcept {
    gpu_ = context.gpu();
    return &handle_;
  }
  void reset() noexcept {
    if (handle_ == Handle{}) return;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): without functions there is no handle
    with_context(gpu_, [this](const Functions& call) { (call.*destroy)(handle_); });
    handle_ = {};
  }

 private:
  Handle handle_{};
  int gpu_{0};
};

using DeviceAllocation = Owned<std::uint64_t, &Functions::free>;
using HostAllocation = Owned<void*, &Functions::free_host>;
using PinnedPages = Owned<void*, &Functions::unpin>;
using LoadedModule = Owned<void*, &Functions::unload_module>;
using Stream = Owned<void*, &Functions::destroy_stream>;
using Event = Owned<void*, &Functions::destroy_event>;

}  // namespace daqiri::cuda
