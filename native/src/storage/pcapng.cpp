// pcapng files, through libpcap.
#include <fcntl.h>
#include <pcap/pcap.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "storage/pcap_index.h"
#include "system/libpcap.h"

// A macro of libpcap that is also an enumerator in sources compiled together with this one.
#undef SOCKET

namespace daqiri {

namespace {

constexpr int PACKETS_AT_ONCE = 16'384;

/// The functions of libpcap that are used here.
class Library : public Libpcap {
 public:
  decltype(&pcap_fopen_offline_with_tstamp_precision) open{
      find("pcap_fopen_offline_with_tstamp_precision")};
  decltype(&pcap_next_ex) next{find("pcap_next_ex")};
  decltype(&pcap_geterr) error{find("pcap_geterr")};
  decltype(&pcap_file) file{find("pcap_file")};
  decltype(&pcap_is_swapped) is_swapped{find("pcap_is_swapped")};
  decltype(&pcap_close) close{find("pcap_close")};
  decltype(&pcap_dump_fopen) begin_dump{find("pcap_dump_fopen")};
  decltype(&pcap_dump) dump{find("pcap_dump")};
  decltype(&pcap_dump_file) dump_file{find("pcap_dump_file")};
  decltype(&pcap_dump_flush) flush_dump{find("pcap_dump_flush")};
  decltype(&pcap_dump_close) close_dump{find("pcap_dump_close")};
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

/// Returns a separate stream for the same file, which is closed separately.
std::FILE* stream_of(int fd, const char* mode, const std::string& name) {
  File own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  std::FILE* stream = own.is_open() ? fdopen(own.fd(), mode) : nullptr;
  if (stream == nullptr) throw file_error("cannot open", name, errno);
  own.release();
  return stream;
}

/// draft-ietf-opsawg-pcapng: type and total length, the body, the total length again.
struct BlockHeader {
  std::uint32_t type{0};
  std::uint32_t length{0};
};
constexpr std::uint32_t LEAST_BLOCK = 12;

/// Returns the offset of the first block from `at` on that is not whole; `at` is that of a block.
std::uint64_t whole_blocks_end(int fd, std::uint64_t at, std::uint64_t size, bool swapped) {
  while (size - at >= LEAST_BLOCK) {
    BlockHeader header;
    if (pread(fd, &header, sizeof header, static_cast<off_t>(at)) != sizeof header) break;
    const std::uint32_t length = swapped ? __builtin_bswap32(header.length) : header.length;
    if (length < LEAST_BLOCK || length > size - at) break;
    at += length;
  }
  return at;
}

bool zeros_from(int fd, std::uint64_t at) {
  std::array<char, 4096> bytes{};
  ssize_t n = 0;
  while ((n = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(at))) > 0) {
    if (std::any_of(bytes.begin(), bytes.begin() + n, [](char byte) { return byte != 0; }))
      return false;
    at += static_cast<std::uint64_t>(n);
  }
  return n == 0;
}

/// What to do about a file that libpcap rejects with these words.
const char* remedy_for(std::string_view words) {
  if (words.find("from the type of the first") != std::string_view::npos) {
    return "read each interface alone: tshark -r IN -Y frame.interface_id==0 -w ONE.pcapng, then "
           "editcap -F nsecpcap -T ether ONE.pcapng OUT (-T without a type lists the types)";
  }
  if (words.find("length of the first") != std::string_view::npos)
    return "convert the file: editcap -F nsecpcap IN OUT";
  return "to keep what can be read: editcap -F nsecpcap IN OUT";
}

class Conversion {
 public:
  Conversion(int from, int to, std::string name, PcapngEnd& end)
      : name_(std::move(name)), source_(from), end_(end) {
    if (pcap_.missing()) {
      throw Error(Status::NOT_SUPPORTED,
                  name_ +
                      " is a pcapng file, and libpcap, which reads them, is not installed; "
                      "install it (Debian: apt-get install libpcap0.8), or convert the file: "
                      "editcap -F nsecpcap IN OUT");
    }
    lseek(from, 0, SEEK_SET);
    std::array<char, PCAP_ERRBUF_SIZE> problem{};
    std::FILE* source = stream_of(from, "rb", name_);
    from_.reset(pcap_.open(source, PCAP_TSTAMP_PRECISION_NANO, problem.data()));
    if (from_ == nullptr) {
      std::fclose(source);
      refuse(problem.data());
    }
    std::FILE* target = stream_of(to, "wb", name_);
    to_.reset(pcap_.begin_dump(from_.get(), target));
    if (to_ == nullptr) {
      std::fclose(target);
      refuse(pcap_.error(from_.get()));
    }
  }

  bool advance() {
    std::FILE* target = pcap_.dump_file(to_.get());
    whole_ = position();
    for (int i = 0; i < PACKETS_AT_ONCE; ++i, ++packets_) {
      pcap_pkthdr* header = nullptr;
      const u_char* data = nullptr;
      const int got = pcap_.next(from_.get(), &header, &data);
      if (got != 1) return end(got);
      pcap_.dump(reinterpret_cast<u_char*>(to_.get()), header, data);
      if (std::ferror(target) != 0) throw file_error("cannot unpack", name_, errno);
    }
    return true;
  }

 private:
  bool end(int got) {
    if (pcap_.flush_dump(to_.get()) != 0) throw file_error("cannot unpack", name_, errno);
    if (got == PCAP_ERROR_BREAK) {
      end_ = {position(), 0};
      return false;
    }
    if (torn()) return false;
    const std::string words = pcap_.error(from_.get());
    refuse(words + " (near byte " + std::to_string(position()) + ", after " +
           std::to_string(packets_) + " packets); " + remedy_for(words));
  }
  [[nodiscard]] std::uint64_t position() const {
    return static_cast<std::uint64_t>(std::ftell(pcap_.file(from_.get())));
  }
  /// Whether the file ends within the block that libpcap could not read, or with zeros there.
  bool torn() {
    struct stat found{};
    if (fstat(source_, &found) != 0) return false;
    const auto size = static_cast<std::uint64_t>(found.st_size);
    // libpcap accepts one byte order in a file.
    const std::uint64_t end =
        whole_blocks_end(source_, whole_, size, pcap_.is_swapped(from_.get()) != 0);
    const bool at_end = position() > end && std::feof(pcap_.file(from_.get())) != 0;
    if (end == size || !(at_end || (position() > end && zeros_from(source_, end)))) return false;
    end_ = {end, size - end};
    return true;
  }
  [[noreturn]] void refuse(const std::string& words) const {
    throw Error(Status::INVALID_PARAMETER, name_ + ": libpcap reports: " + words);
  }

  const Library& pcap_{library()};
  std::string name_;
  std::unique_ptr<pcap_t, decltype(&pcap_close)> from_{nullptr, pcap_.close};
  std::unique_ptr<pcap_dumper_t, decltype(&pcap_dump_close)> to_{nullptr, pcap_.close_dump};
  std::uint64_t packets_{0};
  int source_;
  /// Offset of a block, before those of this step.
  std::uint64_t whole_{0};
  PcapngEnd& end_;
};

}  // namespace

std::function<bool()> pcapng_conversion(int from, int to, const std::string& name, PcapngEnd& end) {
  return [conversion = std::make_shared<Conversion>(from, to, name, end)] {
    return conversion->advance();
  };
}

}  // namespace daqiri
