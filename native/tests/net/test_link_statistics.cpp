#include <catch2/catch.hpp>

#include <linux/if_link.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "net/link_counters.h"
#include "net/link_statistics.h"

using namespace daqiri;

namespace {

using Interfaces = std::map<int, LinkCounters>;

struct Lost {
  std::uint64_t card{0};
  std::uint64_t backlog{0};
  std::uint64_t errors{0};
  std::uint64_t dropped{0};
  bool operator==(const Lost&) const = default;
};

Lost lost(const LossTally& tally) {
  const PortSnapshot& n = tally.losses();
  return {n.lost_card, n.lost_backlog, n.lost_errors, n.lost_dropped};
}

}  // namespace

TEST_CASE("Losses are increases since the first reading", "[net][losses]") {
  LossTally tally;
  tally.add({{3, {.card = 5, .errors = 7, .damaged = 7, .dropped = 11}}}, 0);
  REQUIRE(lost(tally) == Lost{});
  tally.add({{3, {.card = 6, .errors = 9, .damaged = 9, .dropped = 14}}}, 0);
  REQUIRE(lost(tally) == Lost{1, 0, 2, 3});
  tally.add({{3, {.card = 6, .errors = 9, .damaged = 9, .dropped = 14}}}, 0);
  REQUIRE(lost(tally) == Lost{1, 0, 2, 3});
}

TEST_CASE("The backlog's drops are part of an interface's, and of others'", "[net][losses]") {
  LossTally tally;
  tally.add({{3, {}}}, 0);
  SECTION("all of them are of this interface") {
    tally.add({{3, {.dropped = 10}}}, 10);
    REQUIRE(lost(tally) == Lost{0, 10, 0, 0});
  }
  SECTION("some are of other interfaces") {
    tally.add({{3, {.dropped = 4}}}, 10);
    REQUIRE(lost(tally) == Lost{0, 4, 0, 0});
  }
  SECTION("the interface dropped others as well") {
    tally.add({{3, {.dropped = 10}}}, 4);
    REQUIRE(lost(tally) == Lost{0, 4, 0, 6});
  }
  SECTION("a drop between the two readings is known to the backlog first") {
    tally.add({{3, {.dropped = 9}}}, 10);
    tally.add({{3, {.dropped = 10}}}, 10);
    REQUIRE(lost(tally) == Lost{0, 10, 0, 0});
  }
  SECTION("drops of other interfaces in the past explain nothing") {
    tally.add({{3, {}}}, 10);
    tally.add({{3, {}}}, 10);
    tally.add({{3, {.dropped = 10}}}, 10);
    REQUIRE(lost(tally) == Lost{0, 0, 0, 10});
  }
}

TEST_CASE("Frames that were received are no certain loss", "[net][losses]") {
  LossTally tally;
  tally.add({{3, {}}}, 0, {.frames = 1000});
  SECTION("the interface counted them as dropped") {
    tally.add({{3, {.dropped = 10}}}, 0, {.frames = 10});
    REQUIRE(lost(tally) == Lost{0, 0, 0, 10});
    REQUIRE(tally.dropped_for_sure() == 0);
  }
  SECTION("it dropped others as well, and the backlog some") {
    tally.add({{3, {.dropped = 10}}}, 3, {.frames = 5});
    REQUIRE(lost(tally) == Lost{0, 3, 0, 7});
    REQUIRE(tally.dropped_for_sure() == 2);
  }
  SECTION("the backlog dropped frames of other interfaces") {
    tally.add({{3, {.dropped = 10}}}, 1000, {.frames = 10});
    REQUIRE(lost(tally) == Lost{0, 0, 0, 10});
    REQUIRE(tally.dropped_for_sure() == 0);
  }
  SECTION("one that arrived between the readings counts as dropped later") {
    tally.add({{3, {.dropped = 9}}}, 0, {.frames = 10, .late = 1});
    tally.add({{3, {.dropped = 11}}}, 0);
    REQUIRE(lost(tally) == Lost{0, 0, 0, 11});
    REQUIRE(tally.dropped_for_sure() == 1);
  }
  SECTION("those that others wanted explain no loss later") {
    tally.add({{3, {}}}, 0, {.frames = 1000, .late = 7});
    tally.add({{3, {.dropped = 2000}}}, 0, {.frames = 1000, .late = 7});
    REQUIRE(lost(tally) == Lost{0, 0, 0, 2000});
    REQUIRE(tally.dropped_for_sure() == 993);
  }
  SECTION("others took frames, too") {
    tally.add({{3, {.dropped = 20}}}, 5, {.and_others = true});
    REQUIRE(lost(tally) == Lost{0, 5, 0, 15});
    REQUIRE(tally.dropped_for_sure() == 0);
  }
}

TEST_CASE("No frame is counted twice", "[net][losses]") {
  LossTally tally;
  tally.add({{3, {.driver = 0}}}, 0);
  SECTION("kernel and driver count the same overflow") {
    tally.add({{3, {.card = 10, .driver = 10}}}, 0);
    REQUIRE(lost(tally) == Lost{10, 0, 0, 0});
  }
  SECTION("only the driver counts it") {
    tally.add({{3, {.driver = 10}}}, 0);
    REQUIRE(lost(tally) == Lost{10, 0, 0, 0});
  }
  SECTION("the driver reports it in rx_dropped, too") {
    tally.add({{3, {.driver = 10, .dropped = 12}}}, 0);
    REQUIRE(lost(tally) == Lost{10, 0, 0, 2});
  }
  SECTION("the driver reports it in rx_errors, too") {
    tally.add({{3, {.card = 10, .errors = 13, .damaged = 3}}}, 0);
    REQUIRE(lost(tally) == Lost{10, 0, 3, 0});
  }
  SECTION("bad frames of known kinds are no overflow") {
    tally.add({{3, {.card = 10, .errors = 8, .damaged = 8}}}, 0);
    REQUIRE(lost(tally) == Lost{10, 0, 8, 0});
  }
}

TEST_CASE("A counter that begins anew makes no loss", "[net][losses]") {
  LossTally tally;
  tally.add({{3, {.card = 100, .driver = 100, .errors = 100, .damaged = 100, .dropped = 100}}}, 0);
  tally.add({{3, {.card = 1, .driver = 1, .errors = 1, .damaged = 1, .dropped = 1}}}, 0);
  REQUIRE(lost(tally) == Lost{});
  tally.add({{3, {.card = 2, .driver = 2, .errors = 2, .damaged = 2, .dropped = 2}}}, 0);
  REQUIRE(lost(tally) == Lost{1, 0, 1, 1});
}

TEST_CASE("A driver that cannot be asked for a while makes no loss", "[net][losses]") {
  LossTally tally;
  tally.add({{3, {.card = 1, .driver = 1000}}}, 0);
  tally.add({{3, {.card = 2}}}, 0);
  REQUIRE(lost(tally) == Lost{1, 0, 0, 0});
  tally.add({{3, {.card = 2, .driver = 1010}}}, 0);
  REQUIRE(lost(tally) == Lost{1, 0, 0, 0});
  tally.add({{3, {.card = 2, .driver = 1013}}}, 0);
  REQUIRE(lost(tally) == Lost{4, 0, 0, 0});
}

TEST_CASE("Interfaces come and go", "[net][losses]") {
  LossTally tally;
  tally.add({{3, {.dropped = 5}}}, 0);
  tally.add({}, 0);
  REQUIRE(lost(tally) == Lost{});
  // Made anew, or another one with the address: what it lost before is unknown.
  tally.add({{4, {.dropped = 1000}}}, 0);
  REQUIRE(lost(tally) == Lost{});
  tally.add({{4, {.dropped = 1001}}, {5, {.dropped = 7}}}, 0);
  REQUIRE(lost(tally) == Lost{0, 0, 0, 1});
  // The counters of the first one have gone on.
  tally.add({{3, {.dropped = 8}}, {5, {.dropped = 9}}}, 0);
  REQUIRE(lost(tally) == Lost{0, 0, 0, 6});
}

TEST_CASE("Counters of an interface are read from the kernel's structure", "[net][losses]") {
  rtnl_link_stats64 stats{};
  stats.rx_missed_errors = 1;
  stats.rx_fifo_errors = 2;
  stats.rx_over_errors = 4;
  stats.rx_errors = 56;
  stats.rx_length_errors = 8;
  stats.rx_crc_errors = 16;
  stats.rx_frame_errors = 32;
  stats.rx_dropped = 64;
  stats.rx_nohandler = 128;
  const LinkCounters counters = LinkCounters::of(&stats, sizeof stats);
  REQUIRE(counters.card == 5);
  REQUIRE(counters.errors == 56);
  REQUIRE(counters.damaged == 56);
  REQUIRE(counters.dropped == 64);
  // An older kernel's structure ends before its last members.
  const LinkCounters shorter = LinkCounters::of(&stats, offsetof(rtnl_link_stats64, rx_crc_errors));
  REQUIRE(shorter.damaged == 8);
  REQUIRE(shorter.dropped == 64);
}

TEST_CASE("Drivers count the card's losses under different names", "[net][losses]") {
  struct Driver {
    std::vector<std::string> names;
    std::vector<std::uint64_t> values;
    std::uint64_t lost;
  };
  const Driver drivers[] = {
      // mlx5
      {{"rx_packets", "rx_out_of_buffer", "rx_discards_phy", "rx_prio0_discards", "rx0_packets"},
       {1000, 3, 4, 4, 1000},
       7},
      // igb: the queues' sum is rx_fifo_errors.
      {{"rx_no_buffer_count", "rx_missed_errors", "rx_fifo_errors", "rx_queue_0_drops",
        "rx_queue_1_drops", "rx_queue_0_packets"},
       {500, 2, 7, 3, 4, 1000},
       9},
      // ixgbe
      {{"rx_missed_errors", "rx_no_buffer_count", "rx_no_dma_resources", "fdir_miss"},
       {2, 50, 5, 1000},
       7},
      // i40e, ice
      {{"rx_dropped", "port.rx_dropped", "rx-0.packets"}, {9, 9, 1000}, 9},
      {{"rx_dropped", "rx_dropped.nic"}, {9, 9}, 9},
      // Others with drops of each queue
      {{"rx0_packets", "rx0_drops", "rx11_drops", "tx0_drops"}, {1000, 1, 2, 4}, 3},
      // veth, virtio_net: drops of an XDP program
      {{"peer_ifindex", "rx_queue_0_drops", "rx_queue_0_xdp_redirect", "rx_queue_12_drops"},
       {5, 1, 100, 2},
       0},
      {{"rx0_packets", "rx0_drops", "rx0_xdp_redirects", "rx11_drops"}, {1000, 1, 2, 4}, 0},
      {{"rx_packets", "tx_dropped"}, {1000, 5}, 0},
  };
  for (const Driver& driver : drivers) {
    CAPTURE(driver.names);
    REQUIRE(card_losses(driver.names, driver.values) == driver.lost);
    REQUIRE(has_card_losses(driver.names) == (driver.lost > 0));
  }
  // The driver has fewer values than names at this moment.
  REQUIRE(card_losses({"rx_out_of_buffer", "rx_discards_phy"}, {5}) == 5);
}

TEST_CASE("The losses of every interface of this host can be read", "[net][losses]") {
  LinkReader reader;
  const Interfaces all = reader.read(0);
  REQUIRE(!all.empty());
  for (auto [index, counters] : all) {
    reader.read_driver(index, counters);
    REQUIRE(reader.read(index).size() == 1);
  }
  // Not an interface.
  REQUIRE(reader.read(1 << 30).empty());
  const std::uint64_t before = reader.backlog_drops();
  REQUIRE(reader.backlog_drops() - before < (std::uint64_t{1} << 32U));
}

TEST_CASE("What a port loses depends on what it receives", "[net][losses]") {
  using Traffic = LinkStatistics::Traffic;
  for (const Traffic traffic :
       {Traffic::EVERY_FRAME, Traffic::SOME_FRAMES, Traffic::IN_DRIVER, Traffic::REPEATED}) {
    LinkStatistics none("port0", traffic, [](const File&) { return -1; });
    REQUIRE(none.losses(0).lost_before_engine == 0);
    none.stop();
    REQUIRE(none.losses(0).lost_before_engine == 0);
    none.stop();
  }
}
