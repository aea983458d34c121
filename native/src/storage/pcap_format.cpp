#include "storage/pcap_format.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "daqiri/error.h"

namespace daqiri::pcap {

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw Error(Status::INVALID_PARAMETER, name + ": " + what);
}

std::string hex(std::uint32_t value) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", value);
  return text.data();
}

/// Relatives of the format whose records are laid out differently. Null: none that is known.
const char* relative(std::uint32_t magic) {
  static constexpr std::pair<std::uint32_t, const char*> KNOWN[] = {
      {0x0A0D0D0AU, "a pcapng file; convert it with: editcap -F pcap IN OUT"},
      {0xA1B2CD34U,
       "a modified pcap file (longer record headers); convert it with: editcap -F pcap IN OUT"},
      {0x1C0001ABU, "an IXIA pcap file; convert it with: editcap -F pcap IN OUT"},
      {0x1C0001ACU, "an IXIA pcap file; convert it with: editcap -F pcap IN OUT"},
      {0xA12B3C4DU, "a Navtel pcap file; convert it with: editcap -F pcap IN OUT"},
  };
  for (const auto& [known, text] : KNOWN) {
    if (magic == known || magic == __builtin_bswap32(known)) return text;
  }
  return nullptr;
}

}  // namespace

FileHeader header_of(const Format& format) noexcept {
  return {.magic = format.nanosecond ? MAGIC_NANOSECOND : MAGIC_MICROSECOND,
          .snap_length = format.snap_length,
          .link_type = format.link_type};
}

Format read_header(const std::uint8_t* data, std::uint64_t size, const std::string& name) {
  if (size < sizeof(FileHeader)) {
    refuse(name,
           "not a pcap file: " + std::to_string(size) + " bytes, and its header alone has 24");
  }
  FileHeader header;
  std::memcpy(&header, data, sizeof header);
  Format format;
  const std::uint32_t other_order = __builtin_bswap32(header.magic);
  format.swapped = other_order == MAGIC_MICROSECOND || other_order == MAGIC_NANOSECOND;
  const std::uint32_t magic = format.swapped ? other_order : header.magic;
  if (magic != MAGIC_MICROSECOND && magic != MAGIC_NANOSECOND) {
    const char* known = relative(header.magic);
    if (known != nullptr) refuse(name, std::string("this is ") + known);
    refuse(name, "not a pcap file: it begins with " + hex(header.magic) + ", accepted are " +
                     hex(MAGIC_MICROSECOND) + " (microseconds) and " + hex(MAGIC_NANOSECOND) +
                     " (nanoseconds) in either byte order");
  }
  if (format.swapped) {
    header.version_major = __builtin_bswap16(header.version_major);
    header.version_minor = __builtin_bswap16(header.version_minor);
    header.snap_length = __builtin_bswap32(header.snap_length);
    header.link_type = __builtin_bswap32(header.link_type);
  }
  if (header.version_major != 2 || header.version_minor != 4) {
    refuse(name, "pcap version " + std::to_string(header.version_major) + "." +
                     std::to_string(header.version_minor) +
                     ", only 2.4 is read; convert it with: editcap -F pcap IN OUT");
  }
  format.nanosecond = magic == MAGIC_NANOSECOND;
  format.snap_length = header.snap_length;
  // The upper bits say how long the frame check sequence is.
  format.link_type = header.link_type & 0x03FF'FFFFU;
  return format;
}

}  // namespace daqiri::pcap
