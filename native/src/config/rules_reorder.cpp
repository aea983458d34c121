// Rules for reorder plans.
#include <set>

#include "config/rules.h"
#include "engine/traits.h"
#include "reorder/plan.h"

namespace daqiri::config {
namespace {

constexpr std::size_t MOST_COLUMNS = 64;
/// Of the packets of a frame: 8 MiB.
constexpr std::uint64_t MOST_NUMBERS = std::uint64_t{1} << 20U;

using reorder::bits_of;

/// The key with the flows of a plan of an interface, and of the whole configuration.
constexpr std::string_view IDS = "flow_ids";
constexpr std::string_view FLOWS = "flows";

/// One plan, of an interface or of the whole configuration.
struct Plan {
  Subject& subject;
  ReorderConfig& plan;
  const Place& place;
  /// The key with its flows.
  const std::string_view flows_key;
  /// The interface of each flow; after an error, too few.
  const std::vector<const InterfaceConfig*> owners;
  /// Whether it is a mode of a plan, which has the same flows.
  const bool is_mode{false};
  const Place method = place["method"][key_of(plan.method_)];

  void check() {
    const Place output_at = place["memory_region"];
    const MemoryRegionConfig* output =
        subject.regions.find(plan.memory_region_, output_at, "memory region");
    if (output_at.bad()) output = nullptr;
    if (output != nullptr) check_output(*output, output_at);
    const auto queues = check_flows();
    const bool method_good = check_numbers(plan, place, flows_key);
    if (plan.reorder_type_ == "gpu" && !plan.cpu_cores_.empty())
      place["cpu_core"].error(
          "found with reorder_type: gpu, where no thread moves payloads; "
          "accepts it with reorder_type: cpu");
    const bool types_good = check_types() && check_modules(plan, place["frame"]);
    check_conditions();
    check_columns();
    if (method_good) check_window(plan, place);
    // Regions with the smallest and the largest buffers.
    const MemoryRegionConfig* least = nullptr;
    const MemoryRegionConfig* most = nullptr;
    for (const Source& queue : queues) {
      const MemoryRegionConfig* source = check_source(queue);
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

  /// A queue that a flow leads to.
  struct Source {
    const InterfaceConfig* interface;
    const RxQueueConfig* queue;
    auto operator<=>(const Source&) const = default;
  };

  [[nodiscard]] bool joint() const { return flows_key == FLOWS; }
  [[nodiscard]] Place receive_place(const InterfaceConfig& interface) const {
    const auto at = static_cast<std::size_t>(&interface - subject.config.ifs_.data());
    return subject.root["interfaces"][at]["rx"];
  }

  /// Returns the queues that the flows lead to; empty if that is unknown.
  std::vector<Source> check_flows() const {
    const Place list = place[flows_key];
    if (list.bad()) return {};
    if (plan.flow_ids_.empty())
      list.error("found an empty list; accepts ", joint()
                                                      ? "flows of any interface, as interface/flow"
                                                      : "ids of flows of this interface");
    bool all_good = !plan.flow_ids_.empty();
    std::vector<Source> queues;
    for (const auto& [id, at] : placed(plan.flow_ids_, list)) {
      if (!at.bad()) {
        const InterfaceConfig& owner = *owners[&id - plan.flow_ids_.data()];
        const auto [seen, is_new] = subject.plan_flows.emplace(std::pair(&owner, id), at.path());
        if (!is_new && !is_mode)
          at.error("found ", found(id), ", already claimed by ", seen->second,
                   "; accepts a flow once");
        all_good = add_queues(id, owner, at, queues) && all_good;
      }
      all_good = all_good && !at.bad();
    }
    std::ranges::sort(queues);
    queues.erase(std::unique(queues.begin(), queues.end()), queues.end());
    return all_good ? queues : std::vector<Source>{};
  }

  /// A flow as it was written.
  [[nodiscard]] std::string found(const FlowId& id) const {
    return joint() ? quoted(plan.flows_[&id - plan.flow_ids_.data()]) : concat(id);
  }

  /// Adds the queues of the flow; returns false if they are unknown.
  bool add_queues(FlowId id, const InterfaceConfig& owner, const Place& at,
                  std::vector<Source>& queues) const {
    const RxConfig& rx = owner.rx_;
    const Place rx_place = receive_place(owner);
    bool known = false;
    bool ids_certain = !rx_place["flows"].bad();
    bool queues_known = true;
    const auto add = [&](int wanted) {
      const auto queue = std::ranges::find(rx.queues_, wanted, QUEUE_ID);
      queues_known = queues_known && queue != rx.queues_.end();
      if (queue != rx.queues_.end()) queues.push_back({&owner, &*queue});
    };
    for (const auto& [flow, flow_at] : placed(rx.flows_, rx_place["flows"])) {
      if (flow_at["id"].bad()) ids_certain = false;
      if (flow_at["id"].bad() || flow.id_ != id) continue;
      known = true;
      if (flow_at["action"].bad() || flow_at["actions"].bad()) return false;
      if (flow.action_.type_ != FlowType::QUEUE) continue;
      if (flow.action_.ids_.empty()) add(flow.action_.id_);
      for (const std::uint16_t queue : flow.action_.ids_) add(queue);
    }
    if (!known && ids_certain)
      at.error("found ", id,
               ", which is not a flow of this interface; accepts an id under rx.flows");
    return known && queues_known;
  }

  /// Returns the region of the packets to reorder.
  const MemoryRegionConfig* check_source(const Source& source) const {
    const RxQueueConfig& rx_queue = *source.queue;
    const CommonQueueConfig& queue = rx_queue.common_;
    const Place list = place[flows_key];
    const std::string told =
        quoted(joint() ? concat(source.interface->name_, "/", queue.name_) : queue.name_);
    if (rx_queue.poll_mode_ == QueuePollMode::DIRECT)
      list.error("found flows of queue ", told,
                 ", which has poll_mode: direct; accepts queues with poll_mode: indirect");
    if (queue.mrs_.size() > 1)
      list.error("found flows of queue ", told, ", which splits packets over ", queue.mrs_.size(),
                 " memory regions; accepts a queue with one");
    if (queue.mrs_.size() != 1) return nullptr;
    const MemoryRegionConfig* region = subject.regions.find(queue.mrs_.front());
    if (region == nullptr) return nullptr;
    check_kind(*region, list);
    for (const auto& [name, field] : fields_of(plan))
      check_bit_field(method[name], *field, *region);
    if (plan.payload_offset_field_.bit_width_ != 0)
      check_bit_field(place["payload_offset_field"], plan.payload_offset_field_, *region);
    for (const auto& [condition, at] : placed(plan.conditions_, place["conditions"]))
      check_bit_field(at, condition.field_, *region);
    for (const ReorderColumnConfig& column : plan.columns_)
      check_bit_field(place["columns"][column.name_], column.field_, *region);
    return region;
  }

  static void check_bit_field(const Place& at, const ReorderBitFieldConfig& field,
                              const MemoryRegionConfig& source) {
    const std::uint64_t end = std::uint64_t{field.bit_offset_} + field.bit_width_;
    if (at["bit_width"].bad()) return;
    if (field.bit_offset_ % 8 + field.bit_width_ > 64)
      at["bit_width"].error("found ", field.bit_width_, " bits from bit ", field.bit_offset_,
                            ", in more than 8 bytes; accepts fields within 8 bytes");
    if (source.buf_size_ > 0 && end > source.buf_size_ * 8)
      at["bit_offset"].error("found ", field.bit_offset_, ": the field ends at bit ", end,
                             ", beyond a buffer of ", quoted(source.name_),
                             "; accepts fields within its ", source.buf_size_ * 8, " bits");
    if (field.byte_order_ == ReorderByteOrder::LITTLE &&
        (field.bit_offset_ % 8 != 0 || field.bit_width_ % 8 != 0))
      at["byte_order"].error("found 'little' for bits ", field.bit_offset_, " to ", end - 1,
                             "; accepts 'big', or a bit_offset and a bit_width of whole bytes");
  }

  void check_conditions() const {
    for (const auto& [condition, at] : placed(plan.conditions_, place["conditions"])) {
      if (at.bad() || at["bit_width"].bad()) continue;
      const std::uint64_t bits = reorder::Field(condition.field_).mask() & condition.mask_;
      const bool one = condition.at_least_ == condition.at_most_;
      if (one && (condition.at_least_ & ~bits) != 0)
        at["equal"].error("found ", condition.at_least_,
                          ", which no packet has; accepts the bits of ", bits,
                          ", which the field and the mask have");
      else if (condition.at_least_ > std::min(condition.at_most_, bits))
        at["at_least"].error("found ", condition.at_least_, ", which no packet has; accepts up to ",
                             std::min(condition.at_most_, bits));
    }
  }

  void check_columns() const {
    const Place at = place["columns"];
    std::map<std::string, std::string_view> seen;
    for (const ReorderColumnConfig& column : plan.columns_) {
      // Databases do not tell A from a.
      const auto [other, is_new] = seen.emplace(lower(column.name_), column.name_);
      if (!is_new)
        at[column.name_].error("found beside ", quoted(other->second),
                               "; accepts names that differ in more than small and capital "
                               "letters");
    }
    if (plan.columns_.size() > MOST_COLUMNS)
      at.error("found ", plan.columns_.size(), "; accepts up to ", MOST_COLUMNS, " columns");
    check_columns_of_packets();
  }

  /// Of a mode, the columns are those of the plan, and the packets its own.
  void check_columns_of_packets() const {
    const auto of_packets = [](const ReorderColumnConfig& column) {
      return column.from_ == ReorderColumnSource::PACKETS;
    };
    const auto first = std::ranges::find_if(plan.columns_, of_packets);
    if (first == plan.columns_.end() || method.bad_within()) return;
    const Place from = place["columns"][first->name_]["from"];
    if (plan.method_ == ReorderMethod::BATCH_BYTE_OFFSET) {
      const std::string found =
          concat("found ",
                 is_mode ? concat("column ", quoted(first->name_), " from: packets") : "'packets'",
                 " with batch_byte_offset, where packets have no number in the frame; accepts ");
      if (is_mode)
        method.error(found, "another method, or columns from: first and from: sum");
      else
        from.error(found, "first and sum, or another method");
      return;
    }
    const auto columns =
        static_cast<std::uint64_t>(std::ranges::count_if(plan.columns_, of_packets));
    const std::uint64_t packets = reorder::slots_of(plan);
    if (columns * packets > MOST_NUMBERS)
      (is_mode ? method : from)
          .error("found ", columns, columns == 1 ? " column" : " columns", " from: packets with ",
                 packets, " packets of a frame; accepts up to ", MOST_NUMBERS,
                 " numbers of a frame, in all columns from: packets");
  }

  /// Checks the types of elements, their conversion, and the value for missing elements.
  bool check_types() const {
    const Place at = place["data_types"];
    const ReorderDataTypesConfig& types = plan.data_types_;
    for (const char* key : {"input_type", "output_type", "input", "output", "packing"}) {
      if (at.bad() || at[key].bad()) return false;
    }
    const std::string input = reorder_data_type_to_string(types.input_type_);
    if (!reorder::convertible(types.input_type_, types.output_type_)) {
      at["output_type"].error("found '", reorder_data_type_to_string(types.output_type_),
                              "' from '", input, "'; accepts ",
                              reorder::is_float(types.input_type_)
                                  ? "fp16, fp32 and fp64, if they hold every value of the input"
                                  : "floating-point types, and integers that hold every value of "
                                    "the input");
      return false;
    }
    check_order(at, input);
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

  /// Checks that the orders of bits and bytes are those of the input's elements.
  void check_order(const Place& at, const std::string& input) const {
    const ReorderDataTypesConfig& types = plan.data_types_;
    const bool packed = reorder::is_packed(types.input_type_);
    if (types.packing_ == ReorderPacking::LSB && !packed)
      at["packing"].error(
          "found 'lsb' with '", input,
          "', whose elements are whole bytes; accepts it with elements of 4, 10, 12 "
          "and 14 bits. Set endianness, the order of bytes");
    if (!packed || bits_of(types.input_type_) < 8 ||
        types.endianness_ != ReorderEndianness::NETWORK)
      return;
    const bool alias = at["input_endianness"].given() && !at["endianness"].given();
    at[alias ? "input_endianness" : "endianness"].error(
        "found 'network' with '", input,
        "', whose elements are not whole bytes; remove it, and set packing: msb for a stream of "
        "bits "
        "with the most significant first");
  }

  /// A buffer of the output region must hold a complete batch with the longest possible payloads; a
  /// frame is one batch.
  void check_size(const MemoryRegionConfig& source, const MemoryRegionConfig* output) const {
    std::uint64_t longest = source.buf_size_ - plan.payload_byte_offset_;
    if (const Place at = place["payload_bytes"]; plan.payload_bytes_ != 0 && !at.bad()) {
      if (plan.payload_bytes_ > longest)
        at.error("found ", plan.payload_bytes_, "; accepts at most the ", longest,
                 " bytes that a buffer of ", quoted(source.name_),
                 " has after payload_byte_offset");
      else if (!reorder::groups_of(plan).fill(plan.payload_bytes_))
        check_split(at);
      if (at.bad()) return;
      longest = plan.payload_bytes_;
    }
    const bool by_bytes = plan.method_ == ReorderMethod::BATCH_BYTE_OFFSET;
    const std::uint64_t slots = by_bytes ? 1 : reorder::slots_of(plan);
    const reorder::Groups groups = reorder::groups_of(plan);
    std::uint64_t slot =
        groups.output_within(by_bytes ? plan.batch_byte_offset_.batch_bytes_ : longest);
    if (by_bytes && !groups.fill(plan.batch_byte_offset_.batch_bytes_))
      method["batch_bytes"].error("found ", plan.batch_byte_offset_.batch_bytes_,
                                  "; accepts a multiple of the ", group());
    if (!plan.frame_.shape_.empty()) {
      const std::uint64_t bytes = reorder::sent_bytes_of(plan);
      const std::uint64_t frame = reorder::frame_bytes_of(plan);
      const bool modules = !plan.frame_.modules_.shape_.empty();
      const Place at = place["frame"][modules ? "modules" : "shape"];
      if (at.bad() || place["frame"]["dtype"].bad()) return;
      if (modules && frame == 0) {
        place["frame"]["shape"].error("found an image of more than ", UINT32_MAX,
                                      " bytes; accepts a smaller one");
        return;
      }
      if (plan.payload_bytes_ != 0 && !by_bytes) {
        if (check_parts(bytes, slot, at)) check_output_size(output, 1, frame, false);
        return;
      }
      const bool fits =
          bytes != 0 && bytes % slots == 0 && (by_bytes ? bytes == slot : bytes / slots <= slot);
      if (!fits) {
        at.error("found ", sent(), " of ", bytes, " bytes; accepts ",
                 by_bytes ? concat("the ", slot, " bytes of a batch")
                          : concat(slots, " packets of the same length, of up to ", slot,
                                   " bytes each"));
        return;
      }
      if (bytes / slots % groups.output_bytes() != 0) {
        at.error("found ", sent(), " of ", bytes, " bytes in ", slots, " packets, each ",
                 bytes / slots, " bytes of it; accepts a multiple of ", groups.output_bytes(),
                 " bytes from a packet: its payload has whole groups of ", group());
        return;
      }
      if (modules) return check_output_size(output, 1, frame, true);
      slot = bytes / slots;
    }
    check_output_size(output, slots, slot, by_bytes);
  }

  /// Payloads that do not have whole groups of elements: the next packet has the rest.
  void check_split(const Place& at) const {
    const std::uint32_t least = reorder::groups_of(plan).bytes();
    const bool slots = plan.method_ != ReorderMethod::BATCH_BYTE_OFFSET;
    if (slots && !plan.frame_.shape_.empty() && plan.reorder_type_ == "cpu" &&
        plan.payload_bytes_ > least)
      return;
    at.error("found ", plan.payload_bytes_, "; accepts a multiple of the ", group(),
             ", or with reorder_type: cpu, a frame, and a method with packet or sequence numbers, "
             "any number above ",
             least);
  }

  /// The packets of a batch, or of a flow's part of it, are full, but for the last one.
  bool check_parts(std::uint64_t bytes, std::uint64_t full, const Place& at) const {
    const reorder::Groups groups = reorder::groups_of(plan);
    const std::uint64_t packets = reorder::stride_of(plan);
    const std::uint64_t parts = reorder::slots_of(plan) / packets;
    const bool whole =
        bytes != 0 && bytes % parts == 0 && bytes / parts % groups.output_bytes() == 0;
    // Packets that split groups have no whole number of bytes of a frame.
    const std::uint64_t payload = groups.input_of(bytes / parts);
    const std::uint64_t most = packets * plan.payload_bytes_;
    if (whole && payload > most - plan.payload_bytes_ && payload <= most) return true;
    if (!groups.fill(plan.payload_bytes_)) {
      at.error("found ", sent(), " of ", bytes, " bytes, which ", reorder::slots_of(plan),
               " packets of payload_bytes: ", plan.payload_bytes_, " do not fill; accepts ",
               parts == 1 ? "" : concat(parts, " parts of "), "whole ", group(), ", more than ",
               most - plan.payload_bytes_, " and at most ", most, " bytes of payloads",
               parts == 1 ? "" : " each");
      return false;
    }
    at.error("found ", sent(), " of ", bytes, " bytes; accepts ",
             parts == 1 ? "" : concat(parts, " parts of "), packets, " packets of ", full,
             " bytes each, of which the last may have fewer: more than ",
             parts * (packets - 1) * full, ", and at most ", parts * packets * full);
    return false;
  }

  void check_output_size(const MemoryRegionConfig* output, std::uint64_t slots, std::uint64_t slot,
                         bool by_bytes) const {
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

  /// What packets fill.
  [[nodiscard]] const char* sent() const {
    return plan.frame_.modules_.shape_.empty() ? "a frame" : "modules";
  }

  /// "3 bytes of 2 elements of uint12".
  [[nodiscard]] std::string group() const {
    const ReorderDataType input = plan.data_types_.input_type_;
    const std::uint32_t elements = reorder::group_elements(input);
    return concat(reorder::group_bytes(input), " bytes of ",
                  elements == 1 ? "an element" : concat(elements, " elements"), " of ",
                  reorder_data_type_to_string(input));
  }
};

/// Sets the ids of the flows of a plan of the whole configuration; returns their interfaces.
std::vector<const InterfaceConfig*> find_flows(Subject& subject, ReorderConfig& plan,
                                               const Place& list) {
  constexpr std::size_t MOST_LISTED = 16;
  std::vector<std::string> all;
  bool certain = !subject.root["interfaces"].bad();
  std::vector<const InterfaceConfig*> owners(plan.flows_.size());
  plan.flow_ids_.assign(plan.flows_.size(), 0);
  for (const auto& [interface, at] : subject.interfaces()) {
    certain = certain && !at["name"].bad() && !at["rx"].bad() && !at["rx"]["flows"].bad();
    for (const auto& [flow, flow_at] : placed(interface.rx_.flows_, at["rx"]["flows"])) {
      certain = certain && !flow_at["name"].bad();
      all.push_back(concat(interface.name_, "/", flow.name_));
      for (std::size_t i = 0; i < plan.flows_.size(); ++i) {
        if (plan.flows_[i] != all.back() || owners[i] != nullptr) continue;
        owners[i] = &interface;
        plan.flow_ids_[i] = flow.id_;
      }
    }
  }
  std::string accepted;
  for (std::size_t i = 0; i < std::min(all.size(), MOST_LISTED); ++i)
    accepted += concat(i > 0 ? ", " : "", quoted(all[i]));
  if (all.size() > MOST_LISTED) accepted += ", ...";
  if (all.empty())
    accepted = "interface/flow, of flows under rx.flows of interfaces; there are none";
  for (const auto& [flow, at] : placed(plan.flows_, list)) {
    if (owners[&flow - plan.flows_.data()] != nullptr) continue;
    // A name that was found wrong is not reported as a second mistake.
    if (certain)
      at.error("found ", quoted(flow), ", which is not a flow of an interface; accepts ", accepted);
    else
      at.spoil();
  }
  return owners;
}

/// Whether both count the same sequence numbers as they wrap.
bool have_same_numbers(const ReorderConfig& plan, const ReorderConfig& variant) {
  return reorder::divides(plan) && reorder::divides(variant) &&
         plan.first_packet_ == variant.first_packet_ &&
         plan.seq_packets_per_batch_.sequence_number_ ==
             variant.seq_packets_per_batch_.sequence_number_;
}

void check_plan(Subject& subject, ReorderConfig& plan, const Place& place,
                std::string_view flows_key, const std::vector<const InterfaceConfig*>& owners) {
  Plan{subject, plan, place, flows_key, owners}.check();
  const Place modes = place["modes"];
  if (plan.modes_.empty() || modes.bad()) return;
  // What a mode takes over is reported once.
  if (place.bad_within()) return;
  std::set<std::string> names;
  for (ReorderModeConfig& mode : plan.modes_) {
    ReorderConfig& variant = mode.plan_;
    if (mode.name_.empty() || !names.insert(mode.name_).second)
      modes.error("found ", quoted(mode.name_), " as a name, empty or twice; accepts other names");
    if (!variant.modes_.empty()) modes[mode.name_]["modes"].error("found modes of a mode");
    variant.name_ = plan.name_;
    variant.reorder_type_ = plan.reorder_type_;
    variant.memory_region_ = plan.memory_region_;
    variant.flow_ids_ = plan.flow_ids_;
    variant.flows_ = plan.flows_;
    variant.cpu_cores_ = plan.cpu_cores_;
    const Place at = modes[mode.name_];
    if (at.bad()) continue;
    Plan{subject, variant, at, flows_key, owners, true}.check();
    if (!at.bad_within() && (reorder::divides(plan) || reorder::divides(variant)) &&
        !have_same_numbers(plan, variant))
      at["method"].error(
          "found other numbers than those of the plan, of which a frame does not have a power of "
          "two: how often they began anew would not be known after a change of the mode; accepts "
          "seq_packets_per_batch with the sequence_number and first_packet of the plan, and "
          "packets that are no power of two in the plan and in all modes");
  }
}

}  // namespace

void check_reorder(Subject& subject, InterfaceConfig& interface, const Place& at) {
  RxConfig& rx = interface.rx_;
  const Place rx_place = at["rx"];
  check_unique<std::string>(rx_place, "reorder_configs", "name", rx.reorder_configs_,
                            &ReorderConfig::name_);
  for (auto& [plan, place] : placed(rx.reorder_configs_, rx_place["reorder_configs"])) {
    if (place.bad()) continue;
    const std::vector<const InterfaceConfig*> owners(plan.flow_ids_.size(), &interface);
    check_plan(subject, plan, place, IDS, owners);
  }
}

void check_joint_reorder(Subject& subject) {
  std::vector<ReorderConfig>& plans = subject.config.reorder_configs_;
  check_unique<std::string>(subject.root, "reorder_configs", "name", plans, &ReorderConfig::name_);
  for (auto& [plan, place] : placed(plans, subject.root["reorder_configs"])) {
    for (const auto& [interface, at] : subject.interfaces()) {
      for (const ReorderConfig& other : interface.rx_.reorder_configs_) {
        if (plan.name_ == concat(interface.name_, "/", other.name_))
          place["name"].error("found ", quoted(plan.name_), ", as plan ", quoted(other.name_),
                              " of interface ", quoted(interface.name_),
                              " appears in files; accepts another name");
      }
    }
    const std::vector<const InterfaceConfig*> owners = find_flows(subject, plan, place[FLOWS]);
    if (!place.bad()) check_plan(subject, plan, place, FLOWS, owners);
  }
}

}  // namespace daqiri::config
