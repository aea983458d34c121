#include "storage/recording_source.h"

#include <algorithm>
#include <utility>

#include "io/session_memory.h"
#include "storage/frame_writer.h"
#include "storage/packet_writer.h"
#include "storage/recorder_options.h"

namespace daqiri {

namespace {

class QueuePackets final : public RecordingSource {
 public:
  QueuePackets(RxQueue& queue, const Session& session, const std::string& taker)
      : queue_(queue), link_(session.memory()->link_layers.at(queue.port_id())) {
    queue_.attach_recorder(taker);
  }
  ~QueuePackets() override { QueuePackets::detach(); }

  void detach() noexcept override {
    if (std::exchange(attached_, false)) queue_.detach_recorder();
  }
  Burst* receive() noexcept override { return queue_.receive_packets(); }
  [[nodiscard]] bool closed() const noexcept override { return queue_.closed(); }
  WaitQueue& ready() noexcept override { return queue_.ready(); }
  std::uint32_t start_of(const Burst& burst, FlowId flow) noexcept override {
    const FlowId* const begin = burst.flow_ids;
    return static_cast<std::uint32_t>(std::find(begin, begin + burst.num_packets(), flow) - begin);
  }
  [[nodiscard]] std::uint64_t held() const noexcept override { return queue_.counters().held; }
  [[nodiscard]] SourceCounters counters() const noexcept override { return queue_.counters(); }
  [[nodiscard]] std::unique_ptr<RecordWriter> make_writer(const RecorderOptions& options,
                                                          WriterKind kind) const override {
    std::unique_ptr<PacketWriter> writer;
    if (options.format == CaptureFormat::RAW) {
      writer =
          std::make_unique<PacketWriter>(RawFormat{options.packet_data_offset}, make_output(kind));
    } else {
      writer = std::make_unique<PacketWriter>(pcap::Format{link_->link_type(), options.nanosecond},
                                              make_output(kind));
    }
    writer->set_link(*link_);
    return writer;
  }

  [[nodiscard]] const char* kind() const noexcept override { return "queue"; }
  void describe(const RecorderOptions& options, JsonObject& object) const override {
    const bool raw = options.format == CaptureFormat::RAW;
    object.text("format", raw ? "raw" : "pcap");
    object.number("link_type", link_->link_type());
    object.flag("nanosecond", raw || options.nanosecond);
    object.flag("headers_reconstructed", !raw && link_->reconstructs_headers());
    if (raw) object.number("packet_data_offset", options.packet_data_offset);
  }
  [[nodiscard]] const std::string& name() const noexcept override {
    return queue_.config().common_.name_;
  }
  [[nodiscard]] const std::string& interface() const noexcept override {
    return queue_.interface_name();
  }
  [[nodiscard]] bool has_flow(const FlowConfig& flow) const noexcept override {
    return flow.action_.type_ == FlowType::QUEUE && flow.action_.id_ == queue_.id();
  }
  [[nodiscard]] int port() const noexcept override { return queue_.port_id(); }

 private:
  RxQueue& queue_;
  std::shared_ptr<const LinkLayer> link_;
  bool attached_{true};
};

FrameForm form_of(const reorder::RunningPlan& running) {
  const reorder::Plan& plan = running.plan();
  FrameForm form(running.config(), plan.units());
  const auto fill = plan.fill_value();
  form.fill.assign(fill.begin(), fill.end());
  form.batch_mask = plan.batch_mask();
  form.batch_step = plan.batch_step();
  return form;
}

class PlanFrames final : public RecordingSource {
 public:
  PlanFrames(reorder::RunningPlan& plan, const Session& session, const RecorderOptions& options,
             const std::string& taker)
      : plan_(plan),
        mode_(plan.mode_name()),
        form_(form_of(plan)),
        begins_anew_(options.held || options.start_flow) {
    form_.reductions = options.reductions;
    form_.configuration = session.config_text();
    form_.mode = mode_;
    plan_.attach("a recorder that writes " + taker + "_*", begins_anew_);
    if (plan_.mode_name() == mode_) return;
    plan_.detach();
    throw Error(Status::NOT_READY, "the mode of reorder plan '" + plan_.name() +
                                       "' was set while its recorder began; start it again");
  }
  ~PlanFrames() override { PlanFrames::detach(); }

  void detach() noexcept override {
    if (!std::exchange(attached_, false)) return;
    plan_.open_gate();
    plan_.detach();
  }
  Burst* receive() noexcept override { return plan_.pop(); }
  [[nodiscard]] bool closed() const noexcept override { return plan_.finished(); }
  WaitQueue& ready() noexcept override { return plan_.frames(); }
  std::uint32_t start_of(const Burst& burst, FlowId /*flow*/) noexcept override {
    return plan_.begins_after_gate(burst) ? 0 : burst.num_packets();
  }
  [[nodiscard]] std::uint64_t held() const noexcept override { return plan_.waiting(); }
  void begin() noexcept override {
    if (begins_anew_) plan_.begin_anew();
    if (gate_) plan_.close_gate(*gate_);
  }
  reorder::RunningPlan::Epoch begin_acquisition(std::uint64_t since,
                                                std::optional<std::uint64_t> first) override {
    if (first && *first > plan_.plan().batch_mask()) {
      throw Error(Status::INVALID_PARAMETER, "the number of the first frame is " +
                                                 std::to_string(*first) + "; reorder plan '" +
                                                 plan_.name() + "' has numbers up to " +
                                                 std::to_string(plan_.plan().batch_mask()));
    }
    if (gate_) plan_.close_gate(*gate_);
    return plan_.begin_epoch(since, first);
  }
  void end() noexcept override { plan_.deliver_open(); }
  [[nodiscard]] SourceCounters counters() const noexcept override { return plan_.counters(); }
  [[nodiscard]] bool in_device_memory() const noexcept override {
    return !plan_.output().host_readable();
  }
  [[nodiscard]] std::unique_ptr<RecordWriter> make_writer(const RecorderOptions& options,
                                                          WriterKind kind) const override {
    std::unique_ptr<WriteBackend> cufile;
    if (kind == WriterKind::CUFILE) {
      require_cufile(options);
      cufile = cufile_backend(plan_.output(), options.directory);
    }
    std::unique_ptr<FrameWriter> writer = make_file_writer(options, kind, std::move(cufile));
    if (kind != WriterKind::CUFILE) writer->read_through(plan_.output().mirror());
    writer->reduce_with(options.reduce);
    writer->describe(options.metadata);
    return writer;
  }

  [[nodiscard]] const char* kind() const noexcept override { return "reorder_plan"; }
  void describe(const RecorderOptions& options, JsonObject& object) const override {
    object.text("format", "hdf5");
    object.text("compression",
                options.compression == FrameCompression::NONE ? "none" : "bitshuffle-lz4");
    std::string shape;
    for (const hsize_t extent : form_.shape)
      shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    object.json("shape", "[" + shape + "]");
    object.text("dtype", form_.dtype);
    if (!mode_.empty()) object.text("mode", mode_);
  }
  [[nodiscard]] const std::string& name() const noexcept override { return plan_.name(); }
  [[nodiscard]] const std::string& interface() const noexcept override {
    return plan_.interface_name();
  }
  [[nodiscard]] bool has_flow(const FlowConfig& flow) const noexcept override {
    return std::ranges::find(plan_.flow_ids(), flow.id_) != plan_.flow_ids().end();
  }
  [[nodiscard]] int port() const noexcept override { return plan_.port_id(); }
  [[nodiscard]] std::vector<int> ports() const override { return plan_.ports(); }

  /// Throws Error INVALID_PARAMETER for options that frames do not support.
  void require(const RecorderOptions& options) const {
    FrameCompressor::require_threads(options.compression_threads);
    require_reduction_names(options.reductions, form_.plan_columns);
    if (options.writer == WriterKind::CUFILE) require_cufile(options);
  }

  /// Ignore frames before a packet of this flow. Throws Error INVALID_PARAMETER.
  void await(FlowId flow, const Session& session) {
    for (const int id : ports()) {
      for (const FlowConfig& known : session.port(id).config.rx_.flows_) {
        const FlowAction& action = known.action_;
        const bool leads_here = action.ids_.empty()
                                    ? plan_.feeds_on(id, action.id_)
                                    : std::ranges::any_of(action.ids_, [&](std::uint16_t queue) {
                                        return plan_.feeds_on(id, queue);
                                      });
        if (known.id_ == flow && action.type_ == FlowType::QUEUE && leads_here) {
          gate_ = flow;
          return;
        }
      }
    }
    const std::string of = interface().empty() ? "" : " of '" + interface() + "'";
    throw Error(Status::INVALID_PARAMETER,
                "start_flow is " + std::to_string(flow) + "; accepted is the id of a flow" + of +
                    " that leads to a queue of reorder plan '" + name() + "'");
  }

 private:
  /// Throws Error INVALID_PARAMETER for frames that cuFile cannot write.
  void require_cufile(const RecorderOptions& options) const {
    if (options.compression != FrameCompression::NONE) {
      throw Error(
          Status::INVALID_PARAMETER,
          "compression is 'bitshuffle-lz4' with writer 'cufile', which writes frames as they "
          "are in the GPU's memory; accepted is 'none', or writer 'auto', 'direct' or "
          "'buffered'");
    }
    if (in_device_memory()) return;
    const MemoryRegionConfig& region = plan_.output().config();
    throw Error(Status::INVALID_PARAMETER,
                "writer is 'cufile', which writes frames of a GPU's memory, and memory region '" +
                    region.name_ + "' of reorder plan '" + name() + "' is of kind '" +
                    memory_kind_to_string(region.kind_) +
                    "'; set kind: device, or writer 'auto', 'direct' or 'buffered'");
  }

  [[nodiscard]] std::unique_ptr<FrameWriter> make_file_writer(
      const RecorderOptions& options, WriterKind kind, std::unique_ptr<WriteBackend> device) const {
    std::unique_ptr<FrameCompressor> compressor;
    if (options.compression == FrameCompression::BITSHUFFLE_LZ4) {
      compressor =
          std::make_unique<FrameCompressor>(BitshuffleLz4::load(options.plugin_folder), form_.bytes,
                                            H5Tget_size(form_.type()), options.compression_threads);
    }
    if (kind == WriterKind::DIRECT && device == nullptr) device = direct_backend();
    return std::make_unique<FrameWriter>(form_, std::move(compressor), std::move(device));
  }

  reorder::RunningPlan& plan_;
  std::string mode_;
  FrameForm form_;
  /// Whether waiting frames are not recorded.
  bool begins_anew_;
  std::optional<FlowId> gate_;
  bool attached_{true};
};

std::string taker_of(const RecorderOptions& options) {
  return options.directory + "/" + options.prefix;
}

}  // namespace

std::unique_ptr<RecordingSource> packets_of(RxQueue& queue, const Session& session,
                                            const RecorderOptions& options) {
  require_recordable(options);
  if (options.writer == WriterKind::CUFILE) {
    throw Error(Status::INVALID_PARAMETER,
                "writer is 'cufile', which writes frames of reorder plans, and queue '" +
                    queue.config().common_.name_ +
                    "' has packets; accepted are 'buffered', 'direct' and 'auto'");
  }
  return std::make_unique<QueuePackets>(queue, session, taker_of(options));
}

std::unique_ptr<RecordingSource> frames_of(reorder::RunningPlan& plan, const Session& session,
                                           const RecorderOptions& options) {
  require_recordable(options);
  auto source = std::make_unique<PlanFrames>(plan, session, options, taker_of(options));
  source->require(options);
  if (options.start_flow) source->await(*options.start_flow, session);
  return source;
}

}  // namespace daqiri
