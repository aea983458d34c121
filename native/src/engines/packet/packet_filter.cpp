#include "engines/packet/packet_filter.h"

#include <linux/filter.h>
#include <pcap/pcap.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <system_error>
#include <vector>

#include "system/libpcap.h"

// A macro of libpcap that is also an enumerator in sources compiled together with this one.
#undef SOCKET

namespace daqiri::packet {

namespace {

/// Buffer of the ring that the library makes for its own socket, which is never read.
constexpr int SMALL_BUFFER = 1 << 16;

/// The functions of libpcap that are used here.
class Library : public Libpcap {
 public:
  decltype(&pcap_create) create{find("pcap_create")};
  decltype(&pcap_set_buffer_size) set_buffer_size{find("pcap_set_buffer_size")};
  decltype(&pcap_activate) activate{find("pcap_activate")};
  decltype(&pcap_compile) compile{find("pcap_compile")};
  decltype(&pcap_freecode) free_code{find("pcap_freecode")};
  decltype(&pcap_geterr) error{find("pcap_geterr")};
  decltype(&pcap_close) close{find("pcap_close")};
};

[[noreturn]] void refuse(Status status, const std::string& expression, const std::string& text) {
  throw Error(status, "rx.filter: '" + expression + "': " + text);
}

}  // namespace

void attach_filter(const File& socket, const NetworkInterface& interface,
                   const std::string& expression, std::span<const sock_filter> before) {
  static const Library library;
  if (library.missing()) {
    refuse(Status::NOT_SUPPORTED, expression,
           "libpcap, which compiles filters, is not installed; install it (Debian: apt-get install "
           "libpcap0.8), or remove the filter");
  }
  // Compile for a live interface: the code then also checks VLAN tags that the kernel has removed
  // from the frame.
  std::array<char, PCAP_ERRBUF_SIZE> problem{};
  const std::unique_ptr<pcap_t, decltype(&pcap_close)> handle(
      library.create(interface.name.c_str(), problem.data()), library.close);
  if (handle == nullptr) refuse(Status::GENERIC_FAILURE, expression, problem.data());
  library.set_buffer_size(handle.get(), SMALL_BUFFER);
  if (const int opened = library.activate(handle.get()); opened == PCAP_ERROR_IFACE_NOT_UP) {
    refuse(Status::NOT_READY, expression,
           "'" + interface.name + "' is down, and libpcap compiles filters for interfaces that " +
               "are up; `ip link set " + interface.name + " up` before the engine is opened");
  } else if (opened < 0) {
    refuse(Status::GENERIC_FAILURE, expression,
           "libpcap cannot open '" + interface.name + "': " + library.error(handle.get()));
  }
  bpf_program program{};
  if (library.compile(handle.get(), &program, expression.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0)
    refuse(Status::INVALID_PARAMETER, expression,
           std::string("libpcap reports: ") + library.error(handle.get()) +
               "; see pcap-filter(7) for the syntax, for example 'udp and dst port 4096'");
  const std::unique_ptr<bpf_program, decltype(&pcap_freecode)> code(&program, library.free_code);
  // The two names of a classic BPF instruction.
  static_assert(sizeof(bpf_insn) == sizeof(sock_filter));
  // Jumps are relative.
  std::vector<sock_filter> whole(before.begin(), before.end());
  const auto* const compiled = reinterpret_cast<const sock_filter*>(program.bf_insns);
  whole.insert(whole.end(), compiled, compiled + program.bf_len);
  const sock_fprog filter{static_cast<unsigned short>(whole.size()), whole.data()};
  if (setsockopt(socket.fd(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0) return;
  const int error = errno;
  refuse(Status::INVALID_PARAMETER, expression,
         "the kernel does not accept its " + std::to_string(whole.size()) +
             " instructions: " + std::generic_category().message(error) +
             (error == ENOMEM ? "; raise net.core.optmem_max, or shorten it"
                              : "; it accepts at most 4096"));
}

}  // namespace daqiri::packet
