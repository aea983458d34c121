#include "storage/pcapng.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pcap/pcap.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "system/file.h"

namespace daqiri {

namespace {

constexpr int PACKETS_AT_ONCE = 16'384;

/// The functions of libpcap that are used here.
struct Library {
  decltype(&pcap_fopen_offline_with_tstamp_precision) open{};
  decltype(&pcap_next_ex) next{};
  decltype(&pcap_geterr) error{};
  decltype(&pcap_file) file{};
  decltype(&pcap_close) close{};
  decltype(&pcap_dump_fopen) begin_dump{};
  decltype(&pcap_dump) dump{};
  decltype(&pcap_dump_file) dump_file{};
  decltype(&pcap_dump_flush) flush_dump{};
  decltype(&pcap_dump_close) close_dump{};

  Library() {
    void* loaded = nullptr;
    // As Debian and its relatives call it, and everybody else.
    for (const char* name : {"libpcap.so.0.8", "libpcap.so.1"}) {
      if (loaded == nullptr) loaded = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    const auto find = [&](auto& function, const char* name) {
      if (loaded != nullptr)
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(loaded, name));
      if (function == nullptr) missing = true;
    };
    find(open, "pcap_fopen_offline_with_tstamp_precision");
    find(next, "pcap_next_ex");
    find(error, "pcap_geterr");
    find(file, "pcap_file");
    find(close, "pcap_close");
    find(begin_dump, "pcap_dump_fopen");
    find(dump, "pcap_dump");
    find(dump_file, "pcap_dump_file");
    find(flush_dump, "pcap_dump_flush");
    find(close_dump, "pcap_dump_close");
  }
  bool missing{false};
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

/// A stream over the same file that is closed on its own.
std::FILE* stream_of(int fd, const char* mode, const std::string& name) {
  File own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  std::FILE* stream = own.is_open() ? fdopen(own.fd(), mode) : nullptr;
  if (stream == nullptr) throw file_error("cannot open", name, errno);
  own.release();
  return stream;
}

}  // namespace

struct PcapngConversion::Files {
  pcap_t* from{nullptr};
  pcap_dumper_t* to{nullptr};

  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    if (to != nullptr) library().close_dump(to);
    if (from != nullptr) library().close(from);
  }
};

PcapngConversion::PcapngConversion(int from, int to, std::string name)
    : name_(std::move(name)), files_(std::make_unique<Files>()) {
  const Library& pcap = library();
  if (pcap.missing) {
    throw Error(Status::NOT_SUPPORTED,
                name_ +
                    " is a pcapng file, and libpcap, which reads them, is not installed; "
                    "install it (Debian: apt-get install libpcap0.8), or convert the file: "
                    "editcap -F nsecpcap IN OUT");
  }
  lseek(from, 0, SEEK_SET);
  std::array<char, PCAP_ERRBUF_SIZE> problem{};
  std::FILE* source = stream_of(from, "rb", name_);
  files_->from = pcap.open(source, PCAP_TSTAMP_PRECISION_NANO, problem.data());
  if (files_->from == nullptr) {
    std::fclose(source);
    throw Error(Status::INVALID_PARAMETER, name_ + ": libpcap says: " + problem.data());
  }
  std::FILE* target = stream_of(to, "wb", name_);
  files_->to = pcap.begin_dump(files_->from, target);
  if (files_->to == nullptr) {
    std::fclose(target);
    throw Error(Status::INVALID_PARAMETER, name_ + ": libpcap says: " + pcap.error(files_->from));
  }
}

PcapngConversion::~PcapngConversion() = default;

bool PcapngConversion::advance() {
  const Library& pcap = library();
  std::FILE* target = pcap.dump_file(files_->to);
  int got = 1;
  for (int i = 0; i < PACKETS_AT_ONCE && got == 1; ++i) {
    pcap_pkthdr* header = nullptr;
    const u_char* data = nullptr;
    got = pcap.next(files_->from, &header, &data);
    if (got != 1) break;
    pcap.dump(reinterpret_cast<u_char*>(files_->to), header, data);
    if (std::ferror(target) != 0) throw file_error("cannot unpack", name_, errno);
    ++packets_;
  }
  if (got == 1) return true;
  if (pcap.flush_dump(files_->to) != 0) throw file_error("cannot unpack", name_, errno);
  if (got == PCAP_ERROR_BREAK) return false;
  throw Error(Status::INVALID_PARAMETER,
              name_ + ": libpcap says: " + pcap.error(files_->from) + " (near byte " +
                  std::to_string(std::ftell(pcap.file(files_->from))) + ", after " +
                  std::to_string(packets_) +
                  " packets); what can be saved: editcap -F nsecpcap IN OUT, and of one "
                  "interface: tshark -r IN -Y frame.interface_id==0 -F nsecpcap -w OUT");
}

}  // namespace daqiri
