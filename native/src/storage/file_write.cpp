#include "storage/file_write.h"

#include <fcntl.h>
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
#include "storage/pcap_writer.h"
#include "system/file.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// For how long a locked file is tried again: another write_pcap to it is done in a moment, a
/// recorder is not.
constexpr std::uint64_t LOCK_PATIENCE_NS = 1'000'000'000;
constexpr std::uint64_t LOCK_RETRY_NS = 1'000'000;
/// Packets written between two updates of the progress.
constexpr std::uint32_t STRIDE = 4096;

/// Throws unless every packet that the burst counts is there and can be read by the CPU.
void require_packets(const Burst& burst) {
  const std::uint32_t n = burst.num_packets();
  if (n > burst.owned) {
    throw Error(Status::INVALID_PARAMETER, "the burst counts " + std::to_string(n) +
                                               " packets and holds " + std::to_string(burst.owned) +
                                               "; set the number of packets it holds");
  }
  require_host_readable(burst, "written to a file");
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    for (std::uint32_t i = 0; i < n; ++i) {
      if (burst.pkts[s][i] != nullptr || burst.pkt_lens[s][i] == 0) continue;
      throw Error(Status::INVALID_PARAMETER,
                  "packet " + std::to_string(i) + " of the burst was freed (segment " +
                      std::to_string(s) + "); write the burst before freeing its packets");
    }
  }
}

struct PcapWork {
  const Burst& burst;
  std::string path;
  bool nanosecond;

  void operator()(FileWriteProgress& progress) const {
    const std::uint32_t n = burst.num_packets();
    progress.failed_packets = n;
    const LinkLayer& link = link_layer_of(burst);
    std::uint32_t longest = 0;
    for (std::uint32_t i = 0; i < n; ++i) longest = std::max(longest, burst.packet_length(i));
    PcapWriter writer;
    writer.open(path, {link.link_type(), nanosecond}, PcapWriter::Existing::APPEND,
                longest + link.prefix_size(longest));
    for (std::uint32_t i = 0; i < n && !writer.failed(); i += STRIDE) {
      const std::uint32_t written = writer.write(burst, link, i, std::min(STRIDE, n - i));
      progress.completed_packets += written;
      progress.failed_packets -= written;
      progress.bytes_written = writer.bytes_written();
    }
    progress.bytes_written = writer.bytes_written();
    writer.close();
    if (writer.failed()) throw Error(Status::GENERIC_FAILURE, writer.error());
  }
};

/// One file a packet.
struct RawWork {
  const Burst& burst;
  std::string directory;
  std::string prefix;
  std::uint64_t offset;

  void operator()(FileWriteProgress& progress) const {
    const std::uint32_t n = burst.num_packets();
    progress.failed_packets = n;
    const File folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder.is_open()) throw file_error("cannot open", directory, errno);
    for (std::uint32_t i = 0; i < n; ++i) {
      progress.bytes_written += write_packet(folder, i);
      ++progress.completed_packets;
      --progress.failed_packets;
    }
  }

  /// Leaves no part of it when it throws.
  [[nodiscard]] std::uint64_t write_packet(const File& folder, std::uint32_t index) const {
    std::array<iovec, MAX_NUM_SEGS> pieces;
    std::size_t num_pieces = 0;
    std::uint64_t skip = offset;
    for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
      const std::uint32_t length = burst.pkt_lens[s][index];
      const std::uint64_t skipped = std::min<std::uint64_t>(skip, length);
      skip -= skipped;
      pieces[num_pieces++] = {static_cast<std::byte*>(burst.pkts[s][index]) + skipped,
                              length - skipped};
    }
    const std::string name = prefix + "_" + std::to_string(index);
    File file(openat(folder.fd(), name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY,
                     0644));
    if (!file.is_open()) throw file_error("cannot create", directory + "/" + name, errno);
    std::uint64_t written = 0;
    int problem = write_pieces(file.fd(), pieces.data(), num_pieces, AT_POSITION, written);
    if (problem == 0) problem = file.close();
    if (problem == 0) return written;
    unlinkat(folder.fd(), name.c_str(), 0);
    throw file_error("cannot write", directory + "/" + name, problem);
  }
};

PcapWork pcap_work(Burst& burst, const std::string& directory, const std::string& prefix,
                   bool nanosecond) {
  require_target(directory, prefix);
  require_packets(burst);
  link_layer_of(burst).place_in_stream(burst);
  return {burst, directory + "/" + prefix + ".pcap", nanosecond};
}

RawWork raw_work(const Burst& burst, const std::string& directory, const std::string& prefix,
                 std::uint64_t offset) {
  require_target(directory, prefix);
  require_packets(burst);
  return {burst, directory, prefix, offset};
}

}  // namespace

// --- In the background

/// Started with the first write, joined at exit of the process after what was submitted is written.
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

  /// Throws Error NO_SPACE_AVAILABLE when MAX_PENDING_FILE_WRITES wait.
  void submit(std::shared_ptr<FileWriteHandle> write) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_ >= MAX_PENDING_FILE_WRITES) {
        throw Error(Status::NO_SPACE_AVAILABLE,
                    std::to_string(waiting_) +
                        " file writes are waiting, and no more are taken; wait for some of "
                        "their handles first");
      }
      writes_.push_back(std::move(write));
      ++waiting_;
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    changed_.notify_one();
  }

 private:
  using Writes = std::list<std::shared_ptr<FileWriteHandle>>;

  void run() noexcept {
    configure_thread(std::string(ANY_CORE), "daqiri-files");
    block_file_size_signal();
    std::unique_lock lock(mutex_);
    while (!stopping_ || !writes_.empty()) {
      std::uint64_t now = monotonic_ns();
      std::uint64_t due = now + 1'000'000'000;
      const auto next = first_due(now, due);
      if (next == writes_.end()) {
        changed_.wait_for(lock, std::chrono::nanoseconds(due - now));
        continue;
      }
      FileWriteHandle& write = **next;
      --waiting_;
      lock.unlock();
      const bool done = write.attempt();
      lock.lock();
      if (done)
        writes_.erase(next);
      else
        ++waiting_;
    }
  }

  /// The first write that is due and has none to its file before it. `due`: when there is one at
  /// the latest.
  Writes::iterator first_due(std::uint64_t now, std::uint64_t& due) {
    std::unordered_set<std::string_view> locked;
    for (auto it = writes_.begin(); it != writes_.end(); ++it) {
      const FileWriteHandle& write = **it;
      if (locked.contains(write.target_)) continue;
      if (write.retry_at_ <= now) return it;
      due = std::min(due, write.retry_at_);
      locked.insert(write.target_);
    }
    return writes_.end();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  /// In the order of their submission, until they are done.
  Writes writes_;
  /// Those of them that are not being written.
  std::size_t waiting_{0};
  bool stopping_{false};
  std::thread thread_;
};

namespace {

/// The process's.
FileThread& file_thread() {
  static FileThread thread;
  return thread;
}

std::shared_ptr<FileWriteHandle> start(Burst& burst, std::string target,
                                       FileWriteHandle::Work work) {
  auto write = std::make_shared<FileWriteHandle>(burst, std::move(target), std::move(work));
  file_thread().submit(write);
  return write;
}

}  // namespace

FileWriteHandle::FileWriteHandle(Burst& burst, std::string target, Work work)
    : target_(std::move(target)), work_(std::move(work)) {
  hold_.emplace(burst);
}

bool FileWriteHandle::attempt() noexcept {
  if (give_up_at_ == 0) give_up_at_ = monotonic_ns() + LOCK_PATIENCE_NS;
  try {
    work_(progress_);
    end(Status::SUCCESS);
  } catch (const Error& e) {
    retry_at_ = monotonic_ns() + LOCK_RETRY_NS;
    if (e.status() == Status::NOT_READY && retry_at_ < give_up_at_) return false;
    error_ = e.what();
    // NOT_READY means that the write goes on.
    end(e.status() == Status::NOT_READY ? Status::GENERIC_FAILURE : e.status());
  } catch (const std::exception& e) {
    error_ = e.what();
    end(Status::INTERNAL_ERROR);
  }
  return true;
}

void FileWriteHandle::end(Status result) noexcept {
  hold_.reset();
  {
    const std::lock_guard lock(mutex_);
    status_.store(result, std::memory_order_release);
  }
  ended_.notify_all();
}

bool FileWriteHandle::wait(std::int64_t timeout_ns) noexcept {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return done(); };
  constexpr std::int64_t FOREVER = std::int64_t{1} << 60;
  if (timeout_ns < 0 || timeout_ns > FOREVER) {
    ended_.wait(lock, ended);
    return true;
  }
  return ended_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), ended);
}

// --- Functions

const LinkLayer& link_layer_of(const Burst& burst) noexcept {
  static const LinkLayer ethernet;
  if (burst.keep == nullptr) return ethernet;
  const auto& layers = burst.keep->link_layers;
  const std::size_t port = burst.hdr.hdr.port_id;
  return port < layers.size() && layers[port] != nullptr ? *layers[port] : ethernet;
}

FileWriteStatus write_pcap(Burst& burst, const std::string& directory, const std::string& prefix,
                           bool nanosecond) {
  const PcapWork work = pcap_work(burst, directory, prefix, nanosecond);
  const std::uint64_t give_up_at = monotonic_ns() + LOCK_PATIENCE_NS;
  for (;;) {
    FileWriteProgress progress;
    try {
      work(progress);
      return progress.counts();
    } catch (const Error& e) {
      if (e.status() != Status::NOT_READY || monotonic_ns() >= give_up_at) throw;
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(LOCK_RETRY_NS));
  }
}

FileWriteStatus write_raw(const Burst& burst, const std::string& directory,
                          const std::string& prefix, std::uint64_t packet_data_offset) {
  FileWriteProgress progress;
  raw_work(burst, directory, prefix, packet_data_offset)(progress);
  return progress.counts();
}

std::shared_ptr<FileWriteHandle> start_write_pcap(Burst& burst, const std::string& directory,
                                                  const std::string& prefix, bool nanosecond) {
  PcapWork work = pcap_work(burst, directory, prefix, nanosecond);
  std::string target = work.path;
  return start(burst, std::move(target), std::move(work));
}

std::shared_ptr<FileWriteHandle> start_write_raw(Burst& burst, const std::string& directory,
                                                 const std::string& prefix,
                                                 std::uint64_t packet_data_offset) {
  return start(burst, directory + "/" + prefix + "_",
               raw_work(burst, directory, prefix, packet_data_offset));
}

}  // namespace daqiri
