#include "storage/packed_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace daqiri {

namespace {

/// A multiple of 64, as the format asks for, and within one page: it is written in one piece.
constexpr std::size_t INDEX_HEADER = 192;
constexpr std::size_t MOST_ROWS = 2048;
static_assert(std::endian::native == std::endian::little, "rows are written as they are");

}  // namespace

PackedWriter::PackedWriter(std::uint64_t packet_data_offset, std::unique_ptr<FileOutput> output,
                           TailGuard* guard)
    : PacketWriter(std::move(output), guard), skip_(packet_data_offset) {
  rows_.reserve(MOST_ROWS);
}

PackedWriter::~PackedWriter() { close(); }

void PackedWriter::create(const std::string& path) {
  close();
  open_file(path, false);
  try {
    index_path_ = path + ".npy";
    index_ =
        File(open(index_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644));
    if (!index_.is_open()) {
      if (errno == EEXIST) refuse_existing(index_path_, "is not overwritten");
      throw file_error("cannot create", index_path_, errno);
    }
    const int problem = write_index_header(0);
    if (problem != 0) throw file_error("cannot write", index_path_, problem);
    begin_records(0, 0);
  } catch (...) {
    if (index_.is_open()) unlink(index_path_.c_str());
    index_.close();
    PacketWriter::remove();
    let_go();
    throw;
  }
}

void PackedWriter::remove() noexcept {
  PacketWriter::remove();
  unlink(index_path_.c_str());
}

void PackedWriter::add(RecordBatch& batch, const Burst& burst, PacketPrefixes& /*prefixes*/,
                       std::uint32_t packet, std::uint64_t time) noexcept {
  std::uint64_t skip = skip_;
  std::uint32_t wire_length = 0;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][packet];
    const auto skipped = static_cast<std::uint32_t>(std::min<std::uint64_t>(skip, length));
    skip -= skipped;
    wire_length += length;
    batch.put(static_cast<std::byte*>(burst.pkts[s][packet]) + skipped, length - skipped);
  }
  batch.end_record(wire_length, time, burst.flow_ids[packet]);
}

int PackedWriter::prepare(const RecordBatch& batch) noexcept {
  rows_.clear();
  std::uint32_t begin = 0;
  for (std::size_t r = 0; r < batch.num_records(); ++r) {
    const RecordBatch::Mark& mark = batch.mark(r);
    rows_.push_back({batch.before().size + begin, mark.end - begin, mark.flow, mark.time});
    begin = mark.end;
  }
  return write_fully(index_.fd(), rows_.data(), rows_.size() * sizeof(Row),
                     INDEX_HEADER + batch.before().packets * sizeof(Row));
}

int PackedWriter::landed(const FileTally& whole) noexcept {
  return whole.packets == counted_ ? 0 : write_index_header(whole.packets);
}

int PackedWriter::write_index_header(std::uint64_t rows) noexcept {
  std::array<char, INDEX_HEADER> header;
  header.fill(' ');
  constexpr std::uint16_t REST = INDEX_HEADER - 10;
  std::memcpy(header.data(), "\x93NUMPY\x01\x00", 8);
  std::memcpy(header.data() + 8, &REST, sizeof REST);
  const int n = std::snprintf(header.data() + 10, REST,
                              "{'descr': [('offset', '<u8'), ('length', '<u4'), ('flow', '<u4'), "
                              "('timestamp', '<u8')], 'fortran_order': False, 'shape': (%llu,), }",
                              static_cast<unsigned long long>(rows));
  header[10 + static_cast<std::size_t>(n)] = ' ';
  header.back() = '\n';
  counted_ = rows;
  return write_fully(index_.fd(), header.data(), header.size(), 0);
}

int PackedWriter::end(bool durable) noexcept {
  int problem = 0;
  const auto size = static_cast<off_t>(INDEX_HEADER + counted_ * sizeof(Row));
  if (ftruncate(index_.fd(), size) != 0) problem = errno;
  if (problem == 0 && durable && fdatasync(index_.fd()) != 0) problem = errno;
  const int close_problem = index_.close();
  return problem != 0 ? problem : close_problem;
}

}  // namespace daqiri
