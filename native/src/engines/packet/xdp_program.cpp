#include "engines/packet/xdp_program.h"

#include <linux/if_link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace daqiri::packet {

namespace {

/// The kernel allows some functions only for GPL programs. None of these is used here.
constexpr const char* LICENSE = "Apache-2.0";

template <typename T>
std::uint64_t pointer(const T* to) noexcept {
  return reinterpret_cast<std::uintptr_t>(to);
}

/// The kernel accepts attributes that are shorter or longer than its own.
int bpf(bpf_cmd command, bpf_attr& attributes) noexcept {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

File make_map(const NetworkInterface& interface, bpf_map_type type, std::uint32_t key,
              std::uint32_t value, std::uint32_t entries) {
  bpf_attr attributes{};
  attributes.map_type = type;
  attributes.key_size = key;
  attributes.value_size = value;
  attributes.max_entries = entries;
  std::strncpy(attributes.map_name, "daqiri", sizeof attributes.map_name - 1);
  File made = File::private_to_process([&] { return bpf(BPF_MAP_CREATE, attributes); });
  if (!made.is_open()) throw xdp_error(interface, "make a map for an XDP program", errno);
  return made;
}

/// Sets an element. Returns errno, 0: done.
int set(const File& map, const void* key, const void* value) noexcept {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<std::uint32_t>(map.fd());
  attributes.key = pointer(key);
  attributes.value = pointer(value);
  return bpf(BPF_MAP_UPDATE_ELEM, attributes) == 0 ? 0 : errno;
}

File load(const std::vector<bpf_insn>& code, char* log, std::uint32_t log_size) {
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_XDP;
  attributes.expected_attach_type = BPF_XDP;
  attributes.insns = pointer(code.data());
  attributes.insn_cnt = static_cast<std::uint32_t>(code.size());
  attributes.license = pointer(LICENSE);
  // Accept frames in several fragments.
  attributes.prog_flags = BPF_F_XDP_HAS_FRAGS;
  std::strncpy(attributes.prog_name, "daqiri", sizeof attributes.prog_name - 1);
  if (log_size > 0) {
    attributes.log_buf = pointer(log);
    attributes.log_size = log_size;
    attributes.log_level = 1;
  }
  return File::private_to_process([&] { return bpf(BPF_PROG_LOAD, attributes); });
}

const char* remedy_for(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "AF_XDP needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: AmbientCapabilities= of "
             "systemd, or setcap(8) of the program (of python3 itself for scripts)";
    case EBUSY:
    case EEXIST:
      return "another program uses it (`ip -d link show` shows the XDP program of an interface); "
             "end that program";
    case ENOBUFS:
      return "the limit on locked memory is too low: raise it (`ulimit -l`, LimitMEMLOCK= of "
             "systemd), or lower num_bufs or buf_size of the queues' memory regions";
    case EOPNOTSUPP:
      return "the driver of the interface does not support this";
    case EAFNOSUPPORT:
      return "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)";
    case EINVAL:
      return "this kernel or driver may be too old (Linux 6.6 is sufficient), or the "
             "interface's MTU too large for XDP";
    case ERANGE:
      return "the interface's MTU is too large for XDP in this driver: lower it";
    case ENODEV:
    case ENXIO:
      return "the interface has been removed";
    default:
      return "use rx.receive_path: af_packet, which does not need this";
  }
}

}  // namespace

Error xdp_error(const NetworkInterface& interface, const std::string& what, int error) {
  const bool lacks = error == EPERM || error == EACCES || error == EOPNOTSUPP ||
                     error == EAFNOSUPPORT || error == EINVAL || error == ERANGE;
  return {lacks ? Status::NOT_SUPPORTED : Status::GENERIC_FAILURE,
          "cannot " + what + " on '" + interface.name +
              "': " + std::generic_category().message(error) + "; " + remedy_for(error)};
}

XdpProgram::XdpProgram(const NetworkInterface& interface, const XdpFilter& filter,
                       std::uint32_t queues, xdp_action otherwise)
    : interface_(interface), sockets_(make_map(interface, BPF_MAP_TYPE_XSKMAP, 4, 4, queues)) {
  const auto require = [&](int error) {
    if (error != 0) throw xdp_error(interface, "fill a map of an XDP program", error);
  };
  if (const auto& tables = filter.tables(); !tables.empty()) {
    tables_ =
        make_map(interface, BPF_MAP_TYPE_ARRAY, 4, static_cast<std::uint32_t>(tables.size()), 1);
    const std::uint32_t only = 0;
    require(set(tables_, &only, tables.data()));
  }
  if (const auto& addresses = filter.addresses(); !addresses.empty()) {
    addresses_ =
        make_map(interface, BPF_MAP_TYPE_HASH, 8, 1, static_cast<std::uint32_t>(addresses.size()));
    for (const auto& [table, address] : addresses) {
      const std::array<std::uint32_t, 2> key{table, address};
      const std::uint8_t present = 1;
      require(set(addresses_, key.data(), &present));
    }
  }
  const std::vector<bpf_insn> code =
      xdp_code(filter, {sockets_.fd(), tables_.fd(), addresses_.fd()}, otherwise);
  program_ = load(code, nullptr, 0);
  if (program_.is_open()) return;
  const int error = errno;
  // Load again with a log, because the kernel reports the reason only there.
  std::vector<char> log(std::size_t{1} << 20U);
  load(code, log.data(), static_cast<std::uint32_t>(log.size()));
  std::string said(log.data());
  while (!said.empty() && said.back() == '\n') said.pop_back();
  constexpr std::size_t MOST = 400;
  if (said.size() > MOST) said.erase(0, said.size() - MOST);
  const Error plain = xdp_error(interface, "load an XDP program", error);
  throw Error(plain.status(), plain.what() + (said.empty() ? "" : " (the kernel: " + said + ")"));
}

void XdpProgram::set_socket(std::uint32_t queue, int socket) {
  if (const int error = set(sockets_, &queue, &socket); error != 0)
    throw xdp_error(interface_, "pass a socket to an XDP program", error);
}

void XdpProgram::remove_socket(std::uint32_t queue) noexcept {
  bpf_attr attributes{};
  attributes.map_fd = static_cast<std::uint32_t>(sockets_.fd());
  attributes.key = pointer(&queue);
  bpf(BPF_MAP_DELETE_ELEM, attributes);
}

XdpLink::XdpLink(const NetworkInterface& interface, const XdpProgram& program, XdpMode mode,
                 int& refused) {
  bpf_attr attributes{};
  attributes.link_create.prog_fd = static_cast<std::uint32_t>(program.fd());
  attributes.link_create.target_ifindex = static_cast<std::uint32_t>(interface.index);
  attributes.link_create.attach_type = BPF_XDP;
  attributes.link_create.flags = mode == XdpMode::NATIVE ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
  link_ = File::private_to_process([&] { return bpf(BPF_LINK_CREATE, attributes); });
  refused = link_.is_open() ? 0 : errno;
  if (refused != 0) throw xdp_error(interface, "attach an XDP program", refused);
}

bool XdpLink::attached() const noexcept {
  bpf_link_info info{};
  bpf_attr attributes{};
  attributes.info.bpf_fd = static_cast<std::uint32_t>(link_.fd());
  attributes.info.info_len = sizeof info;
  attributes.info.info = pointer(&info);
  // No error means detached (Linux 5.9 on): a detached link has no interface. The query fails
  // without privileges (EPERM), or for want of memory.
  if (bpf(BPF_OBJ_GET_INFO_BY_FD, attributes) != 0) return true;
  return info.xdp.ifindex != 0;
}

}  // namespace daqiri::packet
