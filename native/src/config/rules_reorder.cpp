// Reorder plans: what they take, what they need.
#include <set>

#include "config/formats.h"
#include "config/rules.h"

namespace daqiri::config {
namespace {

/// Of an element; 0 for what is no type of one.
constexpr std::uint64_t bits_of(ReorderDataType type) {
  switch (type) {
    case ReorderDataType::INT4:
      return 4;
    case ReorderDataType::INT8:
      return 8;
    case ReorderDataType::INT16:
    case ReorderDataType::FP16:
    case ReorderDataType::BF16:
      return 16;
    case ReorderDataType::INT32:
    case ReorderDataType::FP32:
      return 32;
    case ReorderDataType::FP64:
      return 64;
    case ReorderDataType::SAME:
    case ReorderDataType::INVALID:
      break;
  }
  return 0;
}

/// One plan of an interface.
struct Plan {
  const Subject& subject;
  const RxConfig& rx;
  const Place& rx_place;
  ReorderConfig& plan;
  const Place& place;
  const bool by_batch = plan.method_ == ReorderMethod::SEQ_BATCH_NUMBER;
  const ReorderBitFieldConfig& sequence_number = by_batch
                                                     ? plan.seq_batch_number_.sequence_number_
                                                     : plan.seq_packets_per_batch_.sequence_number_;
  std::uint32_t& packets_per_batch = by_batch ? plan.seq_batch_number_.packets_per_batch_
                                              : plan.seq_packets_per_batch_.packets_per_batch_;
  const Place method = place["method"][by_batch ? "seq_batch_number" : "seq_packets_per_batch"];

  void check(std::map<FlowId, std::string>& claimed) {
    const Place output_at = place["memory_region"];
    const MemoryRegionConfig* output =
        subject.regions.find(plan.memory_region_, output_at, "memory region");
    if (output_at.bad()) output = nullptr;
    if (output != nullptr) check_kind(*output, output_at);
    const CommonQueueConfig* queue = check_flow_ids(claimed);
    const bool method_good = check_method();
    const MemoryRegionConfig* source = queue == nullptr ? nullptr : check_source(*queue);
    const Place offset = place["payload_byte_offset"];
    if (source == nullptr || offset.bad() || source->buf_size_ == 0) return;
    if (plan.payload_byte_offset_ >= source->buf_size_) {
      offset.error("found ", plan.payload_byte_offset_, "; accepts less than the ",
                   source->buf_size_, " bytes of a buffer of ", quoted(source->name_));
    } else if (method_good && output != nullptr) {
      check_size(*source, *output);
    }
  }

 private:
  void check_kind(const MemoryRegionConfig& region, const Place& at) const {
    if (subject.root["memory_regions"][region.position_]["kind"].bad() ||
        place["reorder_type"].bad())
      return;
    const bool gpu = plan.reorder_type_ == "gpu";
    if (region.kind_ == MemoryKind::HOST_PINNED || (region.kind_ == MemoryKind::DEVICE) == gpu)
      return;
    at.error("found ", quoted(region.name_), " of kind '", text_of(MEMORY_KINDS, region.kind_),
             "'; reorder_type: ", plan.reorder_type_, " accepts a region of kind ",
             gpu ? "'device' or 'host_pinned'" : "'host', 'host_pinned' or 'huge'");
  }

  /// The queue that the flows feed; null when that is not one.
  const CommonQueueConfig* check_flow_ids(std::map<FlowId, std::string>& claimed) const {
    const Place list = place["flow_ids"];
    if (list.bad()) return nullptr;
    if (plan.flow_ids_.empty())
      list.error("found an empty list; accepts ids of flows of this interface");
    bool all_good = !plan.flow_ids_.empty();
    std::set<int> queues;
    for (const auto& [id, at] : placed(plan.flow_ids_, list)) {
      if (!at.bad()) {
        const auto [seen, is_new] = claimed.emplace(id, at.path());
        if (!is_new)
          at.error("found ", id, ", already claimed by ", seen->second, "; accepts a flow once");
        all_good = add_queue(id, at, queues) && all_good;
      }
      all_good = all_good && !at.bad();
    }
    if (!all_good || queues.empty()) return nullptr;
    if (queues.size() > 1)
      list.error("found flows of ", queues.size(), " queues; accepts flows of one queue");
    const auto queue = std::ranges::find(rx.queues_, *queues.begin(), QUEUE_ID);
    return queues.size() > 1 || queue == rx.queues_.end() ? nullptr : &queue->common_;
  }

  /// Adds the queue of the flow; false: there is none that can be told.
  bool add_queue(FlowId id, const Place& at, std::set<int>& queues) const {
    bool known = false;
    bool ids_certain = !rx_place["flows"].bad();
    for (const auto& [flow, flow_at] : placed(rx.flows_, rx_place["flows"])) {
      if (flow_at["id"].bad()) ids_certain = false;
      if (flow_at["id"].bad() || flow.id_ != id) continue;
      known = true;
      if (flow_at["action"].bad() || flow_at["actions"].bad()) return false;
      if (flow.action_.ids_.size() > 1)
        at.error("found ", id,
                 ", a flow that is spread over several queues; accepts a flow to one queue");
      if (flow.action_.type_ == FlowType::QUEUE) queues.insert(flow.action_.id_);
    }
    if (!known && ids_certain)
      at.error("found ", id, ", which is no flow of this interface; accepts an id under rx.flows");
    return known;
  }

  /// The region that packets are reordered from.
  const MemoryRegionConfig* check_source(const CommonQueueConfig& queue) const {
    const Place list = place["flow_ids"];
    if (queue.mrs_.size() > 1)
      list.error("found flows of queue ", quoted(queue.name_), ", which splits packets over ",
                 queue.mrs_.size(), " memory regions; accepts a queue with one");
    if (queue.mrs_.size() != 1) return nullptr;
    const MemoryRegionConfig* region = subject.regions.find(queue.mrs_.front());
    if (region == nullptr) return nullptr;
    check_kind(*region, list);
    check_bit_field("sequence_number", sequence_number, *region);
    if (by_batch) check_bit_field("batch_number", plan.seq_batch_number_.batch_number_, *region);
    return region;
  }

  void check_bit_field(std::string_view name, const ReorderBitFieldConfig& field,
                       const MemoryRegionConfig& source) const {
    const std::uint64_t end = std::uint64_t{field.bit_offset_} + field.bit_width_;
    if (source.buf_size_ > 0 && end > source.buf_size_ * 8)
      method[name]["bit_offset"].error(
          "found ", field.bit_offset_, ": the field ends at bit ", end, ", beyond a buffer of ",
          quoted(source.name_), "; accepts fields within its ", source.buf_size_ * 8, " bits");
  }

  /// Packets per batch must divide the range of sequence numbers.
  bool check_method() {
    const std::uint32_t width = sequence_number.bit_width_;
    const std::uint32_t batch_width = plan.seq_batch_number_.batch_number_.bit_width_;
    if (method["sequence_number"]["bit_width"].bad()) return false;
    const std::uint64_t numbers = std::uint64_t{1} << width;
    const Place at = by_batch ? method["batch_number"]["bit_width"] : method["packets_per_batch"];
    if (at.bad()) return false;
    if (by_batch && batch_width > width) {
      at.error("found ", batch_width, "; accepts at most the ", width,
               " bits of the sequence number");
    } else if (by_batch) {
      packets_per_batch = static_cast<std::uint32_t>(numbers >> batch_width);
    } else if (packets_per_batch == 0 || numbers % packets_per_batch != 0) {
      at.error("found ", packets_per_batch, "; accepts a divisor of the ", numbers,
               " sequence numbers of ", width, " bits (a power of two up to that)");
    }
    return !at.bad();
  }

  /// A buffer of the output region holds a whole batch of the longest payload that can arrive.
  void check_size(const MemoryRegionConfig& source, const MemoryRegionConfig& output) const {
    if (output.buf_size_ == 0 || place["data_types"].bad()) return;
    std::uint64_t slot = source.buf_size_ - plan.payload_byte_offset_;
    if (plan.data_types_ != ReorderDataTypesConfig{}) {
      const std::uint64_t input = bits_of(plan.data_types_.input_type_);
      const std::uint64_t output_bits = bits_of(plan.data_types_.output_type_);
      // One of them is wrong.
      if (input == 0 || output_bits == 0) return;
      slot = slot * 8 / input * output_bits / 8;
    }
    // The quotient cannot overflow where the product could.
    if (output.buf_size_ / packets_per_batch < slot)
      place["memory_region"].error("found ", quoted(output.name_), " with buffers of ",
                                   output.buf_size_, " bytes; a batch has ", packets_per_batch,
                                   " packets of up to ", slot,
                                   " bytes each; accepts a region whose buf_size holds them");
  }
};

}  // namespace

void check_reorder(const Subject& subject, InterfaceConfig& interface, const Place& at) {
  RxConfig& rx = interface.rx_;
  const Place rx_place = at["rx"];
  check_unique<std::string>(rx_place, "reorder_configs", "name", rx.reorder_configs_,
                            &ReorderConfig::name_);
  std::map<FlowId, std::string> claimed;
  for (auto& [plan, place] : placed(rx.reorder_configs_, rx_place["reorder_configs"])) {
    if (!place.bad()) Plan{subject, rx, rx_place, plan, place}.check(claimed);
  }
}

}  // namespace daqiri::config
