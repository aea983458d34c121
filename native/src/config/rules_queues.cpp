// Queues and the memory that they use.
#include <algorithm>
#include <bit>

#include "config/rules.h"

namespace daqiri::config {
namespace {

/// Most segments of a packet.
constexpr std::size_t MOST_REGIONS = 4;

void check_queue(const Subject& subject, const Place& at, const QueueConfig& queue) {
  const bool uses_regions =
      subject.raw() || subject.config.common_.protocol != SocketProtocol::ROCE;
  const Place list = at["memory_regions"];
  if (!uses_regions && !queue.mrs_.empty() && !list.bad()) {
    list.warning("has no effect: RoCE names the region with each operation");
  } else if (uses_regions && queue.mrs_.empty()) {
    list.error("found no region; accepts a list of one (whole packets) or two (headers, data)");
  } else if (uses_regions && queue.mrs_.size() > MOST_REGIONS) {
    list.error("found ", queue.mrs_.size(), " regions; accepts at most ", MOST_REGIONS,
               ", one per segment");
  }
  const Place core = at["cpu_core"];
  const int master = subject.config.common_.master_core_;
  if (subject.traits.polls_without_pause && !core.bad() && !subject.root["master_core"].bad() &&
      queue.cpu_core_ == std::to_string(master))
    core.warning("found core ", master,
                 ", which is the master_core too; a poller needs a core of its own");

  for (std::size_t i = 0; i < queue.mrs_.size(); ++i) {
    const auto* region = subject.regions.find(queue.mrs_[i], list[i], "memory region");
    if (region == nullptr || subject.raw() || !uses_regions || queue.batch_size_ <= 0) continue;
    if (region->num_bufs_ > 0 && region->num_bufs_ < static_cast<unsigned>(queue.batch_size_))
      at["batch_size"].warning("found ", queue.batch_size_, ", but memory region ",
                               quoted(region->name_), " has only ", region->num_bufs_,
                               " buffers: a burst never fills");
  }
}

void check_split(const Subject& subject, const Place& at, const RxQueueConfig& queue) {
  const Place split = at["split_boundary"];
  if (queue.split_boundary_ == 0 || at["memory_regions"].bad()) return;
  if (queue.mrs_.size() < 2)
    return split.error(
        "found ", queue.split_boundary_,
        " on a queue of one memory region; accepts it on a queue of two (headers, data)");
  const MemoryRegionConfig* region = subject.regions.find(queue.mrs_.front());
  if (region != nullptr && region->buf_size_ > 0 && queue.split_boundary_ > region->buf_size_)
    split.error("found ", queue.split_boundary_, ", more than the ", region->buf_size_,
                " bytes of a buffer of ", quoted(region->name_), "; accepts at most that");
}

template <class Queue>
void check_side(const Subject& subject, const Place& at, const std::vector<Queue>& queues) {
  const Place list = at["queues"];
  if (list.given() && queues.empty()) list.error("found an empty list; accepts at least one queue");
  check_unique(at, "queues", "name", queues, &QueueConfig::name_);
  check_unique(at, "queues", "id", queues, &QueueConfig::id_);
  for (std::size_t i = 0; i < queues.size(); ++i) check_queue(subject, list[i], queues[i]);
}

}  // namespace

void check_queues(Subject& subject) {
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    const InterfaceConfig& interface = subject.config.ifs_[i];
    const Place rx = subject.interface(i)["rx"];
    check_side(subject, rx, interface.rx_.queues_);
    check_side(subject, subject.interface(i)["tx"], interface.tx_.queues_);
    for (std::size_t j = 0; j < interface.rx_.queues_.size(); ++j)
      check_split(subject, rx["queues"][j], interface.rx_.queues_[j]);
  }
}

void raise_num_bufs(Subject& subject) {
  if (!subject.raw() || subject.root["stream_type"].bad()) return;
  // The largest ring of each region, and its queue.
  std::map<std::string_view, std::pair<std::uint64_t, std::string_view>> needs;
  const auto note = [&](const QueueConfig& queue) {
    const std::uint64_t ring = rx_ring_size(subject.config, queue);
    for (const std::string& name : queue.mrs_) {
      auto& need = needs[name];
      if (ring > need.first) need = {ring, queue.name_};
    }
  };
  for (const InterfaceConfig& interface : subject.config.ifs_) {
    for (const QueueConfig& queue : interface.rx_.queues_) note(queue);
    for (const QueueConfig& queue : interface.tx_.queues_) note(queue);
  }
  for (std::size_t i = 0; i < subject.config.mrs_.size(); ++i) {
    MemoryRegionConfig& region = subject.config.mrs_[i];
    const Place at = subject.root["memory_regions"][i]["num_bufs"];
    const auto& [ring, queue] = needs[region.name_];
    if (at.bad() || 2 * region.num_bufs_ >= 3 * ring) continue;
    at.warning("raised from ", region.num_bufs_, " to ", 3 * ring, ": queue ", quoted(queue),
               " has a ring of ", ring, " packets and needs at least ", ring * 3 / 2, " buffers");
    region.num_bufs_ = 3 * ring;
  }
}

}  // namespace daqiri::config

namespace daqiri {

std::uint32_t rx_ring_size(const NetworkConfig& config, const QueueConfig& queue) noexcept {
  constexpr int SMALLEST_RING = 64;
  const EngineTraits traits = config::traits_of(config);
  if (!traits.rx_ring) return 0;
  if (traits.rx_descriptors != 0) return traits.rx_descriptors;
  return std::bit_ceil(static_cast<std::uint32_t>(std::max(queue.batch_size_, SMALLEST_RING)));
}

}  // namespace daqiri
