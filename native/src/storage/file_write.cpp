#include "storage/file_write.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <list>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

#include "io/session_memory.h"
#include "storage/packet_writer.h"
#include "system/file.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// How long to retry a locked file: another write_pcap releases it soon, a recorder does not.
constexpr std::uint64_t LOCK_PATIENCE_NS = 1'000'000'000;
constexpr std::uint64_t LOCK_RETRY_NS = 1'000'000;
constexpr std::string_view ACTION = "written to a file";
/// Packets written between two updates of the progress.
constexpr std::uint32_t STRIDE = 4096;

void append_to_pcap(const Burst& burst, const std::string& path, bool nanosecond,
                    FileWriteProgress& progress) {
  const std::uint32_t n = burst.num_packets();
  const LinkLayer& link = link_layer_of(burst);
  std::uint32_t longest = 0;
  for (std::uint32_t i = 0; i < n; ++i) longest = std::max(longest, burst.packet_length(i));
  PacketWriter writer(pcap::Format{link.link_type(), nanosecond});
  writer.append(path, longest + link.prefix_size(longest));
  for (std::uint32_t i = 0; i < n && !writer.failed(); i += STRIDE) {
    const std::uint64_t before = writer.records();
    writer.write(burst, link, i, std::min(STRIDE, n - i));
    writer.put_held_back();
    // Fewer than before if what was there cannot be kept.
    progress.add(static_cast<std::uint32_t>(std::max(writer.records(), before) - before));
    progress.bytes_written = writer.bytes_written();
  }
  progress.bytes_written = writer.bytes_written();
  writer.close();
  if (writer.failed()) throw Error(Status::GENERIC_FAILURE, writer.error());
}

/// Writes a packet to its own file; removes the file if it throws. Returns the file's size.
std::uint64_t write_packet(const Burst& burst, std::uint32_t index, const File& folder,
                           const std::string& directory, const std::string& name,
                           std::uint64_t offset) {
  std::array<iovec, MAX_NUM_SEGS> pieces;
  std::size_t num_pieces = 0;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][index];
    const std::uint64_t skipped = std::min<std::uint64_t>(offset, length);
    offset -= skipped;
    pieces[num_pieces++] = {burst.on_host(s, static_cast<std::uint32_t>(index)) + skipped,
                            length - skipped};
  }
  File file(
      openat(folder.fd(), name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666));
  if (!file.is_open()) throw file_error("cannot create", directory + "/" + name, errno);
  std::uint64_t written = 0;
  int problem = write_pieces(file.fd(), pieces.data(), num_pieces, AT_POSITION, written);
  if (problem == 0) problem = file.close();
  if (problem == 0) return written;
  unlinkat(folder.fd(), name.c_str(), 0);
  throw file_error("cannot write", directory + "/" + name, problem);
}

/// A write and its target: `work` throws Error; NOT_READY: the file is locked, try again.
struct FileWrite {
  std::string target;
  FileWriteHandle::Work work;
};

FileWrite pcap_write(Burst& burst, const std::string& directory, const std::string& prefix,
                     bool nanosecond) {
  require_target(directory, prefix);
  require_packets(burst, ACTION);
  link_layer_of(burst).place_in_stream(burst);
  const std::string path = directory + "/" + prefix + ".pcap";
  return {path, [&burst, path, nanosecond](FileWriteProgress& progress) {
            progress.failed_packets = burst.num_packets();
            append_to_pcap(burst, path, nanosecond, progress);
          }};
}

FileWrite raw_write(const Burst& burst, const std::string& directory, const std::string& prefix,
                    std::uint64_t offset) {
  require_target(directory, prefix);
  require_packets(burst, ACTION);
  return {directory + "/" + prefix + "_", [=, &burst](FileWriteProgress& progress) {
            const std::uint32_t n = burst.num_packets();
            progress.failed_packets = n;
            const File folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
            if (!folder.is_open()) throw file_error("cannot open", directory, errno);
            for (std::uint32_t i = 0; i < n; ++i) {
              const std::string name = prefix + "_" + std::to_string(i);
              progress.bytes_written += write_packet(burst, i, folder, directory, name, offset);
              progress.add(1);
            }
          }};
}

/// Write in the calling thread.
FileWriteStatus run(const FileWrite& write) {
  const std::uint64_t give_up_at = monotonic_ns() + LOCK_PATIENCE_NS;
  for (;;) {
    FileWriteProgress progress;
    try {
      write.work(progress);
      return progress.counts();
    } catch (const Error& e) {
      if (e.status() != Status::NOT_READY || monotonic_ns() >= give_up_at) throw;
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(LOCK_RETRY_NS));
  }
}

}  // namespace

// --- In the background

/// Starts with the first write; joined at exit of the process, after all submitted writes are done.
class FileThread {
 public:
  FileThread() = default;
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;
  ~FileThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  /// Throws Error NO_SPACE_AVAILABLE if MAX_PENDING_FILE_WRITES are waiting.
  void submit(std::shared_ptr<FileWriteHandle> write) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_ >= MAX_PENDING_FILE_WRITES) {
        throw Error(Status::NO_SPACE_AVAILABLE,
                    std::to_string(waiting_) +
                        " file writes are waiting, and no more are accepted; wait for some of "
                        "their handles first");
      }
      if (!thread_.joinable()) thread_ = start_thread([this] { run(); });
      writes_.push_back(std::move(write));
      ++waiting_;
    }
    changed_.notify_one();
  }

 private:
  void run() noexcept {
    configure_thread(std::string(ANY_CORE), "daqiri-files");
    block_file_size_signal();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !writes_.empty(); });
      if (writes_.empty()) return;
      if (attempt_each(lock) && !writes_.empty())
        changed_.wait_for(lock, std::chrono::nanoseconds(LOCK_RETRY_NS));
    }
  }

  /// Writes whose file is locked stay in the list, and so do later writes to the same file. Returns
  /// false, after at least one write was done, when it is time to retry these before the rest.
  bool attempt_each(std::unique_lock<std::mutex>& lock) {
    std::unordered_set<std::string_view> locked;
    const std::uint64_t retry_at = monotonic_ns() + LOCK_RETRY_NS;
    bool any_done = false;
    for (auto it = writes_.begin(); it != writes_.end();) {
      if (any_done && !locked.empty() && monotonic_ns() >= retry_at) return false;
      FileWriteHandle& write = **it;
      bool done = false;
      if (!locked.contains(write.target_)) {
        --waiting_;
        lock.unlock();
        done = write.attempt();
        lock.lock();
        if (!done) ++waiting_;
      }
      if (!done) locked.insert(write.target_);
      any_done = any_done || done;
      it = done ? writes_.erase(it) : std::next(it);
    }
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  /// In the order of submission, until they are done.
  std::list<std::shared_ptr<FileWriteHandle>> writes_;
  /// Those that are not being written now.
  std::size_t waiting_{0};
  bool stopping_{false};
  std::jthread thread_;
};

namespace {

/// One per process. A child process made by fork(2) gets its own: the thread exists only in the
/// parent, and waiting for it in the child would never end.
FileThread& file_thread() {
  static auto thread = std::make_unique<FileThread>();
  [[maybe_unused]] static const FileThread* parents = nullptr;
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] {
    parents = thread.release();
    thread = std::make_unique<FileThread>();
  });
  return *thread;
}

std::shared_ptr<FileWriteHandle> start(Burst& burst, FileWrite write) {
  auto handle =
      std::make_shared<FileWriteHandle>(burst, std::move(write.target), std::move(write.work));
  file_thread().submit(handle);
  return handle;
}

}  // namespace

bool FileWriteHandle::attempt() noexcept {
  if (give_up_at_ == 0) give_up_at_ = monotonic_ns() + LOCK_PATIENCE_NS;
  Status result = Status::SUCCESS;
  std::string error;
  try {
    work_(progress_);
  } catch (const Error& e) {
    result = e.status();
    if (result == Status::NOT_READY && monotonic_ns() < give_up_at_) return false;
    // NOT_READY would mean that the write is still in progress.
    if (result == Status::NOT_READY) result = Status::GENERIC_FAILURE;
    error = e.what();
  } catch (const std::exception& e) {
    result = Status::INTERNAL_ERROR;
    error = e.what();
  }
  hold_.reset();
  finish(result, std::move(error));
  return true;
}

// --- Functions

void require_packets(const Burst& burst, std::string_view action) {
  const std::uint32_t n = burst.num_packets();
  if (n > burst.owned) {
    throw Error(Status::INVALID_PARAMETER, "the burst counts " + std::to_string(n) +
                                               " packets and holds " + std::to_string(burst.owned) +
                                               "; set the number of packets it holds");
  }
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    for (std::uint32_t i = 0; i < n; ++i) {
      if (burst.pkts[s][i] != nullptr || burst.pkt_lens[s][i] == 0) continue;
      throw Error(Status::INVALID_PARAMETER,
                  "packet " + std::to_string(i) + " of the burst was freed (segment " +
                      std::to_string(s) + "); write the burst before freeing its packets");
    }
  }
  // Packets in GPU memory have a copy in host memory, but kernels may have changed them, so copy
  // them back. Frames in GPU memory have no such copy.
  burst.copy_to_host(memory::DeviceCopies::Behind::EVERYTHING);
  if (burst.on_device == 0) require_host_readable(burst, action);
}

const LinkLayer& link_layer_of(const Burst& burst) noexcept {
  static const LinkLayer ethernet;
  if (burst.keep == nullptr) return ethernet;
  const auto& layers = burst.keep->link_layers;
  const std::size_t port = burst.hdr.hdr.port_id;
  return port < layers.size() && layers[port] != nullptr ? *layers[port] : ethernet;
}

FileWriteStatus write_pcap(Burst& burst, const std::string& directory, const std::string& prefix,
                           bool nanosecond) {
  return run(pcap_write(burst, directory, prefix, nanosecond));
}

FileWriteStatus write_raw(const Burst& burst, const std::string& directory,
                          const std::string& prefix, std::uint64_t packet_data_offset) {
  return run(raw_write(burst, directory, prefix, packet_data_offset));
}

std::shared_ptr<FileWriteHandle> start_write_pcap(Burst& burst, const std::string& directory,
                                                  const std::string& prefix, bool nanosecond) {
  return start(burst, pcap_write(burst, directory, prefix, nanosecond));
}

std::shared_ptr<FileWriteHandle> start_write_raw(Burst& burst, const std::string& directory,
                                                 const std::string& prefix,
                                                 std::uint64_t packet_data_offset) {
  return start(burst, raw_write(burst, directory, prefix, packet_data_offset));
}

}  // namespace daqiri
