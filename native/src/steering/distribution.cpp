#include "steering/distribution.h"

#include <arpa/inet.h>

#include <algorithm>

#include "net/headers.h"

namespace daqiri::steering {

namespace {

/// Offsets relative to the IP header: the data of a received frame begin there, those of a frame
/// that is sent with the Ethernet header, those of a datagram for a UDP socket after all headers.
constexpr std::uint32_t at(std::uint32_t offset) {
  return static_cast<std::uint32_t>(SKF_NET_OFF) + offset;
}
constexpr std::uint32_t FRAGMENT = at(6);
constexpr std::uint32_t PROTOCOL = at(9);
constexpr std::uint32_t NEXT_HEADER = at(6);  // of IPv6
constexpr std::uint32_t SOURCE = at(12);
constexpr std::uint32_t SOURCE_IPV6 = at(8);
constexpr std::uint32_t IPV6_SOURCE_PORT = at(IPV6_SIZE);
constexpr std::uint32_t DESTINATION = at(16);
/// After the IP header, whose length is in X.
constexpr std::uint32_t SOURCE_PORT = at(0);
constexpr std::uint32_t DESTINATION_PORT = at(2);
constexpr std::uint32_t FRAGMENT_OFFSET = 0x1FFF;

sock_filter load(std::uint16_t size_and_mode, std::uint32_t from) {
  return {static_cast<std::uint16_t>(BPF_LD | size_and_mode), 0, 0, from};
}
sock_filter load_extra(int what) {
  return load(BPF_W | BPF_ABS, static_cast<std::uint32_t>(SKF_AD_OFF + what));
}
sock_filter socket_is(std::uint32_t socket) { return {BPF_RET | BPF_K, 0, 0, socket}; }

/// The socket of frames that no flow of the program matches.
constexpr std::uint32_t OTHERS = 0;

/// Fields of the headers, in the program's memory.
enum class Field : std::uint8_t { UDP_SRC, UDP_DST, IPV4_SRC, IPV4_DST };

sock_filter recall(Field field) {
  return {BPF_LD | BPF_MEM, 0, 0, static_cast<std::uint32_t>(field)};
}
sock_filter store(Field field) { return {BPF_ST, 0, 0, static_cast<std::uint32_t>(field)}; }

/// A condition that ends with the next flow if it is not met: jumps to NEXT.
constexpr std::uint8_t NEXT = 0xFF;

sock_filter require(std::uint16_t comparison, std::uint32_t value) {
  return {static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K), 0, NEXT, value};
}
sock_filter require_not(std::uint16_t comparison, std::uint32_t value) {
  return {static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K), NEXT, 0, value};
}

void add_ports(std::vector<sock_filter>& code, Field field, const PortRange& ports) {
  if (ports.any()) return;
  code.push_back(recall(field));
  if (ports.lo == ports.hi) {
    code.push_back(require(BPF_JEQ, ports.lo));
    return;
  }
  code.push_back(require(BPF_JGE, ports.lo));
  code.push_back(require_not(BPF_JGT, ports.hi));
}

void add_address(std::vector<sock_filter>& code, Field field, in_addr_t address) {
  if (address == INADDR_ANY) return;
  code.push_back(recall(field));
  code.push_back(require(BPF_JEQ, ntohl(address)));
}

/// Whether the program can tell what the flow matches. The kernel may merge packets before the
/// program sees them (GRO), or not cut what was sent together (GSO): their lengths are unknown.
bool can_tell(const FlowConfig& flow) {
  return flow.match_.type_ == FlowMatchType::IPV4_UDP && flow.match_.ipv4_len_ == 0 &&
         std::ranges::all_of(flow.actions_, [](const FlowAction& action) {
           return action.type_ == FlowType::QUEUE;
         });
}

/// Adds a word, which is loaded by `from`, to the hash in X. Multiplied, because words of
/// neighbours differ in few bits.
void mix(std::vector<sock_filter>& code, sock_filter from) {
  constexpr std::uint32_t MULTIPLIER = 0x9E3779B1;
  code.push_back(from);
  code.push_back({BPF_ALU | BPF_XOR | BPF_X, 0, 0, 0});
  code.push_back({BPF_ALU | BPF_MUL | BPF_K, 0, 0, MULTIPLIER});
  code.push_back({BPF_MISC | BPF_TAX, 0, 0, 0});
}

/// A number below `count`, from the hash in X.
void take_hash(std::vector<sock_filter>& code, std::uint32_t count) {
  code.push_back({BPF_MISC | BPF_TXA, 0, 0, 0});
  code.push_back({BPF_ALU | BPF_RSH | BPF_K, 0, 0, 16});
  code.push_back({BPF_ALU | BPF_MOD | BPF_K, 0, 0, count});
}

/// Returns the socket, or one of the sockets by addresses and ports. Not by the hash of the frame
/// (SKF_AD_RXHASH): that of a sender on this host is another before and after connect(2).
void add_choice(std::vector<sock_filter>& code, const std::vector<std::uint32_t>& sockets) {
  const auto count = static_cast<std::uint32_t>(sockets.size());
  if (count > 1) {
    code.push_back({BPF_LDX | BPF_IMM, 0, 0, 0});
    for (const Field field : {Field::IPV4_SRC, Field::IPV4_DST, Field::UDP_SRC, Field::UDP_DST})
      mix(code, recall(field));
    take_hash(code, count);
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    code.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 1, i});
    code.push_back(socket_is(sockets[i]));
  }
  code.push_back(socket_is(sockets.back()));
}

std::vector<sock_filter> code_of(const FlowConfig& flow,
                                 const std::map<int, std::uint32_t>& sockets) {
  std::vector<sock_filter> code;
  const FlowMatch& match = flow.match_;
  add_ports(code, Field::UDP_DST, match.udp_dst_);
  add_ports(code, Field::UDP_SRC, match.udp_src_);
  add_address(code, Field::IPV4_SRC, match.ipv4_src_);
  add_address(code, Field::IPV4_DST, match.ipv4_dst_);
  const std::size_t conditions = code.size();
  std::vector<std::uint32_t> choice;
  if (flow.action_.ids_.empty()) choice.push_back(sockets.at(flow.action_.id_));
  for (const std::uint16_t queue : flow.action_.ids_) choice.push_back(sockets.at(queue));
  add_choice(code, choice);
  // Jumps have 8 bits: those of a flow with very many queues go to one instruction after the
  // conditions, which has 32.
  const bool far = code.size() >= NEXT;
  if (far) {
    const auto rest = static_cast<std::uint32_t>(code.size() - conditions);
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(conditions),
                {{BPF_JMP | BPF_JA, 0, 0, 1}, {BPF_JMP | BPF_JA, 0, 0, rest}});
  }
  const std::size_t next = far ? conditions + 1 : code.size();
  for (std::size_t i = 0; i < conditions; ++i) {
    const auto distance = static_cast<std::uint8_t>(next - i - 1);
    if (code[i].jt == NEXT) code[i].jt = distance;
    if (code[i].jf == NEXT) code[i].jf = distance;
  }
  return code;
}

using Code = std::vector<sock_filter>;

/// Go on if the comparison gives `met`; otherwise the frame is none that a flow matches.
void go_on_if(Code& code, std::uint16_t comparison, std::uint32_t value, bool met) {
  const std::uint8_t past_return = 1;
  code.push_back({static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K),
                  met ? past_return : std::uint8_t{0}, met ? std::uint8_t{0} : past_return, value});
  code.push_back(socket_is(OTHERS));
}

void keep(Code& code, Field field, sock_filter from) {
  code.push_back(from);
  code.push_back(store(field));
}

/// Keeps the fields, and sets X to the length of the header.
Code read_ipv4() {
  Code code{load(BPF_B | BPF_ABS, PROTOCOL)};
  go_on_if(code, BPF_JEQ, PROTOCOL_UDP, true);
  code.push_back(load(BPF_H | BPF_ABS, FRAGMENT));
  go_on_if(code, BPF_JSET, FRAGMENT_OFFSET, false);
  keep(code, Field::IPV4_SRC, load(BPF_W | BPF_ABS, SOURCE));
  keep(code, Field::IPV4_DST, load(BPF_W | BPF_ABS, DESTINATION));
  code.push_back({BPF_LDX | BPF_B | BPF_MSH, 0, 0, at(0)});
  return code;
}

/// The same for IPv6 without extension headers: its fields are none that a flow names.
Code read_ipv6() {
  Code code{load(BPF_B | BPF_ABS, NEXT_HEADER)};
  go_on_if(code, BPF_JEQ, PROTOCOL_UDP, true);
  for (const Field field : {Field::IPV4_SRC, Field::IPV4_DST})
    keep(code, field, {BPF_LD | BPF_IMM, 0, 0, 0});
  code.push_back({BPF_LDX | BPF_IMM, 0, 0, IPV6_SIZE});
  return code;
}

}  // namespace

std::vector<sock_filter> distribution(const RxConfig& config,
                                      const std::map<int, std::uint32_t>& sockets) {
  Code code;
  // Frames with a VLAN tag, which the kernel has taken out; a priority tag is none.
  code.push_back(load_extra(SKF_AD_VLAN_TAG));
  go_on_if(code, BPF_JSET, VLAN_ID, false);
  const Code ipv4 = read_ipv4();
  const Code ipv6 = read_ipv6();
  code.push_back(load_extra(SKF_AD_PROTOCOL));
  // To IPv4, which follows IPv6 and the jump at its end.
  code.push_back(
      {BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint8_t>(ipv6.size() + 3), 0, ETHERTYPE_IPV4});
  go_on_if(code, BPF_JEQ, ETHERTYPE_IPV6, true);
  code.insert(code.end(), ipv6.begin(), ipv6.end());
  code.push_back({BPF_JMP | BPF_JA, 0, 0, static_cast<std::uint32_t>(ipv4.size())});
  code.insert(code.end(), ipv4.begin(), ipv4.end());
  keep(code, Field::UDP_SRC, load(BPF_H | BPF_IND, SOURCE_PORT));
  keep(code, Field::UDP_DST, load(BPF_H | BPF_IND, DESTINATION_PORT));
  std::size_t told = 0;
  for (const FlowConfig& flow : config.flows_) {
    if (!can_tell(flow)) continue;
    const std::vector<sock_filter> more = code_of(flow, sockets);
    if (++told > MOST_FLOWS || code.size() + more.size() + 1 > MOST_CODE) break;
    code.insert(code.end(), more.begin(), more.end());
  }
  code.push_back(socket_is(OTHERS));
  return code;
}

std::vector<sock_filter> distribution_by_peer(bool ipv6, std::uint32_t sockets) {
  const std::uint32_t words = ipv6 ? 4 : 1;
  Code code;
  code.push_back({BPF_LDX | BPF_IMM, 0, 0, 0});
  for (std::uint32_t i = 0; i < words; ++i)
    mix(code, load(BPF_W | BPF_ABS, (ipv6 ? SOURCE_IPV6 : SOURCE) + 4 * i));
  const Code port =
      ipv6 ? Code{load(BPF_H | BPF_ABS, IPV6_SOURCE_PORT)}
           : Code{store(Field::IPV4_SRC),
                  {BPF_LDX | BPF_B | BPF_MSH, 0, 0, at(0)},
                  load(BPF_H | BPF_IND, SOURCE_PORT),
                  {BPF_LDX | BPF_MEM, 0, 0, static_cast<std::uint32_t>(Field::IPV4_SRC)}};
  if (ipv6) {
    // Behind an extension header there is no port at this offset: the address has to do.
    code.push_back(load(BPF_B | BPF_ABS, NEXT_HEADER));
    code.push_back(
        {BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<std::uint8_t>(port.size()), PROTOCOL_UDP});
  }
  code.insert(code.end(), port.begin(), port.end());
  code.push_back({BPF_ALU | BPF_XOR | BPF_X, 0, 0, 0});
  code.push_back({BPF_MISC | BPF_TAX, 0, 0, 0});
  mix(code, {BPF_LD | BPF_IMM, 0, 0, 0});
  take_hash(code, sockets);
  code.push_back({BPF_RET | BPF_A, 0, 0, 0});
  return code;
}

}  // namespace daqiri::steering
