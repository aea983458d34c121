// Random rules of every kind: the compiled program gives the same result as trying the rules in
// order.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "frames.h"
#include "steering/classifier.h"
#include "steering/recent_verdicts.h"

using namespace daqiri;
using namespace daqiri::test;
using steering::PacketView;
using steering::Program;
using steering::RecentVerdicts;
using steering::Verdict;

namespace {

/// A packet, and the values that its sender set.
struct Packet {
  std::vector<std::uint8_t> frame;
  std::size_t tags{0};
  bool udp{false};
  bool ipv6{false};
  FrameFields fields;
  /// First words of the UDP payload.
  std::uint32_t words[8]{};
  bool ecpri{false};
  std::uint8_t type{0};
  std::uint16_t id{0};
};

/// Values from small sets, so that rules overlap and packets hit them.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  std::uint16_t upto(std::uint32_t n) { return static_cast<std::uint16_t>(engine_() % n); }
  bool one_in(std::uint32_t n) { return upto(n) == 0; }
  PortRange range() {
    if (one_in(3)) return {};
    const auto lo = static_cast<std::uint16_t>(1 + upto(20));
    if (one_in(2)) return {lo, lo};
    return one_in(8) ? PortRange{static_cast<std::uint16_t>(65530 + upto(6)), 65535}
                     : PortRange{lo, static_cast<std::uint16_t>(lo + upto(12))};
  }
  std::uint16_t port() {
    return static_cast<std::uint16_t>(one_in(6) ? 65530 + upto(6) : upto(35));
  }
  std::uint32_t mask() {
    constexpr std::uint32_t MASKS[] = {UINT32_MAX, 0, 3, 0xFF000003};
    return MASKS[upto(4)];
  }

  FlowMatch match(FlowMatchType type) {
    FlowMatch match;
    match.type_ = type;
    if (type == FlowMatchType::FLEX_ITEM) {
      auto& [item, value, bits] = match.flex_item_match_;
      item = upto(3);
      bits = mask();
      value = upto(4) & (one_in(10) ? UINT32_MAX : bits);
    } else if (type == FlowMatchType::ECPRI) {
      EcpriMatch& ecpri = match.ecpri_match_;
      ecpri.match_msg_type_ = !one_in(4);
      ecpri.match_id_ = ecpri.match_msg_type_ && !one_in(3);
      ecpri.msg_type_ = static_cast<std::uint8_t>(upto(3));
      ecpri.id_ = upto(4);
    } else {
      match.udp_src_ = range();
      match.udp_dst_ = range();
      if (one_in(3)) match.ipv4_len_ = static_cast<std::uint16_t>(60 + upto(3));
      if (one_in(4)) match.ipv4_src_ = htonl(1U + upto(3));
      if (one_in(4)) match.ipv4_dst_ = htonl(1U + upto(3));
    }
    return match;
  }

  Packet packet() {
    Packet made;
    std::vector<std::uint16_t> tags;
    for (int i = one_in(3) ? upto(5) : 0; i > 0; --i)
      tags.push_back(static_cast<std::uint16_t>(one_in(2) ? 0 : 1 + upto(4095)));
    made.tags = tags.size() - static_cast<std::size_t>(std::ranges::count(tags, 0));
    if (one_in(3)) {
      made.ecpri = true;
      made.type = static_cast<std::uint8_t>(upto(5));
      made.id = upto(5);
      made.frame = tagged_with_ids(ecpri_frame(made.type, made.id), tags);
      return made;
    }
    FrameFields& fields = made.fields;
    fields.udp_src = port();
    fields.udp_dst = port();
    fields.payload = static_cast<std::uint16_t>(31 + upto(4));
    fields.src = 1U + upto(4);
    fields.dst = 1U + upto(4);
    if (one_in(10)) fields.protocol = 6;
    made.udp = fields.protocol == 17;
    made.ipv6 = one_in(3);
    made.frame = made.ipv6 ? ipv6_frame(made) : make_frame(fields);
    const std::size_t payload = made.frame.size() - fields.payload;
    for (std::size_t i = 0; 4 * (i + 1) <= fields.payload; ++i) {
      made.words[i] = one_in(3) ? 0x1000000U * upto(2) + upto(4) : upto(4);
      put32(made.frame, payload + 4 * i, made.words[i]);
    }
    made.frame = tagged_with_ids(made.frame, tags);
    return made;
  }

 private:
  /// With up to three extension headers, of which one may say that this is a later fragment.
  std::vector<std::uint8_t> ipv6_frame(Packet& made) {
    constexpr std::uint8_t KINDS[] = {0, 43, 44, 60};
    std::vector<Ipv6Extension> extensions(one_in(2) ? upto(4) : 0U);
    for (Ipv6Extension& extension : extensions) {
      const auto offset = static_cast<std::uint16_t>(one_in(3) ? 8 * upto(3) : 0);
      extension = {KINDS[upto(4)], static_cast<std::uint8_t>(upto(3)),
                   static_cast<std::uint16_t>(offset + upto(2))};
      made.udp = made.udp && (extension.kind != 44 || offset == 0);
    }
    return make_ipv6_frame(made.fields, extensions);
  }

  std::mt19937 engine_;
};

bool inside(const PortRange& range, std::uint16_t port) {
  return (range.lo == 0 && range.hi == 0) || (range.lo <= port && port <= range.hi);
}
bool equal_or_any(std::uint32_t wanted, std::uint32_t found) {
  return wanted == 0 || wanted == found;
}

/// Whether a flow matches, by the documented rules.
bool matches(const RxConfig& rx, const FlowConfig& flow, const Packet& packet) {
  const auto pops = static_cast<std::size_t>(flow.actions_.size() - 1);
  const FlowMatch& m = flow.match_;
  const FrameFields& f = packet.fields;
  if (pops != packet.tags) return false;
  if (m.type_ == FlowMatchType::ECPRI) {
    const EcpriMatch& e = m.ecpri_match_;
    if (!packet.ecpri) return false;
    if (e.match_msg_type_ && e.msg_type_ != packet.type) return false;
    // The upper half of a 32-bit id of other types does not count as an id.
    return !e.match_id_ || (packet.type < 3 && e.id_ == packet.id);
  }
  if (!packet.udp) return false;
  if (m.type_ == FlowMatchType::FLEX_ITEM) {
    const FlexItemConfig& item =
        rx.flex_items_[static_cast<std::size_t>(m.flex_item_match_.flex_item_id_)];
    const std::uint32_t end = item.offset_ + 4U;
    return f.udp_dst == item.udp_dst_port_ && end <= f.payload &&
           (packet.words[item.offset_ / 4] & m.flex_item_match_.mask_) == m.flex_item_match_.val_;
  }
  if (packet.ipv6 && (m.ipv4_len_ != 0 || m.ipv4_src_ != 0 || m.ipv4_dst_ != 0)) return false;
  if (packet.ipv6) return inside(m.udp_src_, f.udp_src) && inside(m.udp_dst_, f.udp_dst);
  return inside(m.udp_src_, f.udp_src) && inside(m.udp_dst_, f.udp_dst) &&
         equal_or_any(m.ipv4_len_, static_cast<std::uint16_t>(ipv4_length(f))) &&
         equal_or_any(ntohl(m.ipv4_src_), f.src) && equal_or_any(ntohl(m.ipv4_dst_), f.dst);
}

void require_equal(const Verdict& found, const Verdict& wanted) {
  REQUIRE(found.matched == wanted.matched);
  REQUIRE(found.queue == wanted.queue);
  REQUIRE(found.flow == wanted.flow);
  REQUIRE(found.position == wanted.position);
  REQUIRE(found.transformed == wanted.transformed);
  REQUIRE(found.malformed == wanted.malformed);
  if (found.transformed) REQUIRE(found.remains.length() == wanted.remains.length());
}

/// Frames of which only a part may be captured, each twice; `recent` has seen other programs.
void compare_recent(const Program& program, RecentVerdicts& recent, Random& random,
                    const Packet& packet) {
  const auto length = static_cast<std::uint32_t>(packet.frame.size());
  const std::uint32_t captured = random.one_in(2) ? length : random.upto(length + 1);
  const Verdict wanted =
      program.classify(PacketView::of_beginning(packet.frame.data(), captured, length));
  recent.use(program);
  require_equal(recent.classify(program, packet.frame.data(), captured, length), wanted);
  require_equal(recent.classify(program, packet.frame.data(), captured, length), wanted);
  const Verdict* const known = recent.find(packet.frame.data(), captured);
  if (known != nullptr) require_equal(*known, wanted);
  const bool plain = packet.udp && !packet.ipv6 && packet.frame[12] == 0x08;
  if (plain && captured >= 42) REQUIRE((known != nullptr) == program.matches_headers_only());
}

/// Frames of which a part is known that decides, whatever follows.
void compare_decided(const Program& program, const RxConfig& rx, Random& random,
                     const Packet& packet) {
  const auto length = static_cast<std::uint32_t>(packet.frame.size());
  const std::uint32_t captured = random.upto(length);
  const bool decided = program.decides(packet.frame.data(), captured);
  const bool plain = packet.udp && !packet.ipv6 && packet.frame[12] == 0x08;
  const bool for_udp = std::ranges::any_of(
      rx.flows_, [](const FlowConfig& flow) { return flow.match_.type_ != FlowMatchType::ECPRI; });
  if (plain && !program.reads_payloads() && !program.empty())
    REQUIRE(decided == (captured >= (for_udp ? 42U : 14U)));
  if (!decided) return;
  require_equal(program.classify(PacketView::of_beginning(packet.frame.data(), captured, length)),
                program.classify(PacketView::of_frame(packet.frame.data(), length)));
}

/// Returns how many packets matched a flow.
int compare(const InterfaceConfig& interface, Random& random, int packets) {
  static RecentVerdicts recent;
  const Program program(interface);
  const auto unreachable = steering::find_unreachable(interface.rx_);
  int hits = 0;
  for (int i = 0; i < packets; ++i) {
    const Packet packet = random.packet();
    const auto& flows = interface.rx_.flows_;
    const auto first = std::find_if(flows.begin(), flows.end(), [&](const FlowConfig& flow) {
      return matches(interface.rx_, flow, packet);
    });
    const auto found = program.classify(
        PacketView::of_frame(packet.frame.data(), static_cast<std::uint32_t>(packet.frame.size())));
    compare_recent(program, recent, random, packet);
    compare_decided(program, interface.rx_, random, packet);
    REQUIRE(found.matched == (first != flows.end()));
    REQUIRE(found.flow == (found.matched ? first->id_ : 0));
    REQUIRE(found.queue == (found.matched ? first->action_.id_ : 0));
    for (const auto& [flow, taken_by] : unreachable) {
      REQUIRE(taken_by < flow);
      // Every packet of the later flow also matches the earlier one.
      if (matches(interface.rx_, flows[flow], packet))
        REQUIRE(matches(interface.rx_, flows[taken_by], packet));
    }
    if (found.matched) ++hits;
  }
  return hits;
}

void add_random_flow(InterfaceConfig& interface, Random& random, FlowMatchType type) {
  const auto id = static_cast<FlowId>(interface.rx_.flows_.size() + 1);
  FlowConfig& flow = add_flow(interface, id, random.upto(4));
  flow.match_ = random.match(type);
  FlowAction pop;
  pop.type_ = FlowType::VLAN_POP;
  const int pops = type != FlowMatchType::FLEX_ITEM && random.one_in(3) ? random.upto(3) : 0;
  flow.actions_.insert(flow.actions_.begin(), static_cast<std::size_t>(pops), pop);
}

}  // namespace

TEST_CASE("random rules and packets: the program agrees with trying every rule", "[steering]") {
  Random random(4711);
  int hits = 0;
  for (int round = 0; round < 400; ++round) {
    auto interface = interface_with_queues(4);
    for (int i = 0; i < 3; ++i) {
      const auto offset = static_cast<std::uint16_t>(4 * random.upto(8));
      const auto port = static_cast<std::uint16_t>(1 + random.upto(34));
      interface.rx_.flex_items_.push_back({"item", i, offset, port});
    }
    const auto type = static_cast<FlowMatchType>(round % 3);
    const int flows = random.upto(60);
    for (int i = 0; i < flows; ++i) {
      // Validation accepts one kind per interface; the program supports any mix.
      const bool other = round % 10 == 9 && random.one_in(2);
      add_random_flow(interface, random, other ? static_cast<FlowMatchType>(random.upto(3)) : type);
    }
    INFO("round " << round);
    hits += compare(interface, random, 200);
  }
  CHECK(hits > 10'000);
}

TEST_CASE("a frame that differs from a recent one in a bit has its own verdict", "[steering]") {
  const FrameFields fields;
  const auto frame = make_frame(fields);
  const auto length = static_cast<std::uint32_t>(frame.size());
  auto interface = interface_with_queues(4);
  FlowMatch& match = add_flow(interface, 1, 1).match_;
  match.udp_src_ = {fields.udp_src, fields.udp_src};
  match.udp_dst_ = {fields.udp_dst, fields.udp_dst};
  match.ipv4_len_ = static_cast<std::uint16_t>(ipv4_length(fields));
  match.ipv4_src_ = htonl(fields.src);
  match.ipv4_dst_ = htonl(fields.dst);
  const Program program(interface);
  RecentVerdicts recent;
  recent.use(program);
  int matched = 0;
  for (std::size_t bit = 8 * 12; bit < 8 * 42; ++bit) {
    auto other = frame;
    other[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    INFO("bit " << bit % 8 << " of byte " << bit / 8);
    const Verdict wanted = program.classify(PacketView::of_beginning(other.data(), length, length));
    REQUIRE(recent.classify(program, frame.data(), length, length).flow == 1);
    require_equal(recent.classify(program, other.data(), length, length), wanted);
    REQUIRE(recent.classify(program, frame.data(), length, length).flow == 1);
    matched += wanted.matched ? 1 : 0;
  }
  // Type of service, identification, flags, time to live, and checksums and length of UDP.
  CHECK(matched == 8 * (1 + 2 + 1 + 2 + 4) + 3);
}

TEST_CASE("a thousand rules agree with trying each", "[steering]") {
  Random random(1);
  auto interface = interface_with_queues(4);
  for (int i = 0; i < 1000; ++i) {
    FlowMatch& match = add_flow(interface, static_cast<FlowId>(i + 1), random.upto(4)).match_;
    match.udp_dst_ = {random.port(), random.port()};
    if (match.udp_dst_.lo > match.udp_dst_.hi) std::swap(match.udp_dst_.lo, match.udp_dst_.hi);
    match.udp_src_ = random.one_in(2) ? PortRange{random.port()} : random.range();
    match.ipv4_dst_ = htonl(1U + random.upto(4));
  }
  CHECK(compare(interface, random, 4000) > 1000);
}
