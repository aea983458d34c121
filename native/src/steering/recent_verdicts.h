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
  /// Call before packets of a program, and again if it may be another one.
  void use(const Program& program) noexcept {
    if (program.serial() != serial_) forget(program);
  }
  /// The verdict for a frame whose first `captured` bytes are at `frame`; null: it is not known. It
  /// removes no headers, and is valid until the next `classify`.
  [[nodiscard]] const Verdict* find(const std::uint8_t* frame, std::uint32_t captured) noexcept {
    if (captured < fewest_) return nullptr;
    const Fields fields = Fields::of(frame);
    // Mostly it is this one: its address does not depend on the frame, for which the processor need
    // not wait.
    if (entries_[latest_].fields == fields) return &entries_[latest_].verdict;
    const std::size_t place = fields.place();
    if (entries_[place].fields != fields) return nullptr;
    latest_ = place;
    return &entries_[place].verdict;
  }
  struct Latest;
  /// The latest that was found.
  [[nodiscard]] Latest latest() const noexcept;
  /// As Program::classify, for PacketView::of_beginning. The verdict is valid until the next call.
  const Verdict& classify(const Program& program, const std::uint8_t* frame, std::uint32_t captured,
                          std::uint32_t length) noexcept {
    if (const Verdict* const known = find(frame, captured)) return *known;
    return remember(program, frame, captured, length);
  }

 private:
  static constexpr std::size_t ENTRIES = 64;
  static constexpr std::uint32_t NEVER = std::numeric_limits<std::uint32_t>::max();

  /// What rules match of a frame without VLAN tags: EtherType, and of IPv4 and UDP the version,
  /// header size, length, fragment offset, protocol, addresses and ports.
  struct Fields {
    /// A register of SSE2 or NEON.
    using Half __attribute__((vector_size(16))) = std::uint64_t;
    Half first;
    Half second;

    bool operator==(const Fields& other) const noexcept {
      const Half differ = (first ^ other.first) | (second ^ other.second);
      return (differ[0] | differ[1]) == 0;
    }
    static Fields of(const std::uint8_t* frame) noexcept {
      Fields fields;
      std::memcpy(&fields.first, frame + FIRST_AT, sizeof first);
      std::memcpy(&fields.second, frame + SECOND_AT, sizeof second);
      fields.first &= std::bit_cast<Half>(FIRST);
      fields.second &= std::bit_cast<Half>(SECOND);
      return fields;
    }
    [[nodiscard]] std::size_t place() const noexcept {
      // Streams differ in few bits of addresses and ports. The constant is that of the golden
      // ratio.
      const std::uint64_t all = second[1] ^ second[0] >> 32U;
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
    using Bytes = std::array<std::uint8_t, sizeof(Half)>;
    static constexpr std::size_t FIRST_AT = ETHERNET_SIZE - 2;
    static constexpr std::size_t SECOND_AT = ETHERNET_SIZE + IPV4_SIZE + 4 - sizeof(Half);
    /// EtherType; version and size; length; fragment offset. Not: type of service, identification,
    /// flags.
    static constexpr Bytes FIRST{0xFF, 0xFF, 0xFF, 0x00, 0xFF, 0xFF, 0x00, 0x00,
                                 0x1F, 0xFF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    /// Protocol; addresses; ports. Not: time to live, checksum.
    static constexpr Bytes SECOND{0x00, 0xFF, 0x00, 0x00, 0xFF, 0xFF, 0xFF, 0xFF,
                                  0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  };
  struct alignas(64) Entry {
    /// No frame has these.
    Fields fields{{std::numeric_limits<std::uint64_t>::max(), 0}, {}};
    Verdict verdict{};
  };

  const Verdict& remember(const Program& program, const std::uint8_t* frame, std::uint32_t captured,
                          std::uint32_t length) noexcept;
  void forget(const Program& program) noexcept;

  std::array<Entry, ENTRIES> entries_{};
  /// Place of the latest frame that was found.
  std::size_t latest_{0};
  Verdict other_{};
  std::uint64_t serial_{0};
  /// Frames with fewer bytes are not found.
  std::uint32_t fewest_{NEVER};
};

/// What frames of a verdict have.
struct RecentVerdicts::Latest {
  Fields fields;
  /// Frames with fewer bytes have other verdicts.
  std::uint32_t fewest;

  /// Of a frame of at least `fewest` bytes.
  [[nodiscard]] bool is(const std::uint8_t* frame) const noexcept {
    return fields == Fields::of(frame);
  }
};

inline RecentVerdicts::Latest RecentVerdicts::latest() const noexcept {
  return {.fields = entries_[latest_].fields, .fewest = fewest_};
}

}  // namespace daqiri::steering
