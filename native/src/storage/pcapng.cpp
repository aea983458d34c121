// pcapng files, through libpcap.
#include <fcntl.h>
#include <pcap/pcap.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
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

class Conversion {
 public:
  Conversion(int from, int to, std::string name) : name_(std::move(name)) {
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
    if (got == PCAP_ERROR_BREAK) return false;
    refuse(std::string(pcap_.error(from_.get())) + " (near byte " +
           std::to_string(std::ftell(pcap_.file(from_.get()))) + ", after " +
           std::to_string(packets_) +
           " packets); what can be saved: editcap -F nsecpcap IN OUT, and of one "
           "interface: tshark -r IN -Y frame.interface_id==0 -F nsecpcap -w OUT");
  }
  [[noreturn]] void refuse(const std::string& words) const {
    throw Error(Status::INVALID_PARAMETER, name_ + ": libpcap reports: " + words);
  }

  const Library& pcap_{library()};
  std::string name_;
  std::unique_ptr<pcap_t, decltype(&pcap_close)> from_{nullptr, pcap_.close};
  std::unique_ptr<pcap_dumper_t, decltype(&pcap_dump_close)> to_{nullptr, pcap_.close_dump};
  std::uint64_t packets_{0};
};

}  // namespace

std::function<bool()> pcapng_conversion(int from, int to, const std::string& name) {
  return
      [conversion = std::make_shared<Conversion>(from, to, name)] { return conversion->advance(); };
}

}  // namespace daqiri
