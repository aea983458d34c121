/// Reordering: how packets become aggregates, and what is known of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daqiri/flows.h"
#include "daqiri/language.h"

namespace daqiri {

/// \addtogroup reorder
/// \{

/// How a packet tells its batch and place.
enum class ReorderMethod {
  INVALID,
  SEQ_BATCH_NUMBER,
  SEQ_PACKETS_PER_BATCH,
  BATCH_PACKET_NUMBER,
  BATCH_BYTE_OFFSET,
};
/// Elements of a payload or of an aggregate. SAME: not converted.
enum class ReorderDataType {
  SAME,
  INT4,
  INT8,
  INT16,
  INT32,
  FP16,
  BF16,
  FP32,
  FP64,
  INVALID,
  UINT8,
  UINT16,
  UINT32,
};
/// Byte order of input elements.
enum class ReorderEndianness { HOST, NETWORK, INVALID };
/// Byte order of a field of a packet.
enum class ReorderByteOrder { BIG, LITTLE };
/// Where offsets count from: the first byte of the packet, or of its UDP payload.
enum class ReorderBase { PACKET, UDP_PAYLOAD };

/// Word of a data type: "int4", "fp32", ...; "same".
std::string reorder_data_type_to_string(ReorderDataType type);
/// Data type of a word; INVALID for a text that is none.
ReorderDataType reorder_data_type_from_string(const std::string& text);
/// Word of a byte order: "host", "network".
std::string reorder_endianness_to_string(ReorderEndianness endianness);
/// Byte order of a word; INVALID for a text that is none.
ReorderEndianness reorder_endianness_from_string(const std::string& text);

/// Where a number lies in a packet, in bits, the most significant bit of a byte first.
struct ReorderBitFieldConfig {
  std::uint32_t bit_offset_{0};
  std::uint32_t bit_width_{0};
  /// LITTLE: whole bytes, the least significant one first.
  ReorderByteOrder byte_order_{ReorderByteOrder::BIG};
  ReorderBase base_{ReorderBase::PACKET};
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

/// `batch_packet_number`: packets are numbered anew in each batch.
struct ReorderBatchPacketNumberConfig {
  ReorderBitFieldConfig batch_number_;
  ReorderBitFieldConfig packet_number_;
  std::uint32_t packets_per_batch_{0};
  /// Number of a batch's first packet.
  std::uint32_t first_packet_{0};
  DAQIRI_EQUALITY(ReorderBatchPacketNumberConfig)
};

/// `batch_byte_offset`: a packet says where in its batch its payload begins.
struct ReorderBatchByteOffsetConfig {
  ReorderBitFieldConfig batch_number_;
  ReorderBitFieldConfig byte_offset_;
  /// Payload bytes of a complete batch.
  std::uint32_t batch_bytes_{0};
  DAQIRI_EQUALITY(ReorderBatchByteOffsetConfig)
};

/// How an aggregate is looked at.
struct ReorderFrameConfig {
  std::vector<std::uint32_t> shape_;
  /// As numpy names it ("uint16"); empty: the type of the output.
  std::string dtype_;
  DAQIRI_EQUALITY(ReorderFrameConfig)
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
  /// Of the method BATCH_PACKET_NUMBER.
  ReorderBatchPacketNumberConfig batch_packet_number_;
  /// Of the method BATCH_BYTE_OFFSET.
  ReorderBatchByteOffsetConfig batch_byte_offset_;
  /// Where payload_byte_offset_ counts from.
  ReorderBase payload_base_{ReorderBase::PACKET};
  /// Batches that are open at once; 0: 2, or as many as the batch numbers can tell apart.
  std::uint32_t window_{0};
  /// After a batch's first packet; -1: that of the queue, 0: none.
  std::int64_t timeout_us_{-1};
  /// Of missing elements, in the output type.
  double fill_{0};
  /// Slots of each flow of flow_ids_, one flow behind the other; 0: flows share all slots.
  std::uint32_t flow_stride_{0};
  ReorderFrameConfig frame_;
  /// Of threads that move payloads; empty: the pollers of the queues do.
  std::vector<std::string> cpu_cores_;
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

/// \}

}  // namespace daqiri
