// Index of a raw file.
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "storage/packet_writer.h"

namespace daqiri {

static_assert(std::endian::native == std::endian::little, "rows are written as they are");

RawIndex::Header RawIndex::header_of(std::uint64_t rows) noexcept {
  Header header;
  header.fill(' ');
  constexpr std::uint16_t REST = HEADER_SIZE - 10;
  std::memcpy(header.data(), "\x93NUMPY\x01\x00", 8);
  std::memcpy(header.data() + 8, &REST, sizeof REST);
  const int n = std::snprintf(header.data() + 10, REST,
                              "{'descr': [('offset', '<u8'), ('length', '<u4'), ('flow', '<u4'), "
                              "('timestamp', '<u8')], 'fortran_order': False, 'shape': (%llu,), }",
                              static_cast<unsigned long long>(rows));
  header[10 + static_cast<std::size_t>(n)] = ' ';
  header.back() = '\n';
  return header;
}

int RawIndex::write_header(int fd, std::uint64_t rows) noexcept {
  const Header header = header_of(rows);
  return write_fully(fd, header.data(), header.size(), 0);
}

void RawIndex::begin(File file) noexcept {
  file_ = std::move(file);
  own_ = identity_of(file_);
  counted_ = 0;
  header_errno_ = 0;
}

int RawIndex::add(const RecordBatch& batch) noexcept {
  rows_.clear();
  std::uint32_t begin = 0;
  for (const RecordBatch::Mark& mark : batch.records()) {
    rows_.push_back({batch.before().size + begin, mark.end - begin, mark.flow, mark.time});
    begin = mark.end;
  }
  return write_fully(file_.fd(), rows_.data(), rows_.size() * sizeof(Row),
                     HEADER_SIZE + batch.before().packets * sizeof(Row));
}

int RawIndex::count(std::uint64_t packets) noexcept {
  if (packets == counted_ && header_errno_ == 0) return 0;
  counted_ = packets;
  return header_errno_ = write_header(file_.fd(), counted_);
}

int RawIndex::end(bool durable) noexcept {
  int problem = count(counted_);
  const auto size = static_cast<off_t>(HEADER_SIZE + counted_ * sizeof(Row));
  if (ftruncate(file_.fd(), size) != 0 && problem == 0) problem = errno;
  if (problem == 0 && durable && fdatasync(file_.fd()) != 0) problem = errno;
  const int close_problem = file_.close();
  return problem != 0 ? problem : close_problem;
}

void RawIndex::remove(const std::string& path) noexcept { remove_file(own_, path_of(path)); }

}  // namespace daqiri
