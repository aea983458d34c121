// Recording a full queue, whose sender waits.
#include <thread>

#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;

TEST_CASE("Recorders that come and go lose nothing of a sender that waits", "[storage][recorder]") {
  constexpr std::uint32_t COUNT = 6400;
  Recording r({}, loopback_config(32, 200, 256));
  bool sent = false;
  std::thread sender([&] { sent = send_frames(r.tx, 5000, 0, COUNT); });
  std::uint64_t packets = 0;
  for (std::uint64_t number = 1; packets < COUNT && number < 1000; ++number) {
    const std::uint64_t wanted = std::min<std::uint64_t>(500, COUNT - packets);
    REQUIRE(within_limit([&] { return r.recorder->snapshot().packets >= wanted; }));
    r.recorder->stop();
    const RecorderSnapshot snapshot = r.recorder->snapshot();
    CHECK(snapshot.dropped + snapshot.left_out == 0);
    packets += snapshot.packets;
    RecorderOptions next;
    next.directory = r.dir.path();
    next.prefix = "after" + std::to_string(number);
    r.recorder = std::make_unique<Recorder>(r.session, r.rx, next);
  }
  sender.join();
  CHECK(sent);
  CHECK(packets == COUNT);
  CHECK(r.rx.counters().dropped_total() == 0);
}
