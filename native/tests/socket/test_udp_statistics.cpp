#include <catch2/catch.hpp>

#include "engines/socket/udp_statistics.h"

using daqiri::sockets::parse_udp_statistics;

TEST_CASE("statistics of UDP are found by name", "[udp][statistics]") {
  const auto ipv4 = parse_udp_statistics(
      "IcmpMsg: InType3\n"
      "IcmpMsg: 29\n"
      "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n"
      "Udp: 17168165 307427 2386644 19812523 2386637 0 7\n"
      "UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n"
      "UdpLite: 1 1 1 1 1 1 1\n",
      false);
  CHECK(ipv4.wrong_checksum == 7);
  CHECK(ipv4.full_buffer == 2386637);
  const auto ipv6 = parse_udp_statistics(
      "Ip6InReceives                   \t9\n"
      "Udp6RcvbufErrors                \t14288\n"
      "Udp6InCsumErrors                \t12\n"
      "UdpLite6InCsumErrors            \t3\n",
      true);
  CHECK(ipv6.wrong_checksum == 12);
  CHECK(ipv6.full_buffer == 14288);
}

TEST_CASE("statistics that are not as expected are zeros", "[udp][statistics]") {
  for (const char* text : {"", "\n", "Udp:", "Udp: InCsumErrors", "Udp: InCsumErrors\nUdp:",
                           "Udp: InCsumErrors\nUdp: x\n", "Udp6InCsumErrors"}) {
    for (const bool ipv6 : {false, true}) {
      CHECK(parse_udp_statistics(text, ipv6).wrong_checksum == 0);
      CHECK(parse_udp_statistics(text, ipv6).full_buffer == 0);
    }
  }
}
