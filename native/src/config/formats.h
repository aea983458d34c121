/// Values that are written as text with a form of their own: addresses, endpoints, port ranges.
///
/// Each reader returns an empty string, or what is wrong with the text; the target is then
/// unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daqiri/config.h"

namespace daqiri::config {

/// Digits, `0x` and `0o` numbers with an optional sign.
std::string read_integer(std::string_view text, std::int64_t& value);

std::string read_ipv4(std::string_view text, std::uint32_t& address);
/// Empty for 0, which stands for any address.
std::string write_ipv4(std::uint32_t address);

/// Numeric IPv4 or IPv6, the latter with a scope (fe80::1%eth0) or without.
bool is_ip_address(std::string_view text);
bool is_ipv6_address(std::string_view text);

/// Checks the form aa:bb:cc:dd:ee:ff.
std::string read_mac(std::string_view text, std::string& mac);

/// A port or "low-high".
std::string read_port_range(std::string_view text, PortRange& range);
/// Empty for any port.
std::string write_port_range(const PortRange& range);

/// A core number, kept as its digits.
std::string read_core(std::string_view text, std::string& core);

/// `scheme://ip:port`; the port may be left out for RoCE.
std::string read_endpoint(std::string_view text, SocketEndpoint& endpoint);
/// Empty when the endpoint is not given.
std::string write_endpoint(const SocketEndpoint& endpoint);

/// What an interface's address looks like. `loopback` is the name of the in-memory wire.
enum class AddressKind { PCI, INTERFACE, IP, LOOPBACK, UNKNOWN };
AddressKind address_kind(std::string_view text);

inline constexpr std::string_view IPV4_FORM = "an IPv4 address such as 192.168.1.10";
inline constexpr std::string_view IP_FORM = "a numeric IPv4 or IPv6 address";
inline constexpr std::string_view MAC_FORM = "an Ethernet address such as 02:00:00:00:00:01";
inline constexpr std::string_view PORT_FORM =
    "a UDP port from 0 (any) to 65535, or a range such as 1000-1010";
inline constexpr std::string_view CORE_FORM =
    "a core number from 0 to 8191, or 'any' for a thread that is not pinned";
inline constexpr std::string_view ENDPOINT_FORM =
    "tcp://ip:port, udp://ip:port or roce://ip[:port] with a numeric address";

}  // namespace daqiri::config
