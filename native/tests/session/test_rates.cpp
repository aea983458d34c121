// Rates over the last second.
#include <catch2/catch.hpp>

#include <memory>
#include <vector>

#include "session/rates.h"
#include "session/snapshot.h"

using namespace daqiri;

namespace {

constexpr std::uint64_t S = 1'000'000'000;
constexpr std::uint64_t PERIOD = S / 10;

std::shared_ptr<const SessionSnapshot> taken_at(std::uint64_t steady) {
  SessionSnapshot snapshot;
  snapshot.steady = steady;
  return std::make_shared<const SessionSnapshot>(std::move(snapshot));
}

}  // namespace

TEST_CASE("The copy from a second ago is kept, and none before it", "[session][rates]") {
  SnapshotHistory history;
  CHECK(history.before(S) == nullptr);
  std::weak_ptr<const SessionSnapshot> first;
  for (std::uint64_t i = 0; i <= 300; ++i) {
    const std::uint64_t now = 5 * S + i * PERIOD;
    auto snapshot = taken_at(now);
    if (i == 0) first = snapshot;
    history.add(std::move(snapshot));
    CHECK(history.latest()->steady == now);
    // Just after the copy, and just before the next one.
    for (const std::uint64_t asked : {now, now + PERIOD - 1}) {
      const std::uint64_t a_second_ago = i < 10 ? 5 * S : now - S;
      CHECK(history.before(asked - S)->steady == a_second_ago);
    }
    CHECK(history.before(now)->steady == now);
    CHECK(first.expired() == (i > 10));
  }
}

TEST_CASE("After a stall, the copy from before it is the one from a second ago",
          "[session][rates]") {
  SnapshotHistory history;
  for (const std::uint64_t at : {0, 1, 2, 3}) history.add(taken_at(S + at * PERIOD));
  const std::uint64_t late = 60 * S;
  history.add(taken_at(late));
  CHECK(history.before(late - S)->steady == S + 3 * PERIOD);
  history.add(taken_at(late + PERIOD));
  CHECK(history.before(late + PERIOD - S)->steady == S + 3 * PERIOD);
  CHECK(history.before(late + PERIOD)->steady == late + PERIOD);
  history.add(taken_at(late + S));
  CHECK(history.before(late)->steady == late);
  // Older copies are gone: the oldest one.
  CHECK(history.before(S)->steady == late);
}
