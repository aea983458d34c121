// Reorder plans.
#include "config/schema.h"

namespace daqiri::config {
namespace {

void walk_bit_field(Fields& fields, std::string_view name, BitFieldConfig& field) {
  fields.map(required(name), [&] {
    fields.number(required("bit_offset"), field.bit_offset_, BIT_OFFSET);
    fields.number(required("bit_width"), field.bit_width_, BIT_WIDTH);
  });
}

void walk_method(Fields& fields, ReorderConfig& reorder) {
  bool by_batch = reorder.method_ == ReorderMethod::SEQ_BATCH_NUMBER;
  bool by_count = reorder.method_ == ReorderMethod::SEQ_PACKETS_PER_BATCH;
  fields.map(optional("seq_batch_number"), by_batch, [&] {
    walk_bit_field(fields, "sequence_number", reorder.sequence_number_);
    walk_bit_field(fields, "batch_number", reorder.batch_number_);
  });
  fields.map(optional("seq_packets_per_batch"), by_count, [&] {
    walk_bit_field(fields, "sequence_number", reorder.sequence_number_);
    fields.number(required("packets_per_batch"), reorder.packets_per_batch_, PACKETS_PER_BATCH);
  });
  if (!fields.reading()) return;
  reorder.method_ =
      by_batch ? ReorderMethod::SEQ_BATCH_NUMBER : ReorderMethod::SEQ_PACKETS_PER_BATCH;
  if (by_batch == by_count) {
    fields.problem("", std::string(by_batch ? "found two methods" : "found no method") +
                           "; accepts one of seq_batch_number and seq_packets_per_batch");
  }
}

}  // namespace

void walk_reorder(Fields& fields, ReorderConfig& reorder) {
  fields.text(required("name"), reorder.name_);
  fields.choice(required("reorder_type"), reorder.type_, REORDER_TYPES);
  fields.text(required("memory_region"), reorder.memory_region_);
  fields.number(optional("payload_byte_offset"), reorder.payload_byte_offset_, BUF_OFFSET);
  walk_integers(fields, required("flow_ids"), reorder.flow_ids_, FLOW_ID);
  fields.map(optional("data_types"), reorder.has_data_types_, [&] {
    DataTypesConfig& types = reorder.data_types_;
    fields.choice(required("input_type"), types.input_type_, INPUT_TYPES);
    fields.choice(required("output_type"), types.output_type_, OUTPUT_TYPES);
    fields.choice(optional("endianness"), types.endianness_, ENDIANNESS);
  });
  fields.map(required("method"), [&] { walk_method(fields, reorder); });
}

}  // namespace daqiri::config
