#include "engines/socket/udp_statistics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

#include "system/file.h"

namespace daqiri::sockets {

namespace {

/// Removes the first word of a text and returns it; empty: there is none.
std::string_view take_word(std::string_view& text) noexcept {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

std::string_view take_line(std::string_view& text) noexcept {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

void set(UdpStatistics& found, std::string_view name, std::string_view value) noexcept {
  std::uint64_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  if (name == "InCsumErrors") found.wrong_checksum = number;
  if (name == "RcvbufErrors") found.full_buffer = number;
}

}  // namespace

UdpStatistics parse_udp_statistics(std::string_view text, bool ipv6) noexcept {
  constexpr std::string_view PREFIX_IPV6 = "Udp6";
  UdpStatistics found;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    const std::string_view first = take_word(line);
    // IPv6: a line for each counter. IPv4: a line with all names, then one with all values.
    if (ipv6 && first.substr(0, PREFIX_IPV6.size()) == PREFIX_IPV6)
      set(found, first.substr(PREFIX_IPV6.size()), take_word(line));
    if (ipv6 || first != "Udp:") continue;
    std::string_view values = take_line(text);
    take_word(values);
    for (std::string_view name = take_word(line); !name.empty(); name = take_word(line))
      set(found, name, take_word(values));
  }
  return found;
}

UdpStatistics read_udp_statistics(bool ipv6) noexcept {
  const File file(open(ipv6 ? "/proc/thread-self/net/snmp6" : "/proc/thread-self/net/snmp",
                       O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return {};
  std::array<char, 16'384> text{};
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(file.fd(), text.data() + size, text.size() - size);
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
  }
  return parse_udp_statistics({text.data(), size}, ipv6);
}

}  // namespace daqiri::sockets
