#include "storage/file_write.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "io/session_memory.h"
#include "storage/file_thread.h"
#include "storage/pcap_writer.h"
#include "storage/raw_writer.h"
#include "system/file.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// Another write_pcap to the same file is done in a moment, a recorder is not.
constexpr std::uint64_t LOCK_PATIENCE_NS = 1'000'000'000;
/// Packets written between two looks at the progress.
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

/// Longest record of the burst.
std::uint32_t longest_record(const Burst& burst, const LinkLayer& link) {
  std::uint32_t longest = 0;
  for (std::uint32_t i = 0; i < burst.num_packets(); ++i)
    longest = std::max(longest, burst.packet_length(i));
  if (!link.reconstructs_headers()) return longest;
  PacketPrefixes prefixes(link, burst);
  std::byte scratch[MAX_LINK_PREFIX];
  std::uint32_t prefix = 0;
  for (std::uint32_t i = 0; i < burst.num_packets(); ++i)
    prefix = std::max(prefix, prefixes.write(i, scratch));
  return longest + prefix;
}

void open_patiently(PcapWriter& writer, const std::string& path, const PcapFormat& format,
                    std::uint32_t longest) {
  const std::uint64_t end = monotonic_ns() + LOCK_PATIENCE_NS;
  for (;;) {
    try {
      return writer.open(path, format, PcapWriter::Existing::APPEND, longest);
    } catch (const Error& e) {
      if (e.status() != Status::NOT_READY || monotonic_ns() >= end) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
    PcapWriter writer;
    open_patiently(writer, path, {link.link_type(), nanosecond}, longest_record(burst, link));
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

struct RawWork {
  const Burst& burst;
  std::string directory;
  std::string prefix;
  std::uint64_t offset;

  void operator()(FileWriteProgress& progress) const {
    const std::uint32_t n = burst.num_packets();
    progress.failed_packets = n;
    RawWriter writer(directory, prefix, offset);
    for (std::uint32_t i = 0; i < n; ++i) {
      progress.bytes_written += writer.write(burst, i);
      ++progress.completed_packets;
      --progress.failed_packets;
    }
  }
};

PcapWork pcap_work(const Burst& burst, const std::string& directory, const std::string& prefix,
                   bool nanosecond) {
  require_target(directory, prefix);
  require_packets(burst);
  return {burst, directory + "/" + prefix + ".pcap", nanosecond};
}

RawWork raw_work(const Burst& burst, const std::string& directory, const std::string& prefix,
                 std::uint64_t offset) {
  require_target(directory, prefix);
  require_packets(burst);
  return {burst, directory, prefix, offset};
}

template <typename Work>
std::unique_ptr<FileWriteHandle> start(Burst& burst, Work work) {
  auto job = std::make_shared<FileWriteJob>();
  job->hold.emplace(burst);
  job->work = std::move(work);
  file_thread().submit(job);
  return std::make_unique<FileWriteHandle>(std::move(job));
}

}  // namespace

const LinkLayer& link_layer_of(const Burst& burst) noexcept {
  static const LinkLayer ethernet;
  if (burst.keep == nullptr) return ethernet;
  const auto& layers = burst.keep->link_layers;
  const std::size_t port = burst.hdr.hdr.port_id;
  return port < layers.size() && layers[port] != nullptr ? *layers[port] : ethernet;
}

FileWriteStatus FileWriteProgress::counts() const noexcept {
  return {completed_packets.load(), failed_packets.load(), bytes_written.load()};
}

FileWriteStatus write_pcap(const Burst& burst, const std::string& directory,
                           const std::string& prefix, bool nanosecond) {
  FileWriteProgress progress;
  pcap_work(burst, directory, prefix, nanosecond)(progress);
  return progress.counts();
}

FileWriteStatus write_raw(const Burst& burst, const std::string& directory,
                          const std::string& prefix, std::uint64_t packet_data_offset) {
  FileWriteProgress progress;
  raw_work(burst, directory, prefix, packet_data_offset)(progress);
  return progress.counts();
}

std::unique_ptr<FileWriteHandle> start_write_pcap(Burst& burst, const std::string& directory,
                                                  const std::string& prefix, bool nanosecond) {
  return start(burst, pcap_work(burst, directory, prefix, nanosecond));
}

std::unique_ptr<FileWriteHandle> start_write_raw(Burst& burst, const std::string& directory,
                                                 const std::string& prefix,
                                                 std::uint64_t packet_data_offset) {
  return start(burst, raw_work(burst, directory, prefix, packet_data_offset));
}

FileWriteHandle::~FileWriteHandle() { wait(); }

bool FileWriteHandle::done() const noexcept { return job_->done(); }

bool FileWriteHandle::wait(std::int64_t timeout_ns) noexcept {
  std::unique_lock lock(job_->mutex);
  const auto ended = [this] { return job_->done(); };
  constexpr std::int64_t FOREVER = std::int64_t{1} << 60;
  if (timeout_ns < 0 || timeout_ns > FOREVER) {
    job_->ended.wait(lock, ended);
    return true;
  }
  return job_->ended.wait_for(lock, std::chrono::nanoseconds(timeout_ns), ended);
}

FileWriteStatus FileWriteHandle::counts() const noexcept { return job_->progress.counts(); }

Status FileWriteHandle::status() const noexcept {
  return job_->status.load(std::memory_order_acquire);
}

std::string FileWriteHandle::error() const { return job_->done() ? job_->error : std::string(); }

}  // namespace daqiri
