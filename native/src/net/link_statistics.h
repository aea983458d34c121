/// What a host loses of the frames of a port before its engine can receive them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "metrics/counters.h"
#include "net/link_counters.h"
#include "net/unknown_protocols.h"

namespace daqiri {

/// Frames that an interface may have counted as dropped although they were received.
struct ReceivedFrames {
  /// Since the last call.
  std::uint64_t frames{0};
  /// How many of them may count only at the next call.
  std::uint64_t late{0};
  /// Others took frames, too: there may be more.
  bool and_others{false};
};

/// Adds up the increases of counters, by reason; no frame is counted twice.
class LossTally {
 public:
  /// Counters of interfaces by index; `LinkReader::backlog_drops` read after them. An interface is
  /// counted from the first call that has it. A counter that has become smaller was reset, and
  /// counts from there.
  void add(const std::map<int, LinkCounters>& now, std::uint64_t backlog_drops,
           const ReceivedFrames& received = {}) noexcept;
  /// Without `lost_before_engine`.
  [[nodiscard]] const PortSnapshot& losses() const noexcept { return losses_; }
  /// The part of `lost_dropped` that frames that were received do not explain.
  [[nodiscard]] std::uint64_t dropped_for_sure() const noexcept { return dropped_for_sure_; }

 private:
  /// Drops of interfaces that something else explains, which the kernel counts first.
  class Explained {
   public:
    /// So many of `dropped`, with `fresh` more that it may explain. `late`: most of them that
    /// interfaces may show only at the next call.
    std::uint64_t of(std::uint64_t dropped, std::uint64_t fresh, std::uint64_t late) noexcept;

   private:
    std::uint64_t early_{0};
  };

  std::map<int, LinkCounters> before_;
  std::uint64_t backlog_before_{0};
  Explained by_backlog_;
  Explained by_received_;
  PortSnapshot losses_;
  std::uint64_t dropped_for_sure_{0};
};

/// The losses of a port since it was made.
class LinkStatistics {
 public:
  /// What arrives at the port's interfaces, and so which losses are certain.
  enum class Traffic : std::uint8_t {
    /// A packet socket receives every frame: rx_dropped counts losses, and `UnknownProtocols`; if
    /// others take frames, too, maybe more.
    EVERY_FRAME,
    /// rx_dropped also counts frames of protocols that no program receives, such as LLDP and STP.
    SOME_FRAMES,
    /// An XDP program takes frames in the driver, before the backlog of a core: what that loses
    /// meanwhile are others' frames, and rx_dropped counts what the program's sockets had no space
    /// for, which they count, too.
    IN_DRIVER,
    /// A stream, whose sender repeats what is lost.
    REPEATED,
  };
  /// Returns the index of the port's interface at this moment, since its address may move to
  /// another; 0: all interfaces of the host; negative: none. May throw std::system_error.
  using FindInterface = std::function<int(const File& netlink)>;

  /// Concerns the network namespace of the calling thread. If the kernel's statistics cannot be
  /// read, a warning with the name of the port is logged, and nothing is counted.
  LinkStatistics(const std::string& port, Traffic traffic, FindInterface find_interface);

  /// See PortIo::losses. Any thread.
  [[nodiscard]] PortSnapshot losses(std::uint64_t max_age) noexcept;
  /// See PortIo::loss_interface. Any thread.
  [[nodiscard]] int interface() noexcept;
  /// Read for the last time. Idempotent; any thread.
  void stop() noexcept;

 private:
  /// Throws std::system_error.
  void read(LinkReader& reader);
  /// The counters of the port's interface, with EVERY_FRAME, and what was received meanwhile.
  std::map<int, LinkCounters> read_every_frame(LinkReader& reader, UnknownProtocols& unknown,
                                               ReceivedFrames& received);
  /// Throws std::system_error.
  [[nodiscard]] std::uint64_t backlog_drops(LinkReader& reader) const;

  Traffic traffic_;
  FindInterface find_interface_;
  std::mutex mutex_;  // for the following
  /// Null: nothing more is read.
  std::unique_ptr<LinkReader> reader_;
  /// With EVERY_FRAME.
  std::optional<UnknownProtocols> unknown_protocols_;
  /// Whether others took frames when drops were read last.
  bool other_takers_{false};
  std::uint64_t dropped_before_{0};
  LossTally tally_;
  /// CLOCK_MONOTONIC ns.
  std::uint64_t read_at_{0};
  /// When it was read last.
  int interface_{-1};
};

}  // namespace daqiri
