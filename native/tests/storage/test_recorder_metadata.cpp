// Metadata files that cannot be written.
#include "storage/recording.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

TEST_CASE("What metadata that cannot be finished should have told is told by the next file's",
          "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  TxQueue& tx = session->tx_queue(0, 0);
  Recorder recorder(session, session->rx_queue(0, 0), into(dir.path()));
  REQUIRE(send_frames(tx, 5000, 0, 10));
  REQUIRE(within_limit([&] { return recorder.snapshot().packets == 10; }));
  recorder.set_paused(true);
  REQUIRE(send_frames(tx, 5000, 10, 5));
  REQUIRE(within_limit([&] { return recorder.snapshot().left_out == 5; }));
  REQUIRE(std::filesystem::remove(dir / ".capture_000000.pcap.json.part"));
  const auto [status, text] = refusal([&] { recorder.roll(); });
  CHECK(status == Status::GENERIC_FAILURE);
  CHECK_THAT(text, Contains(dir / "capture_000000.pcap.json") && Contains("No such file"));
  recorder.stop();
  const auto files = recorder.files();
  REQUIRE(files.size() == 2);
  CHECK(files[0].packets == 10);
  CHECK(files[0].left_out == 0);
  CHECK(files[1].packets == 0);
  CHECK(files[1].left_out == 5);
  CHECK(dir.names() == std::vector<std::string>{"capture_000000.pcap", "capture_000001.pcap",
                                                "capture_000001.pcap.json"});
}

TEST_CASE("What the last file's metadata should have told is told by an empty file",
          "[storage][recorder]") {
  const TempDir dir;
  const auto session = Session::open(silent());
  TxQueue& tx = session->tx_queue(0, 0);
  Recorder recorder(session, session->rx_queue(0, 0), into(dir.path()));
  recorder.set_paused(true);
  REQUIRE(send_frames(tx, 5000, 0, 5));
  REQUIRE(within_limit([&] { return recorder.snapshot().left_out == 5; }));
  REQUIRE(std::filesystem::remove(dir / ".capture_000000.pcap.json.part"));
  recorder.stop();
  const auto files = recorder.files();
  REQUIRE(files.size() == 2);
  CHECK(files[0].left_out == 0);
  CHECK(files[1].left_out == 5);
  CHECK(recorder.snapshot().unreported == 0);
}

TEST_CASE("Files begin with the first packet of the flow that is waited for",
          "[storage][recorder]") {
  RecorderOptions options;
  options.start_flow = 8;
  options.roll_packets = 50;
  options.max_packets = 100;
  NetworkConfig config = roomy_config();
  FlowConfig start = config.ifs_[0].rx_.flows_.at(0);
  start.name_ = "start";
  start.id_ = 8;
  start.match_.udp_dst_ = 5100;
  config.ifs_[0].rx_.flows_.push_back(start);
  Recording r(options, std::move(config));
  r.send(0, 70);
  REQUIRE(within_limit([&] { return r.recorder->snapshot().left_out == 70; }));
  CHECK(r.recorder->snapshot().packets == 0);
  // In one burst with the packets before and after it.
  REQUIRE(send_frames(r.tx, 5000, 70, 10));
  REQUIRE(send_frames(r.tx, 5100, 80, 1));
  REQUIRE(send_frames(r.tx, 5000, 81, 99));
  REQUIRE(within_limit([&] { return !r.recorder->snapshot().running; }));
  const auto files = r.recorder->files();
  REQUIRE(files.size() == 2);
  CHECK(numbers_in(files) == counted(80, 100));
  CHECK(files[0].packets == 50);
  CHECK(files[0].left_out == 80);
  CHECK(files[0].dropped == 0);
  CHECK(files[1].dropped == 0);
  CHECK(value_of(sidecar_of(files[0].path), "left_out_by_reason") == "{\"before_start\": 80}");
}
