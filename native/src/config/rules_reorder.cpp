// Rules for reorder plans.
#include <set>

#include "config/rules.h"
#include "engine/traits.h"
#include "reorder/plan.h"

namespace daqiri::config {
namespace {

constexpr std::uint64_t USUAL_TIMEOUT_US = 10'000;
/// Packets of a batch, of numbers that it does not divide: open batches are few of the numbers.
constexpr std::uint32_t MOST_ANY_PACKETS = 1U << 17;

using reorder::bits_of;

/// The bit fields of a method.
std::vector<std::pair<std::string_view, const ReorderBitFieldConfig*>> fields_of(
    const ReorderConfig& plan) {
  switch (plan.method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return {{"sequence_number", &plan.seq_batch_number_.sequence_number_},
              {"batch_number", &plan.seq_batch_number_.batch_number_}};
    case ReorderMethod::BATCH_PACKET_NUMBER:
      return {{"batch_number", &plan.batch_packet_number_.batch_number_},
              {"packet_number", &plan.batch_packet_number_.packet_number_}};
    case ReorderMethod::BATCH_BYTE_OFFSET:
      return {{"batch_number", &plan.batch_byte_offset_.batch_number_},
              {"byte_offset", &plan.batch_byte_offset_.byte_offset_}};
    default:
      return {{"sequence_number", &plan.seq_packets_per_batch_.sequence_number_}};
  }
}

/// One plan of an interface.
struct Plan {
  const Subject& subject;
  const RxConfig& rx;
  const Place& rx_place;
  ReorderConfig& plan;
  const Place& place;
  const Place method = place["method"][key_of(plan.method_)];

  void check(std::map<FlowId, std::string>& claimed) {
    const Place output_at = place["memory_region"];
    const MemoryRegionConfig* output =
        subject.regions.find(plan.memory_region_, output_at, "memory region");
    if (output_at.bad()) output = nullptr;
    if (output != nullptr) check_output(*output, output_at);
    const auto queues = check_flow_ids(claimed);
    const bool method_good = check_method() && check_stride();
    if (plan.reorder_type_ == "gpu" && !plan.cpu_cores_.empty())
      place["cpu_core"].error(
          "found with reorder_type: gpu, where no thread moves payloads; "
          "accepts it with reorder_type: cpu");
    const bool types_good = check_types();
    if (method_good) check_window();
    // Regions with the smallest and the largest buffers.
    const MemoryRegionConfig* least = nullptr;
    const MemoryRegionConfig* most = nullptr;
    for (const RxQueueConfig* queue : queues) {
      const MemoryRegionConfig* source = check_source(*queue);
      if (source == nullptr || source->buf_size_ == 0) return;
      if (least == nullptr || source->buf_size_ < least->buf_size_) least = source;
      if (most == nullptr || source->buf_size_ > most->buf_size_) most = source;
    }
    const Place offset = place["payload_byte_offset"];
    if (least == nullptr || offset.bad()) return;
    if (plan.payload_byte_offset_ >= least->buf_size_) {
      offset.error("found ", plan.payload_byte_offset_, "; accepts less than the ",
                   least->buf_size_, " bytes of a buffer of ", quoted(least->name_));
    } else if (method_good && types_good) {
      check_size(*most, output);
    }
  }

 private:
  void check_output(const MemoryRegionConfig& region, const Place& at) const {
    check_kind(region, at);
    // Packets of a queue in such a region are copied from host memory, in which frames would be
    // assembled.
    if (region.kind_ == MemoryKind::DEVICE && holds_packets(subject.config, region.name_)) {
      at.error("found ", quoted(region.name_),
               " of kind 'device', which also holds packets of a queue; accepts a separate region");
    }
  }

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

  /// Returns the queues that the flows lead to; empty if that is unknown.
  std::vector<const RxQueueConfig*> check_flow_ids(std::map<FlowId, std::string>& claimed) const {
    const Place list = place["flow_ids"];
    if (list.bad()) return {};
    if (plan.flow_ids_.empty())
      list.error("found an empty list; accepts ids of flows of this interface");
    bool all_good = !plan.flow_ids_.empty();
    std::set<int> ids;
    for (const auto& [id, at] : placed(plan.flow_ids_, list)) {
      if (!at.bad()) {
        const auto [seen, is_new] = claimed.emplace(id, at.path());
        if (!is_new)
          at.error("found ", id, ", already claimed by ", seen->second, "; accepts a flow once");
        all_good = add_queues(id, at, ids) && all_good;
      }
      all_good = all_good && !at.bad();
    }
    std::vector<const RxQueueConfig*> queues;
    for (const int id : ids) {
      const auto queue = std::ranges::find(rx.queues_, id, QUEUE_ID);
      if (queue == rx.queues_.end()) return {};
      queues.push_back(&*queue);
    }
    return all_good ? queues : std::vector<const RxQueueConfig*>{};
  }

  /// Adds the queues of the flow; returns false if they are unknown.
  bool add_queues(FlowId id, const Place& at, std::set<int>& queues) const {
    bool known = false;
    bool ids_certain = !rx_place["flows"].bad();
    for (const auto& [flow, flow_at] : placed(rx.flows_, rx_place["flows"])) {
      if (flow_at["id"].bad()) ids_certain = false;
      if (flow_at["id"].bad() || flow.id_ != id) continue;
      known = true;
      if (flow_at["action"].bad() || flow_at["actions"].bad()) return false;
      if (flow.action_.type_ != FlowType::QUEUE) continue;
      if (flow.action_.ids_.empty()) queues.insert(flow.action_.id_);
      queues.insert(flow.action_.ids_.begin(), flow.action_.ids_.end());
    }
    if (!known && ids_certain)
      at.error("found ", id,
               ", which is not a flow of this interface; accepts an id under rx.flows");
    return known;
  }

  /// Returns the region of the packets to reorder.
  const MemoryRegionConfig* check_source(const RxQueueConfig& rx_queue) const {
    const CommonQueueConfig& queue = rx_queue.common_;
    const Place list = place["flow_ids"];
    if (rx_queue.poll_mode_ == QueuePollMode::DIRECT)
      list.error("found flows of queue ", quoted(queue.name_),
                 ", which has poll_mode: direct; accepts queues with poll_mode: indirect");
    if (queue.mrs_.size() > 1)
      list.error("found flows of queue ", quoted(queue.name_), ", which splits packets over ",
                 queue.mrs_.size(), " memory regions; accepts a queue with one");
    if (queue.mrs_.size() != 1) return nullptr;
    const MemoryRegionConfig* region = subject.regions.find(queue.mrs_.front());
    if (region == nullptr) return nullptr;
    check_kind(*region, list);
    for (const auto& [name, field] : fields_of(plan)) check_bit_field(name, *field, *region);
    return region;
  }

  void check_bit_field(std::string_view name, const ReorderBitFieldConfig& field,
                       const MemoryRegionConfig& source) const {
    const Place at = method[name];
    const std::uint64_t end = std::uint64_t{field.bit_offset_} + field.bit_width_;
    if (source.buf_size_ > 0 && end > source.buf_size_ * 8)
      at["bit_offset"].error("found ", field.bit_offset_, ": the field ends at bit ", end,
                             ", beyond a buffer of ", quoted(source.name_),
                             "; accepts fields within its ", source.buf_size_ * 8, " bits");
    if (field.byte_order_ == ReorderByteOrder::LITTLE &&
        (field.bit_offset_ % 8 != 0 || field.bit_width_ % 8 != 0))
      at["byte_order"].error("found 'little' for bits ", field.bit_offset_, " to ", end - 1,
                             "; accepts 'big', or a bit_offset and a bit_width of whole bytes");
  }

  /// Derives slots and batches from the fields.
  bool check_method() {
    for (const auto& [name, field] : fields_of(plan)) {
      if (method[name]["bit_width"].bad()) return false;
    }
    ReorderSeqBatchNumberConfig& by_batch = plan.seq_batch_number_;
    if (plan.method_ == ReorderMethod::SEQ_BATCH_NUMBER) {
      const std::uint32_t width = by_batch.sequence_number_.bit_width_;
      const std::uint32_t batch_width = by_batch.batch_number_.bit_width_;
      const Place at = method["batch_number"]["bit_width"];
      if (batch_width > width)
        at.error("found ", batch_width, "; accepts at most the ", width,
                 " bits of the sequence number");
      else
        by_batch.packets_per_batch_ =
            static_cast<std::uint32_t>((std::uint64_t{1} << width) >> batch_width);
      return !at.bad();
    }
    if (plan.method_ == ReorderMethod::SEQ_PACKETS_PER_BATCH) {
      const std::uint32_t width = plan.seq_packets_per_batch_.sequence_number_.bit_width_;
      const std::uint64_t numbers = std::uint64_t{1} << width;
      const bool apart = plan.flow_stride_ != 0;
      const Place at = apart ? place["flow_stride"] : method["packets_per_batch"];
      if (at.bad() || method["packets_per_batch"].bad()) return false;
      const std::uint32_t stride = reorder::stride_of(plan);
      if (stride == 0 || (numbers % stride != 0 && (width < 32 || stride > MOST_ANY_PACKETS)))
        at.error("found ", stride, "; accepts a power of two up to ", numbers / 2,
                 ", half of the sequence numbers of ", width,
                 " bits, and with 32 bits any number up to ", MOST_ANY_PACKETS);
      return !at.bad();
    }
    return !method["packets_per_batch"].bad() && !method["batch_bytes"].bad();
  }

  /// If flows have separate slots, those of one flow follow those of the previous one.
  bool check_stride() const {
    const Place at = place["flow_stride"];
    if (at.bad() || plan.flow_stride_ == 0) return !at.bad();
    const std::uint64_t slots = std::uint64_t{plan.flow_stride_} * plan.flow_ids_.size();
    if (plan.method_ == ReorderMethod::BATCH_BYTE_OFFSET)
      at.error("found ", plan.flow_stride_,
               " with batch_byte_offset, whose packets have no slots; remove the key");
    else if (slots != reorder::slots_of(plan))
      at.error("found ", plan.flow_stride_, " for each of ", plan.flow_ids_.size(),
               " flows, which makes ", slots, "; accepts a stride that makes the ",
               reorder::slots_of(plan), " packets of a batch");
    return !at.bad();
  }

  void check_window() const {
    if (plan.timeout_us_ != 0 && plan.timeout_us_ < USUAL_TIMEOUT_US)
      place["timeout_us"].warning("found ", plan.timeout_us_,
                                  ": a frame that takes longer to arrive is closed without its "
                                  "last packets; usual is ",
                                  USUAL_TIMEOUT_US, " or more, or 0 for no timeout");
    const Place at = place["window"];
    const std::uint64_t numbers = reorder::batch_numbers_of(plan);
    if (numbers == 1) {
      place["method"].error("the ", reorder::stride_of(plan),
                            " packets of a batch use all numbers of the counter, so that two "
                            "batches cannot be told apart; accepted is a counter with at least one "
                            "bit more, or fewer packets per batch");
      return;
    }
    if (at.bad() || plan.window_ <= reorder::most_open(numbers)) return;
    at.error(
        "found ", plan.window_, "; accepts at most half of the ", numbers,
        " batch numbers, so that open batches can be distinguished: ", reorder::most_open(numbers));
  }

  /// Checks the types of elements, their conversion, and the value for missing elements.
  bool check_types() const {
    const Place at = place["data_types"];
    const ReorderDataTypesConfig& types = plan.data_types_;
    for (const char* key : {"input_type", "output_type", "input", "output"}) {
      if (at.bad() || at[key].bad()) return false;
    }
    if (!reorder::convertible(types.input_type_, types.output_type_)) {
      at["output_type"].error("found '", reorder_data_type_to_string(types.output_type_),
                              "' from '", reorder_data_type_to_string(types.input_type_),
                              "'; accepts floating-point types, and integers that hold every value "
                              "of the input");
      return false;
    }
    std::byte element[8];
    if (!place["fill"].bad() && !reorder::encode(plan.fill_, types.output_type_, element))
      place["fill"].error("found ", real_form.write(plan.fill_),
                          ", which cannot be represented by an element of type '",
                          types.output_type_ == ReorderDataType::SAME
                              ? "byte"
                              : reorder_data_type_to_string(types.output_type_),
                          "'; accepts a value that can");
    return true;
  }

  /// Output bytes for this many payload bytes.
  [[nodiscard]] std::uint64_t output_of(std::uint64_t payload) const {
    const std::uint64_t input = bits_of(plan.data_types_.input_type_);
    return input == 0 ? payload : payload * 8 / input * bits_of(plan.data_types_.output_type_) / 8;
  }

  /// A buffer of the output region must hold a complete batch with the longest possible payloads; a
  /// frame is one batch.
  void check_size(const MemoryRegionConfig& source, const MemoryRegionConfig* output) const {
    const std::uint64_t longest = source.buf_size_ - plan.payload_byte_offset_;
    const bool by_bytes = plan.method_ == ReorderMethod::BATCH_BYTE_OFFSET;
    const std::uint64_t slots = by_bytes ? 1 : reorder::slots_of(plan);
    std::uint64_t slot = output_of(by_bytes ? plan.batch_byte_offset_.batch_bytes_ : longest);
    if (by_bytes && !whole_elements(plan.batch_byte_offset_.batch_bytes_))
      method["batch_bytes"].error(
          "found ", plan.batch_byte_offset_.batch_bytes_, "; accepts a multiple of the ",
          bits_of(plan.data_types_.input_type_) / 8, " bytes of an element");
    if (!plan.frame_.shape_.empty()) {
      const std::uint64_t bytes = reorder::frame_bytes_of(plan);
      const Place at = place["frame"]["shape"];
      if (at.bad() || place["frame"]["dtype"].bad()) return;
      if (bytes == 0 || bytes % slots != 0 || (by_bytes && bytes != slot) ||
          (!by_bytes && (bytes / slots > slot || !fits_payload(bytes / slots)))) {
        at.error("found a frame of ", bytes, " bytes; accepts ",
                 by_bytes ? concat("the ", slot, " bytes of a batch")
                          : concat(slots, " packets of the same length, of up to ", slot,
                                   " bytes each"));
        return;
      }
      slot = bytes / slots;
    }
    if (output == nullptr || output->buf_size_ == 0) return;
    // A division, because the product could overflow.
    if (output->buf_size_ / slots < slot)
      place["memory_region"].error("found ", quoted(output->name_), " with buffers of ",
                                   output->buf_size_, " bytes; a batch has ",
                                   by_bytes
                                       ? concat(slot, " bytes")
                                       : concat(slots, " packets of up to ", slot, " bytes each"),
                                   "; accepts a region whose buf_size holds them");
    else if (slots * slot > UINT32_MAX)
      place["memory_region"].error("found a batch of ", slots * slot,
                                   " bytes; accepts batches of up to ", UINT32_MAX);
  }

  [[nodiscard]] bool whole_elements(std::uint64_t payload) const {
    const std::uint64_t bits = bits_of(plan.data_types_.input_type_);
    return bits == 0 || payload * 8 % bits == 0;
  }
  /// Whether some payload has this many output bytes.
  [[nodiscard]] bool fits_payload(std::uint64_t bytes) const {
    const std::uint64_t output_bits = bits_of(plan.data_types_.output_type_);
    if (output_bits == 0) return true;
    const std::uint64_t input_bits = bits_of(plan.data_types_.input_type_);
    return bytes * 8 % output_bits == 0 && bytes * 8 / output_bits * input_bits % 8 == 0;
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
