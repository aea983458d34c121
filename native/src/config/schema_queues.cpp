// Receive and transmit sections with their queues, and flex items.
#include "config/formats.h"
#include "config/schema.h"

namespace daqiri::config {
namespace {

/// Keys that both kinds of queue have. In direct mode the caller polls: there is no core and no
/// batch.
void walk_queue(Fields& fields, QueueConfig& queue) {
  fields.text(required("name"), queue.name_);
  fields.number(required("id"), queue.id_, QUEUE_ID);
  fields.choice(optional("poll_mode"), queue.poll_mode_, POLL_MODES);
  const bool direct = queue.poll_mode_ == PollMode::DIRECT;
  const bool worker = !direct && !fields.bad("poll_mode");

  const bool skip_core = fields.writing() && direct && queue.cpu_core_.empty();
  if (!skip_core) {
    const auto parse = [&](std::string_view text) { return read_core(text, queue.cpu_core_); };
    fields.formatted({"cpu_core", worker}, CORE_FORM, parse, [&] { return queue.cpu_core_; });
  }
  const bool skip_batch = fields.writing() && direct && queue.batch_size_ == 0;
  if (!skip_batch) fields.number({"batch_size", worker}, queue.batch_size_, BATCH_SIZE);
  fields.texts(optional("memory_regions"), queue.mrs_);

  for (const std::string_view key : {"cpu_core", "batch_size"}) {
    if (direct && fields.given(key)) {
      fields.problem(key, "a queue with poll_mode: direct is polled by its caller; remove the key");
    }
  }
}

void walk_rx_queue(Fields& fields, RxQueueConfig& queue) {
  walk_queue(fields, queue);
  const bool direct = queue.poll_mode_ == PollMode::DIRECT;
  const bool skip_timeout = fields.writing() && direct && queue.timeout_us_ == 0;
  if (!skip_timeout) fields.number(optional("timeout_us"), queue.timeout_us_, MICROSECONDS);
  if (direct && fields.given("timeout_us")) {
    fields.problem("timeout_us",
                   "a queue with poll_mode: direct is polled by its caller; remove the key");
  }
  fields.number(optional("split_boundary"), queue.split_boundary_, SPLIT);
  // No key here: written so that a struct that has them is refused.
  if (fields.writing() && !queue.offloads_.empty())
    fields.words(optional("offloads"), queue.offloads_, OFFLOADS);
}

void walk_tx_queue(Fields& fields, TxQueueConfig& queue) {
  walk_queue(fields, queue);
  fields.number(optional("timeout_us"), queue.timeout_us_, MICROSECONDS);
  fields.words(optional("offloads"), queue.offloads_, OFFLOADS);
  fields.number(optional("pacing_mbps"), queue.pacing_mbps_, PACING);
  fields.number(optional("realtime_priority"), queue.realtime_priority_, REALTIME_PRIORITY);
}

void walk_flex_item(Fields& fields, FlexItemConfig& item) {
  fields.text(required("name"), item.name_);
  fields.number(required("id"), item.id_, FLEX_ID);
  fields.number(required("offset"), item.offset_, FLEX_OFFSET);
  if (item.offset_ % 4 != 0) {
    fields.problem("offset", "found " + std::to_string(item.offset_) +
                                 "; accepts a multiple of 4 from 0 to 28 (bytes)");
  }
  fields.number(required("udp_dst_port"), item.udp_dst_port_, PORT);
}

}  // namespace

void walk_rx(Fields& fields, RxConfig& rx) {
  fields.flag(optional("flow_isolation"), rx.flow_isolation_);
  fields.flag(optional("hardware_timestamps"), rx.hardware_timestamps_);
  fields.number(optional("dynamic_flow_capacity"), rx.dynamic_flow_capacity_, FLOW_CAPACITY);
  fields.list(required("queues"), rx.queues_,
              [&](RxQueueConfig& queue) { walk_rx_queue(fields, queue); });
  fields.list(optional("flex_items"), rx.flex_items_,
              [&](FlexItemConfig& item) { walk_flex_item(fields, item); });
  fields.list(optional("flows"), rx.flows_, [&](FlowConfig& flow) { walk_rx_flow(fields, flow); });
  fields.list(optional("reorder_configs"), rx.reorder_configs_,
              [&](ReorderConfig& reorder) { walk_reorder(fields, reorder); });
}

void walk_tx(Fields& fields, TxConfig& tx) {
  fields.flag(optional("accurate_send"), tx.accurate_send_);
  fields.list(required("queues"), tx.queues_,
              [&](TxQueueConfig& queue) { walk_tx_queue(fields, queue); });
  fields.list(optional("flows"), tx.flows_,
              [&](TxFlowConfig& flow) { walk_tx_flow(fields, flow); });
}

}  // namespace daqiri::config
