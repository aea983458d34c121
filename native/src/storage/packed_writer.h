/// Packets back to back in one file, and an index of them beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/packet_writer.h"

namespace daqiri {

/// Writes <path> with the bytes of the packets and nothing else, and <path>.npy, a NumPy array
/// (format 1.0) with a row for each packet: offset (u8), length (u4), flow (u4), timestamp in ns
/// (u8), little-endian. numpy.load reads it, memory-mapped or not.
///
/// A row is written before its packet is and counted, in the header of the index, when the packet
/// is in the file: at any moment all rows that are counted tell the truth.
class PackedWriter final : public PacketWriter {
 public:
  /// The first `packet_data_offset` bytes of each packet are left out.
  PackedWriter(std::uint64_t packet_data_offset, std::unique_ptr<FileOutput> output);
  ~PackedWriter() override;

  [[nodiscard]] const char* suffix() const noexcept override { return ".raw"; }
  void prepare(const std::string& path) override;
  void discard_prepared() noexcept override;
  void remove() noexcept override;

  /// A row of the index.
  struct Row {
    std::uint64_t offset;
    std::uint32_t length;
    std::uint32_t flow;
    std::uint64_t timestamp;
  };

 private:
  void add(RecordBatch& batch, const Burst& burst, PacketPrefixes& prefixes, std::uint32_t packet,
           std::uint64_t time) noexcept override;
  void appear() override;
  int before_put(const RecordBatch& batch) noexcept override;
  int after_put(const FileTally& whole) noexcept override;
  int end(bool durable) noexcept override;

  std::uint64_t skip_;
  std::unique_ptr<NewFile> next_index_;
  std::string index_path_;
  File index_;
  std::vector<Row> rows_;
  std::uint64_t counted_{0};
  /// Of the last write of its header; 0: it says `counted_`.
  int header_errno_{0};
};
static_assert(sizeof(PackedWriter::Row) == 24);

}  // namespace daqiri
