#include "api/call.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "daqiri/daqiri.h"
#include "timing/clock.h"

namespace daqiri {

namespace api {

namespace {

/// Enough for a validation report with some dozens of problems. Plain memory, so that it outlives
/// all destructors of the thread.
constexpr std::size_t CAPACITY = 8191;
thread_local char last[CAPACITY + 1];
thread_local std::size_t last_size = 0;

/// Failures of a call on one queue that were not logged, and when one was last logged. Places are
/// never released; calls that find none share the last one.
struct Told {
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::uint64_t> at{0};
  std::atomic<std::uint64_t> since{0};
};
constexpr std::size_t MOST_TOLD = 512;
constexpr std::uint64_t TELL_AGAIN_NS = 1'000'000'000;
std::array<Told, MOST_TOLD> told;

Told& told_of(const Call& call) noexcept {
  constexpr std::uint64_t SPREAD = 0x9E37'79B9'7F4A'7C15U;
  const std::uint64_t key =
      (reinterpret_cast<std::uintptr_t>(call.name) * SPREAD ^ (call.queue + 1ULL) * SPREAD) | 1U;
  for (std::size_t i = 0; i < MOST_TOLD; ++i) {
    Told& place = told[((key >> 32U) + i) % MOST_TOLD];
    std::uint64_t found = 0;
    if (place.key.compare_exchange_strong(found, key, std::memory_order_relaxed) || found == key)
      return place;
  }
  return told.back();
}

}  // namespace

void log_reason(const Call& call) noexcept {
  if (!call.often) return log(LogLevel::ERROR, Reason::text());
  Told& before = told_of(call);
  const std::uint64_t now = monotonic_ns();
  std::uint64_t told_at = before.at.load(std::memory_order_relaxed);
  if ((told_at != 0 && now - told_at < TELL_AGAIN_NS) ||
      !before.at.compare_exchange_strong(told_at, now, std::memory_order_relaxed)) {
    before.since.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::uint64_t since = before.since.exchange(0, std::memory_order_relaxed);
  if (since == 0) return log(LogLevel::ERROR, Reason::text());
  std::array<char, CAPACITY + 64> line;
  const int n =
      std::snprintf(line.data(), line.size(), "%s (%llu failures before it were not logged)",
                    last_error(), static_cast<unsigned long long>(since));
  log(LogLevel::ERROR, {line.data(), static_cast<std::size_t>(n)});
}

Reason::Reason(std::string_view call) noexcept {
  last_size = 0;
  add(call).add(": ");
}

Reason& Reason::add(std::string_view text) noexcept {
  last_size += text.copy(last + last_size, CAPACITY - last_size);
  last[last_size] = '\0';
  return *this;
}

std::string_view Reason::text() noexcept { return {last, last_size}; }

}  // namespace api

const char* last_error() noexcept { return api::last; }

std::string_view status_name(Status status) noexcept {
  static constexpr std::string_view NAMES[]{
      "SUCCESS",         "NULL_PTR",          "NO_FREE_BURST_BUFFERS", "NO_FREE_PACKET_BUFFERS",
      "NOT_READY",       "INVALID_PARAMETER", "NO_SPACE_AVAILABLE",    "NOT_SUPPORTED",
      "GENERIC_FAILURE", "CONNECT_FAILURE",   "INTERNAL_ERROR"};
  const auto i = static_cast<std::size_t>(status);
  return i < std::size(NAMES) ? NAMES[i] : "UNKNOWN";
}

}  // namespace daqiri
