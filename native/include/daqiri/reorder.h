/// Reordering: configuration of how packets are assembled into aggregates, and the properties of an
/// aggregate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daqiri/flows.h"
#include "daqiri/language.h"

namespace daqiri {

/// \addtogroup reorder
/// \{

/// Fields from which the batch of a packet and its position in it are computed.
enum class ReorderMethod {
  INVALID,
  SEQ_BATCH_NUMBER,
  SEQ_PACKETS_PER_BATCH,
  BATCH_PACKET_NUMBER,
  BATCH_BYTE_OFFSET,
};
/// Type of the elements of a payload or of an aggregate. SAME: not converted.
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
/// Byte order of a packet field.
enum class ReorderByteOrder { BIG, LITTLE };
/// Origin of offsets: the first byte of the packet, or of its UDP payload.
enum class ReorderBase { PACKET, UDP_PAYLOAD };

/// Return "int4", "fp32", ... or "same".
std::string reorder_data_type_to_string(ReorderDataType type);
/// Inverse of `reorder_data_type_to_string`; INVALID for any other text.
ReorderDataType reorder_data_type_from_string(const std::string& text);
/// Return "host" or "network".
std::string reorder_endianness_to_string(ReorderEndianness endianness);
/// Inverse of `reorder_endianness_to_string`; INVALID for any other text.
ReorderEndianness reorder_endianness_from_string(const std::string& text);

/// Position of a number in a packet, in bits, counted from the most significant bit of a byte.
struct ReorderBitFieldConfig {
  std::uint32_t bit_offset_{0};
  std::uint32_t bit_width_{0};
  /// LITTLE: the field has whole bytes, the least significant byte first.
  ReorderByteOrder byte_order_{ReorderByteOrder::BIG};
  ReorderBase base_{ReorderBase::PACKET};
  DAQIRI_EQUALITY(ReorderBitFieldConfig)
};

/// `seq_batch_number`.
struct ReorderSeqBatchNumberConfig {
  ReorderBitFieldConfig sequence_number_;
  ReorderBitFieldConfig batch_number_;
  /// Set by validation: computed from the bit widths.
  std::uint32_t packets_per_batch_{0};
  DAQIRI_EQUALITY(ReorderSeqBatchNumberConfig)
};

/// `seq_packets_per_batch`.
struct ReorderSeqPacketsPerBatchConfig {
  ReorderBitFieldConfig sequence_number_;
  std::uint32_t packets_per_batch_{0};
  DAQIRI_EQUALITY(ReorderSeqPacketsPerBatchConfig)
};

/// `batch_packet_number`: packet numbers start again in each batch.
struct ReorderBatchPacketNumberConfig {
  ReorderBitFieldConfig batch_number_;
  ReorderBitFieldConfig packet_number_;
  std::uint32_t packets_per_batch_{0};
  /// Number of a batch's first packet.
  std::uint32_t first_packet_{0};
  DAQIRI_EQUALITY(ReorderBatchPacketNumberConfig)
};

/// `batch_byte_offset`: a packet contains the byte offset of its payload in the batch.
struct ReorderBatchByteOffsetConfig {
  ReorderBitFieldConfig batch_number_;
  ReorderBitFieldConfig byte_offset_;
  /// Total payload bytes of a complete batch.
  std::uint32_t batch_bytes_{0};
  DAQIRI_EQUALITY(ReorderBatchByteOffsetConfig)
};

/// Shape and type of an aggregate as an array.
struct ReorderFrameConfig {
  std::vector<std::uint32_t> shape_;
  /// Name of the type in numpy ("uint16"); empty: the output type.
  std::string dtype_;
  DAQIRI_EQUALITY(ReorderFrameConfig)
};

/// Conversion of elements; none if both types are SAME.
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
  /// For method SEQ_BATCH_NUMBER.
  ReorderSeqBatchNumberConfig seq_batch_number_;
  /// For method SEQ_PACKETS_PER_BATCH.
  ReorderSeqPacketsPerBatchConfig seq_packets_per_batch_;
  ReorderDataTypesConfig data_types_;
  /// For method BATCH_PACKET_NUMBER.
  ReorderBatchPacketNumberConfig batch_packet_number_;
  /// For method BATCH_BYTE_OFFSET.
  ReorderBatchByteOffsetConfig batch_byte_offset_;
  /// Origin of payload_byte_offset_.
  ReorderBase payload_base_{ReorderBase::PACKET};
  /// Number of batches that are open at once; 0: 2, or with flows of several queues 8 or half of
  /// the output's buffers. Limited by the range of batch numbers.
  std::uint32_t window_{0};
  /// Timeout after the first packet of a batch; 0: none.
  std::uint64_t timeout_us_{0};
  /// Value of missing elements, in the output type.
  double fill_{0};
  /// Number of slots of each flow in flow_ids_, in the order of flow_ids_; 0: flows share all
  /// slots.
  std::uint32_t flow_stride_{0};
  ReorderFrameConfig frame_;
  /// Cores of the threads that move payloads; empty: the pollers of the queues move them.
  std::vector<std::string> cpu_cores_;
  DAQIRI_EQUALITY(ReorderConfig)
};

/// Properties of an aggregate.
struct ReorderBurstInfo {
  /// Batch number from the packets.
  std::uint64_t batch_id{0};
  /// Number of packets in the aggregate.
  std::uint32_t source_packet_count{0};
  /// Number of packets of a complete aggregate.
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
