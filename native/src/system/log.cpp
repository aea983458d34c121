#include "system/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "system/doorbell.h"
#include "system/ring.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

constexpr std::size_t MAX_WAITING = 256;
constexpr std::uint64_t REPEAT_NS = 1'000'000'000;
constexpr std::size_t MAX_TEXTS = 64;

std::atomic<LogLevel::Level> threshold{LogLevel::WARN};

/// Lines for an attached reader. Never destroyed, because threads may log until the process ends.
struct Mailbox {
  MpmcRing<LogRecord> ring{MAX_WAITING};
  File event{make_eventfd()};
  std::atomic<std::uint64_t> lost{0};
};
std::atomic<Mailbox*> mailbox{nullptr};
std::atomic<bool> attached{false};

/// When a text was last written. Texts with the same place overwrite each other's entry.
struct Place {
  std::atomic<std::size_t> hash{0};
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint32_t> repeats{0};
};
std::array<Place, MAX_TEXTS> places;

/// Whether to write this text now, and how often it was suppressed before.
bool admit(std::string_view text, std::uint32_t& repeats) noexcept {
  const std::size_t hash = std::hash<std::string_view>{}(text);
  Place& place = places[hash % places.size()];
  const std::uint64_t now = monotonic_ns();
  repeats = 0;
  if (place.hash.exchange(hash, std::memory_order_relaxed) != hash) {
    place.repeats.store(0, std::memory_order_relaxed);
  } else if (now - place.written.load(std::memory_order_relaxed) < REPEAT_NS) {
    place.repeats.fetch_add(1, std::memory_order_relaxed);
    return false;
  } else {
    repeats = place.repeats.exchange(0, std::memory_order_relaxed);
  }
  place.written.store(now, std::memory_order_relaxed);
  return true;
}

/// Lines that could not be written to standard error immediately.
std::atomic<std::uint64_t> unprinted{0};

/// Writes in pieces that a ready pipe accepts without blocking, because packet threads log, too.
bool write_unless_blocked(std::string_view text) noexcept {
  while (!text.empty()) {
    pollfd output{STDERR_FILENO, POLLOUT, 0};
    if (poll(&output, 1, 0) != 1 || (output.revents & POLLOUT) == 0) return false;
    const std::string_view piece = text.substr(0, PIPE_BUF);
    if (::write(STDERR_FILENO, piece.data(), piece.size()) <= 0) return false;
    text.remove_prefix(piece.size());
  }
  return true;
}

void print(LogLevel level, std::string_view text) {
  static std::mutex printing;
  const std::lock_guard lock(printing);
  std::string line("daqiri: ");
  line.append(log_level_name(level)).append(": ").append(text);
  const std::uint64_t lost = unprinted.exchange(0, std::memory_order_relaxed);
  if (lost > 0)
    line += " (" + std::to_string(lost) + " lines before this one could not be written)";
  line += '\n';
  if (!write_unless_blocked(line)) unprinted.fetch_add(lost + 1, std::memory_order_relaxed);
}

void post(Mailbox& box, LogLevel level, std::string_view text, const LogOrigin& origin) {
  if (!box.ring.push({level, realtime_ns(), std::string(text), std::string(origin.interface),
                      std::string(origin.queue)}))
    box.lost.fetch_add(1, std::memory_order_relaxed);
  ring_eventfd(box.event.fd());
}

bool logged(LogLevel level) noexcept {
  return level >= threshold.load(std::memory_order_relaxed) && level != LogLevel::OFF;
}

/// Throws std::bad_alloc.
void take(LogLevel level, std::string_view line, const LogOrigin& origin) {
  if (attached.load(std::memory_order_acquire)) {
    post(*mailbox.load(std::memory_order_acquire), level, line, origin);
  } else {
    print(level, line);
  }
}

}  // namespace

void set_log_level(LogLevel level) noexcept { threshold.store(level, std::memory_order_relaxed); }

LogLevel::Level get_log_level() noexcept { return threshold.load(std::memory_order_relaxed); }

std::string_view log_level_name(LogLevel level) noexcept {
  static constexpr std::array<std::string_view, 7> NAMES{"trace", "debug",    "info", "warning",
                                                         "error", "critical", "off"};
  return NAMES[static_cast<std::size_t>(level)];
}

void log(LogLevel level, std::string_view text, const LogOrigin& origin) noexcept {
  std::uint32_t repeats = 0;
  if (!logged(level) || !admit(text, repeats)) return;
  try {
    std::string line(text);
    if (repeats > 0) line += " (" + std::to_string(repeats) + " more times)";
    take(level, line, origin);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void log_as_it_is(LogLevel level, std::string_view text) noexcept {
  if (!logged(level)) return;
  try {
    take(level, text, {});
  } catch (const std::bad_alloc&) {
    return;
  }
}

int attach_log() {
  if (mailbox.load(std::memory_order_acquire) == nullptr) {
    auto box = std::make_unique<Mailbox>();
    Mailbox* none = nullptr;
    if (mailbox.compare_exchange_strong(none, box.get(), std::memory_order_acq_rel))
        [[maybe_unused]]
      const auto* kept = box.release();
  }
  attached.store(true, std::memory_order_release);
  return mailbox.load(std::memory_order_acquire)->event.fd();
}

void detach_log() noexcept {
  attached.store(false, std::memory_order_release);
  try {
    const LogLines lines = take_log_records();
    unprinted.fetch_add(lines.lost, std::memory_order_relaxed);
    for (const LogRecord& record : lines.records) print(record.level, record.text);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void disown_log() noexcept {
  attached.store(false, std::memory_order_release);
  mailbox.store(nullptr, std::memory_order_release);
}

LogLines take_log_records() {
  LogLines lines;
  Mailbox* box = mailbox.load(std::memory_order_acquire);
  if (box == nullptr) return lines;
  // Limited, because other threads may add lines at the same time.
  LogRecord record;
  for (std::size_t i = 0; i < 2 * MAX_WAITING && box->ring.pop(record); ++i)
    lines.records.push_back(std::move(record));
  lines.lost = box->lost.exchange(0, std::memory_order_relaxed);
  return lines;
}

}  // namespace daqiri
