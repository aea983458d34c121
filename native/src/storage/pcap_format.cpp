#include "storage/pcap_format.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "daqiri/error.h"

namespace daqiri::pcap {

namespace {

constexpr std::uint32_t swap(std::uint32_t value) { return __builtin_bswap32(value); }

/// What a file is that begins with `magic`, and no classic pcap file of ours.
std::string relative(std::uint32_t magic) {
  static constexpr std::pair<std::uint32_t, const char*> KNOWN[] = {
      {0x0A0D0D0AU, "a pcapng file"},
      {0xA1B2CD34U, "a modified pcap file (longer record headers)"},
      {0x1C0001ABU, "an IXIA pcap file"},
      {0x1C0001ACU, "an IXIA pcap file"},
      {0xA12B3C4DU, "a Navtel pcap file"},
  };
  for (const auto& [known, name] : KNOWN) {
    if (magic == known || magic == swap(known))
      return std::string("this is ") + name + "; convert it with: editcap -F pcap IN OUT";
  }
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(),
                "not a pcap file: it begins with 0x%08x, accepted are 0x%08x (microseconds) and "
                "0x%08x (nanoseconds) in either byte order",
                magic, MAGIC_MICROSECOND, MAGIC_NANOSECOND);
  return text.data();
}

}  // namespace

FileHeader header_of(const Format& format) noexcept {
  return {.magic = format.nanosecond ? MAGIC_NANOSECOND : MAGIC_MICROSECOND,
          .snap_length = format.snap_length,
          .link_type = format.link_type};
}

Format read_header(const std::uint8_t* data, std::uint64_t size, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw Error(Status::INVALID_PARAMETER, name + ": " + what);
  };
  FileHeader header;
  if (size < sizeof header)
    refuse("not a pcap file: " + std::to_string(size) + " bytes, and its header alone has 24");
  std::memcpy(&header, data, sizeof header);
  Format format;
  format.swapped =
      header.magic == swap(MAGIC_MICROSECOND) || header.magic == swap(MAGIC_NANOSECOND);
  if (format.swapped) {
    header.magic = swap(header.magic);
    header.version_major = __builtin_bswap16(header.version_major);
    header.version_minor = __builtin_bswap16(header.version_minor);
    header.snap_length = swap(header.snap_length);
    header.link_type = swap(header.link_type);
  }
  format.nanosecond = header.magic == MAGIC_NANOSECOND;
  if (!format.nanosecond && header.magic != MAGIC_MICROSECOND) refuse(relative(header.magic));
  if (header.version_major != 2 || header.version_minor != 4) {
    refuse("pcap version " + std::to_string(header.version_major) + "." +
           std::to_string(header.version_minor) +
           ", only 2.4 is read; convert it with: editcap -F pcap IN OUT");
  }
  format.snap_length = header.snap_length;
  // The upper bits say how long the frame check sequence is.
  format.link_type = header.link_type & 0x03FF'FFFFU;
  return format;
}

}  // namespace daqiri::pcap
