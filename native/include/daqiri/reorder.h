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
  INT10,
  INT12,
  INT14,
  INT24,
  INT64,
  UINT4,
  UINT10,
  UINT12,
  UINT14,
  UINT24,
  UINT64,
};
/// Order of elements that begin or end within a byte. MSB: a stream of bits whose bytes begin with
/// the most significant bit, as do elements; the first of two nibbles is the high one. LSB: both
/// begin with the least significant bit.
enum class ReorderPacking { MSB, LSB };
/// Byte order of input elements.
enum class ReorderEndianness { HOST, NETWORK, INVALID };
/// Byte order of a packet field.
enum class ReorderByteOrder { BIG, LITTLE };
/// Packets that a column of frames is made of. FIRST: the one with the lowest position in the
/// frame, of those that came. SUM: all that came, modulo 2^64. PACKETS: each, which has a number of
/// its own.
enum class ReorderColumnSource { FIRST, SUM, PACKETS };
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
  /// Difference of consecutive numbers. 0: they grow irregularly, like times; for batch numbers
  /// only.
  std::uint64_t step_{1};
  /// Bytes for which the number counts one; for offsets only.
  std::uint32_t unit_{1};
  DAQIRI_EQUALITY(ReorderBitFieldConfig)
};

/// An entry of `conditions`: a plan takes packets of which (number & mask) is in a range.
struct ReorderConditionConfig {
  ReorderBitFieldConfig field_;
  std::uint64_t mask_{~std::uint64_t{0}};
  std::uint64_t at_least_{0};
  std::uint64_t at_most_{~std::uint64_t{0}};
  DAQIRI_EQUALITY(ReorderConditionConfig)
};

/// An entry of `columns`: numbers in packets that go with their frame.
struct ReorderColumnConfig {
  std::string name_;
  ReorderBitFieldConfig field_;
  ReorderColumnSource from_{ReorderColumnSource::FIRST};
  DAQIRI_EQUALITY(ReorderColumnConfig)
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

/// `batch_packet_number`: packets have the number of their batch and their own.
struct ReorderBatchPacketNumberConfig {
  ReorderBitFieldConfig batch_number_;
  ReorderBitFieldConfig packet_number_;
  std::uint32_t packets_per_batch_{0};
  /// Packet numbers go on from batch to batch, and a packet's position is the remainder.
  bool running_{false};
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

/// The axes of a module that are reversed.
enum class ReorderFlip { NONE, ROWS, COLUMNS, BOTH };

/// An entry of `modules.positions`: where a module is in the image.
struct ReorderPositionConfig {
  /// Row and column of its upper left pixel.
  std::vector<std::uint32_t> origin_;
  /// Applied before the rotation.
  ReorderFlip flip_{ReorderFlip::NONE};
  /// Degrees counterclockwise: 0, 90, 180 or 270.
  std::uint32_t rotate_{0};
  DAQIRI_EQUALITY(ReorderPositionConfig)
};

/// `frame.modules`: how the payloads of a batch, one after the other, form an image. Each list has
/// rows and columns.
struct ReorderModulesConfig {
  /// Pixels of a module as it is sent; empty: there are no modules.
  std::vector<std::uint32_t> shape_;
  /// Tiles in which a module is sent; empty: the module is one.
  std::vector<std::uint32_t> tile_;
  /// Chips of a module; between them are `chip_gap_` pixels that are not sent. Empty: no gaps.
  std::vector<std::uint32_t> chip_;
  std::vector<std::uint32_t> chip_gap_;
  /// One for each module.
  std::vector<ReorderPositionConfig> positions_;
  DAQIRI_EQUALITY(ReorderModulesConfig)
};

/// Shape and type of an aggregate as an array.
struct ReorderFrameConfig {
  std::vector<std::uint32_t> shape_;
  /// Name of the type in numpy ("uint16"); empty: the output type.
  std::string dtype_;
  ReorderModulesConfig modules_;
  DAQIRI_EQUALITY(ReorderFrameConfig)
};

/// Conversion of elements; none if both types are SAME.
struct ReorderDataTypesConfig {
  ReorderDataType input_type_{ReorderDataType::SAME};
  ReorderDataType output_type_{ReorderDataType::SAME};
  /// Of elements of several whole bytes.
  ReorderEndianness endianness_{ReorderEndianness::HOST};
  /// Of elements of 4, 10, 12 or 14 bits.
  ReorderPacking packing_{ReorderPacking::MSB};
  DAQIRI_EQUALITY(ReorderDataTypesConfig)
};

struct ReorderModeConfig;

/// An entry of `reorder_configs`, of an interface or of the whole configuration.
struct ReorderConfig {
  std::string name_;
  /// "gpu" or "cpu".
  std::string reorder_type_;
  std::string memory_region_;
  std::uint32_t payload_byte_offset_{0};
  /// A number in the packet, times its unit, is added to payload_byte_offset_; bit_width_ 0: none.
  ReorderBitFieldConfig payload_offset_field_;
  /// Payload bytes of a packet; further bytes are cut off, and the last packet of a batch, or of a
  /// flow's part of it, may have fewer. 0: derived from the frame, or from the first packet.
  std::uint32_t payload_bytes_{0};
  /// Set by validation for plans of the whole configuration: the ids of `flows_`.
  std::vector<FlowId> flow_ids_;
  /// A packet must fulfil all of them.
  std::vector<ReorderConditionConfig> conditions_;
  std::vector<ReorderColumnConfig> columns_;
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
  /// Packet or sequence number, or offset, with which a batch begins: one, or one for each flow;
  /// empty: 0.
  std::vector<std::uint32_t> first_packet_;
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
  /// Plans of the whole configuration: their flows as "interface/flow".
  std::vector<std::string> flows_;
  /// Variants of the plan: one of them can take its place while the engine runs.
  std::vector<ReorderModeConfig> modes_;
  DAQIRI_EQUALITY(ReorderConfig)
};

/// An entry of `modes` of a plan.
struct ReorderModeConfig {
  std::string name_;
  /// The plan in this mode, which has no modes. Name, type, memory region, flows and cores are
  /// those of the plan.
  ReorderConfig plan_;
  DAQIRI_EQUALITY(ReorderModeConfig)
};

/// Properties of an aggregate.
struct ReorderBurstInfo {
  /// Batch number from the packets.
  std::uint64_t batch_id{0};
  /// Number of packets in the aggregate.
  std::uint32_t source_packet_count{0};
  /// Number of packets of a complete aggregate.
  std::uint32_t packets_per_batch{0};
  /// Output bytes of one packet, without a pixel that goes on in the next one.
  std::uint32_t payload_len{0};
  /// Output bytes of the batch.
  std::uint32_t aggregate_len{0};
  /// DAQIRI_BURST_FLAG_ bits.
  std::uint32_t burst_flags{0};
  /// Numbers of the columns of its reorder config, one column after the other. A column of PACKETS
  /// has `packets_per_batch` of them, in the order of the positions, and 0 where a packet is
  /// missing; others have one. Valid until the burst is freed. Null: there are none.
  const std::uint64_t* columns{nullptr};
  /// Numbers of all columns.
  std::uint32_t num_column_values{0};
};

/// \}

}  // namespace daqiri
