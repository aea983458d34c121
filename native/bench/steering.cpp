// Cost of steering a packet with 1 to 4096 flows: parse the headers, find the flow, choose the
// queue. For comparison, the flows are tried one after the other. Packets are spread over the
// flows.
//
// usage: bench_steering [seconds per measurement, default 0.2] [rounds, default 3]

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "arguments.h"
#include "net/headers.h"
#include "steering/classifier.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

constexpr std::uint32_t FRAME = 128;
constexpr std::uint32_t NUM_PACKETS = 1024;
constexpr std::uint16_t PORT = 5000;

struct Frame {
  std::array<std::uint8_t, FRAME> bytes{};

  void udp(std::uint32_t destination, std::uint16_t source_port, std::uint16_t port) {
    store_be16(&bytes[12], ETHERTYPE_IPV4);
    Ipv4Header{.length = FRAME - ETHERNET_SIZE,
               .protocol = PROTOCOL_UDP,
               .source = 0x0A000001,
               .destination = destination}
        .store(&bytes[IPV4_AT]);
    store_udp(&bytes[UDP_AT], source_port, port, FRAME - UDP_AT, 0);
  }
  void ecpri(std::uint16_t id) {
    store_be16(&bytes[12], ETHERTYPE_ECPRI);
    store_be16(&bytes[16], FRAME - 18);
    store_be16(&bytes[18], id);
  }
};

/// Rules of one kind, and packets for them.
struct Sort {
  const char* name;
  std::function<void(FlowConfig&, std::uint32_t rule)> make;
  std::function<void(Frame&, std::uint32_t rule)> hit;
};

std::uint16_t port_of(std::uint32_t rule) { return static_cast<std::uint16_t>(1 + rule); }

const Sort SORTS[] = {
    {"a port each", [](FlowConfig& flow, std::uint32_t i) { flow.match_.udp_dst_ = port_of(i); },
     [](Frame& frame, std::uint32_t i) { frame.udp(1, 1, port_of(i)); }},
    {"an address each, one port",
     [](FlowConfig& flow, std::uint32_t i) {
       flow.match_.udp_dst_ = PORT;
       flow.match_.ipv4_dst_ = htonl(0xEF000001U + i);
     },
     [](Frame& frame, std::uint32_t i) { frame.udp(0xEF000001U + i, 1, PORT); }},
    {"a range of ports each",
     [](FlowConfig& flow, std::uint32_t i) {
       const auto first = static_cast<std::uint16_t>(1 + 10 * i);
       flow.match_.udp_dst_ = {first, static_cast<std::uint16_t>(first + 9)};
     },
     [](Frame& frame, std::uint32_t i) {
       frame.udp(1, 1, static_cast<std::uint16_t>(1 + 10 * i + i % 10));
     }},
    {"ports, ranges and addresses in turn",
     [](FlowConfig& flow, std::uint32_t i) {
       if (i % 3 != 0) flow.match_.udp_dst_ = port_of(i);
       if (i % 3 == 1) flow.match_.udp_src_ = {1000, 2000};
       if (i % 3 == 0) flow.match_.ipv4_dst_ = htonl(0xEF000001U + i);
     },
     [](Frame& frame, std::uint32_t i) {
       frame.udp(i % 3 == 0 ? 0xEF000001U + i : 1, 1500, port_of(i));
     }},
    {"a word each (flex item)",
     [](FlowConfig& flow, std::uint32_t i) {
       flow.match_.type_ = FlowMatchType::FLEX_ITEM;
       flow.match_.flex_item_match_ = {0, i, 0xFFFF};
     },
     [](Frame& frame, std::uint32_t i) {
       frame.udp(1, 1, PORT);
       store_be32(&frame.bytes[HEADERS_SIZE + 4], i);
     }},
    {"an eCPRI id each",
     [](FlowConfig& flow, std::uint32_t i) {
       flow.match_.type_ = FlowMatchType::ECPRI;
       flow.match_.ecpri_match_ = {0, true, static_cast<std::uint16_t>(i), true};
     },
     [](Frame& frame, std::uint32_t i) { frame.ecpri(static_cast<std::uint16_t>(i)); }},
    {"a port each, four queues by RSS",
     [](FlowConfig& flow, std::uint32_t i) {
       flow.match_.udp_dst_ = port_of(i);
       flow.action_.ids_ = {0, 1, 2, 3};
     },
     [](Frame& frame, std::uint32_t i) { frame.udp(1, 1, port_of(i)); }},
};

InterfaceConfig interface_of(const Sort& sort, std::uint32_t rules) {
  InterfaceConfig interface;
  interface.name_ = "port0";
  for (int id = 0; id < 4; ++id) interface.rx_.queues_.emplace_back().common_.id_ = id;
  interface.rx_.flex_items_.push_back({"word", 0, 4, PORT});
  for (std::uint32_t i = 0; i < rules; ++i) {
    FlowConfig& flow = interface.rx_.flows_.emplace_back();
    flow.id_ = i + 1;
    flow.action_.id_ = static_cast<std::uint16_t>(i % 4);
    sort.make(flow, i);
    flow.actions_ = {flow.action_};
  }
  return interface;
}

/// Whether a flow matches, without compiled tables.
bool matches(const FlowMatch& match, const FlexItemConfig& item,
             const steering::PacketView& packet) {
  const steering::PacketKey& key = packet.key;
  if (match.type_ == FlowMatchType::ECPRI) {
    const EcpriMatch& ecpri = match.ecpri_match_;
    return key.ecpri && (!ecpri.match_msg_type_ || ecpri.msg_type_ == key.ecpri_type) &&
           (!ecpri.match_id_ || (key.ecpri_has_id && ecpri.id_ == key.ecpri_id));
  }
  if (!key.udp()) return false;
  if (match.type_ == FlowMatchType::FLEX_ITEM) {
    const auto& [id, value, mask] = match.flex_item_match_;
    const std::uint32_t place = key.payload_at + item.offset_;
    return key.udp_dst == item.udp_dst_port_ && place + 4 <= key.payload_end &&
           (load_be32(&packet.bytes[place]) & mask) == value;
  }
  return match.udp_dst_.contains(key.udp_dst) && match.udp_src_.contains(key.udp_src) &&
         (match.ipv4_len_ == 0 || match.ipv4_len_ == key.ipv4_len) &&
         (match.ipv4_src_ == 0 || ntohl(match.ipv4_src_) == key.ipv4_src) &&
         (match.ipv4_dst_ == 0 || ntohl(match.ipv4_dst_) == key.ipv4_dst);
}

/// ns per packet; 0 if some packets were not matched.
template <typename F>
double measure(const std::vector<Frame>& packets, double seconds, F steer) {
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t done = 0;
  std::uint64_t matched = 0;
  std::uint64_t now = begun;
  for (; now < end; now = monotonic_ns()) {
    for (const Frame& packet : packets)
      matched += steer(steering::PacketView::of_frame(packet.bytes.data(), FRAME)) ? 1 : 0;
    done += packets.size();
  }
  return matched == done ? static_cast<double>(now - begun) / static_cast<double>(done) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = bench::number_or(argc, argv, 1, 0.2);
  const int rounds = bench::number_or(argc, argv, 2, 3);
  std::mt19937 random(1);
  for (const Sort& sort : SORTS) {
    for (const std::uint32_t rules : {1U, 16U, 256U, 4096U}) {
      const InterfaceConfig interface = interface_of(sort, rules);
      const steering::Program program(interface);
      std::vector<Frame> packets(NUM_PACKETS);
      for (Frame& packet : packets) sort.hit(packet, static_cast<std::uint32_t>(random() % rules));
      for (int round = 0; round < rounds; ++round) {
        const double compiled = measure(
            packets, seconds, [&](const auto& packet) { return program.classify(packet).matched; });
        const double tried = measure(packets, seconds, [&](const auto& packet) {
          return std::ranges::any_of(interface.rx_.flows_, [&](const FlowConfig& flow) {
            return matches(flow.match_, interface.rx_.flex_items_.front(), packet);
          });
        });
        std::printf("%s, %u rules: %.2f ns a packet, one by one %.2f ns\n", sort.name, rules,
                    compiled, tried);
      }
    }
  }
  return 0;
}
