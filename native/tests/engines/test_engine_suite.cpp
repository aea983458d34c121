// Requirements on all engines: each case runs with each engine that registers a setup.
#include <catch2/catch.hpp>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "engines/engine_setup.h"
#include "io/io_engine.h"
#include "session/send.h"
#include "session/session.h"
#include "system/file.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::int64_t LONG = 20'000'000'000;
using Bytes = std::vector<std::uint8_t>;

/// Packet `number` of a sequence; the length depends on the number.
Bytes packet_of(std::uint32_t number) {
  Bytes bytes(64 + number * 37U % 1300U);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(number * 31U + i);
  std::memcpy(bytes.data() + 20, &number, sizeof number);
  return bytes;
}

Bytes packets_of(std::uint32_t first, std::uint32_t count) {
  Bytes all;
  for (std::uint32_t i = first; i < first + count; ++i) {
    const Bytes packet = packet_of(i);
    all.insert(all.end(), packet.begin(), packet.end());
  }
  return all;
}

/// A segment of a received packet, which may be in memory that the CPU cannot read.
Bytes bytes_of(const Burst& burst, int segment, std::uint32_t packet) {
  Bytes bytes(burst.pkt_lens[segment][packet]);
  REQUIRE(
      burst.owners[segment]->copy_to_host(burst.pkts[segment][packet], bytes.data(), bytes.size()));
  return bytes;
}

bool balanced(const RxSnapshot& s) {
  return s.received == s.delivered + s.held + s.dropped_total() && s.held <= s.received;
}
bool balanced(const TxSnapshot& s) {
  return s.submitted == s.sent + s.held + s.dropped_total() && s.held <= s.submitted;
}
std::uint64_t dropped(const RxSnapshot& s, DropReason reason) {
  return s.dropped[static_cast<std::size_t>(reason)];
}

/// A session of one engine, and a thread that checks its counters continuously.
class Wire {
 public:
  explicit Wire(const EngineSetup& of, const SuiteOptions& options = {})
      : setup(of),
        session(Session::open(of.config(options))),
        rx(session->rx_queue(of.rx_port, 0)),
        tx(session->tx_queue(of.tx_port, 0)),
        auditor_([this] {
          while (!stop_) {
            if (!balanced(rx.counters()) || !balanced(tx.counters())) unbalanced_ = true;
            std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
        }) {}
  ~Wire() {
    stop_ = true;
    auditor_.join();
  }

  /// Waits for buffers, for at most LONG. Launch times start at `launch`; 0 for none.
  bool send(std::uint32_t first, std::uint32_t count, std::uint64_t launch = 0,
            std::uint64_t gap = 0) {
    return send_packets(tx, count, launch, gap, LONG,
                        [first](std::uint32_t i) { return packet_of(first + i); });
  }

  struct Packet {
    Bytes bytes;
    std::uint64_t time;
  };
  /// Receives bursts until `bytes` bytes have arrived, LONG has passed, or all missing packets are
  /// counted as lost.
  std::vector<Packet> receive(std::size_t bytes) {
    std::vector<Packet> packets;
    std::size_t got = 0;
    const std::uint64_t end = monotonic_ns() + LONG;
    while (got < bytes && monotonic_ns() < end) {
      Burst* burst = rx.receive();
      if (burst == nullptr) {
        rx.wait(20'000'000);
        continue;
      }
      for (std::uint32_t i = 0; i < burst->num_packets(); ++i) {
        Packet packet{{}, burst->timestamps[i]};
        for (int s = 0; s < burst->hdr.hdr.num_segs; ++s) {
          const Bytes data = bytes_of(*burst, s, i);
          packet.bytes.insert(packet.bytes.end(), data.begin(), data.end());
        }
        got += packet.bytes.size();
        packets.push_back(std::move(packet));
      }
      burst->release();
    }
    return packets;
  }

  /// Waits until the queue has received so many bytes, including dropped ones.
  [[nodiscard]] bool received(std::size_t bytes) const {
    const std::uint64_t end = monotonic_ns() + LONG;
    while (rx.counters().received_bytes < bytes && monotonic_ns() < end) {
      rx.work();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return rx.counters().received_bytes >= bytes;
  }

  /// Closes the session, and requires that all buffers are returned and the counters balance.
  void finish() {
    session->close();
    while (Burst* burst = rx.receive()) burst->release();
    stop_ = true;
    CHECK_FALSE(unbalanced_);
    CHECK(balanced(rx.counters()));
    CHECK(balanced(tx.counters()));
    CHECK(rx.counters().held == 0);
    CHECK(tx.counters().held == 0);
    CHECK(tx.counters().sent_bytes >= tx.counters().sent);
    for (const auto& [name, region] : session->memory()->regions) {
      INFO(name);
      CHECK(region->available() == region->config().num_bufs_);
    }
    CHECK(session->memory()->tx_pool->available() == session->memory()->tx_pool->count());
  }

  const EngineSetup& setup;
  const std::shared_ptr<Session> session;
  RxQueue& rx;
  TxQueue& tx;

 private:
  std::atomic<bool> stop_{false};
  std::atomic<bool> unbalanced_{false};
  std::thread auditor_;
};

Bytes joined(const std::vector<Wire::Packet>& packets) {
  Bytes all;
  for (const Wire::Packet& packet : packets)
    all.insert(all.end(), packet.bytes.begin(), packet.bytes.end());
  return all;
}

/// Runs `body` with each engine.
template <typename Body>
void with_each_engine(Body body) {
  REQUIRE_FALSE(engine_setups().empty());
  for (const EngineSetup& setup : engine_setups()) {
    DYNAMIC_SECTION(setup.name) { body(setup); }
  }
}

}  // namespace

TEST_CASE("packets of mixed lengths arrive whole and in order", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    Wire wire(setup);
    constexpr std::uint32_t COUNT = 700;
    // The waiting packets also fit into the buffers of the kernel.
    for (std::uint32_t first = 0; first < COUNT; first += 100) {
      const Bytes expected = packets_of(first, 100);
      REQUIRE(wire.send(first, 100));
      const auto packets = wire.receive(expected.size());
      REQUIRE(joined(packets) == expected);
      if (setup.keeps_boundaries) REQUIRE(packets.size() == 100);
    }
    REQUIRE(wire.tx.wait_idle(LONG));
    CHECK(wire.tx.counters().sent == COUNT);
    CHECK(wire.tx.counters().sent_bytes == packets_of(0, COUNT).size());
    CHECK(wire.rx.counters().received_bytes == packets_of(0, COUNT).size());
    CHECK(wire.rx.counters().dropped_total() == 0);
    wire.finish();
  });
}

TEST_CASE("receive times are on the port's clock", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    Wire wire(setup);
    const std::uint64_t before = wire.session->port(setup.rx_port).io->clock()();
    REQUIRE(wire.send(0, 50));
    const auto packets = wire.receive(packets_of(0, 50).size());
    const std::uint64_t after = wire.session->port(setup.rx_port).io->clock()();
    REQUIRE(joined(packets) == packets_of(0, 50));
    for (const Wire::Packet& packet : packets) {
      REQUIRE(packet.time >= before);
      REQUIRE(packet.time <= after);
    }
    wire.finish();
  });
}

TEST_CASE("no packet leaves before its launch time; past ones leave at once, late", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    Wire wire(setup);
    constexpr std::uint64_t GAP = 300'000;
    const std::uint64_t start = wire.session->port(setup.tx_port).io->clock()() + 30'000'000;
    REQUIRE(wire.send(0, 40, start, GAP));
    if (setup.direct) REQUIRE(wire.tx.wait_idle(LONG));
    const auto packets = wire.receive(packets_of(0, 40).size());
    REQUIRE(joined(packets) == packets_of(0, 40));
    for (std::size_t i = 0; i < packets.size() && setup.keeps_boundaries; ++i)
      REQUIRE(packets[i].time >= start + GAP * i);
    REQUIRE(wire.tx.wait_idle(LONG));
    CHECK(wire.tx.lateness().count() == 40);
    // On a busy machine, some of these packets were late.
    const std::uint64_t late = wire.tx.counters().late;
    REQUIRE(wire.send(0, 7, 1, 1));
    REQUIRE(joined(wire.receive(packets_of(0, 7).size())) == packets_of(0, 7));
    REQUIRE(wire.tx.wait_idle(LONG));
    CHECK(wire.tx.counters().late == late + 7);
    wire.finish();
  });
}

TEST_CASE("a queue keeps its rate", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    constexpr std::uint64_t COUNT = 200, MBPS = 50, CREDIT_NS = 1'000'000;
    SuiteOptions options;
    options.pacing_mbps = MBPS;
    Wire wire(setup, options);
    const std::uint64_t begun = monotonic_ns();
    REQUIRE(wire.send(0, COUNT));
    const std::size_t bytes = packets_of(0, COUNT).size();
    const std::size_t last = packet_of(COUNT - 1).size();
    REQUIRE(wire.tx.wait_idle(LONG));
    const std::uint64_t took = monotonic_ns() - begun;
    CHECK(took + CREDIT_NS >= (bytes - last) * 8000 / MBPS);
    CHECK(wire.received(bytes));
    wire.finish();
  });
}

TEST_CASE("a burst is delivered when full, after its timeout, or at close", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    SuiteOptions options;
    SECTION("timeout") {
      Wire wire(setup, options);
      REQUIRE(wire.send(0, 3));
      REQUIRE(joined(wire.receive(packets_of(0, 3).size())) == packets_of(0, 3));
      wire.finish();
    }
    SECTION("close") {
      if (setup.direct) return;
      options.timeout_us = 60'000'000;
      Wire wire(setup, options);
      REQUIRE(wire.send(0, 3));
      REQUIRE(wire.tx.wait_idle(LONG));
      REQUIRE(wire.received(packets_of(0, 3).size()));
      REQUIRE(wire.rx.receive() == nullptr);
      wire.session->close();
      REQUIRE(joined(wire.receive(packets_of(0, 3).size())) == packets_of(0, 3));
      wire.finish();
    }
  });
}

TEST_CASE("headers and data are split over two segments", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    if (setup.whole_packets) return;
    SuiteOptions options;
    options.split = 50;
    Wire wire(setup, options);
    REQUIRE(wire.send(0, 60));
    REQUIRE(joined(wire.receive(packets_of(0, 60).size())) == packets_of(0, 60));
    wire.finish();
  });
}

TEST_CASE("flushing discards what is queued, and nothing after it", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    SuiteOptions options;
    options.timeout_us = 60'000'000;
    Wire wire(setup, options);
    REQUIRE(wire.send(0, 100));
    REQUIRE(wire.tx.wait_idle(LONG));
    REQUIRE(wire.received(packets_of(0, 100).size()));
    wire.rx.request_flush();
    CHECK(dropped(wire.rx.counters(), DropReason::FLUSHED) == wire.rx.counters().received);
    REQUIRE(wire.rx.receive() == nullptr);
    REQUIRE(wire.send(200, 64));
    REQUIRE(wire.received(packets_of(0, 100).size() + packets_of(200, 64).size()));
    wire.session->close();
    CHECK(joined(wire.receive(packets_of(200, 64).size())) == packets_of(200, 64));
    wire.finish();
  });
}

TEST_CASE("while all traffic is dropped nothing arrives, nor later", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    Wire wire(setup);
    REQUIRE(wire.send(0, 20));
    REQUIRE(joined(wire.receive(packets_of(0, 20).size())) == packets_of(0, 20));
    wire.rx.set_drop_all(true);
    REQUIRE(wire.send(100, 30));
    REQUIRE(wire.tx.wait_idle(LONG));
    REQUIRE(wire.received(packets_of(0, 20).size() + packets_of(100, 30).size()));
    wire.rx.set_drop_all(false);
    REQUIRE(wire.send(300, 20));
    REQUIRE(joined(wire.receive(packets_of(300, 20).size())) == packets_of(300, 20));
    CHECK(dropped(wire.rx.counters(), DropReason::FILTERED) > 0);
    wire.finish();
  });
}

TEST_CASE("what a slow consumer costs is counted, packet by packet", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    SuiteOptions options;
    options.rx_bufs = 256;
    options.batch = 16;
    Wire wire(setup, options);
    std::atomic<bool> done{false};
    std::size_t got = 0;
    std::thread consumer([&] {
      // Packets that are still held are received after the close.
      while (!done || wire.rx.counters().held > 0) {
        Burst* burst = wire.rx.receive();
        if (burst == nullptr) {
          if (wire.rx.closed() && wire.rx.counters().held == 0) break;
          wire.rx.wait(1'000'000);
          continue;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        got += burst->hdr.hdr.nbytes;
        burst->release();
      }
    });
    constexpr std::uint32_t COUNT = 6000;
    const bool sent = wire.send(0, COUNT);
    // Data of a stream may still be in the buffers of the kernel, which are freed with the session.
    const bool idle =
        wire.tx.wait_idle(LONG) && (!setup.waits || wire.received(packets_of(0, COUNT).size()));
    wire.session->close();
    done = true;
    consumer.join();
    REQUIRE(sent);
    REQUIRE(idle);
    const RxSnapshot counters = wire.rx.counters();
    CHECK(wire.tx.counters().sent == COUNT);
    if (setup.waits) {
      CHECK(got == packets_of(0, COUNT).size());
      CHECK(counters.dropped_total() == 0);
    } else {
      CHECK(counters.received <= COUNT);
      if (setup.counts_all) CHECK(counters.received == COUNT);
      CHECK(counters.delivered + counters.dropped_total() == counters.received);
    }
    wire.finish();
  });
}

TEST_CASE("bursts outlive their session and its engine", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    Burst* burst = nullptr;
    {
      Wire wire(setup);
      REQUIRE(wire.send(5, 1));
      const std::uint64_t end = monotonic_ns() + LONG;
      while ((burst = wire.rx.receive()) == nullptr && monotonic_ns() < end)
        wire.rx.wait(20'000'000);
      REQUIRE(burst != nullptr);
      wire.session->close();
    }
    CHECK(bytes_of(*burst, 0, 0) == packet_of(5));
    burst->free_packet(0);
    burst->release();
  });
}

TEST_CASE("sessions come and go under traffic and leave nothing behind", "[engines]") {
  with_each_engine([](const EngineSetup& setup) {
    {
      Wire first(setup);
    }
    const std::size_t descriptors = open_descriptors().size();
    for (int round = 0; round < 10; ++round) {
      SuiteOptions options;
      options.batch = 4;
      Wire wire(setup, options);
      std::atomic<bool> closing{false};
      std::thread sender([&] {
        Burst* burst = nullptr;
        for (int i = 0; i < 100'000 && !closing; ++i) {
          const Status allocated = wire.tx.allocate(4, &burst);
          if (allocated == Status::NOT_READY) return;
          if (allocated != Status::SUCCESS) continue;
          std::fill_n(burst->pkt_lens[0], 4, 100U);
          if (wire.tx.send(burst) == Status::NOT_READY) {
            burst->release();
            return;
          }
        }
      });
      while (wire.tx.counters().sent == 0) std::this_thread::yield();
      wire.session->close();
      closing = true;
      sender.join();
      wire.finish();
    }
    CHECK(open_descriptors().size() == descriptors);
  });
}
