#include "reorder/preview.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "daqiri/error.h"
#include "reorder/plan.h"

namespace daqiri::reorder {

namespace {

using Kind = memory::Pixels::Kind;

Kind kind_of(const ReorderConfig& config) noexcept {
  const ReorderDataType output = config.data_types_.output_type_;
  // Name in numpy, which has no bf16: its bits are stored as uint16.
  const std::string& dtype = config.frame_.dtype_;
  if (output == ReorderDataType::BF16 && (dtype.empty() || dtype == "uint16")) return Kind::BFLOAT;
  if (!dtype.empty()) {
    if (dtype.front() == 'f') return Kind::FLOAT;
    return dtype.front() == 'i' ? Kind::SIGNED : Kind::UNSIGNED;
  }
  switch (output) {
    case ReorderDataType::FP16:
    case ReorderDataType::FP32:
    case ReorderDataType::FP64:
      return Kind::FLOAT;
    case ReorderDataType::INT8:
    case ReorderDataType::INT16:
    case ReorderDataType::INT32:
      return Kind::SIGNED;
    default:
      return Kind::UNSIGNED;
  }
}

std::string text_of(const std::vector<std::uint32_t>& shape) {
  std::string text;
  for (const std::uint32_t extent : shape)
    text.append(text.empty() ? "(" : ", ").append(std::to_string(extent));
  return text.append(shape.size() == 1 ? ",)" : ")");
}

}  // namespace

memory::Pixels pixels_of(const ReorderConfig& config) {
  const std::vector<std::uint32_t>& shape = config.frame_.shape_;
  memory::Pixels pixels;
  pixels.kind = kind_of(config);
  if (shape.size() < 2) return pixels;
  pixels.rows = shape[shape.size() - 2];
  pixels.columns = shape.back();
  pixels.images = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) pixels.images *= shape[i];
  pixels.bytes = static_cast<std::uint32_t>(frame_bytes_of(config) / pixels.images / pixels.rows /
                                            pixels.columns);
  return pixels;
}

void require_binning(const ReorderConfig& config, std::int64_t binning) {
  const memory::Pixels pixels = pixels_of(config);
  const std::uint32_t most = pixels.most_binning();
  if (binning >= 1 && binning <= most) return;
  std::string text = "reorder plan '" + config.name_ + "': binning is " + std::to_string(binning);
  if (pixels.rows == 0) {
    text.append(
        "; accepted is 1: its frames do not have two axes; give it a frame whose shape has "
        "rows and columns");
  } else {
    text.append("; accepted is 1 to ").append(std::to_string(most));
    text.append(", the shorter of the last two axes of ").append(text_of(config.frame_.shape_));
  }
  throw Error(Status::INVALID_PARAMETER, text);
}

FrameCopy Preview::newer(std::uint64_t after, std::uint32_t binning) {
  const std::lock_guard lock(mutex_);
  auto found = copies_.find(binning);
  if (found == copies_.end()) {
    if (stopped_) return {};
    std::size_t bytes = size_;
    if (binning > 1) {
      if (means_ == nullptr && memory_ != nullptr) means_ = memory_->means(pixels_);
      if (means_ != nullptr) means_->reserve(binning);
      bytes = pixels_.means(binning) * sizeof(float);
    }
    std::vector<std::uint8_t> data(bytes);
    found = copies_.try_emplace(binning).first;
    found->second.latest.data = std::move(data);
  }
  Copies& copies = found->second;
  FrameCopy copy;
  if (copies.latest.number > after) {
    copy = copies.latest;
    if (binning == 1) copy.data.resize(copy.info.aggregate_len);
  }
  copies.wanted = true;
  wanted_.store(true, std::memory_order_release);
  return copy;
}

void Preview::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  means_.reset();
}

void Preview::copy(const Frame& frame) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (auto& [binning, copies] : copies_) {
    if (!copies.wanted) continue;
    FrameCopy& latest = copies.latest;
    if (!read(frame, binning, latest.data.data())) return;
    latest.number = ++number_;
    latest.info = frame.info;
    latest.first_time = frame.first_time;
    latest.last_time = frame.last_time;
    latest.missing = frame.missing;
    copies.wanted = false;
  }
  wanted_.store(false, std::memory_order_release);
}

bool Preview::read(const Frame& frame, std::uint32_t binning, std::uint8_t* to) noexcept {
  if (binning > 1) {
    auto* const means = reinterpret_cast<float*>(to);
    if (means_ != nullptr) return means_->make(frame.data, binning, means);
    memory::block_means(pixels_, frame.data, binning, means);
    return true;
  }
  const std::size_t bytes = frame.info.aggregate_len;
  if (memory_ != nullptr) return memory_->copy_to_host(frame.data, to, bytes);
  std::memcpy(to, frame.data, bytes);
  return true;
}

}  // namespace daqiri::reorder
