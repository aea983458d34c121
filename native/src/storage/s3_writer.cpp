#include "storage/s3_writer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "daqiri/error.h"
#include "storage/file_write.h"
#include "storage/libcurl.h"
#include "storage/packet_writer.h"
#include "storage/s3_credentials.h"
#include "storage/s3_signature.h"
#include "system/thread.h"
#include "timing/clock.h"

namespace daqiri {

namespace {

/// Of one PUT.
constexpr std::uint64_t MAX_OBJECT_BYTES = std::uint64_t{5} << 30U;
constexpr int MAX_ATTEMPTS = 5;
/// Before the second attempt; doubled before each later one.
constexpr std::uint64_t FIRST_DELAY_NS = 100'000'000;
constexpr long CONNECT_TIMEOUT_MS = 10'000;
/// An upload that makes no progress for so long has failed.
constexpr long STALL_TIMEOUT_S = 30;
/// Of libcurl, for each upload.
constexpr long UPLOAD_BUFFER = 1L << 19;
/// Answers are short, and only their beginning is used.
constexpr std::size_t LONGEST_ANSWER = 4096;

[[noreturn]] void refuse_config(const std::string& what) {
  throw Error(Status::INVALID_PARAMETER, what);
}

/// Whether all of `text` are letters, digits, or of `others`.
bool consists_of(const std::string& text, std::string_view others) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           others.find(c) != std::string_view::npos;
  });
}

/// The text of the first XML element of this name; empty: there is none.
std::string element(const std::string& xml, const std::string& name) {
  const std::size_t begin = xml.find("<" + name + ">");
  if (begin == std::string::npos) return {};
  const std::size_t text = begin + name.size() + 2;
  const std::size_t end = xml.find("</", text);
  return end == std::string::npos ? std::string() : xml.substr(text, end - text);
}

/// Whether another attempt may succeed.
bool is_transient(curl::Code code) noexcept {
  switch (code) {
    case curl::Code::UNSUPPORTED_PROTOCOL:  // an answer that is not HTTP
    case curl::Code::COULDNT_RESOLVE_PROXY:
    case curl::Code::COULDNT_RESOLVE_HOST:
    case curl::Code::COULDNT_CONNECT:
    case curl::Code::WEIRD_SERVER_REPLY:
    case curl::Code::PARTIAL_FILE:
    case curl::Code::OPERATION_TIMEDOUT:
    case curl::Code::SSL_CONNECT_ERROR:
    case curl::Code::GOT_NOTHING:
    case curl::Code::SEND_ERROR:
    case curl::Code::RECV_ERROR:
    case curl::Code::SEND_FAIL_REWIND:
      return true;
    case curl::Code::OK:
      break;
  }
  return false;
}

bool is_transient(long status, const std::string& code) {
  constexpr std::array<long, 5> PASSING{429, 500, 502, 503, 504};
  return std::ranges::find(PASSING, status) != PASSING.end() || code == "RequestTimeout" ||
         code == "SlowDown";
}

bool is_of_credentials(const std::string& code) {
  return code == "ExpiredToken" || code == "InvalidToken" || code == "InvalidAccessKeyId" ||
         code == "TokenRefreshRequired";
}

/// Now, as in the header x-amz-date.
std::string time_of_request() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  const std::size_t n =
      std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &parts));
  return {text.data(), n};
}

}  // namespace

BucketAddress bucket_address(const S3WriterConfig& config) {
  if (!consists_of(config.bucket, ".-_")) {
    refuse_config("bucket is '" + config.bucket +
                  "'; accepted is the name of a bucket: letters, digits, '.', '-' and '_'");
  }
  if (!consists_of(config.region, "-")) {
    refuse_config("region is '" + config.region +
                  "'; accepted is a region, for example us-east-1; services that have none take "
                  "any");
  }
  std::string scheme = "https://";
  std::string authority = config.endpoint_override;
  if (authority.empty()) {
    authority = "s3." + config.region + ".amazonaws.com";
    if (config.region.starts_with("cn-")) authority += ".cn";
  } else if (const std::size_t end = authority.find("://"); end != std::string::npos) {
    scheme = authority.substr(0, end + 3);
    authority.erase(0, end + 3);
  }
  while (authority.ends_with('/')) authority.pop_back();
  if ((scheme != "https://" && scheme != "http://") || !consists_of(authority, ".-_:[]")) {
    refuse_config("endpoint_override is '" + config.endpoint_override +
                  "'; accepted is [https://]HOST[:PORT] or http://HOST[:PORT]");
  }
  const std::string default_port = scheme == "https://" ? ":443" : ":80";
  if (authority.ends_with(default_port)) authority.resize(authority.size() - default_port.size());
  // A certificate of *.HOST is for names without further dots.
  if (config.path_style || config.bucket.find('.') != std::string::npos)
    return {scheme + authority, authority, "/" + config.bucket + "/"};
  authority.insert(0, config.bucket + ".");
  return {scheme + authority, authority, "/"};
}

// --- Staging

Staging::Staging(std::shared_ptr<Total> total, std::uint64_t limit, std::uint64_t size)
    : size_(size) {
  std::uint64_t before = *total;
  do {
    if (size <= limit && before <= limit - size) continue;
    throw Error(Status::NO_SPACE_AVAILABLE,
                "the objects have " + std::to_string(size) + " bytes, and " +
                    std::to_string(before) + " of max_staged_bytes, " + std::to_string(limit) +
                    ", wait for upload; wait for some of the writer's handles first, or increase "
                    "max_staged_bytes");
  } while (!total->compare_exchange_weak(before, before + size));
  total_ = std::move(total);
  try {
    data_ = std::make_unique_for_overwrite<std::byte[]>(size);
  } catch (const std::bad_alloc&) {
    *total_ -= size;
    throw Error(Status::NO_SPACE_AVAILABLE,
                "no memory for " + std::to_string(size) + " bytes; reduce max_staged_bytes");
  }
}

// --- One write

std::string S3WriteHandle::key(std::uint32_t object) const {
  if (objects_ == S3Objects::PACKETS) return name_ + "_" + std::to_string(object);
  return object == 0 ? name_ : RawIndex::path_of(name_);
}

std::span<const std::byte> S3WriteHandle::bytes(std::uint32_t object) const noexcept {
  const std::uint64_t begin = object == 0 ? 0 : ends_[object - 1];
  return {staging_.data() + begin, ends_[object] - begin};
}

void S3WriteHandle::completed(std::uint32_t object) noexcept {
  --in_flight_;
  ++completed_;
  if (objects_ == S3Objects::PACKETS || object == 0) bytes_ += bytes(object).size();
  finish_if_done();
}

void S3WriteHandle::failed(std::string error) noexcept {
  --in_flight_;
  failed_ += 1 + num_objects() - next_;
  next_ = num_objects();
  if (problem_.empty()) problem_ = std::move(error);
  finish_if_done();
}

void S3WriteHandle::finish_if_done() noexcept {
  if (in_flight_ != 0 || !all_begun()) return;
  staging_.free();
  const Status status = failed_ == 0 ? Status::SUCCESS : Status::GENERIC_FAILURE;
  finish(status, std::move(problem_));
}

// --- All writes of a writer

/// Performs them on its own thread: at most `max_inflight_uploads` at once, on connections that are
/// kept, in the order of submission.
class S3Uploader {
 public:
  explicit S3Uploader(const S3WriterConfig& config)
      : address_(bucket_address(config)),
        bucket_(config.bucket),
        max_uploads_(config.max_inflight_uploads),
        signer_(config.region) {
    credentials_.current();
    if (multi_ == nullptr) throw std::bad_alloc();
    curl_.multi_setopt(multi_.get(), curl::MultiOption::MAXCONNECTS,
                       static_cast<long>(std::min(max_uploads_, 1024U)));
    thread_ = start_thread([this] { run(); });
  }
  S3Uploader(const S3Uploader&) = delete;
  S3Uploader& operator=(const S3Uploader&) = delete;
  ~S3Uploader() { stop(); }

  void submit(std::shared_ptr<S3WriteHandle> write) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) throw Error(Status::INVALID_PARAMETER, "the writer was destroyed");
      submitted_.push_back(std::move(write));
    }
    curl_.multi_wakeup(multi_.get());
  }

  /// Wait for all that was submitted, then end the thread. Called once, or by the destructor again.
  void stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    curl_.multi_wakeup(multi_.get());
    if (thread_.joinable()) thread_.join();
  }

 private:
  using EasyHandle = std::unique_ptr<curl::Easy, void (*)(curl::Easy*)>;
  using MultiHandle = std::unique_ptr<curl::Multi, int (*)(curl::Multi*)>;

  /// An object on its way, and what is reused for the next one.
  struct Upload {
    EasyHandle easy;
    std::array<char, curl::ERROR_SIZE> error{};
    /// Null: idle.
    std::shared_ptr<S3WriteHandle> write{};
    std::uint32_t object{0};
    std::string key{};
    std::string payload_hash{};
    curl::Headers headers{};
    int attempts{0};
    /// Version of the credentials of this attempt.
    unsigned credentials{0};
    /// When the next attempt begins, CLOCK_MONOTONIC ns.
    std::uint64_t due{0};
    std::string answer{};
    bool has_etag{false};
  };

  void run() noexcept {
    configure_thread(std::string(ANY_CORE), "daqiri-s3");
    for (;;) {
      const bool stopping = take_submitted();
      begin_objects();
      if (stopping && waiting_.empty() && idle_.size() == uploads_.size()) return;
      begin_delayed();
      int running = 0;
      curl_.multi_perform(multi_.get(), &running);
      if (!end_attempts()) curl_.multi_poll(multi_.get(), nullptr, 0, patience_ms(), nullptr);
    }
  }

  bool take_submitted() {
    const std::lock_guard lock(mutex_);
    for (auto& write : submitted_) waiting_.push_back(std::move(write));
    submitted_.clear();
    return stopping_;
  }

  void begin_objects() {
    while (!waiting_.empty()) {
      const std::shared_ptr<S3WriteHandle> write = waiting_.front();
      if (write->all_begun()) {
        waiting_.pop_front();
        // It may have no objects.
        if (!write->done()) write->finish_if_done();
        continue;
      }
      Upload* const upload = idle_upload();
      if (upload == nullptr) return;
      // The index is begun when the packets are there.
      if (write->objects_ == S3Objects::BURST_AND_INDEX) waiting_.pop_front();
      begin_object(*upload, write);
    }
  }

  Upload* idle_upload() {
    if (idle_.empty()) {
      if (uploads_.size() == max_uploads_) return nullptr;
      idle_.push_back(uploads_.emplace_back(make_upload()).get());
    }
    Upload* const upload = idle_.back();
    idle_.pop_back();
    return upload;
  }

  std::unique_ptr<Upload> make_upload() {
    auto upload = std::make_unique<Upload>(Upload{{curl_.easy_init(), curl_.easy_cleanup}});
    curl::Easy* const easy = upload->easy.get();
    if (easy == nullptr) throw std::bad_alloc();
    curl_.set(easy, curl::Option::NOSIGNAL, 1L);
    curl_.set(easy, curl::Option::HTTP_VERSION, curl::HTTP_1_1);
    curl_.set(easy, curl::Option::PATH_AS_IS, 1L);
    curl_.set(easy, curl::Option::CUSTOMREQUEST, "PUT");
    curl_.set(easy, curl::Option::UPLOAD_BUFFERSIZE, UPLOAD_BUFFER);
    curl_.set(easy, curl::Option::CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_.set(easy, curl::Option::LOW_SPEED_LIMIT, 1L);
    curl_.set(easy, curl::Option::LOW_SPEED_TIME, STALL_TIMEOUT_S);
    curl_.set(easy, curl::Option::ERRORBUFFER, upload->error.data());
    curl_.set(easy, curl::Option::PRIVATE, upload.get());
    curl_.set(easy, curl::Option::WRITEFUNCTION, take_answer);
    curl_.set(easy, curl::Option::WRITEDATA, upload.get());
    curl_.set(easy, curl::Option::HEADERFUNCTION, take_header);
    curl_.set(easy, curl::Option::HEADERDATA, upload.get());
    return upload;
  }

  static std::size_t take_answer(const char* data, std::size_t /*one*/, std::size_t size,
                                 void* to) {
    std::string& answer = static_cast<Upload*>(to)->answer;
    answer.append(data, std::min(size, LONGEST_ANSWER - answer.size()));
    return size;
  }

  static std::size_t take_header(const char* data, std::size_t /*one*/, std::size_t size,
                                 void* to) {
    constexpr std::string_view ETAG = "etag:";
    const bool is_etag =
        size > ETAG.size() && std::equal(ETAG.begin(), ETAG.end(), data, [](char wanted, char c) {
          return wanted == std::tolower(static_cast<unsigned char>(c));
        });
    auto& upload = *static_cast<Upload*>(to);
    upload.has_etag = upload.has_etag || is_etag;
    return size;
  }

  void begin_object(Upload& upload, std::shared_ptr<S3WriteHandle> write) {
    upload.object = write->next_++;
    ++write->in_flight_;
    upload.write = std::move(write);
    upload.attempts = 0;
    upload.key = upload.write->key(upload.object);
    upload.payload_hash = hexadecimal(sha256(upload.write->bytes(upload.object)));
    begin_attempt(upload);
  }

  void begin_attempt(Upload& upload) {
    ++upload.attempts;
    upload.answer.clear();
    upload.has_etag = false;
    upload.error[0] = '\0';
    try {
      send(upload);
    } catch (const std::exception& error) {
      fail_attempt(upload, error.what(), true);
    }
  }

  void send(Upload& upload) {
    const S3Credentials& credentials = credentials_.current();
    upload.credentials = credentials_.version();
    const std::string path = address_.path + encoded_path(upload.key);
    const std::string time = time_of_request();
    std::array<S3Request::Header, 4> signed_headers{
        {{"host", address_.host},
         {"x-amz-content-sha256", upload.payload_hash},
         {"x-amz-date", time},
         {"x-amz-security-token", credentials.session_token}}};
    const std::span<const S3Request::Header> used(signed_headers.data(),
                                                  credentials.session_token.empty() ? 3 : 4);
    curl::Headers headers;
    for (const auto& [name, value] : used)
      headers.add(std::string(name).append(": ").append(value));
    headers.add(
        "authorization: " +
        signer_.authorization({"PUT", path, "", used, upload.payload_hash}, credentials, time));
    headers.add("content-type: application/octet-stream");
    // Else libcurl waits for an answer before it sends long bodies.
    headers.add("expect:");
    upload.headers = std::move(headers);

    const std::span<const std::byte> body = upload.write->bytes(upload.object);
    curl::Easy* const easy = upload.easy.get();
    curl_.set(easy, curl::Option::URL, (address_.origin + path).c_str());
    curl_.set(easy, curl::Option::HTTPHEADER, upload.headers.list());
    curl_.set(easy, curl::Option::POSTFIELDSIZE_LARGE, static_cast<long>(body.size()));
    // Null would mean something else.
    curl_.set(easy, curl::Option::POSTFIELDS,
              body.empty() ? "" : static_cast<const void*>(body.data()));
    if (curl_.multi_add_handle(multi_.get(), easy) != 0)
      throw std::runtime_error("libcurl cannot begin a transfer");
  }

  void begin_delayed() {
    const std::uint64_t now = monotonic_ns();
    const auto due = std::partition(delayed_.begin(), delayed_.end(),
                                    [now](const Upload* upload) { return upload->due > now; });
    const std::vector<Upload*> begun(due, delayed_.end());
    delayed_.erase(due, delayed_.end());
    for (Upload* upload : begun) {
      if (upload->write->failed_ == 0) {
        begin_attempt(*upload);
      } else {
        give_up(*upload, {});
      }
    }
  }

  void give_up(Upload& upload, std::string error) {
    const std::shared_ptr<S3WriteHandle> write = std::move(upload.write);
    write->failed(std::move(error));
    end_object(upload, write);
  }

  /// How long nothing may happen.
  [[nodiscard]] int patience_ms() const noexcept {
    constexpr std::uint64_t LONGEST_MS = 10'000;
    std::uint64_t ms = LONGEST_MS;
    const std::uint64_t now = monotonic_ns();
    for (const Upload* upload : delayed_)
      ms = std::min(ms, upload->due <= now ? 0 : (upload->due - now) / 1'000'000 + 1);
    return static_cast<int>(ms);
  }

  /// Returns whether there were any.
  bool end_attempts() {
    bool any = false;
    int left = 0;
    while (const curl::Message* message = curl_.multi_info_read(multi_.get(), &left)) {
      if (message->kind != curl::MESSAGE_DONE) continue;
      any = true;
      curl::Easy* const easy = message->easy;
      const curl::Code code = message->code;
      Upload* upload = nullptr;
      curl_.easy_getinfo(easy, curl::Info::PRIVATE, &upload);
      curl_.multi_remove_handle(multi_.get(), easy);
      end_attempt(*upload, code);
    }
    return any;
  }

  void end_attempt(Upload& upload, curl::Code result) {
    if (result != curl::Code::OK) {
      std::string why = upload.error[0] != '\0' ? upload.error.data() : curl_.easy_strerror(result);
      if (result == curl::Code::COULDNT_RESOLVE_HOST && address_.path == "/")
        why += "; path_style is for services without a host name for each bucket";
      return fail_attempt(upload, address_.origin + ": " + why, is_transient(result));
    }
    long status = 0;
    curl_.easy_getinfo(upload.easy.get(), curl::Info::RESPONSE_CODE, &status);
    if (status == 200 && upload.has_etag) {
      const std::shared_ptr<S3WriteHandle> write = std::move(upload.write);
      write->completed(upload.object);
      return end_object(upload, write);
    }
    const std::string code = element(upload.answer, "Code");
    std::string why = "HTTP " + std::to_string(status);
    if (!code.empty()) why += ", " + code + ": " + element(upload.answer, "Message");
    if (status == 200) why += " without an ETag, which is no answer of S3";
    bool again = is_transient(status, code);
    if (is_of_credentials(code)) {
      try {
        again = credentials_.renew(upload.credentials);
      } catch (const Error& error) {
        why += std::string("; ") + error.what();
      }
    }
    fail_attempt(upload, why, again);
  }

  void fail_attempt(Upload& upload, const std::string& why, bool again) {
    // Of a write that has failed, no object is tried again.
    if (again && upload.attempts < MAX_ATTEMPTS && upload.write->failed_ == 0) {
      const std::uint64_t longest = FIRST_DELAY_NS << static_cast<unsigned>(upload.attempts - 1);
      // Those that failed together do not come back together.
      upload.due = monotonic_ns() + longest / 2 +
                   std::uniform_int_distribution<std::uint64_t>(0, longest / 2)(random_);
      delayed_.push_back(&upload);
      return;
    }
    std::string error = "cannot write s3://" + bucket_ + "/" + upload.key + ": " + why;
    if (upload.attempts > 1) error += " (" + std::to_string(upload.attempts) + " attempts)";
    give_up(upload, std::move(error));
  }

  void end_object(Upload& upload, const std::shared_ptr<S3WriteHandle>& write) {
    if (write->objects_ == S3Objects::BURST_AND_INDEX && !write->all_begun())
      return begin_object(upload, write);
    idle_.push_back(&upload);
  }

  const curl::Library& curl_{curl::library()};
  BucketAddress address_;
  std::string bucket_;
  std::uint32_t max_uploads_;
  S3CredentialChain credentials_;
  S3Signer signer_;
  MultiHandle multi_{curl_.multi_init(), curl_.multi_cleanup};
  std::minstd_rand random_{std::random_device()()};
  std::vector<std::unique_ptr<Upload>> uploads_;
  std::vector<Upload*> idle_;
  std::vector<Upload*> delayed_;
  /// Writes with objects that are not begun.
  std::deque<std::shared_ptr<S3WriteHandle>> waiting_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<S3WriteHandle>> submitted_;
  bool stopping_{false};
  std::jthread thread_;
};

// --- The writer

S3Writer::S3Writer(const S3WriterConfig& config) : max_staged_bytes_(config.max_staged_bytes) {
  if (config.max_inflight_uploads == 0)
    refuse_config("max_inflight_uploads is 0; accepted is 1 or more");
  static_cast<void>(bucket_address(config));
  if (curl::library().missing()) {
    throw Error(Status::NOT_SUPPORTED,
                "S3 needs libcurl 7.68 or newer; install it (Debian: apt install libcurl4)");
  }
  if (!have_libcrypto()) {
    throw Error(Status::NOT_SUPPORTED,
                "S3 needs libcrypto 3 or 1.1; install OpenSSL (Debian: apt install libssl3)");
  }
  uploader_ = std::make_unique<S3Uploader>(config);
}

S3Writer::~S3Writer() = default;

void S3Writer::close() noexcept { uploader_->stop(); }

std::shared_ptr<S3WriteHandle> S3Writer::write(const Burst& burst, S3Objects objects,
                                               const std::string& name,
                                               std::uint64_t packet_data_offset) {
  if (name.empty()) refuse_config("the name of the objects is empty");
  require_packets(burst, "written to objects");
  const std::uint32_t n = burst.num_packets();
  const bool with_index = objects == S3Objects::BURST_AND_INDEX;
  std::vector<std::uint64_t> ends;
  ends.reserve(with_index ? 2 : n);
  std::uint64_t size = 0;
  std::uint64_t longest = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    // Burst::packet_length has 32 bits, and a frame with several segments may have more.
    std::uint64_t length = 0;
    for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) length += burst.pkt_lens[s][i];
    size += length - std::min(length, packet_data_offset);
    longest = std::max(longest, size - (ends.empty() ? 0 : ends.back()));
    if (!with_index) ends.push_back(size);
  }
  const std::uint64_t packets_end = size;
  if (with_index) {
    ends.push_back(size);
    size += RawIndex::HEADER_SIZE + n * sizeof(RawIndex::Row);
    ends.push_back(size);
  }
  if (longest > MAX_OBJECT_BYTES) {
    throw Error(Status::NOT_SUPPORTED, "an object would have " + std::to_string(longest) +
                                           " bytes; S3 accepts " +
                                           std::to_string(MAX_OBJECT_BYTES) + " in one piece");
  }

  Staging staging(staged_, max_staged_bytes_, size);
  std::byte* to = staging.data();
  std::byte* row_at = to + packets_end;
  if (with_index) {
    const RawIndex::Header header = RawIndex::header_of(n);
    std::memcpy(row_at, header.data(), header.size());
    row_at += header.size();
  }
  std::uint64_t now = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::byte* const begin = to;
    std::uint64_t skip = packet_data_offset;
    for (int s = 0; s < burst.hdr.hdr.num_segs; ++s) {
      const std::uint32_t length = burst.pkt_lens[s][i];
      const std::uint64_t skipped = std::min<std::uint64_t>(skip, length);
      skip -= skipped;
      if (skipped == length) continue;
      std::memcpy(to, burst.on_host(s, i) + skipped, length - skipped);
      to += length - skipped;
    }
    if (!with_index) continue;
    std::uint64_t time = burst.timestamps[i];
    if (time == 0) time = now != 0 ? now : (now = realtime_ns());
    const RawIndex::Row row{static_cast<std::uint64_t>(begin - staging.data()),
                            static_cast<std::uint32_t>(to - begin), burst.flow_ids[i], time};
    std::memcpy(row_at, &row, sizeof row);
    row_at += sizeof row;
  }
  auto write = std::make_shared<S3WriteHandle>(objects, name, std::move(staging), std::move(ends));
  uploader_->submit(write);
  return write;
}

}  // namespace daqiri
