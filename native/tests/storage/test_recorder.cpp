#include <atomic>
#include <chrono>
#include <thread>

#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

TEST_CASE("Everything that a queue receives is in the file, in order", "[storage][recorder]") {
  Recording r;
  r.send(0, 5000);
  REQUIRE(r.recorded(5000));
  r.recorder->stop();
  r.recorder->stop();

  const RecorderSnapshot snapshot = r.recorder->snapshot();
  CHECK_FALSE(snapshot.running);
  CHECK(snapshot.packets == 5000);
  CHECK(snapshot.bytes == 5000 * 128);
  CHECK(snapshot.files == 1);
  CHECK(snapshot.dropped == 0);
  CHECK(snapshot.error.empty());
  CHECK(r.dir.names() ==
        std::vector<std::string>{"capture_000000.pcap", "capture_000000.pcap.json"});

  const auto files = r.recorder->files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].path == r.dir / "capture_000000.pcap");
  CHECK(numbers_in(files) == counted(0, 5000));
  const auto seen = tcpdump(files[0].path);
  REQUIRE(seen.size() == 5000);
  CHECK(seen[4999].bytes == udp_frame(5000, 4999));
  const auto rows = tshark(files[0].path, {"frame.time_epoch", "udp.dstport"});
  REQUIRE(rows.size() == 5000);
  CHECK(rows[0][1] == "5000");
  const auto ns = [](const std::string& seconds) {
    return std::stoll(seconds.substr(0, 10)) * 1'000'000'000 + std::stoll(seconds.substr(11));
  };
  CHECK(ns(rows.front()[0]) == files[0].t_first_ns);
  CHECK(ns(rows.back()[0]) == files[0].t_last_ns);
  CHECK(balanced(r.rx.counters()));

  const std::string json = sidecar_of(files[0].path);
  CHECK(value_of(json, "packets") == "5000");
  CHECK(value_of(json, "bytes") == "640000");
  CHECK(value_of(json, "t_first_ns") == std::to_string(files[0].t_first_ns));
  CHECK(value_of(json, "t_last_ns") == std::to_string(files[0].t_last_ns));
  CHECK(value_of(json, "dropped") == "0");
  CHECK(value_of(json, "dropped_by_reason") == "{}");
  CHECK(value_of(json, "link_type") == "1");
  CHECK(value_of(json, "nanosecond") == "true");
  CHECK(value_of(json, "headers_reconstructed") == "false");
  CHECK(value_of(json, "queue") == "\"port0/rx0\"");
  CHECK(value_of(json, "clock") == "\"CLOCK_REALTIME\"");
  CHECK(value_of(json, "torn_bytes") == "0");
  CHECK(value_of(json, "format") == "\"pcap\"");
  CHECK(value_of(json, "writer") == "\"buffered\"");
  CHECK(value_of(json, "flows") ==
        R"([{"id": 10, "name": "flow0", "match": {"udp_dst": "5000"}}])");
  CHECK_THAT(value_of(json, "counters_begin"), Contains("\"received\": 0,"));
  CHECK_THAT(value_of(json, "counters_end"), Contains("\"received\": 5000,"));
  CHECK_THAT(value_of(json, "host"), Contains("\"kernel\": \"Linux "));
  const auto begun = std::stoull(value_of(json, "begin_ns"));
  const auto ended = std::stoull(value_of(json, "end_ns"));
  CHECK(begun <= static_cast<std::uint64_t>(files[0].t_first_ns));
  CHECK(ended >= static_cast<std::uint64_t>(files[0].t_last_ns));
  output_of("python3 -c 'import json,sys; json.load(open(sys.argv[1]))' " + files[0].path +
            ".json");
}

TEST_CASE("Files roll at exactly the number of packets", "[storage][recorder]") {
  RecorderOptions options;
  options.roll_packets = 1000;
  options.first_number = 3;
  options.prefix = "scan";
  SECTION("not a multiple") {
    Recording r(options);
    r.send(0, 3500);
    REQUIRE(r.recorded(3500));
    r.recorder->stop();
    const auto files = r.recorder->files();
    REQUIRE(files.size() == 4);
    for (int i = 0; i < 4; ++i) {
      CHECK(files[static_cast<std::size_t>(i)].packets == (i < 3 ? 1000 : 500));
      CHECK(files[static_cast<std::size_t>(i)].path ==
            r.dir / ("scan_00000" + std::to_string(3 + i) + ".pcap"));
    }
    CHECK(numbers_in(files) == counted(0, 3500));
    CHECK(r.recorder->files(3).size() == 1);
    CHECK(r.recorder->files(4).empty());
  }
  SECTION("a multiple leaves no empty file") {
    Recording r(options);
    r.send(0, 2000);
    REQUIRE(r.recorded(2000));
    r.recorder->stop();
    CHECK(r.recorder->files().size() == 2);
    CHECK(r.dir.names().size() == 4);
  }
}

TEST_CASE("Files roll behind the packet that reaches the bytes", "[storage][recorder]") {
  RecorderOptions options;
  options.roll_bytes = 144 * 10 + 1;
  Recording r(options);
  r.send(0, 100);
  REQUIRE(r.recorded(100));
  r.recorder->stop();
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 10);
  for (std::size_t i = 0; i < 10; ++i) CHECK(files[i].packets == (i < 9 ? 11 : 1));
  CHECK(numbers_in(files) == counted(0, 100));
}

TEST_CASE("Files roll by time once they have a packet", "[storage][recorder]") {
  RecorderOptions options;
  options.roll_seconds = 0.05;
  Recording r(options);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(r.recorder->snapshot().files == 0);
  for (std::uint32_t i = 0; i < 3; ++i) {
    r.send(i * 10, 10);
    REQUIRE(within_limit([&] { return r.recorder->snapshot().files == i + 1; }));
  }
  r.recorder->stop();
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 3);
  CHECK(numbers_in(files) == counted(0, 30));
}

TEST_CASE("A recorder ends after exactly the packets asked for", "[storage][recorder]") {
  RecorderOptions options;
  options.max_packets = 150;
  options.roll_packets = GENERATE(0, 50, 75);
  Recording r(options, roomy_config(64, 0));
  r.send(0, 256);
  REQUIRE(within_limit([&] { return !r.recorder->snapshot().running; }));
  const RecorderSnapshot snapshot = r.recorder->snapshot();
  CHECK(snapshot.packets == 150);
  CHECK(snapshot.limit_reached);
  CHECK(snapshot.left_out == 3 * 64 - 150);
  CHECK(snapshot.dropped == 0);
  const auto files = r.recorder->files();
  CHECK(numbers_in(files) == counted(0, 150));
  CHECK(files.size() == (options.roll_packets == 0 ? 1 : 150 / options.roll_packets));
  CHECK(value_of(sidecar_of(files.back().path), "left_out_by_reason") == "{\"after_limit\": 42}");
  CHECK(files.back().left_out == 42);
  CHECK(files.back().dropped == 0);
  // The queue is free again; later packets are in it.
  CHECK(r.rx.recorder().empty());
  CHECK(receive_numbers(r.rx, 64) == counted(192, 64));
  CHECK(refusal([&] { r.recorder->roll(); }).first == Status::NOT_READY);
}

TEST_CASE("A recorder ends by itself when its time is over, and keeps what came until then",
          "[storage][recorder]") {
  RecorderOptions options;
  options.max_seconds = 1.5;
  const std::uint64_t begun = monotonic_ns();
  Recording r(options);
  r.send(0, 100);
  const bool sends = GENERATE(false, true);
  if (sends) {
    for (std::uint32_t i = 1; i < 400 && r.recorder->snapshot().running; ++i) {
      static_cast<void>(send_frames(r.tx, 5000, i * 100, 100));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  REQUIRE(within_limit([&] { return !r.recorder->snapshot().running; }));
  CHECK(monotonic_ns() - begun >= 1'500'000'000);
  const RecorderSnapshot snapshot = r.recorder->snapshot();
  CHECK(snapshot.limit_reached);
  CHECK(snapshot.dropped == 0);
  CHECK(snapshot.left_out == 0);
  CHECK(snapshot.packets >= 100);
  if (!sends) CHECK(snapshot.packets == 100);
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 1);
  CHECK(numbers_in(files) == counted(0, static_cast<std::uint32_t>(snapshot.packets)));
  CHECK(r.rx.recorder().empty());
}

TEST_CASE("The clock of a recorder stops while it is paused", "[storage][recorder]") {
  RecorderOptions options;
  options.max_seconds = 1.5;
  const std::uint64_t begun = monotonic_ns();
  Recording r(options);
  r.recorder->set_paused(true);
  r.recorder->set_paused(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  CHECK(r.recorder->snapshot().running);
  r.recorder->set_paused(false);
  r.recorder->set_paused(false);
  r.send(0, 10);
  REQUIRE(within_limit([&] { return !r.recorder->snapshot().running; }));
  CHECK(monotonic_ns() - begun >= 2'090'000'000);
  CHECK(r.recorder->snapshot().limit_reached);
  CHECK(r.recorder->snapshot().packets == 10);
}

TEST_CASE("The end of a recorder can be set while it runs", "[storage][recorder]") {
  RecorderOptions options;
  options.max_seconds = GENERATE(0.0, 3600.0);
  Recording r(options);
  r.send(0, 10);
  REQUIRE(r.recorded(10));
  r.recorder->set_paused(GENERATE(false, true));
  r.recorder->end_in(GENERATE(0.0, 0.05));
  REQUIRE(within_limit([&] { return !r.recorder->snapshot().running; }));
  CHECK(r.recorder->snapshot().limit_reached);
  CHECK(numbers_in(r.recorder->files()) == counted(0, 10));
  CHECK(refusal([&] { r.recorder->end_in(-1.0); }).first == Status::INVALID_PARAMETER);
}

TEST_CASE("Only a limit ends a recorder by its limit", "[storage][recorder]") {
  RecorderOptions options;
  options.max_packets = 100;
  options.max_seconds = 3600.0;
  Recording r(options);
  r.send(0, 10);
  REQUIRE(r.recorded(10));
  CHECK_FALSE(r.recorder->snapshot().limit_reached);
  if (GENERATE(false, true)) {
    r.recorder->stop();
  } else {
    r.session->close();
  }
  REQUIRE(within_limit([&] { return !r.recorder->snapshot().running; }));
  CHECK_FALSE(r.recorder->snapshot().limit_reached);
}

TEST_CASE("Rolling by hand ends a file with what has been handed over", "[storage][recorder]") {
  RecorderOptions options;
  SECTION("without limits") {
    Recording r(options);
    for (std::uint32_t i = 0; i < 3; ++i) {
      r.send(i * 100, 100);
      REQUIRE(within_limit(
          [&] { return r.rx.counters().received == (i + 1) * 100 && r.rx.counters().held == 0; }));
      r.recorder->roll();
      const auto files = r.recorder->files();
      REQUIRE(files.size() == i + 1);
      CHECK(numbers_in(files.back().path) == counted(i * 100, 100));
    }
    r.recorder->roll();
    REQUIRE(r.recorder->files().size() == 4);
    CHECK(r.recorder->files()[3].packets == 0);
    CHECK(r.recorder->files()[3].t_first_ns == -1);
    CHECK(tcpdump(r.recorder->files()[3].path).empty());
    r.recorder->stop();
    CHECK(r.recorder->files().size() == 4);
    CHECK(r.dir.names().size() == 8);
  }
  SECTION("right after a limit has completed a file") {
    options.roll_packets = 100;
    Recording r(options);
    r.send(0, 100);
    REQUIRE(within_limit([&] { return r.recorder->snapshot().files == 1; }));
    r.recorder->roll();
    CHECK(r.recorder->files().size() == 1);
    r.recorder->roll();
    CHECK(r.recorder->files().size() == 2);
  }
  SECTION("takes what waits in the queue") {
    // Without a timeout, bursts are delivered when they are full, and only then.
    Recording r(options, roomy_config(64, 0));
    auto& other = r.session->rx_queue(0, 1);
    for (std::uint32_t i = 0; i < 50; ++i) {
      r.send(i * 1024, 1024);
      REQUIRE(within_limit([&] { return r.rx.counters().received == (i + 1) * 1024; }));
      // Packets count as received shortly before their burst is in the ring; the same poller serves
      // the other queue after that.
      REQUIRE(send_frames(r.tx, 5001, i, 1));
      REQUIRE(within_limit([&] { return other.counters().received == i + 1; }));
      r.recorder->roll();
      REQUIRE(r.recorder->snapshot().packets == (i + 1) * 1024);
    }
  }
}

TEST_CASE("What comes while paused is left out and told", "[storage][recorder]") {
  Recording r;
  r.send(0, 100);
  REQUIRE(r.recorded(100));
  r.recorder->set_paused(true);
  r.send(100, 50);
  REQUIRE(within_limit([&] { return r.recorder->snapshot().left_out == 50; }));
  r.recorder->set_paused(false);
  r.send(150, 25);
  REQUIRE(r.recorded(125));
  r.recorder->stop();
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].left_out == 50);
  CHECK(files[0].dropped == 0);
  auto expected = counted(0, 100);
  const auto rest = counted(150, 25);
  expected.insert(expected.end(), rest.begin(), rest.end());
  CHECK(numbers_in(files) == expected);
  CHECK(value_of(sidecar_of(files[0].path), "left_out_by_reason") == "{\"paused\": 50}");
}

TEST_CASE("Drops of the queue are in the metadata of the file of that time",
          "[storage][recorder]") {
  Recording r;
  r.send(0, 10);
  REQUIRE(r.recorded(10));
  r.rx.set_drop_all(true);
  r.send(10, 30);
  REQUIRE(within_limit([&] { return r.rx.counters().dropped_total() == 30; }));
  r.rx.set_drop_all(false);
  r.recorder->roll();
  r.send(40, 10);
  REQUIRE(r.recorded(20));
  r.recorder->stop();
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 2);
  CHECK(files[0].left_out == 30);
  CHECK(files[0].dropped == 0);
  CHECK(files[1].left_out == 0);
  CHECK(value_of(sidecar_of(files[0].path), "left_out_by_reason") == "{\"filtered\": 30}");
}

TEST_CASE("Drops behind the last file are told by an empty one", "[storage][recorder]") {
  RecorderOptions options;
  options.roll_packets = 10;
  Recording r(options);
  r.send(0, 10);
  REQUIRE(within_limit([&] { return r.recorder->snapshot().files == 1; }));
  r.rx.set_drop_all(true);
  r.send(10, 5);
  REQUIRE(within_limit([&] { return r.rx.counters().dropped_total() == 5; }));
  r.recorder->stop();
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 2);
  CHECK(files[1].packets == 0);
  CHECK(files[1].left_out == 5);
}

TEST_CASE("A recorder ends with its queue, and has all of it", "[storage][recorder]") {
  Recording r(RecorderOptions{}, roomy_config(64, 0));
  // The last 8 stay in an open burst until the session is closed.
  r.send(0, 200);
  r.session->close();
  REQUIRE(within_limit([&] { return !r.recorder->snapshot().running; }));
  const RxSnapshot counters = r.rx.counters();
  CHECK(counters.held == 0);
  CHECK(balanced(counters));
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 1);
  CHECK(files[0].packets + counters.dropped_total() == 200);
  CHECK(files[0].packets == counters.delivered);
  CHECK(numbers_in(files) == counted(0, static_cast<std::uint32_t>(files[0].packets)));
}

TEST_CASE("Stopping while traffic runs leaves a whole file, and the queue to others",
          "[storage][recorder]") {
  for (int round = 0; round < 10; ++round) {
    Recording r(RecorderOptions{}, loopback_config(16, 200, 2048));
    std::atomic<bool> sending{true};
    std::thread sender([&] {
      const std::uint64_t end = monotonic_ns() + 2 * LIMIT_NS;
      for (std::uint32_t n = 0; sending.load() && monotonic_ns() < end; n += 64)
        send_frames(r.tx, 5000, n, 64);
    });
    REQUIRE(within_limit([&] { return r.recorder->snapshot().packets > 500; }));
    r.recorder->stop();
    const std::uint64_t packets = r.recorder->snapshot().packets;
    CHECK_FALSE(r.recorder->snapshot().running);
    Burst* burst = nullptr;
    REQUIRE(within_limit([&] { return (burst = r.rx.receive()) != nullptr; }));
    burst->release();
    sending = false;
    r.session->close();  // The sender waits for room, which nobody makes.
    sender.join();
    const auto files = r.recorder->files();
    REQUIRE(files.size() == 1);
    CHECK(files[0].packets == packets);
    const auto numbers = numbers_in(files);
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));
  }
}

TEST_CASE("A queue has one recorder at a time", "[storage][recorder]") {
  Recording r;
  RecorderOptions options;
  options.directory = r.dir.path();
  options.prefix = "second";
  const auto [status, text] = refusal([&] { Recorder(r.session, r.rx, options); });
  CHECK(status == Status::NOT_READY);
  CHECK_THAT(text, Contains("rx0") && Contains("capture"));
  CHECK_FALSE(std::filesystem::exists(r.dir / "second_000000.pcap"));
  Recorder other(r.session, r.session->rx_queue(0, 1), options);
  r.recorder->stop();
  options.prefix = "third";
  Recorder third(r.session, r.rx, options);
  CHECK(third.snapshot().running);
}

TEST_CASE("Options are refused before anything is attached", "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(loopback_config());
  RxQueue& rx = session->rx_queue(0, 0);
  RecorderOptions options;
  options.directory = dir.path();
  Status expected = Status::INVALID_PARAMETER;
  std::string words;
  SECTION("relative directory") {
    options.directory = "captures";
    words = "not absolute";
  }
  SECTION("missing directory") {
    options.directory = dir / "missing";
    words = "No such file";
  }
  SECTION("prefix") {
    options.prefix = "a/b";
    words = "prefix";
  }
  SECTION("roll_seconds") {
    options.roll_seconds = -1.0;
    words = "roll_seconds";
  }
  SECTION("a file of that name") {
    write_file(dir / "capture_000000.pcap", Bytes(3, 'x'));
    words = "capture_000000.pcap exists";
  }
  SECTION("a name that is too long") {
    options.prefix = std::string(300, 'p');
    words = "name too long";
    expected = Status::GENERIC_FAILURE;
  }
  const std::size_t names = dir.names().size();
  const auto [status, text] = refusal([&] { Recorder(session, rx, options); });
  CHECK(status == expected);
  CHECK_THAT(text, Contains(words));
  CHECK(rx.recorder().empty());
  CHECK(dir.names().size() == names);
}

TEST_CASE("The doorbell wakes a thread that waits for a file", "[storage][recorder]") {
  Recording r;
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    Doorbell& bell = r.recorder->doorbell();
    for (;;) {
      bell.prepare();
      if (!r.recorder->files().empty()) {
        bell.cancel();
        woken = true;
        return;
      }
      bell.wait(LIMIT_NS);
    }
  });
  r.recorder->roll();
  CHECK(within_limit([&] { return woken.load(); }));
  waiter.join();
}
