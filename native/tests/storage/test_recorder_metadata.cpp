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
