/// The compiled classifier: which queue and flow id a packet gets.
#pragma once

#include <cstdint>
#include <vector>

#include "daqiri/config.h"

namespace daqiri::steering {

/// What rules look at, in host byte order.
struct PacketKey {
  bool ipv4_udp{false};
  /// UDP over IPv6: only rules that name no IPv4 field match.
  bool ipv6_udp{false};
  std::uint16_t udp_src{0};
  std::uint16_t udp_dst{0};
  std::uint16_t ipv4_len{0};
  std::uint32_t ipv4_src{0};
  std::uint32_t ipv4_dst{0};
};

/// Key of an Ethernet frame (untagged IPv4/UDP, first fragment; anything else: ipv4_udp false).
PacketKey parse_frame(const std::uint8_t* frame, std::uint32_t length) noexcept;

struct Verdict {
  bool matched{false};
  /// Queue id on the interface.
  std::uint16_t queue{0};
  /// 0: no flow matched.
  FlowId flow{0};
};

/// Flows of one interface, in file order: the first that matches wins. Unmatched packets go to the
/// interface's first queue with flow id 0, unless flow_isolation is set (`matched` is then false
/// and the caller counts the packet as filtered).
class Classifier {
 public:
  /// Throws Error NOT_SUPPORTED naming the flow and the feature for rules this build cannot run in
  /// software (RSS, transforms, flex items, eCPRI).
  explicit Classifier(const InterfaceConfig& config);

  [[nodiscard]] Verdict classify(const PacketKey& key) const noexcept;
  [[nodiscard]] Verdict classify_frame(const std::uint8_t* frame,
                                       std::uint32_t length) const noexcept {
    return classify(parse_frame(frame, length));
  }

 private:
  struct Rule {
    PortRange udp_src;
    PortRange udp_dst;
    std::uint16_t ipv4_len;
    std::uint32_t ipv4_src;
    std::uint32_t ipv4_dst;
    Verdict verdict;
  };
  std::vector<Rule> rules_;
  /// For each UDP destination port, the first rule that can match it.
  std::vector<std::uint16_t> first_rule_;
  Verdict unmatched_;
};

}  // namespace daqiri::steering
