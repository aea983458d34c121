// Frames in one contiguous dataset.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/contiguous_structure.h"
#include "storage/direct_frames.h"
#include "storage/frame_writer.h"

namespace daqiri {

namespace {

/// The structure is first, then the columns with space for all rows, then the frames, which are
/// last. The structure contains the number of frames. It is rewritten after frames were added; the
/// page with the numbers is written last, in one piece.
class ContiguousFrames final : public FrameWriter {
 public:
  ContiguousFrames(FrameForm form, std::uint64_t room, std::unique_ptr<FileOutput> output)
      : FrameWriter(std::move(form)),
        output_(std::move(output)),
        batch_(std::make_unique_for_overwrite<RecordBatch>()) {
    std::uint64_t at = CONTIGUOUS_STRUCTURE;
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) {
      columns_at_[c] = at;
      at = whole_pages(at + room * rows_.width(c));
    }
    frames_at_ = at;
  }
  ~ContiguousFrames() override { close(false); }

  [[nodiscard]] const char* output_name() const noexcept override { return output_->name(); }
  [[nodiscard]] std::string cufile_mode() const override { return output_->cufile_mode(); }
  void discard_prepared() noexcept override { next_.reset(); }

  void prepare(const std::string& path) override {
    discard_prepared();
    auto next = std::make_unique<NewFile>(path, true);
    const std::vector<std::byte> image = structure(0);
    int problem = ftruncate(next->fd(), static_cast<off_t>(frames_at_)) == 0 ? 0 : errno;
    // If there is no space for it, there is none for frames.
    if (problem == 0 && frames_at_ <= MOST_RESERVED &&
        fallocate(next->fd(), 0, 0, static_cast<off_t>(frames_at_)) != 0 && errno != EOPNOTSUPP)
      problem = errno;
    if (problem == 0) problem = write_fully(next->fd(), image.data(), image.size(), 0);
    if (problem != 0) throw file_error("cannot write", path, problem);
    next_ = std::move(next);
  }

  bool retry() noexcept override { return false; }

 protected:
  void begin() override {
    // A second descriptor, because the frames' writes may be direct, of whole pages.
    beside_ = open_again(file_.fd(), O_RDWR);
    if (!beside_.is_open()) {
      beside_ = File::private_to_process([&] { return open(path_.c_str(), O_RDWR | O_CLOEXEC); });
    }
    if (!beside_.is_open()) throw file_error("cannot open", path_, errno);
    image_.clear();
    least_size_ = frames_at_;
    check(output_->begin(file_.fd(), path_, {.size = frames_at_}));
  }

  void put(const Burst& frame) override {
    // The burst is held, not changed.
    store(frame.pkts[0][0], const_cast<Burst*>(&frame));
  }
  void put_stored(std::span<std::byte> frame) override { store(frame.data(), nullptr); }

  void flush() override {
    check(output_->sync());
    publish(output_->whole().packets);
  }

  void shorten(std::uint64_t frames) override {
    const std::uint64_t size = frames_at_ + frames * form_.bytes;
    // First, so that the file always has at least as many frames as it says.
    publish(frames);
    check(output_->begin(file_.fd(), path_, {.size = size, .packets = frames}));
    check(ftruncate(beside_.fd(), static_cast<off_t>(size)) == 0 ? 0 : errno);
  }

  std::vector<std::byte> read_stored(std::uint64_t frame) override {
    std::vector<std::byte> bytes(form_.bytes);
    read(bytes.data(), bytes.size(), frames_at_ + frame * form_.bytes);
    return bytes;
  }

  void read_column(FrameColumn column, std::uint64_t first, std::uint64_t n, void* to) override {
    const auto c = static_cast<std::size_t>(column);
    read(to, n * rows_.width(c), columns_at_[c] + first * rows_.width(c));
  }

  void cut() override {
    output_->sync();
    output_->end();
    // Discarded frames, and the frame that failed, have no rows.
    const std::uint64_t frames =
        std::min(output_->whole().packets, flushed_.frames + rows_.count());
    const std::uint64_t size = frames_at_ + frames * form_.bytes;
    check(ftruncate(beside_.fd(), static_cast<off_t>(size)) == 0 ? 0 : errno);
    publish(frames);
  }

  void end() override {
    output_->end();
    check(output_->trim());
    cut_tail();
    const int problem = beside_.close();
    check(problem);
  }

 private:
  static constexpr std::uint64_t MOST_RESERVED = std::uint64_t{64} << 20U;

  void check(int problem) const {
    if (problem != 0) throw file_error("cannot write", path_, problem);
  }

  /// Device writes of partial pages may have extended the file to a whole page.
  void cut_tail() const {
    struct stat found{};
    const auto size = static_cast<off_t>(output_->whole().size);
    check(fstat(beside_.fd(), &found) == 0 ? 0 : errno);
    if (found.st_size > size) check(ftruncate(beside_.fd(), size) == 0 ? 0 : errno);
  }

  void store(void* frame, Burst* owner) {
    batch_->begin({.size = frames_at_ + tally_.size, .packets = tally_.frames}, owner);
    batch_->refer_to(frame, form_.bytes);
    batch_->end_record(form_.bytes, 0, 0);
    check(output_->put(*batch_));
  }

  void read(void* to, std::uint64_t bytes, std::uint64_t at) const {
    const ssize_t got = pread(beside_.fd(), to, bytes, static_cast<off_t>(at));
    if (got != static_cast<ssize_t>(bytes))
      throw file_error("cannot read", path_, got < 0 ? errno : EIO);
  }

  /// The structure of a file with this many frames.
  [[nodiscard]] std::vector<std::byte> structure(std::uint64_t frames) const {
    return contiguous_structure(form_, {columns_at_, frames_at_}, frames);
  }

  /// Update the structure: the file has `frames` frames.
  void publish(std::uint64_t frames) {
    const std::uint64_t first = flushed_.frames;
    const std::vector<std::byte> image = structure(frames);
    for (std::size_t c = 0; c < NUM_FRAME_COLUMNS; ++c) {
      const std::uint64_t width = rows_.width(c);
      check(write_fully(beside_.fd(), rows_.column(c), (frames - first) * width,
                        columns_at_[c] + first * width));
    }
    constexpr std::size_t NUMBERS = hdf5::Image::HEADERS;
    if (image_.empty() || std::memcmp(image.data() + NUMBERS, image_.data() + NUMBERS,
                                      CONTIGUOUS_STRUCTURE - NUMBERS) != 0)
      check(write_fully(beside_.fd(), image.data() + NUMBERS, CONTIGUOUS_STRUCTURE - NUMBERS,
                        NUMBERS));
    check(write_fully(beside_.fd(), image.data(), NUMBERS, 0));
    image_ = image;
    note_flushed(frames);
    least_size_ = frames_at_ + frames * form_.bytes;
  }

  std::unique_ptr<FileOutput> output_;
  std::unique_ptr<RecordBatch> batch_;
  std::array<std::uint64_t, NUM_FRAME_COLUMNS> columns_at_{};
  std::uint64_t frames_at_;
  File beside_;
  /// The structure that is in the file.
  std::vector<std::byte> image_;
};

}  // namespace

std::unique_ptr<FrameWriter> contiguous_frames(FrameForm form, std::uint64_t room, WriterKind kind,
                                               std::unique_ptr<WriteBackend> device) {
  // Frames that are not whole pages must be assembled into pages.
  const bool straight = kind == WriterKind::DIRECT && form.bytes % DIRECT_PAGE == 0;
  auto output = device     ? direct_frames_output(form.bytes, std::move(device))
                : straight ? direct_frames_output(form.bytes)
                           : make_output(kind);
  return std::make_unique<ContiguousFrames>(std::move(form), room, std::move(output));
}

}  // namespace daqiri
