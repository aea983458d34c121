// A receive queue without a session.
#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <thread>

#include "daqiri/error.h"
#include "io/rx_queue.h"
#include "timing/clock.h"

using namespace daqiri;

namespace {

/// A queue with two packets per burst, and buffers to fill it.
struct Bench {
  explicit Bench(int batch = 4, std::uint32_t meta_buffers = 8, std::uint32_t num_bufs = 256,
                 RxQueue::Sources sources = RxQueue::Sources::FEW, std::uint32_t timeout_us = 0,
                 MemoryKind kind = MemoryKind::HOST) {
    MemoryRegionConfig region;
    region.name_ = "rx";
    region.kind_ = kind;
    region.num_bufs_ = num_bufs;
    region.buf_size_ = 128;
    memory->regions.emplace("rx", memory::MemoryRegion::allocate(region));
    RxQueueConfig config;
    config.common_.name_ = "rx0";
    config.common_.batch_size_ = batch;
    config.common_.mrs_ = {"rx"};
    config.timeout_us_ = timeout_us;
    queue = std::make_unique<RxQueue>(InterfaceConfig{}, config, meta_buffers, memory, sources);
  }
  [[nodiscard]] memory::MemoryRegion& region() const { return queue->region(0); }

  /// Delivers `n` packets of one buffer each; lengths and times are numbered from `first`.
  void deliver(RxSource& source, std::uint32_t n, std::uint32_t first = 0) {
    std::vector<std::uint32_t> buffers(n);
    std::vector<std::uint32_t> lengths(n);
    std::vector<std::uint64_t> times(n);
    REQUIRE(region().take(buffers.data(), n) == n);
    std::iota(lengths.begin(), lengths.end(), first);
    std::iota(times.begin(), times.end(), std::uint64_t{1000} + first);
    RxBatch batch;
    batch.count = n;
    batch.segments[0].buffers = buffers.data();
    batch.segments[0].lengths.values = lengths.data();
    batch.times.values = times.data();
    batch.flows.constant = 7;
    queue->begin_pass(pass_ns);
    queue->deliver(source, batch);
    queue->end_pass();
  }
  void deliver(std::uint32_t n) { deliver(queue->main_source(), n); }

  [[nodiscard]] bool balanced() const {
    const RxSnapshot s = queue->counters();
    return s.received == s.delivered + s.held + s.dropped_total();
  }

  std::shared_ptr<SessionMemory> memory{std::make_shared<SessionMemory>()};
  std::unique_ptr<RxQueue> queue;
  /// Start time of the pass in the next `deliver`.
  std::uint64_t pass_ns{0};
};

std::uint64_t dropped(const RxQueue& queue, DropReason reason) {
  return queue.counters().dropped[static_cast<std::size_t>(reason)];
}

/// External memory in which packets begin anywhere.
class Foreign final : public memory::BufferOwner {
 public:
  Foreign() : BufferOwner("foreign", 100, memory::Place::DEVICE) {}
  void give(const std::uint32_t*, std::uint32_t n) noexcept override { given += n; }
  std::uint32_t given{0};
};

/// Memory that must be returned soon.
class Lender final : public memory::BufferOwner {
 public:
  Lender() : BufferOwner("lender", 100, memory::Place::HOST) {}
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept override {
    given.insert(given.end(), buffers, buffers + n);
  }
  [[nodiscard]] bool wanted_soon() const noexcept override { return true; }
  std::vector<std::uint32_t> given;
};

}  // namespace

TEST_CASE("each packet keeps its own length, time, flow and place", "[io]") {
  Bench bench;
  bench.deliver(bench.queue->main_source(), 6, 10);
  Burst* burst = bench.queue->receive();
  REQUIRE(burst != nullptr);
  REQUIRE(burst->num_packets() == 4);
  CHECK(burst->hdr.hdr.nbytes == 10 + 11 + 12 + 13);
  for (std::uint32_t i = 0; i < 4; ++i) {
    CHECK(burst->pkt_lens[0][i] == 10 + i);
    CHECK(burst->timestamps[i] == 1010 + i);
    CHECK(burst->flow_ids[i] == 7);
    CHECK(burst->pkts[0][i] == bench.region().address(burst->buffers[0][i]));
  }
  burst->release();
  CHECK(bench.queue->receive() == nullptr);
  CHECK(bench.queue->counters().held == 2);
  CHECK(bench.balanced());
}

TEST_CASE("packets in memory of another owner go back to it, and have bursts of their own",
          "[io]") {
  Bench bench;
  auto foreign = std::make_shared<Foreign>();
  bench.queue->share_owner(foreign);
  std::array<std::byte, 64> memory{};
  std::array<void*, 3> data{&memory[1], &memory[7], &memory[40]};
  std::array<std::uint32_t, 3> numbers{5, 6, 9};
  RxBatch batch;
  batch.count = 3;
  batch.segments[0] = {numbers.data(), data.data(), {nullptr, 3}, foreign.get()};
  bench.deliver(2);
  bench.queue->deliver(batch);
  bench.deliver(1);
  bench.queue->deliver_open();
  Burst* own = bench.queue->receive();
  Burst* others = bench.queue->receive();
  Burst* last = bench.queue->receive();
  REQUIRE((own != nullptr && others != nullptr && last != nullptr));
  CHECK(own->num_packets() == 2);
  CHECK(last->num_packets() == 1);
  REQUIRE(others->num_packets() == 3);
  CHECK(others->pkts[0][1] == &memory[7]);
  CHECK(others->unreadable_segment() == 0);
  CHECK(own->unreadable_segment() == -1);
  CHECK_THROWS_WITH(require_host_readable(*others, "written to a file"),
                    Catch::Contains("'foreign'") && Catch::Contains("written to a file"));
  others->free_packet(1);
  CHECK(foreign->given == 1);
  for (Burst* burst : {own, others, last}) burst->release();
  CHECK(foreign->given == 3);
  CHECK(bench.region().available() == 256);
}

TEST_CASE("the application gets copies of what must not be held for long", "[io]") {
  Bench bench;
  auto lender = std::make_shared<Lender>();
  bench.queue->share_owner(lender);
  std::array<std::byte, 64> memory{};
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
  std::array<void*, 3> data{&memory[1], &memory[7], &memory[40]};
  std::array<std::uint32_t, 3> numbers{5, 5, 9};
  RxBatch batch;
  batch.count = 3;
  batch.segments[0] = {numbers.data(), data.data(), {nullptr, 6}, lender.get()};
  const auto deliver = [&] {
    bench.queue->deliver(batch);
    bench.queue->deliver_open();
  };
  const bool short_of_buffers = GENERATE(false, true);
  std::vector<std::uint32_t> others(short_of_buffers ? 254 : 0);
  bench.region().take(others.data(), static_cast<std::uint32_t>(others.size()));
  deliver();
  Burst* burst = bench.queue->receive();
  REQUIRE((burst != nullptr && burst->num_packets() == 3));
  CHECK(lender->given.size() == (short_of_buffers ? 0 : 3));
  CHECK(bench.region().available() == (short_of_buffers ? 2 : 253));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK((burst->pkts[0][i] == data[i]) == short_of_buffers);
    CHECK(std::memcmp(burst->pkts[0][i], data[i], 6) == 0);
  }
  burst->release();
  CHECK(lender->given == std::vector<std::uint32_t>(numbers.begin(), numbers.end()));
  bench.region().give(others.data(), static_cast<std::uint32_t>(others.size()));
  CHECK(bench.region().available() == 256);
  // A recorder returns packets soon, so it reads them in place.
  deliver();
  burst = bench.queue->receive_packets();
  REQUIRE(burst != nullptr);
  CHECK(burst->pkts[0][0] == data[0]);
  burst->release();
  CHECK(lender->given.size() == 6);
}

namespace {

/// A device that has the packets at the same addresses. It can run out of memory for more.
class Staged final : public memory::MemoryRegion {
 public:
  Staged(const MemoryRegionConfig& config, const memory::RegionExtent& extent)
      : MemoryRegion(config, extent, memory::Place::HOST), pages_(extent.base) {}

  static std::unique_ptr<MemoryRegion> allocate(const MemoryRegionConfig& config,
                                                const memory::RegionNeeds& needs) {
    auto extent = memory::RegionExtent::of(config, needs, 4096);
    extent.base = new std::byte[extent.bytes];
    return std::make_unique<Staged>(config, extent);
  }
  [[nodiscard]] memory::DeviceCopies* device_copies() const noexcept override { return &copies_; }

  struct Copies final : memory::DeviceCopies {
    Copies() : DeviceCopies(0) {}
    cudaEvent_t to_device(const Packets&, cudaEvent_t) override {
      if (full) throw std::bad_alloc();
      return nullptr;
    }
    void to_host(const Packets&, Behind) override {}
    void gather(const Packets&, std::uint64_t, std::size_t) override {}
    void wait_for(cudaEvent_t) override {}
    void finish() noexcept override {}
    [[nodiscard]] int gpu() const noexcept override { return 0; }
    bool full{false};
  };
  mutable Copies copies_;

 private:
  std::unique_ptr<std::byte[]> pages_;
};

}  // namespace

TEST_CASE("packets that cannot be brought to their device are lost by name, and leak nothing",
          "[io]") {
  const memory::RegisteredMemoryKind known(MemoryKind::DEVICE, Staged::allocate);
  Bench bench(4, 8, 256, RxQueue::Sources::FEW, 0, MemoryKind::DEVICE);
  const memory::RegisteredMemoryKind forgotten(MemoryKind::DEVICE, nullptr);
  auto lender = std::make_shared<Lender>();
  bench.queue->share_owner(lender);
  std::array<std::byte, 96> packets{};
  std::array<void*, 3> data{&packets[3], &packets[31], &packets[80]};
  std::array<std::uint32_t, 3> numbers{5, 6, 9};
  RxBatch batch;
  batch.count = 3;
  batch.segments[0] = {numbers.data(), data.data(), {nullptr, 6}, lender.get()};
  std::vector<std::uint32_t> others(254);
  bench.region().take(others.data(), 254);
  bench.queue->deliver(batch);
  bench.queue->deliver_open();
  CHECK_THROWS_WITH(bench.queue->receive(),
                    "receive queue 'rx0': 3 packets are lost: too few buffers of its memory "
                    "regions are free to copy them to the GPU; raise num_bufs, or release bursts "
                    "sooner");
  CHECK(lender->given.size() == 3);
  bench.region().give(others.data(), 254);
  CHECK(bench.region().available() == 256);
  dynamic_cast<Staged&>(bench.region()).copies_.full = true;
  bench.deliver(4);
  CHECK_THROWS_AS(bench.queue->receive(), std::bad_alloc);
  CHECK(bench.region().available() == 256);
}

TEST_CASE("any number of sources is received while there are buffers", "[io]") {
  Bench bench(64, 4, 256, RxQueue::Sources::MANY);
  std::vector<RxSource*> sources;
  for (std::uintptr_t i = 1; i <= 250; ++i) {
    sources.push_back(&bench.queue->add_source(i));
    bench.deliver(*sources.back(), 1, static_cast<std::uint32_t>(i));
  }
  CHECK(bench.queue->counters().held == 250);
  CHECK(bench.queue->counters().dropped_total() == 0);
  bench.queue->deliver_open();
  for (std::uintptr_t i = 1; i <= 250; ++i) {
    Burst* burst = bench.queue->receive();
    REQUIRE(burst != nullptr);
    CHECK(burst->connection_id == i);
    CHECK(burst->pkt_lens[0][0] == i);
    burst->release();
  }
  CHECK(bench.queue->counters().dropped_total() == 0);
  CHECK(bench.region().available() == 256);
}

TEST_CASE("a connection is received apart, and the others keep their order", "[io]") {
  Bench bench(2, 16);
  RxSource& a = bench.queue->add_source(1);
  RxSource& b = bench.queue->add_source(2);
  for (std::uint32_t i = 0; i < 6; i += 2) {
    bench.deliver(a, 2, i);
    bench.deliver(b, 2, 50 + i);
  }
  Burst* burst = bench.queue->receive_from(2);
  REQUIRE(burst != nullptr);
  CHECK(burst->pkt_lens[0][0] == 50);
  burst->release();
  CHECK(bench.queue->receive_from(9) == nullptr);
  CHECK(bench.queue->levels().ring == 5);
  std::vector<std::uint32_t> order;
  while (Burst* next = bench.queue->receive()) {
    order.push_back(next->pkt_lens[0][0]);
    next->release();
  }
  CHECK(order == std::vector<std::uint32_t>{0, 2, 52, 4, 54});
  CHECK(bench.queue->counters().delivered == 12);
}

TEST_CASE("who waits for a connection is woken by what another thread set aside", "[io]") {
  Bench bench(2, 64);
  RxSource& a = bench.queue->add_source(1);
  RxSource& b = bench.queue->add_source(2);
  bench.deliver(a, 2);
  bench.deliver(b, 2);
  bench.queue->receive_from(2)->release();
  CHECK(bench.queue->levels().ring == 1);
  CHECK(bench.queue->wait(0, 1));
  CHECK(bench.queue->wait(0));
  bench.queue->receive_from(1)->release();
}

TEST_CASE("a queue starves when buffers were wanted and the application has all its bursts",
          "[io]") {
  Bench bench;
  RxQueue& queue = *bench.queue;
  const std::uint32_t all = bench.region().available();
  bench.deliver(4);
  // A full burst, which the application can receive.
  Burst* burst = queue.receive();
  REQUIRE(burst != nullptr);
  bench.deliver(4);
  queue.drop(DropReason::NO_PACKET_BUFFER, 1);
  CHECK_FALSE(queue.starves());
  std::vector<std::uint32_t> rest(all);
  const std::uint32_t taken = bench.region().take(rest.data(), all);
  queue.drop(DropReason::KERNEL, 1);
  CHECK_FALSE(queue.starves());
  queue.drop(DropReason::NO_PACKET_BUFFER, 1);
  CHECK_FALSE(queue.starves());
  // The shortage is remembered until the application has received the last burst.
  Burst* second = queue.receive();
  REQUIRE(second != nullptr);
  CHECK(queue.starves());
  CHECK_FALSE(queue.starves());
  // Another queue of the region needs buffers.
  queue.note_shortage();
  CHECK(queue.starves());
  queue.note_shortage();
  // Some buffers are free by now, but a burst to send may need more.
  second->release();
  bench.region().note_shortage();
  CHECK(queue.starves());
  bench.region().give(rest.data(), taken);
  burst->release();
}

TEST_CASE("a queue without regions receives into an engine's buffers, and asks these for more",
          "[io]") {
  struct Strides final : memory::BufferOwner {
    Strides() : BufferOwner("strides", 100, memory::Place::HOST) {}
    void give(const std::uint32_t*, std::uint32_t n) noexcept override { free += n; }
    [[nodiscard]] memory::BufferLevels levels() const noexcept override { return {free, 4}; }
    std::uint32_t free{4};
    std::array<std::array<std::byte, 100>, 4> bytes{};
  };
  auto memory = std::make_shared<SessionMemory>();
  RxQueueConfig config;
  config.common_.name_ = "rx0";
  config.common_.batch_size_ = 4;
  RxQueue queue(InterfaceConfig{}, config, 8, memory);
  const auto strides = std::make_shared<Strides>();
  queue.receive_into(strides);
  CHECK(queue.max_packet_size() == 100);
  CHECK(queue.host_readable());
  const std::uint32_t numbers[] = {0, 1, 2, 3};
  void* const data[] = {&strides->bytes[0], &strides->bytes[1], &strides->bytes[2],
                        &strides->bytes[3]};
  RxBatch batch;
  batch.count = 4;
  batch.segments[0] = {numbers, data, {nullptr, 10}, nullptr};
  strides->free = 0;
  queue.begin_pass(0);
  queue.deliver(batch);
  queue.drop(DropReason::NO_PACKET_BUFFER, 1);
  queue.end_pass();
  CHECK(strides->shortages() == 1);
  Burst* const burst = queue.receive();
  REQUIRE(burst != nullptr);
  CHECK(queue.starves());
  CHECK(burst->hdr.hdr.num_segs == 1);
  CHECK(burst->pkts[0][2] == &strides->bytes[2]);
  CHECK(burst->owners[0] == strides.get());
  burst->release();
  CHECK(strides->free == 4);
  queue.drop(DropReason::NO_PACKET_BUFFER, 1);
  CHECK(strides->shortages() == 1);
}

TEST_CASE("what a closed source left is delivered, and its place is used again", "[io]") {
  Bench bench;
  RxSource& first = bench.queue->add_source(1);
  bench.deliver(first, 1, 3);
  bench.queue->retire(first);
  RxSource& second = bench.queue->add_source(2);
  CHECK(&second != &first);
  Burst* burst = bench.queue->receive();
  REQUIRE(burst != nullptr);
  CHECK(burst->connection_id == 1);
  burst->release();
  CHECK(&bench.queue->add_source(3) == &first);
}

TEST_CASE("bursts begun in one pass are due together", "[io]") {
  Bench bench(4, 8, 256, RxQueue::Sources::FEW, 1000);
  RxQueue& queue = *bench.queue;
  RxSource& other = queue.add_source(7);
  bench.pass_ns = 5'000'000;
  bench.deliver(1);
  bench.deliver(other, 1);
  bench.pass_ns = 5'000'001;
  bench.deliver(queue.add_source(8), 1);
  CHECK(queue.deliver_expired(5'999'999) == 6'000'000);
  CHECK(queue.receive() == nullptr);
  // Two bursts are due, one is not.
  CHECK(queue.deliver_expired(6'000'000) == 6'000'001);
  for (const std::uintptr_t connection : {0, 7}) {
    Burst* burst = queue.receive();
    REQUIRE(burst != nullptr);
    CHECK(burst->connection_id == connection);
    burst->release();
  }
  CHECK(queue.receive() == nullptr);
}

TEST_CASE("discarding is not a matter of clocks", "[io]") {
  Bench bench;
  // Packets with times in the distant past and in the future.
  std::thread asks([&] { bench.queue->request_flush(); });
  bench.deliver(2);
  // Only a pass that begins after the request answers it.
  const std::uint64_t end = monotonic_ns() + 10'000'000'000;
  while (dropped(*bench.queue, DropReason::FLUSHED) == 0 && monotonic_ns() < end) {
    bench.queue->begin_pass(monotonic_ns());
    bench.queue->end_pass();
  }
  asks.join();
  CHECK(dropped(*bench.queue, DropReason::FLUSHED) == 2);
  bench.deliver(bench.queue->main_source(), 4, 0);
  Burst* burst = bench.queue->receive();
  REQUIRE(burst != nullptr);
  burst->release();
  CHECK(bench.balanced());
}

namespace {

/// Takes every other packet, and one burst less than requested.
class EveryOther final : public RxStage {
 public:
  [[nodiscard]] bool claims(FlowId) noexcept override { return true; }
  void take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept override {
    for (std::uint32_t i = 0; i < batch.count; ++i) {
      if (i % 2 == 0) {
        queue.pass_on(source, batch.part(i, 1));
      } else {
        queue.region(0).give(batch.segments[0].buffers + i, 1);
        queue.count_taken(1);
      }
    }
  }
  std::uint64_t expire(std::uint64_t) noexcept override { return 0; }
  void finish() noexcept override { finished_ = true; }
  void discard() noexcept override { ++discards; }
  [[nodiscard]] bool taken() const noexcept override { return false; }
  Burst* receive() noexcept override {
    ++asked;
    return nullptr;
  }
  [[nodiscard]] bool ready() const noexcept override { return false; }
  [[nodiscard]] bool finished() const noexcept override { return finished_; }

  int asked{0};
  int discards{0};

 private:
  bool finished_{false};
};

}  // namespace

TEST_CASE("what a stage takes is delivered, the rest are bursts", "[io]") {
  Bench bench(4);
  auto* stage = new EveryOther;  // NOLINT(cppcoreguidelines-owning-memory): the queue's
  bench.queue->set_stage(std::unique_ptr<RxStage>(stage));
  bench.deliver(9);
  bench.queue->end_pass();
  CHECK(bench.queue->counters().received == 9);
  CHECK(bench.queue->counters().delivered == 4);
  CHECK(bench.queue->counters().held == 5);
  Burst* burst = bench.queue->receive();
  REQUIRE(burst != nullptr);
  CHECK(burst->num_packets() == 4);
  CHECK(bench.queue->counters().delivered == 8);
  burst->release();
  CHECK(stage->asked == 0);
  CHECK(bench.queue->receive() == nullptr);
  CHECK(stage->asked == 1);
  CHECK(bench.queue->receive_packets() == nullptr);
  CHECK(stage->asked == 1);
  SECTION("at close") {
    bench.queue->mark_closed();
    CHECK_FALSE(bench.queue->closed());
    bench.queue->deliver_all();
    bench.queue->end_pass();
    CHECK(bench.queue->closed());
    burst = bench.queue->receive();
    REQUIRE(burst != nullptr);
    burst->release();
  }
  SECTION("when it is discarded") {
    std::thread asks([&] { bench.queue->request_flush(); });
    const std::uint64_t end = monotonic_ns() + 10'000'000'000;
    while (dropped(*bench.queue, DropReason::FLUSHED) == 0 && monotonic_ns() < end) {
      bench.queue->begin_pass(monotonic_ns());
      bench.queue->end_pass();
    }
    asks.join();
    CHECK(dropped(*bench.queue, DropReason::FLUSHED) == 1);
    CHECK(stage->discards == 1);
  }
  CHECK(bench.balanced());
  CHECK(bench.region().available() == 256);
}

TEST_CASE("nobody takes a burst once a recorder owns the queue", "[io]") {
  Bench bench(1, 64);
  bench.deliver(40);
  std::atomic<std::uint64_t> taken_when_attached{0};
  std::atomic<std::uint64_t> taken{0};
  std::thread consumer([&] {
    try {
      for (;;) {
        Burst* burst = bench.queue->receive_unrecorded(0);
        if (burst == nullptr) continue;
        burst->release();
        ++taken;
        std::this_thread::yield();
      }
    } catch (const Error& error) {
      if (error.status() != Status::NOT_READY) taken = 1000;
    }
  });
  while (taken < 3) std::this_thread::yield();
  bench.queue->attach_recorder("/tmp/capture");
  taken_when_attached = bench.queue->counters().delivered.value;
  consumer.join();
  CHECK(bench.queue->counters().delivered == taken_when_attached);
  const std::string refusal =
      "receive queue 'rx0' is being recorded to /tmp/capture_*, and each packet is delivered once; "
      "stop that recorder first";
  CHECK_THROWS_WITH(bench.queue->receive(), refusal);
  CHECK_THROWS_WITH(bench.queue->receive_from(1), refusal);
  CHECK_THROWS_WITH(bench.queue->receive_unrecorded(0), refusal);
  bench.queue->detach_recorder();
}
