#include "storage/packed_writer.h"

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

/// Returns errno.
int write_index_header(int fd, std::uint64_t rows) noexcept {
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
  return write_fully(fd, header.data(), header.size(), 0);
}

}  // namespace

PackedWriter::PackedWriter(std::uint64_t packet_data_offset, std::unique_ptr<FileOutput> output)
    : PacketWriter(std::move(output)), skip_(packet_data_offset) {
  rows_.reserve(MOST_ROWS);
}

PackedWriter::~PackedWriter() { close(); }

void PackedWriter::prepare(const std::string& path) {
  prepare_file(path);
  try {
    NewFile& index = *(next_index_ = std::make_unique<NewFile>(path + ".npy"));
    const int problem = write_index_header(index.fd(), 0);
    if (problem != 0) throw file_error("cannot write", index.path(), problem);
  } catch (...) {
    discard_prepared();
    throw;
  }
}

void PackedWriter::discard_prepared() noexcept {
  next_index_.reset();
  PacketWriter::discard_prepared();
}

void PackedWriter::appear() {
  next_index_->appear();
  PacketWriter::appear();
  counted_ = 0;
  header_errno_ = 0;
  index_path_ = next_index_->path();
  index_ = next_index_->take();
}

void PackedWriter::remove() noexcept {
  PacketWriter::remove();
  remove_file(index_, index_path_);
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

int PackedWriter::before_put(const RecordBatch& batch) noexcept {
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

int PackedWriter::after_put(const FileTally& whole) noexcept {
  if (whole.packets == counted_ && header_errno_ == 0) return 0;
  counted_ = whole.packets;
  return header_errno_ = write_index_header(index_.fd(), counted_);
}

int PackedWriter::end(bool durable) noexcept {
  int problem = header_errno_ == 0 ? 0 : write_index_header(index_.fd(), counted_);
  const auto size = static_cast<off_t>(INDEX_HEADER + counted_ * sizeof(Row));
  if (ftruncate(index_.fd(), size) != 0 && problem == 0) problem = errno;
  if (problem == 0 && durable && fdatasync(index_.fd()) != 0) problem = errno;
  const int close_problem = index_.close();
  return problem != 0 ? problem : close_problem;
}

}  // namespace daqiri
