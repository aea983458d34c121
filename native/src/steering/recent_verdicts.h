/// Verdicts of recent packets.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "net/headers.h"
#include "steering/classifier.h"

namespace daqiri::steering {

/// Remembers verdicts by the headers that they depend on, because most packets have the same ones
/// as a packet shortly before. Used by one thread.
class RecentVerdicts {
 public:
  /// As Program::classify, for PacketView::of_beginning. The verdict is valid until the next call.
  const Verdict& classify(const Program& program, const std::uint8_t* frame, std::uint32_t captured,
                          std::uint32_t length) noexcept {
    if (program.serial() != serial_) forget(program);
    if (remembers_ && captured >= HEADERS_SIZE) {
      const Fields fields = Fields::of(frame);
      Entry& entry = entries_[fields.place()];
      if (entry.fields == fields) return entry.verdict;
      if (fields.decide(frame)) return remember(program, frame, captured, length, fields, entry);
    }
    return other_ = program.classify(PacketView::of_beginning(frame, captured, length));
  }

 private:
  static constexpr std::size_t ENTRIES = 64;

  /// What rules match of a frame without VLAN tags: EtherType, and of IPv4 and UDP the version,
  /// header size, length, fragment offset, protocol, addresses and ports.
  struct Fields {
    std::uint64_t first;
    std::uint64_t second;
    std::uint64_t third;
    std::uint16_t last;

    bool operator==(const Fields& other) const noexcept {
      return ((first ^ other.first) | (second ^ other.second) | (third ^ other.third) |
              static_cast<std::uint64_t>(last ^ other.last)) == 0;
    }
    static Fields of(const std::uint8_t* frame) noexcept {
      Fields fields;
      std::memcpy(&fields.first, frame + 12, sizeof first);
      std::memcpy(&fields.second, frame + 20, sizeof second);
      std::memcpy(&fields.third, frame + 28, sizeof third);
      std::memcpy(&fields.last, frame + 36, sizeof last);
      fields.first &= FIRST;
      fields.second &= SECOND;
      return fields;
    }
    [[nodiscard]] std::size_t place() const noexcept {
      // Streams differ in few bits of addresses and ports. The constant is that of the golden ratio.
      const std::uint64_t all = (third ^ second >> 48U ^ std::uint64_t{last} << 20U);
      return all * 0x9E37'79B9'7F4A'7C15U >> (64 - std::countr_zero(ENTRIES));
    }
    /// Whether they are all that rules match of this frame: it has no VLAN tag, IPv6, eCPRI, or
    /// options of IPv4.
    [[nodiscard]] static bool decide(const std::uint8_t* frame) noexcept {
      const std::uint16_t type = load_be16(frame + ETHERNET_SIZE - 2);
      if (type == ETHERTYPE_IPV4) return (frame[ETHERNET_SIZE] & 0x0FU) * 4U <= IPV4_SIZE;
      return type != ETHERTYPE_IPV6 && type != ETHERTYPE_ECPRI && !is_vlan_tag(type);
    }

   private:
    /// EtherType, version and size; length. Not: type of service, identification.
    static constexpr auto FIRST = std::bit_cast<std::uint64_t>(
        std::array<std::uint8_t, 8>{0xFF, 0xFF, 0xFF, 0x00, 0xFF, 0xFF, 0x00, 0x00});
    /// Fragment offset; protocol; half of the source address. Not: flags, time to live, checksum.
    static constexpr auto SECOND = std::bit_cast<std::uint64_t>(
        std::array<std::uint8_t, 8>{0x1F, 0xFF, 0x00, 0xFF, 0x00, 0x00, 0xFF, 0xFF});
  };
  struct alignas(64) Entry {
    /// No frame has these.
    Fields fields{std::numeric_limits<std::uint64_t>::max(), 0, 0, 0};
    Verdict verdict{};
  };

  [[gnu::noinline]] const Verdict& remember(const Program& program, const std::uint8_t* frame,
                                            std::uint32_t captured, std::uint32_t length,
                                            const Fields& fields, Entry& entry) noexcept {
    entry.verdict = program.classify(PacketView::of_beginning(frame, captured, length));
    entry.fields = fields;
    return entry.verdict;
  }
  [[gnu::noinline]] void forget(const Program& program) noexcept {
    entries_.fill({});
    serial_ = program.serial();
    remembers_ = program.matches_headers_only();
  }

  std::array<Entry, ENTRIES> entries_{};
  Verdict other_{};
  std::uint64_t serial_{0};
  bool remembers_{false};
};

}  // namespace daqiri::steering
