/// Values that are written as text with a form of their own: addresses, endpoints, port ranges.
///
/// What reads a text returns what is wrong with it; the target is then unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daqiri/config.h"

namespace daqiri::config {

/// Inclusive. `unit` says what is counted, for messages.
struct Range {
  std::int64_t first;
  std::int64_t last;
  std::string_view unit{};
};
inline constexpr Range CPU_CORE{0, 8191};
inline constexpr Range PORT{1, 65535};
inline constexpr Range BYTE{0, 255};
inline constexpr Range WORD{0, 65535};

/// Digits, `0x` and `0o` numbers with an optional sign.
std::string read_integer(std::string_view text, const Range& range, std::int64_t& value);

/// Empty for 0, which stands for any address.
std::string write_ipv4(const std::uint32_t& address);
/// Empty when the endpoint is not given.
std::string write_endpoint(const SocketEndpoint& endpoint);

/// Numeric IPv4 or IPv6, the latter with a scope (fe80::1%eth0) or without.
bool is_ip_address(std::string_view text);
bool is_ipv6_address(std::string_view text);

/// What an interface's address looks like. `loopback` is the name of the in-memory wire.
enum class AddressKind { PCI, INTERFACE, IP, LOOPBACK, UNKNOWN };
AddressKind address_kind(std::string_view text);

/// How a value is written; `write` gives nothing for one that is left out.
template <class Value>
struct Form {
  std::string_view accepts;
  std::string (*read)(std::string_view text, Value& value);
  std::string (*write)(const Value& value);
};
extern const Form<std::uint32_t> IPV4;
extern const Form<std::string> IP;
extern const Form<std::string> MAC;
/// A port or "low-high".
extern const Form<PortRange> PORTS;
/// A core number, kept as its digits, or ANY_CORE.
extern const Form<std::string> CORE;
/// `scheme://ip:port`; the port may be left out for RoCE.
extern const Form<SocketEndpoint> ENDPOINT;

}  // namespace daqiri::config
