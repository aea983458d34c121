/// Reordering: how packets become aggregates, and what is known of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daqiri/flows.h"
#include "daqiri/language.h"

namespace daqiri {

/// How a packet tells its batch and place.
enum class ReorderMethod { INVALID, SEQ_BATCH_NUMBER, SEQ_PACKETS_PER_BATCH };
/// Elements of a payload or of an aggregate. SAME: not converted.
enum class ReorderDataType { SAME, INT4, INT8, INT16, INT32, FP16, BF16, FP32, FP64, INVALID };
/// Byte order of input elements.
enum class ReorderEndianness { HOST, NETWORK, INVALID };

/// "int4", "fp32", ...; "same".
std::string reorder_data_type_to_string(ReorderDataType type);
/// As above, the other way; INVALID for a text that is none.
ReorderDataType reorder_data_type_from_string(const std::string& text);
/// "host", "network".
std::string reorder_endianness_to_string(ReorderEndianness endianness);
/// As above, the other way; INVALID for a text that is none.
ReorderEndianness reorder_endianness_from_string(const std::string& text);

/// Where a number lies in a packet, in bits from its first byte.
struct ReorderBitFieldConfig {
  std::uint32_t bit_offset_{0};
  std::uint32_t bit_width_{0};
  DAQIRI_EQUALITY(ReorderBitFieldConfig)
};

/// `seq_batch_number`.
struct ReorderSeqBatchNumberConfig {
  ReorderBitFieldConfig sequence_number_;
  ReorderBitFieldConfig batch_number_;
  /// Set by validation: what the bit widths come to.
  std::uint32_t packets_per_batch_{0};
  DAQIRI_EQUALITY(ReorderSeqBatchNumberConfig)
};

/// `seq_packets_per_batch`.
struct ReorderSeqPacketsPerBatchConfig {
  ReorderBitFieldConfig sequence_number_;
  std::uint32_t packets_per_batch_{0};
  DAQIRI_EQUALITY(ReorderSeqPacketsPerBatchConfig)
};

/// Conversion of elements; none while both types are SAME.
struct ReorderDataTypesConfig {
  ReorderDataType input_type_{ReorderDataType::SAME};
  ReorderDataType output_type_{ReorderDataType::SAME};
  ReorderEndianness endianness_{ReorderEndianness::HOST};
  DAQIRI_EQUALITY(ReorderDataTypesConfig)
};

/// An entry of `rx.reorder_configs`.
struct ReorderConfig {
  std::string name_;
  /// "gpu" or "cpu".
  std::string reorder_type_;
  std::string memory_region_;
  std::uint32_t payload_byte_offset_{0};
  std::vector<FlowId> flow_ids_;
  ReorderMethod method_{ReorderMethod::INVALID};
  /// Of the method SEQ_BATCH_NUMBER.
  ReorderSeqBatchNumberConfig seq_batch_number_;
  /// Of the method SEQ_PACKETS_PER_BATCH.
  ReorderSeqPacketsPerBatchConfig seq_packets_per_batch_;
  ReorderDataTypesConfig data_types_;
  DAQIRI_EQUALITY(ReorderConfig)
};

/// Of one aggregate.
struct ReorderBurstInfo {
  /// Number of the batch, as its packets carry it.
  std::uint64_t batch_id{0};
  /// Packets in the aggregate.
  std::uint32_t source_packet_count{0};
  /// Packets of a complete one.
  std::uint32_t packets_per_batch{0};
  /// Output bytes of one packet.
  std::uint32_t payload_len{0};
  /// Output bytes of the batch.
  std::uint32_t aggregate_len{0};
  /// DAQIRI_BURST_FLAG_ bits.
  std::uint32_t burst_flags{0};
};

}  // namespace daqiri
