#include "storage/pcap_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "storage/pcap_format.h"
#include "storage/record_chain.h"
#include "storage/whole_files.h"

namespace daqiri {

namespace {

constexpr std::uint32_t NS_PER_SECOND = 1'000'000'000;
static_assert(sizeof(pcap::RecordHeader) <= RecordBatch::MAX_HEADER);

}  // namespace

PcapWriter::PcapWriter(const PcapFormat& format, std::unique_ptr<FileOutput> output,
                       TailGuard* guard)
    : PacketWriter(std::move(output), guard), format_(format) {}

PcapWriter::~PcapWriter() { close(); }

void PcapWriter::open(const std::string& path, const PcapFormat& format, Existing existing,
                      std::uint32_t longest) {
  close();
  format_ = format;
  const bool created = open_file(path, existing == Existing::APPEND);
  try {
    begin(longest);
  } catch (...) {
    if (created) remove();
    let_go();
    throw;
  }
}

void PcapWriter::begin(std::uint32_t longest) {
  struct stat found{};
  // What it holds is settled by the lock.
  if (fstat(fd(), &found) != 0) throw file_error("cannot look at", path(), errno);
  const auto size = static_cast<std::uint64_t>(found.st_size);
  snap_length_ = pcap::SNAP_LENGTH;
  ns_per_tick_ = format_.nanosecond ? 1 : 1000;
  if (size > 0) {
    require_compatible(size, longest);
    return begin_records(size, size);
  }
  pcap::FileHeader header;
  header.magic = format_.nanosecond ? pcap::MAGIC_NANOSECOND : pcap::MAGIC_MICROSECOND;
  header.link_type = format_.link_type;
  const int problem = write_fully(fd(), &header, sizeof header, 0);
  if (problem != 0) {
    [[maybe_unused]] const int cut = ftruncate(fd(), 0);
    throw file_error("cannot write", path(), problem);
  }
  begin_records(sizeof header, 0);
}

void PcapWriter::require_compatible(std::uint64_t size, std::uint32_t longest) {
  std::array<std::uint8_t, sizeof(pcap::FileHeader)> bytes{};
  ssize_t n = 0;
  do {
    n = pread(fd(), bytes.data(), bytes.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) throw file_error("cannot read", path(), errno);
  const pcap::Format found = pcap::read_header(bytes.data(), static_cast<std::uint64_t>(n), path());
  if (found.swapped) refuse_existing(path(), "has the byte order of another machine");
  if (found.nanosecond != format_.nanosecond) {
    refuse_existing(path(), found.nanosecond ? "counts time in nanoseconds, not microseconds"
                                             : "counts time in microseconds, not nanoseconds");
  }
  if (found.link_type != format_.link_type) {
    refuse_existing(path(), "has link type " + std::to_string(found.link_type) +
                                ", and these packets have " + std::to_string(format_.link_type));
  }
  // 0 means that nobody said.
  if (found.snap_length != 0) snap_length_ = std::min(found.snap_length, pcap::SNAP_LENGTH);
  if (std::min(longest, pcap::SNAP_LENGTH) > snap_length_) {
    refuse_existing(path(), "has a snap length of " + std::to_string(snap_length_) +
                                " bytes, and there is a packet of " + std::to_string(longest));
  }
  if (whole_files().knows(fd())) return;
  int problem = 0;
  const std::uint64_t end = pcap::whole_records_end(fd(), size, problem);
  if (problem != 0) throw file_error("cannot read", path(), problem);
  if (end != size) {
    refuse_existing(path(), "ends in a torn record (" + std::to_string(size - end) +
                                " bytes behind the last whole one; 'truncate -s " +
                                std::to_string(end) + " " + path() + "' removes them)");
  }
}

void PcapWriter::add(RecordBatch& batch, const Burst& burst, PacketPrefixes& prefixes,
                     std::uint32_t packet, std::uint64_t time) noexcept {
  std::byte* const record = batch.room();
  const std::uint32_t prefix =
      std::min(prefixes.write(packet, record + sizeof(pcap::RecordHeader)), snap_length_);
  std::uint32_t wire_length = prefix;
  std::uint32_t left = snap_length_ - prefix;
  batch.stage(static_cast<std::uint32_t>(sizeof(pcap::RecordHeader)) + prefix);
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][packet];
    const std::uint32_t taken = std::min(length, left);
    wire_length += length;
    left -= taken;
    batch.put(burst.pkts[s][packet], taken);
  }
  const pcap::RecordHeader header{static_cast<std::uint32_t>(time / NS_PER_SECOND),
                                  static_cast<std::uint32_t>(time % NS_PER_SECOND) / ns_per_tick_,
                                  snap_length_ - left, wire_length};
  std::memcpy(record, &header, sizeof header);
  batch.end_record(wire_length, time, burst.flow_ids[packet]);
}

}  // namespace daqiri
