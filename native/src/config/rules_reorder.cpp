// Reorder plans: what they take, what they need.
#include <set>

#include "config/names.h"
#include "config/rules.h"

namespace daqiri::config {
namespace {

std::uint64_t input_bits(InputDataType type) {
  switch (type) {
    case InputDataType::INT4:
      return 4;
    case InputDataType::INT8:
      return 8;
    case InputDataType::INT16:
      return 16;
    case InputDataType::INT32:
      return 32;
  }
  return 8;
}

std::uint64_t output_bits(OutputDataType type) {
  switch (type) {
    case OutputDataType::FP16:
    case OutputDataType::BF16:
      return 16;
    case OutputDataType::FP32:
    case OutputDataType::INT32:
      return 32;
    case OutputDataType::FP64:
      return 64;
  }
  return 8;
}

bool kind_fits(ReorderType type, MemoryKind kind) {
  if (kind == MemoryKind::HOST_PINNED) return true;
  return (kind == MemoryKind::DEVICE) == (type == ReorderType::GPU);
}

std::string accepted_kinds(ReorderType type) {
  return type == ReorderType::GPU ? "'device' or 'host_pinned'" : "'host', 'host_pinned' or 'huge'";
}

/// One plan of an interface.
class Plan {
 public:
  Plan(Subject& subject, const RxConfig& rx, std::string rx_path, ReorderConfig& plan,
       std::string path)
      : subject_(subject),
        findings_(subject.findings),
        rx_(rx),
        rx_path_(std::move(rx_path)),
        plan_(plan),
        path_(std::move(path)) {}

  void check(std::map<FlowId, std::string>& claimed) {
    const MemoryRegionConfig* output = check_output();
    const RxQueueConfig* queue = check_flow_ids(claimed);
    const bool method = check_method();
    const MemoryRegionConfig* source = queue == nullptr ? nullptr : check_source(*queue);
    if (source == nullptr || findings_.bad(join(path_, "payload_byte_offset")) ||
        source->buf_size_ == 0)
      return;
    if (plan_.payload_byte_offset_ >= source->buf_size_) {
      findings_.error(join(path_, "payload_byte_offset"),
                      "found " + std::to_string(plan_.payload_byte_offset_) +
                          "; accepts less than the " + std::to_string(source->buf_size_) +
                          " bytes of a buffer of " + quoted(source->name_));
      return;
    }
    if (method && output != nullptr) check_room(*source, *output);
  }

 private:
  const MemoryRegionConfig* check_output() {
    const std::string at = join(path_, "memory_region");
    const MemoryRegionConfig* region = subject_.region(plan_.memory_region_);
    if (findings_.bad(at)) return nullptr;
    if (region == nullptr) {
      if (subject_.regions_known) {
        findings_.error(at, "found " + quoted(plan_.memory_region_) +
                                ", which is no memory region; accepts a name under memory_regions");
      }
      return nullptr;
    }
    check_kind(*region, at);
    return region;
  }

  void check_kind(const MemoryRegionConfig& region, const std::string& at) {
    const auto index = static_cast<std::size_t>(&region - subject_.config.mrs_.data());
    if (findings_.bad(join(element("", "memory_regions", index), "kind")) ||
        findings_.bad(join(path_, "reorder_type")))
      return;
    if (kind_fits(plan_.type_, region.kind_)) return;
    findings_.error(at, "found " + quoted(region.name_) + " of kind '" +
                            text_of(MEMORY_KINDS, region.kind_) +
                            "'; reorder_type: " + text_of(REORDER_TYPES, plan_.type_) +
                            " accepts a region of kind " + accepted_kinds(plan_.type_));
  }

  /// The queue that the flows feed; null when that is not one.
  const RxQueueConfig* check_flow_ids(std::map<FlowId, std::string>& claimed) {
    const std::string list = join(path_, "flow_ids");
    if (findings_.bad(list)) return nullptr;
    if (plan_.flow_ids_.empty()) {
      findings_.error(list, "found an empty list; accepts ids of flows of this interface");
      return nullptr;
    }
    bool all_good = true;
    std::set<int> queues;
    for (std::size_t i = 0; i < plan_.flow_ids_.size(); ++i) {
      const FlowId id = plan_.flow_ids_[i];
      const std::string at = element(path_, "flow_ids", i);
      if (findings_.bad(at)) {
        all_good = false;
        continue;
      }
      const auto [seen, is_new] = claimed.emplace(id, at);
      if (!is_new)
        findings_.error(at, "found " + std::to_string(id) + ", already claimed by " + seen->second +
                                "; accepts a flow once");
      all_good = add_queue(id, at, queues) && all_good && is_new;
    }
    if (!all_good || queues.empty()) return nullptr;
    if (queues.size() > 1) {
      findings_.error(list, "found flows of " + std::to_string(queues.size()) +
                                " queues; accepts flows of one queue");
      return nullptr;
    }
    for (const RxQueueConfig& queue : rx_.queues_) {
      if (queue.id_ == *queues.begin()) return &queue;
    }
    return nullptr;
  }

  bool add_queue(FlowId id, const std::string& at, std::set<int>& queues) {
    bool known = false;
    bool ids_certain = !findings_.bad(join(rx_path_, "flows"));
    for (std::size_t i = 0; i < rx_.flows_.size(); ++i) {
      const std::string flow_path = element(rx_path_, "flows", i);
      if (findings_.bad(join(flow_path, "id"))) {
        ids_certain = false;
      } else if (rx_.flows_[i].id_ == id) {
        known = true;
        if (findings_.bad(join(flow_path, "action")) || findings_.bad(join(flow_path, "actions")))
          return false;
        const FlowAction& action = rx_.flows_[i].action_;
        if (action.ids_.size() > 1) {
          findings_.error(
              at, "found " + std::to_string(id) +
                      ", a flow that is spread over several queues; accepts a flow to one queue");
          return false;
        }
        if (action.type_ == FlowActionType::QUEUE) queues.insert(action.id_);
      }
    }
    if (!known && ids_certain) {
      findings_.error(at, "found " + std::to_string(id) +
                              ", which is no flow of this interface; accepts an id under rx.flows");
    }
    return known;
  }

  /// The region that packets are reordered from.
  const MemoryRegionConfig* check_source(const RxQueueConfig& queue) {
    const std::string list = join(path_, "flow_ids");
    if (queue.mrs_.size() > 1) {
      findings_.error(list, "found flows of queue " + quoted(queue.name_) +
                                ", which splits packets over " + std::to_string(queue.mrs_.size()) +
                                " memory regions; accepts a queue with one");
      return nullptr;
    }
    const MemoryRegionConfig* region =
        queue.mrs_.empty() ? nullptr : subject_.region(queue.mrs_.front());
    if (region == nullptr) return nullptr;
    check_kind(*region, list);
    check_bit_field("sequence_number", plan_.sequence_number_, *region);
    if (plan_.method_ == ReorderMethod::SEQ_BATCH_NUMBER)
      check_bit_field("batch_number", plan_.batch_number_, *region);
    return region;
  }

  [[nodiscard]] std::string method_path() const {
    const bool by_batch = plan_.method_ == ReorderMethod::SEQ_BATCH_NUMBER;
    return join(join(path_, "method"), by_batch ? "seq_batch_number" : "seq_packets_per_batch");
  }

  void check_bit_field(std::string_view name, const BitFieldConfig& field,
                       const MemoryRegionConfig& source) {
    const std::string at = join(join(method_path(), name), "bit_offset");
    const std::uint64_t end = std::uint64_t{field.bit_offset_} + field.bit_width_;
    if (source.buf_size_ > 0 && end > source.buf_size_ * 8) {
      findings_.error(
          at, "found " + std::to_string(field.bit_offset_) + ": the field ends at bit " +
                  std::to_string(end) + ", beyond a buffer of " + quoted(source.name_) +
                  "; accepts fields within its " + std::to_string(source.buf_size_ * 8) + " bits");
    }
  }

  /// Packets per batch must divide the range of sequence numbers.
  bool check_method() {
    const std::string method = method_path();
    const std::string sequence = join(join(method, "sequence_number"), "bit_width");
    if (findings_.bad(sequence)) return false;
    const std::uint64_t numbers = std::uint64_t{1} << plan_.sequence_number_.bit_width_;
    if (plan_.method_ == ReorderMethod::SEQ_PACKETS_PER_BATCH) {
      const std::string at = join(method, "packets_per_batch");
      if (findings_.bad(at)) return false;
      if (plan_.packets_per_batch_ == 0 || numbers % plan_.packets_per_batch_ != 0) {
        findings_.error(at, "found " + std::to_string(plan_.packets_per_batch_) +
                                "; accepts a divisor of the " + std::to_string(numbers) +
                                " sequence numbers of " +
                                std::to_string(plan_.sequence_number_.bit_width_) +
                                " bits (a power of two up to that)");
        return false;
      }
      return true;
    }
    const std::string at = join(join(method, "batch_number"), "bit_width");
    if (findings_.bad(at)) return false;
    if (plan_.batch_number_.bit_width_ > plan_.sequence_number_.bit_width_) {
      findings_.error(at, "found " + std::to_string(plan_.batch_number_.bit_width_) +
                              "; accepts at most the " +
                              std::to_string(plan_.sequence_number_.bit_width_) +
                              " bits of the sequence number");
      return false;
    }
    plan_.packets_per_batch_ =
        static_cast<std::uint32_t>(numbers >> plan_.batch_number_.bit_width_);
    return true;
  }

  /// A buffer of the output region holds a whole batch of the longest payload that can arrive.
  void check_room(const MemoryRegionConfig& source, const MemoryRegionConfig& output) {
    if (output.buf_size_ == 0 || findings_.bad(join(path_, "data_types"))) return;
    std::uint64_t slot = source.buf_size_ - plan_.payload_byte_offset_;
    if (plan_.has_data_types_) {
      for (const char* key : {"input_type", "output_type"}) {
        if (findings_.bad(join(join(path_, "data_types"), key))) return;
      }
      slot = slot * 8 / input_bits(plan_.data_types_.input_type_) *
             output_bits(plan_.data_types_.output_type_) / 8;
    }
    // The quotient cannot overflow where the product could.
    if (output.buf_size_ / plan_.packets_per_batch_ < slot) {
      findings_.error(join(path_, "memory_region"),
                      "found " + quoted(output.name_) + " with buffers of " +
                          std::to_string(output.buf_size_) + " bytes; a batch has " +
                          std::to_string(plan_.packets_per_batch_) + " packets of up to " +
                          std::to_string(slot) +
                          " bytes each; accepts a region whose buf_size holds them");
    }
  }

  Subject& subject_;
  Findings& findings_;
  const RxConfig& rx_;
  std::string rx_path_;
  ReorderConfig& plan_;
  std::string path_;
};

}  // namespace

void check_reorder(Subject& subject) {
  for (std::size_t i = 0; i < subject.config.ifs_.size(); ++i) {
    RxConfig& rx = subject.config.ifs_[i].rx_;
    const std::string path = join(element("", "interfaces", i), "rx");
    check_unique_names(subject.findings, path, "reorder_configs", rx.reorder_configs_);
    std::map<FlowId, std::string> claimed;
    for (std::size_t j = 0; j < rx.reorder_configs_.size(); ++j) {
      const std::string plan_path = element(path, "reorder_configs", j);
      if (!subject.findings.bad(plan_path))
        Plan(subject, rx, path, rx.reorder_configs_[j], plan_path).check(claimed);
    }
  }
}

}  // namespace daqiri::config
