#include "storage/raw_writer.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace daqiri {

namespace {

/// Returns errno, 0: done.
int write_all(int fd, iovec* next, int left) noexcept {
  while (left > 0) {
    const ssize_t n = writev(fd, next, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    auto taken = static_cast<std::size_t>(n);
    while (left > 0 && taken >= next->iov_len) {
      taken -= next->iov_len;
      ++next;
      --left;
    }
    if (left > 0) {
      next->iov_base = static_cast<std::byte*>(next->iov_base) + taken;
      next->iov_len -= taken;
    }
  }
  return 0;
}

}  // namespace

RawWriter::RawWriter(std::string directory, std::string prefix, std::uint64_t packet_data_offset)
    : directory_(std::move(directory)),
      prefix_(std::move(prefix) + "_"),
      skip_(packet_data_offset) {
  folder_ = File(open(directory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.is_open()) throw file_error("cannot open", directory_, errno);
}

std::uint64_t RawWriter::write(const Burst& burst, std::uint32_t index) {
  std::array<iovec, MAX_NUM_SEGS> pieces;
  int num_pieces = 0;
  std::uint64_t skip = skip_;
  std::uint64_t bytes = 0;
  for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
    const std::uint32_t length = burst.pkt_lens[s][index];
    const std::uint64_t skipped = std::min<std::uint64_t>(skip, length);
    skip -= skipped;
    if (skipped == length) continue;
    pieces[static_cast<std::size_t>(num_pieces++)] = {
        static_cast<std::byte*>(burst.pkts[s][index]) + skipped, length - skipped};
    bytes += length - skipped;
  }
  name_ = prefix_ + std::to_string(index);
  const auto path = [this] { return directory_ + "/" + name_; };
  File file(openat(folder_.fd(), name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY,
                   0644));
  if (!file.is_open()) throw file_error("cannot create", path(), errno);
  int problem = write_all(file.fd(), pieces.data(), num_pieces);
  if (problem == 0) problem = file.close();
  if (problem != 0) {
    unlinkat(folder_.fd(), name_.c_str(), 0);
    throw file_error("cannot write", path(), problem);
  }
  return bytes;
}

}  // namespace daqiri
