#include "engines/packet/xdp_code.h"

#include <arpa/inet.h>

#include <cstddef>
#include <cstdint>

#include "net/headers.h"

namespace daqiri::packet {

namespace {

// Registers. Kernel functions preserve R6 and higher.
constexpr std::uint8_t R0 = BPF_REG_0;
constexpr std::uint8_t R1 = BPF_REG_1;
constexpr std::uint8_t R2 = BPF_REG_2;
constexpr std::uint8_t R3 = BPF_REG_3;
constexpr std::uint8_t R4 = BPF_REG_4;
constexpr std::uint8_t R5 = BPF_REG_5;
constexpr std::uint8_t CONTEXT = BPF_REG_6;
constexpr std::uint8_t UDP_SRC = BPF_REG_7;
constexpr std::uint8_t UDP_DST = BPF_REG_8;
constexpr std::uint8_t TAGS = BPF_REG_9;
constexpr std::uint8_t STACK = BPF_REG_10;
// Offsets on the stack.
constexpr std::int16_t IPV4_SRC = -4;
constexpr std::int16_t IPV4_DST = -8;
constexpr std::int16_t IPV4_LEN = -12;
constexpr std::int16_t KEY = -24;

/// Collects instructions, including jumps to labels that are placed later.
class Assembler {
 public:
  using Label = std::size_t;

  Label label() {
    labels_.push_back(0);
    return labels_.size() - 1;
  }
  void place(Label label) { labels_[label] = code_.size(); }

  void move(std::uint8_t to, std::uint8_t from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from); }
  void set(std::uint8_t to, std::int32_t value) {
    add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value);
  }
  /// BPF_ADD, BPF_AND, BPF_LSH, BPF_RSH.
  void compute(std::uint8_t what, std::uint8_t to, std::int32_t value) {
    add(static_cast<std::uint8_t>(BPF_ALU64 | what | BPF_K), to, 0, 0, value);
  }
  void compute_with(std::uint8_t what, std::uint8_t to, std::uint8_t from) {
    add(static_cast<std::uint8_t>(BPF_ALU64 | what | BPF_X), to, from);
  }
  /// BPF_B, BPF_H, BPF_W.
  void load(std::uint8_t size, std::uint8_t to, std::uint8_t at, std::int16_t offset) {
    add(static_cast<std::uint8_t>(BPF_LDX | size | BPF_MEM), to, at, offset);
  }
  void store(std::uint8_t size, std::uint8_t at, std::int16_t offset, std::uint8_t from) {
    add(static_cast<std::uint8_t>(BPF_STX | size | BPF_MEM), at, from, offset);
  }
  void store_value(std::uint8_t size, std::uint8_t at, std::int16_t offset, std::int32_t value) {
    add(static_cast<std::uint8_t>(BPF_ST | size | BPF_MEM), at, 0, offset, value);
  }
  /// Loads a big-endian field of 16 bits. The mask gives the verifier its bounds.
  void load_be16(std::uint8_t to, std::uint8_t at, std::int16_t offset) {
    load(BPF_H, to, at, offset);
    add(BPF_ALU | BPF_END | BPF_TO_BE, to, 0, 0, 16);
    compute(BPF_AND, to, 0xFFFF);
  }
  /// BPF_MAP_FD, or BPF_MAP_VALUE at `offset`.
  void load_map(std::uint8_t to, int map, std::uint8_t kind, std::int32_t offset = 0) {
    add(BPF_LD | BPF_DW | BPF_IMM, to, kind, 0, map);
    add(0, 0, 0, 0, offset);
  }
  void call(std::int32_t function) { add(BPF_JMP | BPF_CALL, 0, 0, 0, function); }
  void exit() { add(BPF_JMP | BPF_EXIT, 0, 0); }
  void jump(Label to) { jump_if(BPF_JA, 0, 0, to); }
  /// BPF_JEQ, BPF_JNE, BPF_JGT, BPF_JLT.
  void jump_if(std::uint8_t what, std::uint8_t left, std::int32_t value, Label to) {
    jumps_.emplace_back(code_.size(), to);
    add(static_cast<std::uint8_t>(BPF_JMP | what | BPF_K), left, 0, 0, value);
  }
  void jump_if_with(std::uint8_t what, std::uint8_t left, std::uint8_t right, Label to) {
    jumps_.emplace_back(code_.size(), to);
    add(static_cast<std::uint8_t>(BPF_JMP | what | BPF_X), left, right);
  }
  /// Jump unless `bytes` of the frame follow `at`. Uses R4; R3 is the end of the frame.
  void jump_unless_bytes(std::uint8_t at, std::int32_t bytes, Label to) {
    move(R4, at);
    compute(BPF_ADD, R4, bytes);
    jump_if_with(BPF_JGT, R4, R3, to);
  }

  std::vector<bpf_insn> finish() {
    for (const auto& [at, label] : jumps_)
      code_[at].off = static_cast<std::int16_t>(labels_[label] - at - 1);
    return std::move(code_);
  }

 private:
  void add(std::uint8_t code, std::uint8_t to, std::uint8_t from, std::int16_t offset = 0,
           std::int32_t value = 0) {
    bpf_insn made{};
    made.code = code;
    made.dst_reg = to & 0xFU;
    made.src_reg = from & 0xFU;
    made.off = offset;
    made.imm = value;
    code_.push_back(made);
  }

  std::vector<bpf_insn> code_;
  std::vector<std::size_t> labels_;
  std::vector<std::pair<std::size_t, Label>> jumps_;
};

using Label = Assembler::Label;
using Field = XdpFilter::Field;

std::uint32_t table_of(const XdpFilter::Group& group, Field field) {
  return group.tables[static_cast<std::size_t>(field)];
}

/// Jumps to `other` unless the bit for the 16-bit field in R1 is set in the table.
void test_bit(Assembler& code, const XdpMaps& maps, std::uint32_t table, Label other) {
  code.move(R3, R1);
  code.compute(BPF_RSH, R3, 3);
  code.load_map(R2, maps.tables, BPF_PSEUDO_MAP_VALUE,
                static_cast<std::int32_t>(table * XdpFilter::TABLE_BYTES));
  code.compute_with(BPF_ADD, R2, R3);
  code.load(BPF_B, R2, R2, 0);
  code.compute(BPF_AND, R1, 7);
  code.compute_with(BPF_RSH, R2, R1);
  code.compute(BPF_AND, R2, 1);
  code.jump_if(BPF_JEQ, R2, 0, other);
}

/// Jumps to `other` unless the address at `place` on the stack is in the table.
void test_address(Assembler& code, const XdpMaps& maps, std::uint32_t table, std::int16_t place,
                  Label other) {
  code.store_value(BPF_W, STACK, KEY, static_cast<std::int32_t>(table));
  code.load(BPF_W, R1, STACK, place);
  code.store(BPF_W, STACK, KEY + 4, R1);
  code.load_map(R1, maps.addresses, BPF_PSEUDO_MAP_FD);
  code.move(R2, STACK);
  code.compute(BPF_ADD, R2, KEY);
  code.call(BPF_FUNC_map_lookup_elem);
  code.jump_if(BPF_JEQ, R0, 0, other);
}

/// Jumps to `take` if the frame matches the group; otherwise continues.
void test_group(Assembler& code, const XdpMaps& maps, const XdpFilter::Group& group, Label take) {
  const Label next = code.label();
  if (group.tags != XdpFilter::ANY_TAGS) code.jump_if(BPF_JNE, TAGS, group.tags, next);
  const auto bits = [&](Field field, auto load) {
    const std::uint32_t table = table_of(group, field);
    if (table == XdpFilter::NO_TABLE) return;
    load();
    test_bit(code, maps, table, next);
  };
  bits(Field::UDP_DST, [&] { code.move(R1, UDP_DST); });
  bits(Field::UDP_SRC, [&] { code.move(R1, UDP_SRC); });
  bits(Field::IPV4_LEN, [&] {
    code.load(BPF_W, R1, STACK, IPV4_LEN);
    code.compute(BPF_AND, R1, 0xFFFF);
  });
  const auto address = [&](Field field, std::int16_t place) {
    const std::uint32_t table = table_of(group, field);
    if (table != XdpFilter::NO_TABLE) test_address(code, maps, table, place, next);
  };
  address(Field::IPV4_SRC, IPV4_SRC);
  address(Field::IPV4_DST, IPV4_DST);
  code.jump(take);
  code.place(next);
}

/// Moves R2 from an IPv6 header to that of UDP, and jumps to `udp`. The IPv4 fields become 0, which
/// no group contains.
void skip_ipv6(Assembler& code, Label udp, Label take, Label pass) {
  constexpr auto NEXT = R5;
  for (const std::int16_t field : {IPV4_LEN, IPV4_SRC, IPV4_DST})
    code.store_value(BPF_W, STACK, field, 0);
  code.jump_unless_bytes(R2, IPV6_SIZE, take);
  code.load(BPF_B, NEXT, R2, 6);
  code.compute(BPF_ADD, R2, IPV6_SIZE);
  for (unsigned i = 0; i < MOST_IPV6_EXTENSIONS; ++i) {
    const Label options = code.label();
    const Label next = code.label();
    code.jump_if(BPF_JEQ, NEXT, PROTOCOL_UDP, udp);
    for (const std::uint8_t kind : IPV6_OPTIONS) code.jump_if(BPF_JEQ, NEXT, kind, options);
    code.jump_if(BPF_JNE, NEXT, IPV6_FRAGMENT, pass);
    code.jump_unless_bytes(R2, IPV6_EXTENSION_SIZE, take);
    // Only the first fragment contains the UDP header.
    code.load(BPF_H, R4, R2, 2);
    code.compute(BPF_AND, R4, htons(0xFFF8));
    code.jump_if(BPF_JNE, R4, 0, pass);
    code.load(BPF_B, NEXT, R2, 0);
    code.compute(BPF_ADD, R2, IPV6_EXTENSION_SIZE);
    code.jump(next);
    code.place(options);
    code.jump_unless_bytes(R2, IPV6_EXTENSION_SIZE, take);
    code.load(BPF_B, NEXT, R2, 0);
    code.load(BPF_B, R4, R2, 1);
    code.compute(BPF_ADD, R4, 1);
    code.compute(BPF_LSH, R4, 3);
    code.compute_with(BPF_ADD, R2, R4);
    code.place(next);
  }
  code.jump_if(BPF_JEQ, NEXT, PROTOCOL_UDP, udp);
  code.jump(pass);
}

/// Parses headers like steering::parse_frame. A frame that ends within them is taken, because the
/// rest may be in another fragment.
void test_frame(Assembler& code, const XdpFilter& filter, const XdpMaps& maps, Label take,
                Label pass) {
  constexpr auto ETHERTYPE = R5;
  const Label typed = code.label();
  code.load(BPF_W, R2, CONTEXT, offsetof(xdp_md, data));
  code.load(BPF_W, R3, CONTEXT, offsetof(xdp_md, data_end));
  code.jump_unless_bytes(R2, ETHERNET_SIZE, take);
  code.load(BPF_H, ETHERTYPE, R2, ETHERNET_SIZE - 2);
  code.compute(BPF_ADD, R2, ETHERNET_SIZE);
  code.set(TAGS, 0);
  for (unsigned i = 0; i < MOST_VLAN_TAGS; ++i) {
    const Label tag = code.label();
    code.jump_if(BPF_JEQ, ETHERTYPE, htons(0x8100), tag);
    code.jump_if(BPF_JEQ, ETHERTYPE, htons(0x88A8), tag);
    code.jump_if(BPF_JNE, ETHERTYPE, htons(0x9100), typed);
    code.place(tag);
    code.jump_unless_bytes(R2, VLAN_TAG_SIZE, take);
    code.load(BPF_H, ETHERTYPE, R2, 2);
    code.load(BPF_H, R4, R2, 0);
    code.compute(BPF_ADD, R2, VLAN_TAG_SIZE);
    const Label priority = code.label();
    code.compute(BPF_AND, R4, htons(VLAN_ID));
    code.jump_if(BPF_JEQ, R4, 0, priority);
    code.compute(BPF_ADD, TAGS, 1);
    code.place(priority);
  }
  code.place(typed);

  const Label not_ecpri = code.label();
  code.jump_if(BPF_JNE, ETHERTYPE, htons(ETHERTYPE_ECPRI), not_ecpri);
  bool any_tags = false;
  for (const int tags : filter.ecpri()) {
    any_tags = tags == XdpFilter::ANY_TAGS;
    if (!any_tags) code.jump_if(BPF_JEQ, TAGS, tags, take);
  }
  code.jump(any_tags ? take : pass);
  code.place(not_ecpri);

  const Label udp = code.label();
  const Label ipv4 = code.label();
  code.jump_if(BPF_JEQ, ETHERTYPE, htons(ETHERTYPE_IPV4), ipv4);
  code.jump_if(BPF_JNE, ETHERTYPE, htons(ETHERTYPE_IPV6), pass);
  skip_ipv6(code, udp, take, pass);

  code.place(ipv4);
  code.jump_unless_bytes(R2, IPV4_SIZE, take);
  code.load(BPF_B, R4, R2, 9);
  constexpr std::int32_t PROTOCOL_GRE = 47;
  if (filter.takes_gre()) code.jump_if(BPF_JEQ, R4, PROTOCOL_GRE, take);
  code.jump_if(BPF_JNE, R4, PROTOCOL_UDP, pass);
  // Only the first fragment contains the UDP header.
  code.load(BPF_H, R4, R2, 6);
  code.compute(BPF_AND, R4, htons(0x1FFF));
  code.jump_if(BPF_JNE, R4, 0, pass);
  code.load_be16(R4, R2, 2);
  code.store(BPF_W, STACK, IPV4_LEN, R4);
  code.load(BPF_W, R4, R2, 12);
  code.store(BPF_W, STACK, IPV4_SRC, R4);
  code.load(BPF_W, R4, R2, 16);
  code.store(BPF_W, STACK, IPV4_DST, R4);
  code.load(BPF_B, R4, R2, 0);
  code.compute(BPF_AND, R4, 0xF);
  code.compute(BPF_LSH, R4, 2);
  code.jump_if(BPF_JLT, R4, IPV4_SIZE, pass);
  code.compute_with(BPF_ADD, R2, R4);

  code.place(udp);
  code.jump_unless_bytes(R2, UDP_SIZE, take);
  code.load_be16(UDP_SRC, R2, 0);
  code.load_be16(UDP_DST, R2, 2);
  for (const XdpFilter::Group& group : filter.groups()) test_group(code, maps, group, take);
}

void take_frame(Assembler& code, const XdpMaps& maps, xdp_action otherwise) {
  const Label redirect = code.label();
  code.move(R1, CONTEXT);
  code.set(R2, -static_cast<std::int32_t>(XDP_TIME_BYTES));
  code.call(BPF_FUNC_xdp_adjust_meta);
  code.jump_if(BPF_JNE, R0, 0, redirect);
  code.call(BPF_FUNC_ktime_get_ns);
  code.load(BPF_W, R2, CONTEXT, offsetof(xdp_md, data_meta));
  code.load(BPF_W, R3, CONTEXT, offsetof(xdp_md, data));
  code.jump_unless_bytes(R2, XDP_TIME_BYTES, redirect);
  code.store(BPF_DW, R2, 0, R0);
  code.place(redirect);
  code.load(BPF_W, R2, CONTEXT, offsetof(xdp_md, rx_queue_index));
  code.load_map(R1, maps.sockets, BPF_PSEUDO_MAP_FD);
  code.set(R3, otherwise);
  code.call(BPF_FUNC_redirect_map);
  code.exit();
}

}  // namespace

std::vector<bpf_insn> xdp_code(const XdpFilter& filter, const XdpMaps& maps, xdp_action otherwise) {
  Assembler code;
  const Label take = code.label();
  const Label pass = code.label();
  code.move(CONTEXT, R1);
  if (!filter.takes_all()) {
    test_frame(code, filter, maps, take, pass);
    code.place(pass);
    code.set(R0, XDP_PASS);
    code.exit();
  }
  code.place(take);
  take_frame(code, maps, otherwise);
  return code.finish();
}

}  // namespace daqiri::packet
