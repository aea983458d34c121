// Queues and the memory that they use.
#include <algorithm>
#include <bit>

#include "config/rules.h"

namespace daqiri::config {
namespace {

/// Most segments of a packet.
constexpr std::size_t MOST_REGIONS = 4;

bool uses_regions(const Subject& subject) {
  return subject.raw() || subject.config.common_.protocol != SocketProtocol::ROCE;
}

void check_queue_regions(Subject& subject, const std::string& path, const QueueConfig& queue) {
  Findings& findings = subject.findings;
  const std::string list = join(path, "memory_regions");
  if (findings.bad(list)) return;
  if (!uses_regions(subject)) {
    if (!queue.mrs_.empty())
      findings.warning(list, "has no effect: RoCE names the region with each operation");
  } else if (queue.mrs_.empty()) {
    findings.error(list,
                   "found no region; accepts a list of one (whole packets) or two (headers, data)");
  } else if (queue.mrs_.size() > MOST_REGIONS) {
    findings.error(list, "found " + std::to_string(queue.mrs_.size()) +
                             " regions; accepts at most 4, one per segment");
  }
  for (std::size_t i = 0; i < queue.mrs_.size(); ++i) {
    if (subject.region(queue.mrs_[i]) != nullptr || !subject.regions_known) continue;
    std::string names;
    for (const MemoryRegionConfig& region : subject.config.mrs_)
      names += (names.empty() ? "" : ", ") + quoted(region.name_);
    findings.error(element(path, "memory_regions", i),
                   "found " + quoted(queue.mrs_[i]) + ", which is no memory region; accepts " +
                       (names.empty() ? "a name under memory_regions, which is empty" : names));
  }
}

void check_queue(Subject& subject, const std::string& path, const QueueConfig& queue) {
  Findings& findings = subject.findings;
  const CommonConfig& common = subject.config.common_;
  check_queue_regions(subject, path, queue);

  const std::string core = join(path, "cpu_core");
  if (subject.traits().polls_without_pause && !findings.bad(core) && !findings.bad("master_core") &&
      queue.cpu_core_ == std::to_string(common.master_core_)) {
    findings.warning(core, "found core " + queue.cpu_core_ +
                               ", which is the master_core too; a poller needs a core of its own");
  }

  for (const std::string& name : queue.mrs_) {
    const MemoryRegionConfig* region = subject.region(name);
    const bool known = region != nullptr && region->num_bufs_ > 0 && queue.batch_size_ > 0;
    if (known && !subject.raw() && uses_regions(subject) &&
        region->num_bufs_ < static_cast<std::uint64_t>(queue.batch_size_)) {
      findings.warning(join(path, "batch_size"),
                       "found " + std::to_string(queue.batch_size_) + ", but memory region " +
                           quoted(name) + " has only " + std::to_string(region->num_bufs_) +
                           " buffers: a burst never fills");
    }
  }
}

void check_split(Subject& subject, const std::string& path, const RxQueueConfig& queue) {
  const std::string split = join(path, "split_boundary");
  if (queue.split_boundary_ == 0 || subject.findings.bad(join(path, "memory_regions"))) return;
  const std::string found = "found " + std::to_string(queue.split_boundary_);
  if (queue.mrs_.size() < 2) {
    subject.findings.error(
        split,
        found + " on a queue of one memory region; accepts it on a queue of two (headers, data)");
    return;
  }
  const MemoryRegionConfig* region = subject.region(queue.mrs_.front());
  if (region != nullptr && region->buf_size_ > 0 && queue.split_boundary_ > region->buf_size_) {
    subject.findings.error(split, found + ", more than the " + std::to_string(region->buf_size_) +
                                      " bytes of a buffer of " + quoted(region->name_) +
                                      "; accepts at most that");
  }
}

template <class Queues>
void check_side(Subject& subject, const std::string& path, const Queues& queues) {
  Findings& findings = subject.findings;
  const std::string list = join(path, "queues");
  if (findings.given(list) && queues.empty())
    findings.error(list, "found an empty list; accepts at least one queue");
  check_unique_names(findings, path, "queues", queues);
  std::map<int, std::size_t> first;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const std::string queue_path = element(path, "queues", i);
    const std::string id = join(queue_path, "id");
    if (!findings.bad(id)) {
      const auto [seen, is_new] = first.emplace(queues[i].id_, i);
      if (!is_new) {
        findings.error(id, "found " + std::to_string(queues[i].id_) + ", also the id of " +
                               element(path, "queues", seen->second) +
                               "; accepts an id of its own");
      }
    }
    check_queue(subject, queue_path, queues[i]);
  }
}

}  // namespace

void check_queues(Subject& subject) {
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    const InterfaceConfig& interface = subject.config.ifs_[i];
    const std::string path = element("", "interfaces", i);
    check_side(subject, join(path, "rx"), interface.rx_.queues_);
    check_side(subject, join(path, "tx"), interface.tx_.queues_);
    for (std::size_t j = 0; j < interface.rx_.queues_.size(); ++j) {
      check_split(subject, element(join(path, "rx"), "queues", j), interface.rx_.queues_[j]);
    }
  }
}

void raise_num_bufs(Subject& subject) {
  if (!subject.raw() || subject.findings.bad("stream_type")) return;
  struct Need {
    std::uint64_t ring{0};
    std::string queue;
  };
  std::map<std::string_view, Need> needs;
  const auto note = [&](const QueueConfig& queue) {
    const std::uint64_t ring = rx_ring_size(subject.config, queue);
    for (const std::string& name : queue.mrs_) {
      if (Need& need = needs[name]; ring > need.ring) need = {ring, queue.name_};
    }
  };
  for (const InterfaceConfig& interface : subject.config.ifs_) {
    for (const QueueConfig& queue : interface.rx_.queues_) note(queue);
    for (const QueueConfig& queue : interface.tx_.queues_) note(queue);
  }
  for (std::size_t i = 0; i < subject.config.mrs_.size(); ++i) {
    MemoryRegionConfig& region = subject.config.mrs_[i];
    const std::string path = join(element("", "memory_regions", i), "num_bufs");
    const auto need = needs.find(region.name_);
    if (need == needs.end() || subject.findings.bad(path) ||
        2 * region.num_bufs_ >= 3 * need->second.ring)
      continue;
    const std::uint64_t raised = 3 * need->second.ring;
    subject.findings.warning(
        path, "raised from " + std::to_string(region.num_bufs_) + " to " + std::to_string(raised) +
                  ": queue " + quoted(need->second.queue) + " has a ring of " +
                  std::to_string(need->second.ring) + " packets and needs at least " +
                  std::to_string(need->second.ring * 3 / 2) + " buffers");
    region.num_bufs_ = raised;
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
