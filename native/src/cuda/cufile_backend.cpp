/// Writes frames from GPU memory to files, with cuFile.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/cufile.h"
#include "cuda/driver.h"
#include "daqiri/error.h"
#include "storage/write_backend.h"
#include "system/log.h"

namespace daqiri::cuda {

namespace {

/// CU_FILE_INVALID_CONTEXT_ERROR
constexpr int NO_CONTEXT = 5047;

/// A region registered with cuFile, shared by all writers: its pages are mapped for disks once,
/// instead of for each write.
class RegisteredMemory {
 public:
  /// The GPU must be current.
  RegisteredMemory(const Cufile& cufile, const memory::MemoryRegion& region)
      : cufile_(cufile), memory_(region.hold()), base_(region.extent().base), gpu_(region.gpu()) {
    const std::lock_guard lock(mutex());
    State& state = states()[base_];
    if (state.users++ > 0) return;
    const CufileResult result = cufile_.call().register_buffer(base_, region.extent().bytes, 0);
    state.registered = result.error == 0;
    if (state.registered || state.told) return;
    state.told = true;
    log(LogLevel::WARN, "memory region '" + region.name() + "' of " +
                            std::to_string(region.extent().bytes) +
                            " bytes is not registered with cuFile, which makes writes slower (" +
                            cufile_error_text(number_of(result)) + "); lower num_bufs or buf_size");
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory() {
    // Another thread of the parent may have had the lock.
    if (Driver::forked()) return;
    const std::lock_guard lock(mutex());
    State& state = states()[base_];
    if (--state.users == 0 && state.registered)
      with_context(gpu_, [this](const Functions&) { cufile_.call().deregister_buffer(base_); });
  }

 private:
  struct State {
    int users{0};
    bool registered{false};
    bool told{false};
  };
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::map<const void*, State>& states() {
    // Never destroyed, because recorders may end at exit.
    static auto& states = *new std::map<const void*, State>;
    return states;
  }

  const Cufile& cufile_;
  std::shared_ptr<const void> memory_;
  const void* base_;
  int gpu_;
};

/// A file registered with cuFile.
class CufileHandle {
 public:
  /// `fd`: opened with O_DIRECT, also for reading, which writes of partial pages require. Returns
  /// the error's number.
  int open(const Cufile& cufile, int fd) noexcept {
    CufileDescription description;
    description.fd = fd;
    return number_of(cufile.call().register_file(&handle_, &description));
  }
  void close(const Cufile& cufile) noexcept {
    if (handle_ != nullptr) cufile.call().deregister_file(handle_);
    handle_ = nullptr;
  }
  [[nodiscard]] void* get() const noexcept { return handle_; }

 private:
  void* handle_{nullptr};
};

class CufileBackend final : public WriteBackend {
 public:
  CufileBackend(const memory::MemoryRegion& region, const std::string& directory)
      : region_(region), what_("cuFile, memory region '" + region.name() + "'") {
    const Context context(what_, region_.gpu());
    cufile_ = &Cufile::get();
    memory_ = std::make_unique<RegisteredMemory>(*cufile_, region);
    require_writable(directory);
  }
  CufileBackend(const CufileBackend&) = delete;
  CufileBackend& operator=(const CufileBackend&) = delete;
  ~CufileBackend() override { end(); }

  [[nodiscard]] const char* name() const noexcept override { return "cufile"; }
  [[nodiscard]] std::string cufile_mode() const override { return cufile_->mode(); }
  [[nodiscard]] bool from_device() const noexcept override { return true; }

  int begin(int fd, const std::string& path) noexcept override {
    end();
    // Open by name: cuFile opens the file again by the name of the descriptor, and a file that was
    // opened without a name has none.
    file_ = File::private_to_process(
        [&] { return open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC | O_NOCTTY); });
    if (!file_.is_open()) return errno;
    int problem = is_same(fd, file_.fd()) ? 0 : ESTALE;
    if (problem == 0) problem = with_gpu([this] { return handle_.open(*cufile_, file_.fd()); });
    if (problem != 0) end();
    return problem;
  }

  void end() noexcept override {
    if (handle_.get() != nullptr && !Driver::forked()) {
      with_gpu([this] {
        handle_.close(*cufile_);
        return 0;
      });
    }
    file_.close();
  }

  int write(std::span<const iovec> pieces, std::uint64_t offset,
            std::uint64_t& written) noexcept override {
    written = 0;
    return with_gpu([&] {
      int problem = 0;
      for (const iovec& piece : pieces) {
        if (problem == 0) problem = write_piece(handle_, piece, offset, written);
      }
      return problem;
    });
  }

 private:
  /// Call `use` with the GPU current on this thread. Returns the error's number.
  template <typename Use>
  int with_gpu(Use use) const noexcept {
    try {
      const Context context(what_, region_.gpu());
      return use();
    } catch (const std::exception& e) {
      log(LogLevel::ERROR, e.what());
      return NO_CONTEXT;
    }
  }

  static bool is_same(int file, int other) noexcept {
    struct stat one{};
    struct stat two{};
    return fstat(file, &one) == 0 && fstat(other, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
  }

  int write_piece(const CufileHandle& handle, const iovec& piece, std::uint64_t offset,
                  std::uint64_t& written) const noexcept {
    const std::byte* const base = region_.extent().base;
    // An offset in the region, which is registered from its base.
    auto at = static_cast<off_t>(static_cast<const std::byte*>(piece.iov_base) - base);
    for (std::size_t left = piece.iov_len; left > 0;) {
      errno = 0;
      const ssize_t n =
          cufile_->call().write(handle.get(), base, left, static_cast<off_t>(offset + written), at);
      if (n == -1 && errno == EINTR) continue;
      if (n < -1) return static_cast<int>(-n);
      if (n <= 0) return n < 0 && errno != 0 ? errno : EIO;
      written += static_cast<std::uint64_t>(n);
      at += static_cast<off_t>(n);
      left -= static_cast<std::size_t>(n);
    }
    return 0;
  }

  /// Throws Error NOT_SUPPORTED if cuFile cannot write to files in the directory. The GPU must be
  /// current.
  void require_writable(const std::string& directory) const {
    // The probe must have a name while it is open: see `begin`.
    std::string path = directory + "/.cufile-XXXXXX";
    const File probe =
        File::private_to_process([&] { return mkostemp(path.data(), O_DIRECT | O_CLOEXEC); });
    if (!probe.is_open())
      throw Error(Status::NOT_SUPPORTED,
                  file_problem("cuFile needs O_DIRECT, which is rejected in", directory, errno));
    constexpr std::size_t PAGE = 4096;
    const iovec page{region_.extent().base, std::min(PAGE, region_.extent().bytes)};
    std::uint64_t written = 0;
    CufileHandle handle;
    int problem = handle.open(*cufile_, probe.fd());
    if (problem == 0) problem = write_piece(handle, page, 0, written);
    handle.close(*cufile_);
    unlink(path.c_str());
    if (problem != 0)
      throw Error(Status::NOT_SUPPORTED,
                  file_problem("cuFile cannot write in", directory, problem));
  }

  const memory::MemoryRegion& region_;
  std::string what_;
  const Cufile* cufile_{nullptr};
  std::unique_ptr<RegisteredMemory> memory_;
  File file_;
  CufileHandle handle_;
};

std::unique_ptr<WriteBackend> make_backend(const memory::MemoryRegion& region,
                                           const std::string& directory) {
  return std::make_unique<CufileBackend>(region, directory);
}

const RegisteredCufile cufile(make_backend);

}  // namespace

}  // namespace daqiri::cuda
