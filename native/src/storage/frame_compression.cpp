#include "storage/frame_compression.h"

#include <H5PLextern.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <string_view>

#include "daqiri/error.h"
#include "storage/hdf5_file.h"
#include "system/thread.h"

namespace daqiri {

namespace {

constexpr const char* PLUGIN = "libh5bshuf.so";
constexpr const char* DEFAULT_FOLDERS =
    "/usr/local/hdf5/lib/plugin:/usr/lib/x86_64-linux-gnu/hdf5/serial/plugins:"
    "/usr/lib/x86_64-linux-gnu/hdf5/plugins:/usr/lib/aarch64-linux-gnu/hdf5/serial/plugins:"
    "/usr/lib/aarch64-linux-gnu/hdf5/plugins";
constexpr std::uint32_t MOST_THREADS = 64;
/// Before the blocks: size of the chunk and of a block, in bytes, big-endian.
constexpr std::size_t HEADER = 12;
/// Version of the filter that defines the format, and its code for LZ4.
constexpr unsigned VERSION_MAJOR = 0;
constexpr unsigned VERSION_MINOR = 5;
constexpr unsigned LZ4 = 2;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(Status::NOT_SUPPORTED,
              "compression 'bitshuffle-lz4' needs HDF5's plugin " + std::string(PLUGIN) + ": " +
                  why +
                  "; in Python, pip install hdf5plugin; in C++, set HDF5_PLUGIN_PATH to "
                  "the folder that has it (Debian: package hdf5-filter-plugin)");
}

/// Returns the path of the plugin. Throws Error.
std::string find_plugin(const std::string& directory) {
  std::string folders = directory;
  if (folders.empty()) {
    const char* const named = std::getenv("HDF5_PLUGIN_PATH");
    folders = named != nullptr ? named : DEFAULT_FOLDERS;
  }
  for (std::string_view rest = folders; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string path = std::string(rest.substr(0, end)) + "/" + PLUGIN;
    if (access(path.c_str(), R_OK) == 0) return path;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  refuse("it is not in " + folders);
}

template <typename Function>
Function* find(void* plugin, const char* name) {
  void* const found = dlsym(plugin, name);
  if (found == nullptr) refuse(std::string("it has no function ") + name);
  return reinterpret_cast<Function*>(found);
}

/// Like the plugin's own function: puts the size of elements and the version before the parameters.
/// The plugin's function may call another HDF5 library of the process, for example that of a Python
/// module.
herr_t set_local(hid_t creation, hid_t type, hid_t /*space*/) {
  const auto element = static_cast<unsigned>(H5Tget_size(type));
  const std::array<unsigned, 5> values{VERSION_MAJOR, VERSION_MINOR, element, 0, LZ4};
  return H5Pmodify_filter(creation, BitshuffleLz4::ID, H5Z_FLAG_MANDATORY, values.size(),
                          values.data());
}

template <typename Number>
void put_big_endian(Number number, std::byte* to) {
  for (std::size_t i = 0; i < sizeof number; ++i)
    to[i] = static_cast<std::byte>(number >> (8 * (sizeof number - 1 - i)));
}

}  // namespace

// --- The filter

const BitshuffleLz4& BitshuffleLz4::load(const std::string& directory) {
  static std::mutex mutex;
  static std::unique_ptr<const BitshuffleLz4> loaded;
  const std::lock_guard lock(mutex);
  if (loaded) return *loaded;
  hdf5::enter();
  const std::string path = find_plugin(directory);
  void* const plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) refuse(dlerror());  // NOLINT(concurrency-mt-unsafe)
  loaded.reset(new BitshuffleLz4(plugin));
  return *loaded;
}

BitshuffleLz4::BitshuffleLz4(void* plugin)
    : bound_(find<std::size_t(std::size_t, std::size_t, std::size_t)>(plugin,
                                                                      "bshuf_compress_lz4_bound")),
      block_size_(find<std::size_t(std::size_t)>(plugin, "bshuf_default_block_size")),
      compress_(find<std::int64_t(const void*, void*, std::size_t, std::size_t, std::size_t)>(
          plugin, "bshuf_compress_lz4")) {
  const auto* const theirs =
      static_cast<const H5Z_class2_t*>(find<const void*()>(plugin, "H5PLget_plugin_info")());
  if (theirs == nullptr || theirs->id != ID) refuse("it is another filter");
  const H5Z_class2_t filter{H5Z_CLASS_T_VERS, ID,      1,         1,
                            "bitshuffle",     nullptr, set_local, theirs->filter};
  if (H5Zregister(&filter) < 0) refuse("the HDF5 library does not accept it");
}

void BitshuffleLz4::add_to(hid_t creation) const {
  const std::array<unsigned, 2> values{0, LZ4};
  if (H5Pset_filter(creation, ID, H5Z_FLAG_MANDATORY, values.size(), values.data()) < 0)
    throw Error(Status::INTERNAL_ERROR, "the HDF5 library rejects the filter bitshuffle");
}

std::size_t BitshuffleLz4::bound(std::size_t size, std::size_t element) const noexcept {
  return HEADER + bound_(size / element, element, 0);
}

std::size_t BitshuffleLz4::compress(const void* from, std::size_t size, std::size_t element,
                                    std::byte* to) const noexcept {
  put_big_endian(static_cast<std::uint64_t>(size), to);
  put_big_endian(static_cast<std::uint32_t>(block_size_(element) * element), to + 8);
  const std::int64_t made = compress_(from, to + HEADER, size / element, element, 0);
  return made < 0 ? 0 : HEADER + static_cast<std::size_t>(made);
}

// --- The threads

void FrameCompressor::require_threads(std::uint32_t threads) {
  if (threads < 1 || threads > MOST_THREADS) {
    throw Error(Status::INVALID_PARAMETER, "compression_threads is " + std::to_string(threads) +
                                               "; accepted are 1 to " +
                                               std::to_string(MOST_THREADS));
  }
}

FrameCompressor::FrameCompressor(const BitshuffleLz4& filter, std::size_t frame,
                                 std::size_t element, std::uint32_t threads)
    : filter_(filter), frame_(frame), element_(element) {
  const std::size_t bound = filter.bound(frame, element);
  try {
    // One slot per thread, one waiting for each thread, and one being written.
    slots_.resize(2 * std::size_t{threads} + 1);
    for (Slot& slot : slots_) slot.space = std::make_unique_for_overwrite<std::byte[]>(bound);
    threads_.reserve(threads);
  } catch (const std::bad_alloc&) {
    throw Error(Status::NO_SPACE_AVAILABLE,
                "no memory for " + std::to_string(slots_.size()) + " compressed frames of up to " +
                    std::to_string(bound) + " bytes; lower compression_threads");
  }
  try {
    for (std::uint32_t i = 0; i < threads; ++i) threads_.push_back(start_thread([this] { run(); }));
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    throw;  // threads_ joins the running threads
  }
}

FrameCompressor::~FrameCompressor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  threads_.clear();
  for (; begun_ < given_; ++begun_) slot(begun_).frame->release();
}

void FrameCompressor::put(Burst& frame) noexcept {
  frame.holders.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    Slot& next = slot(put_);
    next.frame = &frame;
    next.done = false;
    given_ = ++put_;
  }
  work_.notify_one();
}

bool FrameCompressor::ready() noexcept {
  const std::lock_guard lock(mutex_);
  return slot(taken_).done;
}

std::span<const std::byte> FrameCompressor::front() noexcept {
  const Slot& first = slot(taken_);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return first.done; });
  return {first.space.get(), first.size};
}

void FrameCompressor::clear() noexcept {
  while (!empty()) {
    front();
    pop();
  }
}

void FrameCompressor::run() noexcept {
  configure_thread(std::string(ANY_CORE), "compress");
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || begun_ < given_; });
    if (stopping_) return;
    Slot& mine = slot(begun_++);
    lock.unlock();
    mine.size = filter_.compress(mine.frame->pkts[0][0], frame_, element_, mine.space.get());
    mine.frame->release();
    lock.lock();
    mine.done = true;
    done_.notify_one();
  }
}

}  // namespace daqiri
