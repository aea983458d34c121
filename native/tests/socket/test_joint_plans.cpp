// A reorder plan with flows of several sockets, read by several threads.
#include <catch2/catch.hpp>

#include <algorithm>
#include <thread>

#include "socket/udp_session.h"

using namespace daqiri;
using namespace daqiri::test;

namespace {

constexpr std::uint32_t MODULES = 8;
constexpr std::uint32_t MODULE_PACKETS = 4;
constexpr std::uint32_t MODULE_PAYLOAD = 256;
constexpr std::uint32_t MODULE_HEADER = 8;
constexpr const char* MODULE_CORES[] = {"0", "1", "any"};

std::string module_host(std::uint32_t module) {
  return module % 2 == 0 ? "127.0.0.1" : "127.0.0.2";
}

/// A socket for each module; their packets are frames of plan "images".
NetworkConfig modules_config(std::vector<std::uint16_t>& ports) {
  NetworkConfig config = udp_config({.num_bufs = 8192, .buf_size = 512});
  config.mrs_.erase("tx_data");
  MemoryRegionConfig frames;
  frames.name_ = "frames";
  frames.num_bufs_ = 32;
  frames.buf_size_ = std::size_t{MODULES} * MODULE_PACKETS * 512;
  config.mrs_.emplace(frames.name_, frames);
  const InterfaceConfig usual = config.ifs_.front();
  config.ifs_.clear();
  ReorderConfig plan;
  for (std::uint32_t m = 0; m < MODULES; ++m) {
    InterfaceConfig& module = config.ifs_.emplace_back(usual);
    ports.push_back(free_port(module_host(m)));
    module.name_ = "module" + std::to_string(m);
    module.address_ = module_host(m);
    module.socket_.mode_ = SocketMode::SERVER;
    module.socket_.local_addr_ = udp_at(module_host(m), ports.back());
    module.tx_ = {};
    module.rx_.queues_[0].common_.cpu_core_ = MODULE_CORES[m % std::size(MODULE_CORES)];
    module.rx_.queues_[0].timeout_us_ = 1000;
    FlowConfig flow;
    flow.name_ = "data";
    flow.id_ = m + 1;
    flow.actions_ = {flow.action_};
    module.rx_.flows_.push_back(flow);
    plan.flows_.push_back(module.name_ + "/data");
  }
  plan.name_ = "images";
  plan.reorder_type_ = "cpu";
  plan.memory_region_ = "frames";
  plan.payload_base_ = ReorderBase::UDP_PAYLOAD;
  plan.payload_byte_offset_ = MODULE_HEADER;
  plan.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  const auto field = [](std::uint32_t at) {
    ReorderBitFieldConfig made{at, 32};
    made.byte_order_ = ReorderByteOrder::LITTLE;
    made.base_ = ReorderBase::UDP_PAYLOAD;
    return made;
  };
  plan.batch_packet_number_ = {field(0), field(32), MODULES * MODULE_PACKETS};
  plan.flow_stride_ = MODULE_PACKETS;
  plan.frame_.shape_ = {MODULES * MODULE_PACKETS, MODULE_PAYLOAD};
  config.reorder_configs_.push_back(plan);
  return config;
}

std::uint8_t pixel_of(std::uint32_t image, std::uint32_t slot) {
  return static_cast<std::uint8_t>(image * 37 + slot);
}

Bytes module_packet(std::uint32_t image, std::uint32_t module, std::uint32_t packet) {
  Bytes bytes(MODULE_HEADER + MODULE_PAYLOAD, pixel_of(image, module * MODULE_PACKETS + packet));
  const std::uint32_t numbers[]{image, packet};
  std::memcpy(bytes.data(), numbers, sizeof numbers);
  return bytes;
}

}  // namespace

TEST_CASE("modules on sockets of their own are one image", "[socket]") {
  constexpr std::uint32_t IMAGES = 400;
  constexpr std::uint32_t AHEAD = 4;
  // Module 5 loses its packet 2 of image 100.
  const auto is_lost = [](std::uint32_t image, std::uint32_t module, std::uint32_t packet) {
    return image == 100 && module == 5 && packet == 2;
  };
  std::vector<std::uint16_t> ports;
  NetworkConfig config = modules_config(ports);
  config.reorder_configs_[0].timeout_us_ = 2'000'000;
  const auto session = Session::open(config);
  reorder::RunningPlan& plan = session->reorder_plans(Session::NO_PORT).front();
  plan.attach("test");
  std::vector<PlainSocket> senders;
  for (std::uint32_t m = 0; m < MODULES; ++m) senders.emplace_back(module_host(m));
  std::uint32_t next = 0;
  const auto send = [&] {
    for (std::uint32_t packet = 0; packet < MODULE_PACKETS; ++packet) {
      for (std::uint32_t m = 0; m < MODULES; ++m) {
        if (!is_lost(next, m, packet))
          REQUIRE(senders[m].send(module_host(m), ports[m], module_packet(next, m, packet)));
      }
    }
    ++next;
  };
  std::uint32_t received = 0;
  const std::uint64_t end = monotonic_ns() + 60'000'000'000;
  while (received < IMAGES && monotonic_ns() < end) {
    while (next < IMAGES && next < received + AHEAD) send();
    const WaitQueue::Ticket ticket = plan.frames().prepare();
    Burst* burst = plan.pop();
    if (burst == nullptr) {
      plan.frames().wait(ticket, 10'000'000);
      continue;
    }
    CHECK(burst->reorder.batch_id == received);
    const auto* bytes = static_cast<const std::uint8_t*>(burst->pkts[0][0]);
    std::uint32_t wrong = 0;
    for (std::uint32_t slot = 0; slot < MODULES * MODULE_PACKETS; ++slot) {
      const bool lost = is_lost(received, slot / MODULE_PACKETS, slot % MODULE_PACKETS);
      CHECK(((*burst->valid >> slot) & 1U) == (lost ? 0U : 1U));
      const std::uint8_t value = lost ? 0 : pixel_of(received, slot);
      const std::uint8_t* const row = bytes + std::size_t{slot} * MODULE_PAYLOAD;
      wrong += std::all_of(row, row + MODULE_PAYLOAD, [&](std::uint8_t b) { return b == value; })
                   ? 0
                   : 1;
    }
    CHECK(wrong == 0);
    burst->release();
    ++received;
  }
  CHECK(received == IMAGES);
  const reorder::ReorderSnapshot counters = plan.counters();
  CHECK(counters.packets == IMAGES * MODULES * MODULE_PACKETS - 1);
  CHECK(counters.placed == counters.packets);
  CHECK(counters.complete == IMAGES - 1);
  CHECK(counters.incomplete == 1);
  CHECK(counters.missing == 1);
  for (std::uint32_t m = 0; m < MODULES; ++m) {
    const RxSnapshot queue = counters_after(session->rx_queue(static_cast<int>(m), 0),
                                            IMAGES * MODULE_PACKETS - (m == 5));
    CHECK(queue.received == IMAGES * MODULE_PACKETS - (m == 5 ? 1 : 0));
    CHECK(queue.delivered == queue.received);
    CHECK(balanced(queue));
  }
  plan.detach();
  session->close();
  CHECK(session->memory()->regions.at("frames")->available() == 32);
}

TEST_CASE("packets of all threads are counted while frames find no buffer", "[socket]") {
  constexpr std::uint32_t IMAGES = 200;
  std::vector<std::uint16_t> ports;
  NetworkConfig config = modules_config(ports);
  config.mrs_.at("frames").num_bufs_ = 4;
  const auto session = Session::open(config);
  reorder::RunningPlan& plan = session->reorder_plans(Session::NO_PORT).front();
  // Receives nothing.
  plan.attach("test");
  std::vector<std::jthread> senders;
  for (std::uint32_t m = 0; m < MODULES; ++m) {
    senders.emplace_back([&, m] {
      const PlainSocket sender(module_host(m));
      for (std::uint32_t i = 0; i < IMAGES * MODULE_PACKETS; ++i)
        static_cast<void>(sender.send(module_host(m), ports[m],
                                      module_packet(i / MODULE_PACKETS, m, i % MODULE_PACKETS)));
    });
  }
  senders.clear();
  std::uint64_t delivered = 0;
  for (std::uint32_t m = 0; m < MODULES; ++m) {
    const RxSnapshot queue = counters_after(session->rx_queue(static_cast<int>(m), 0),
                                            std::uint64_t{IMAGES} * MODULE_PACKETS);
    CHECK(queue.received == IMAGES * MODULE_PACKETS);
    CHECK(balanced(queue));
    delivered += queue.delivered;
  }
  const reorder::ReorderSnapshot counters = plan.counters();
  CHECK(counters.packets == delivered);
  CHECK(counters.packets == counters.placed + counters.duplicate + counters.late + counters.early +
                                counters.malformed + counters.no_buffer);
  plan.detach();
}
