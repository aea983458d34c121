#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "daqiri/version.h"
#include "session/snapshot.h"

namespace daqiri {

using api::fail;
using api::guarded;

namespace {

using Registry = std::map<SessionId, std::shared_ptr<Session>>;

/// True from the beginning of start_default to the end of stop, so that there is at most one
/// default session.
std::atomic<bool> default_claimed{false};

std::mutex registry_mutex;
Registry registry;
std::atomic<SessionId> last_id{DEFAULT_SESSION};
/// Incremented with every change of the registry.
std::atomic<std::uint64_t> generation{1};

thread_local SessionId selected_id{DEFAULT_SESSION};

SessionId insert(SessionId id, std::shared_ptr<Session> started) {
  const std::lock_guard lock(registry_mutex);
  registry.emplace(id, std::move(started));
  generation.fetch_add(1, std::memory_order_release);
  return id;
}

/// Called with the mutex held.
Registry take_all() noexcept {
  generation.fetch_add(1, std::memory_order_release);
  return std::exchange(registry, {});
}

/// Ends the engines' threads before static objects of the process are destroyed. A child made by
/// fork(2) has no engines, because their threads exist only in the parent.
void watch_process() {
  [[maybe_unused]] static const int at_exit = std::atexit([] {
    std::unique_lock lock(registry_mutex);
    const Registry all = take_all();
    lock.unlock();
    for (const auto& [id, session] : all) session->close();
  });
  [[maybe_unused]] static const int at_fork =
      pthread_atfork([] { registry_mutex.lock(); }, [] { registry_mutex.unlock(); },
                     [] {
                       // Never destroyed, because closing them would wait for these threads.
                       // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
                       static auto* const kept = new std::vector<Registry>;
                       kept->push_back(take_all());
                       default_claimed.store(false, std::memory_order_release);
                       registry_mutex.unlock();
                     });
}

std::shared_ptr<Session> open(NetworkConfig& config, ConfigReport read = {}) {
  auto session = Session::open(config, std::move(read));
  watch_process();
  config = session->config();
  return session;
}

/// Open the default session. Throws Error INTERNAL_ERROR if there is one already.
void start_default(NetworkConfig& config, ConfigReport read = {}) {
  if (default_claimed.exchange(true, std::memory_order_acq_rel)) {
    throw Error(Status::INTERNAL_ERROR,
                "the default session is already running and continues; call shutdown first, or "
                "session_open to start an additional session");
  }
  try {
    insert(DEFAULT_SESSION, open(config, std::move(read)));
  } catch (...) {
    default_claimed.store(false, std::memory_order_release);
    throw;
  }
}

/// Close a session. Returns false if it is not open.
bool stop(SessionId id) noexcept {
  std::unique_lock lock(registry_mutex);
  const auto node = registry.extract(id);
  if (node.empty()) return false;
  generation.fetch_add(1, std::memory_order_release);
  lock.unlock();
  node.mapped()->close();
  if (id == DEFAULT_SESSION) default_claimed.store(false, std::memory_order_release);
  return true;
}

bool is_open(SessionId id) noexcept {
  const std::lock_guard lock(registry_mutex);
  return registry.contains(id);
}

using Load = ConfigReport(const std::string& source, NetworkConfig& config);

ConfigReport load_text(const std::string& yaml, NetworkConfig& config) {
  return load_config_text(yaml, "<text>", config);
}

/// Load from a file if the text is, or looks like, a path.
ConfigReport load_either(const std::string& yaml_or_path, NetworkConfig& config) {
  std::error_code error;
  const bool is_path = yaml_or_path.ends_with(".yaml") || yaml_or_path.ends_with(".yml") ||
                       std::filesystem::exists(yaml_or_path, error);
  return (is_path ? load_config_file : load_text)(yaml_or_path, config);
}

/// Returns the warnings. Throws Error with all problems if there are errors.
ConfigReport read(Load& load, const std::string& source, NetworkConfig& config) {
  ConfigReport report = load(source, config);
  if (!report.ok()) throw Error(Status::INVALID_PARAMETER, report.text());
  return report;
}

Status parse(const char* call, Load& load, const std::string& source, NetworkConfig& config) {
  return guarded(call, [&] {
    const ConfigReport report = read(load, source, config);
    if (config.log_level_ <= LogLevel::WARN) log_warnings(report, config);
  });
}

Status start(const char* call, Load& load, const std::string& source) {
  return guarded(call, [&] {
    NetworkConfig config;
    ConfigReport report = read(load, source, config);
    start_default(config, std::move(report));
  });
}

Status not_open(const char* call, SessionId id) noexcept {
  return fail(Status::INVALID_PARAMETER, call, "session ", id,
              " is not open: it was closed, or never opened");
}

}  // namespace

namespace api {

std::shared_ptr<Session> running() noexcept {
  thread_local std::weak_ptr<Session> known;
  thread_local SessionId known_id{DEFAULT_SESSION};
  thread_local std::uint64_t known_generation = 0;
  if (generation.load(std::memory_order_acquire) != known_generation || known_id != selected_id) {
    const std::lock_guard lock(registry_mutex);
    const auto it = registry.find(selected_id);
    known = it == registry.end() ? nullptr : it->second;
    known_id = selected_id;
    known_generation = generation.load(std::memory_order_relaxed);
  }
  return known.lock();
}

const char* not_running() noexcept {
  return selected_id == DEFAULT_SESSION
             ? "the engine is not running; call daqiri_init first"
             : "the session that this thread selected is not open; session_select another, 0 for "
               "the default one";
}

}  // namespace api

Status daqiri_init(NetworkConfig& config) {
  return guarded(__func__, [&] { start_default(config); });
}
Status daqiri_init(const std::string& yaml_or_path) {
  return start(__func__, load_either, yaml_or_path);
}
Status daqiri_init_from_yaml_string(const std::string& yaml) {
  return start(__func__, load_text, yaml);
}
Status daqiri_init_from_yaml_file(const std::string& path) {
  return start(__func__, load_config_file, path);
}

Status parse_network_config(const std::string& yaml_or_path, NetworkConfig& config) {
  return parse(__func__, load_either, yaml_or_path, config);
}
Status parse_network_config_from_yaml_string(const std::string& yaml, NetworkConfig& config) {
  return parse(__func__, load_text, yaml, config);
}
Status parse_network_config_from_yaml_file(const std::string& path, NetworkConfig& config) {
  return parse(__func__, load_config_file, path, config);
}

EngineType get_engine_type() {
  const auto session = api::running();
  return session == nullptr ? EngineType::UNKNOWN : session->config().common_.engine_type;
}

void shutdown() { stop(DEFAULT_SESSION); }

Status session_open(NetworkConfig& config, SessionId* id) {
  if (id == nullptr) return fail(Status::NULL_PTR, __func__, "the pointer for the id is null");
  *id = DEFAULT_SESSION;
  return guarded(__func__, [&] { *id = insert(++last_id, open(config)); });
}

Status session_open(const std::string& yaml_or_path, SessionId* id) {
  if (id == nullptr) return fail(Status::NULL_PTR, __func__, "the pointer for the id is null");
  *id = DEFAULT_SESSION;
  return guarded(__func__, [&] {
    NetworkConfig config;
    ConfigReport report = read(load_either, yaml_or_path, config);
    *id = insert(++last_id, open(config, std::move(report)));
  });
}

Status session_close(SessionId id) {
  if (id == DEFAULT_SESSION)
    return fail(Status::INVALID_PARAMETER, __func__, "session 0 is the default one; call shutdown");
  return stop(id) ? Status::SUCCESS : not_open(__func__, id);
}

Status session_select(SessionId id) {
  if (id != DEFAULT_SESSION && !is_open(id)) return not_open(__func__, id);
  selected_id = id;
  return Status::SUCCESS;
}

SessionId session_selected() noexcept { return selected_id; }

SessionScope::SessionScope(SessionId id) noexcept
    : previous_(std::exchange(selected_id, id)),
      status_(id == DEFAULT_SESSION || is_open(id) ? Status::SUCCESS : not_open(__func__, id)) {}

SessionScope::~SessionScope() { selected_id = previous_; }

void print_stats() {
  api::with_session(__func__, [](const Session& session) {
    std::fputs(SessionSnapshot::of(session).table().c_str(), stdout);
    std::fflush(stdout);
  });
}

}  // namespace daqiri
