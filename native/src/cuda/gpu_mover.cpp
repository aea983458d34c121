/// Copies payloads to frames with GPU kernels.
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver.h"
#include "cuda/frame_kernel.h"
#include "cuda/kernel.h"
#include "daqiri/error.h"
#include "reorder/mover.h"
#include "system/log.h"
#include "system/thread.h"

namespace daqiri::cuda {

namespace {

constexpr std::size_t NUM_LAUNCHES = 10;
/// Free ones with which packets are taken: for them, and for a frame that they close. More frames
/// of few packets, with a kernel, may still wait for the GPU.
constexpr std::size_t SPARE_LAUNCHES = 3;
/// A launch costs as much as some packets: copies of an open frame are collected so long, or until
/// there are many. Meanwhile they keep the packets' buffers.
constexpr std::uint64_t COLLECT_NS = 100'000;
constexpr std::size_t MANY_COPIES = 128;
constexpr std::size_t STAGING = std::size_t{4} << 20U;
/// CU_STREAM_PER_THREAD
constexpr std::uintptr_t PER_THREAD_STREAM = 2;

/// The copies of a launch, and their owners.
struct Launch : PinnedLaunch {
  std::size_t count{0};
  std::size_t staged{0};
  /// The kernel that processes a frame after the copies; null: none.
  FrameKernel* next{nullptr};
  std::byte* frame{nullptr};
  std::size_t frame_bytes{0};
  struct Part {
    std::uint32_t frame;
    /// Null: the buffer was already freed.
    memory::BufferOwner* owner;
    std::uint32_t buffer;
  };
  /// One for each copy, and one for a frame to process.
  std::array<Part, MOST_COPIES + 1> parts;
  std::size_t num_parts{0};

  [[nodiscard]] std::byte* staging() const noexcept {
    return reinterpret_cast<std::byte*>(copies() + MOST_COPIES);
  }
};

/// Copies are collected until there is no space for more, a frame is closed, or some time has
/// passed; then one kernel performs them all. A thread waits for the kernels, frees the packets'
/// buffers, and reports completed frames.
///
/// If a kernel processes frames, the copies are launched when a frame is closed, followed by that
/// kernel.
///
/// The GPU reads packets in pinned memory directly; others are first copied to pinned memory.
class GpuMover final : public reorder::Mover {
 public:
  GpuMover(const reorder::Plan& plan, const ReorderConfig& config,
           const memory::MemoryRegion& output, reorder::FrameWaiter& waiter)
      : plan_(plan),
        what_("reorder config '" + config.name_ + "'"),
        gpu_(output.gpu()),
        waiter_(waiter),
        open_(output.config().num_bufs_),
        launches_(std::make_unique<std::array<Launch, NUM_LAUNCHES>>()) {
    finished_.resize(output.config().num_bufs_);
    const Context context(what_, gpu_);
    kernel_.emplace(context, config, what_, Geometry::of(config.data_types_, plan.payload_bytes()));
    const Functions& call = context.driver().call();
    require(context, call.make_stream(own_stream_.out(context), STREAM_FLAGS));
    stream_ = own_stream_.get();
    require(context, call.make_event(event_->out(context), EVENT_FLAGS));
    for (Launch& launch : *launches_) require(context, launch.make(context, STAGING));
    thread_ = start_thread([this] { run(); });
  }

  ~GpuMover() override {
    flush();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void wait_for_room() noexcept override {
    std::unique_lock lock(mutex_);
    while (begun_ - done_ > NUM_LAUNCHES - SPARE_LAUNCHES) retire(lock);
  }

  void move(std::span<const reorder::Transfer> copies) noexcept override {
    for (const reorder::Transfer& each : copies) {
      if (each.owner != nullptr && reads(*each.owner)) {
        place(each, each.at, address_of(each.from), each.bytes, each.owner);
      } else {
        stage(each);
      }
    }
  }

  void fill(std::uint32_t frame, std::byte* to, std::uint64_t at,
            std::size_t bytes) noexcept override {
    if (plan_.layout().none()) {
      add(room(0), frame, {address_of(to + at), 0, bytes}, nullptr, 0);
      return;
    }
    for_parts(at, bytes,
              [&](const reorder::ModuleLayout::Rectangle& part) { fill(frame, to, part); });
  }

  void fill_gaps(std::uint32_t frame, std::byte* to) noexcept override {
    for (const reorder::ModuleLayout::Rectangle& part : plan_.layout().gaps())
      fill(frame, to, part);
  }

  void process(std::uint32_t frame, std::byte* data, std::size_t bytes) noexcept override {
    if (frame_kernel_ == nullptr) return;
    Launch& current = at(begun_);
    current.next = frame_kernel_.get();
    current.frame = data;
    current.frame_bytes = bytes;
    add_part(current, {frame, nullptr, 0});
    launch();
  }

  Copies close(std::uint32_t frame) noexcept override {
    if (!open_.close(frame)) {
      closes_ = closes_ || at(begun_).count > 0;
      return Copies::PENDING;
    }
    return failed_.load() ? Copies::FAILED : Copies::DONE;
  }

  void flush() noexcept override {
    if (at(begun_).count > 0) launch();
  }

  std::uint64_t flush_due(std::uint64_t now_ns) noexcept override {
    if (at(begun_).count == 0) return 0;
    if (collecting_since_ == 0) collecting_since_ = now_ns;
    const std::uint64_t due = collecting_since_ + COLLECT_NS;
    if (!closes_ && at(begun_).count < MANY_COPIES && now_ns < due) return due;
    launch();
    return 0;
  }

  void set_kernel(const reorder::FrameKernel* kernel, std::mutex& callers) override {
    if (kernel != nullptr) require_working();
    std::unique_ptr<FrameKernel> other;
    if (kernel != nullptr)
      other =
          std::make_unique<FrameKernel>(Context(what_, gpu_), *kernel, what_, own_stream_.get());
    std::uint64_t begun = 0;
    {
      const std::lock_guard lock(callers);
      frame_kernel_.swap(other);
      begun = begun_;
    }
    wait_for(begun);
    other.reset();
  }

  void set_stream(void* stream, std::mutex& callers) override {
    require_working();
    const Context context(what_, gpu_);
    if (stream != nullptr) require_usable(context, stream);
    std::uint64_t begun = 0;
    {
      const std::lock_guard lock(callers);
      flush();
      void* const next = stream == nullptr ? own_stream_.get() : stream;
      // A frame may be assembled in both streams.
      if (begun_ > 0 && next != stream_)
        require(context,
                context.driver().call().let_stream_wait(next, at(begun_ - 1).event.get(), 0));
      stream_ = next;
      begun = begun_;
    }
    wait_for(begun);
  }

  [[nodiscard]] std::shared_ptr<void> event() const override { return {event_, event_->get()}; }

 private:
  void require(const Context& context, Result result) const {
    context.driver().require(result, what_, gpu_);
  }

  void require_working() const {
    if (!failed_.load()) return;
    throw Error(Status::GENERIC_FAILURE, what_ + ": the GPU has failed; start the program again");
  }

  void require_usable(const Context& context, void* stream) const {
    const auto refuse = [&](const std::string& text) {
      throw Error(Status::INVALID_PARAMETER, what_ + ": " + text);
    };
    if (reinterpret_cast<std::uintptr_t>(stream) == PER_THREAD_STREAM) {
      refuse(
          "the stream is the per-thread default stream (2), and several threads launch; create "
          "a stream, or use that of the plan (null)");
    }
    void* its = nullptr;
    if (const Result result = context.driver().call().context_of_stream(stream, &its); result != 0)
      refuse("the stream cannot be used (" + context.driver().text_of(result) +
             "); accepted is a stream of GPU " + std::to_string(gpu_) + ", or null");
    if (its != context.handle())
      refuse("the stream is not of GPU " + std::to_string(gpu_) +
             "'s primary context, where the plan's frames are; make it there (cudaSetDevice)");
  }

  /// Wait until launches before number `begun` are done. Must not be called with `callers` held.
  void wait_for(std::uint64_t begun) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= begun; });
  }

  /// Whether this GPU reads the owner's buffers where they are.
  [[nodiscard]] bool reads(const memory::BufferOwner& owner) const noexcept {
    return owner.place() == memory::Place::PINNED ||
           (owner.place() == memory::Place::DEVICE && owner.gpu() == gpu_);
  }

  [[nodiscard]] Launch& at(std::uint64_t number) noexcept {
    return (*launches_)[number % NUM_LAUNCHES];
  }

  /// First copies a payload to pinned memory, in pieces of whole groups of elements.
  void stage(const reorder::Transfer& each) noexcept {
    const std::size_t most = STAGING - STAGING % plan_.groups().bytes();
    for (std::size_t done = 0; done < each.bytes;) {
      const std::uint64_t at = each.at + plan_.output_bytes(done);
      std::size_t bytes = std::min(each.bytes - done, most);
      std::size_t copies = copies_of(at, bytes);
      if (copies > Launch::MOST_COPIES) {
        // A copy has at least one element.
        copies = Launch::MOST_COPIES;
        bytes = plan_.groups().input_of(copies * plan_.element_bytes());
      }
      Launch& launch = room(bytes, copies);
      std::byte* const staged = launch.staging() + launch.staged;
      if (each.owner == nullptr || each.owner->host_readable()) {
        std::memcpy(staged, each.from + done, bytes);
      } else if (!each.owner->copy_to_host(each.from + done, staged, bytes)) {
        fail("packets cannot be read from '" + each.owner->name() + "'");
      }
      // Align the next one to 16 bytes.
      launch.staged += (bytes + 15) / 16 * 16;
      place(each, at, address_of(staged), bytes, nullptr);
      done += bytes;
    }
    if (each.owner != nullptr) each.owner->give(&each.buffer, 1);
  }

  /// Copies that a payload takes.
  [[nodiscard]] std::size_t copies_of(std::uint64_t at, std::size_t bytes) const noexcept {
    if (plan_.layout().none()) return 1;
    std::uint64_t rows = 0;
    for_parts(at, plan_.output_bytes(bytes),
              [&](const reorder::ModuleLayout::Rectangle& part) { rows += part.rows; });
    return rows;
  }

  template <typename Each>
  void for_parts(std::uint64_t at, std::uint64_t bytes, Each each) const noexcept {
    const std::uint64_t size = plan_.element_bytes();
    plan_.layout().for_rectangles(at / size, bytes / size, each);
  }

  [[nodiscard]] std::uint64_t input_of(std::uint64_t elements) const noexcept {
    return plan_.groups().input_of(elements * plan_.element_bytes());
  }

  /// Adds the copies of a payload; `owner` gets its buffer back after the last one.
  void place(const reorder::Transfer& each, std::uint64_t at, std::uint64_t from, std::size_t bytes,
             memory::BufferOwner* owner) noexcept {
    if (plan_.layout().none()) {
      add(room(0), each.frame, {address_of(each.to + at), from, bytes}, owner, each.buffer);
      return;
    }
    std::size_t left = owner != nullptr ? copies_of(at, bytes) : 0;
    for_parts(at, plan_.output_bytes(bytes), [&](const reorder::ModuleLayout::Rectangle& part) {
      for_rows(each.to, part, [&](std::uint64_t to, std::uint64_t row) {
        const bool last = left == 1;
        left -= left > 0 ? 1 : 0;
        add(room(0), each.frame,
            {to, from + input_of(part.from + row * part.from_next_row), input_of(part.columns),
             part.to_next_column},
            last ? owner : nullptr, each.buffer);
      });
    });
  }

  void fill(std::uint32_t frame, std::byte* to, reorder::ModuleLayout::Rectangle part) noexcept {
    // A gap between columns is high and narrow: few long copies.
    if (part.rows > part.columns) {
      std::swap(part.rows, part.columns);
      std::swap(part.to_next_row, part.to_next_column);
    }
    for_rows(to, part, [&](std::uint64_t row_to, std::uint64_t /*row*/) {
      add(room(0), frame, {row_to, 0, part.columns * plan_.element_bytes(), part.to_next_column},
          nullptr, 0);
    });
  }

  template <typename Each>
  void for_rows(std::byte* to, const reorder::ModuleLayout::Rectangle& part,
                Each each) const noexcept {
    const auto size = static_cast<std::int64_t>(plan_.element_bytes());
    for (std::uint64_t row = 0; row < part.rows; ++row)
      each(address_of(to + (part.to + static_cast<std::int64_t>(row) * part.to_next_row) * size),
           row);
  }

  /// Returns a launch with space for more copies and for this many staged bytes.
  Launch& room(std::size_t staged, std::size_t copies = 1) noexcept {
    const Launch& current = at(begun_);
    if (current.count + copies > Launch::MOST_COPIES || current.staged + staged > STAGING) launch();
    return at(begun_);
  }

  void add(Launch& launch, std::uint32_t frame, const Copy& copy, memory::BufferOwner* owner,
           std::uint32_t buffer) noexcept {
    launch.copies()[launch.count++] = copy;
    add_part(launch, {frame, owner, buffer});
  }

  void add_part(Launch& launch, const Launch::Part& part) noexcept {
    open_.add(part.frame);
    launch.parts[launch.num_parts++] = part;
  }

  /// Launch the collected copies; wait until another launch is free, see `wait_for_room`.
  void launch() noexcept {
    Launch& full = at(begun_);
    collecting_since_ = 0;
    closes_ = false;
    // After a failure nothing is launched, but the launch is waited for like others.
    if (!failed_.load())
      use_gpu(
          [&](const Functions& call) {
            Result result = 0;
            if (full.count > 0) result = kernel_->launch(call, full.copies(), full.count, stream_);
            if (result == 0 && full.next != nullptr)
              result = full.next->launch(call, full.frame, full.frame_bytes, stream_);
            // Record the event also after a failure, because copies may be in progress.
            const Result recorded = call.record_event(full.event.get(), stream_);
            return result == 0 ? recorded : result;
          },
          frame_kernel_.get());
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    while (begun_ - done_ == NUM_LAUNCHES) retire(lock);
    Launch& empty = at(begun_);
    empty.count = empty.staged = empty.num_parts = 0;
    empty.next = nullptr;
  }

  /// Wait for the oldest launch, or for another thread that waits for it.
  void retire(std::unique_lock<std::mutex>& lock) noexcept {
    if (retiring_) return changed_.wait(lock);
    retiring_ = true;
    const Launch& oldest = at(done_);
    lock.unlock();
    use_gpu([&](const Functions& call) { return call.wait_for_event(oldest.event.get()); },
            oldest.next);
    for (std::size_t i = 0; i < oldest.num_parts; ++i) {
      const Launch::Part& part = oldest.parts[i];
      if (part.owner != nullptr) part.owner->give(&part.buffer, 1);
    }
    lock.lock();
    for (std::size_t i = 0; i < oldest.num_parts; ++i) {
      const std::uint32_t frame = oldest.parts[i].frame;
      if (open_.finish(frame, 1)) finished_[num_finished_++ % finished_.size()] = frame;
    }
    ++done_;
    retiring_ = false;
    changed_.notify_all();
  }

  /// The mover's thread. A thread that launches may wait for a free launch while it holds the lock
  /// that frame_done needs; therefore that thread retires launches, too.
  void run() noexcept {
    configure_thread(std::string(ANY_CORE), "daqiri-gpu");
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return done_ < begun_ || told_ < num_finished_ || stopping_; });
      if (told_ < num_finished_) {
        const std::uint32_t frame = finished_[told_++ % finished_.size()];
        lock.unlock();
        waiter_.frame_done(frame, !failed_.load());
        lock.lock();
      } else if (done_ < begun_) {
        retire(lock);
      } else {
        return;
      }
    }
  }

  /// Calls `use` with the GPU current on this thread. `at_work`: an application's kernel in the
  /// launch.
  template <typename Use>
  void use_gpu(Use use, const FrameKernel* at_work) noexcept {
    try {
      const Context context(what_, gpu_);
      const Result result = use(context.driver().call());
      if (result == 0) return;
      std::string problem = context.driver().text_of(result);
      if (at_work != nullptr)
        problem += "; kernel '" + at_work->name() +
                   "' must check i < elements, and stay within its arrays";
      fail(problem);
    } catch (const std::exception& e) {
      fail(e.what());
    }
  }

  void fail(const std::string& problem) noexcept {
    if (failed_.exchange(true)) return;
    try {
      log(LogLevel::ERROR, what_ + ": the GPU has failed (" + problem +
                               "); its frames are counted as lost, start the program again");
    } catch (const std::bad_alloc&) {
      // Out of memory for the message.
      return;
    }
  }

  const reorder::Plan& plan_;
  std::string what_;
  int gpu_;
  reorder::FrameWaiter& waiter_;
  /// Always complete, because it is never recorded. Bursts may hold it longer than this object
  /// lives.
  std::shared_ptr<Event> event_{std::make_shared<Event>()};
  std::unique_ptr<FrameKernel> frame_kernel_;
  std::optional<Kernel> kernel_;
  Stream own_stream_;
  /// Stream of the launches; used by callers.
  void* stream_{nullptr};
  reorder::OpenCopies open_;
  std::unique_ptr<std::array<Launch, NUM_LAUNCHES>> launches_;
  /// When copies of the present launch were first seen; 0: there are none, or not yet. And whether
  /// a frame waits for them.
  std::uint64_t collecting_since_{0};
  bool closes_{false};
  std::atomic<bool> failed_{false};

  std::mutex mutex_;  // for the members below
  std::condition_variable changed_;
  /// Launches [done_, begun_) are in progress; launch `begun_` collects copies and belongs to the
  /// caller.
  std::uint64_t begun_{0};
  std::uint64_t done_{0};
  bool retiring_{false};
  /// Frames [told_, num_finished_) are not reported yet; there is space for all frames.
  std::vector<std::uint32_t> finished_;
  std::uint64_t num_finished_{0};
  std::uint64_t told_{0};
  bool stopping_{false};
  std::jthread thread_;
};

std::unique_ptr<reorder::Mover> make_mover(const reorder::Plan& plan, const ReorderConfig& config,
                                           const memory::MemoryRegion& output,
                                           reorder::FrameWaiter& waiter) {
  return std::make_unique<GpuMover>(plan, config, output, waiter);
}

const reorder::RegisteredGpuMover mover(make_mover);

}  // namespace

}  // namespace daqiri::cuda
