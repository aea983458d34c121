/// Rules between the values of a configuration, and derived values.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/findings.h"
#include "config/formats.h"
#include "daqiri/config.h"
#include "engine/registry.h"

namespace daqiri::config {

/// Traits of the engine for the configuration; default traits while the engine is unknown.
EngineTraits traits_of(const NetworkConfig& config) noexcept;

/// The engines with a word in ENGINES, in its order, for which this holds. Others are used only
/// where a configuration names them.
template <class Holds>
std::vector<EngineTraits> documented_engines(Holds holds) {
  std::vector<EngineTraits> found;
  for (const Name& each : ENGINES) {
    const auto traits = traits_named(each.text);
    if (traits && holds(*traits)) found.push_back(*traits);
  }
  return found;
}
/// "'dpdk' or 'packet'".
std::string alternatives(const std::vector<EngineTraits>& engines);

inline std::string shown(const std::string& name) { return quoted(name); }
inline std::string shown(std::integral auto number) { return as_text(number); }

/// The values of `list`, each with its place.
template <class Values>
auto placed(Values& values, const Place& list) {
  std::vector<std::pair<decltype(*values.begin()), Place>> result;
  result.reserve(values.size());
  for (auto& value : values) result.emplace_back(value, list[result.size()]);
  return result;
}

/// The elements of a list by a key, `name` or `id`, which must be unique in the list.
template <class Element, class Value>
class Index {
 public:
  using Get = std::function<const Value&(const Element&)>;

  /// Reports values that already occurred in `owner.list`.
  Index(const Place& owner, std::string_view list, std::string_view key,
        const std::vector<Element>& elements, const Get& get)
      : Index(owner, list, key, pointers_to(elements), get) {}
  Index(const Place& owner, std::string_view list, std::string_view key,
        std::vector<const Element*> elements, const Get& get)
      : elements_(std::move(elements)),
        get_(get),
        kind_(concat(key == "id" ? "an " : "a ", key)),
        list_(list),
        known_(!owner[list].bad()) {
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const Place at = owner[list][i][key];
      const bool bad = at.bad();
      const auto [first, is_new] = first_.emplace(get_(*elements_[i]), i);
      known_ = known_ && is_new && !bad;
      if (!is_new && !bad)
        at.error("found ", shown(first->first), ", also the ", key, " of ",
                 owner[list][first->second].path(), "; accepts a unique ", key);
    }
  }

  [[nodiscard]] const Element* find(const Value& value) const {
    const auto found = first_.find(value);
    return found == first_.end() ? nullptr : elements_[found->second];
  }
  /// Null, with an error at `at`, if there is no such element. If the key of some element is wrong
  /// or a duplicate, a missing element is not reported as a second mistake.
  const Element* find(const Value& value, const Place& at, std::string_view what) const {
    const Element* found = find(value);
    if (found != nullptr || !known_) return found;
    constexpr std::size_t MOST_LISTED = 16;
    std::string accepted;
    for (std::size_t i = 0; i < std::min(elements_.size(), MOST_LISTED); ++i)
      accepted += concat(i > 0 ? ", " : "", shown(get_(*elements_[i])));
    if (elements_.size() > MOST_LISTED) accepted += ", ...";
    if (elements_.empty()) accepted = concat(kind_, " under ", list_, ", which is empty");
    at.error("found ", shown(value), ", which is not a ", what, "; accepts ", accepted);
    return nullptr;
  }

 private:
  static std::vector<const Element*> pointers_to(const std::vector<Element>& elements) {
    std::vector<const Element*> result;
    result.reserve(elements.size());
    for (const Element& element : elements) result.push_back(&element);
    return result;
  }

  std::vector<const Element*> elements_;
  Get get_;
  std::string kind_;
  std::string_view list_;
  bool known_;
  std::map<Value, std::size_t> first_;
};

// Keys of queues.
constexpr auto QUEUE_NAME = [](const auto& queue) -> const std::string& {
  return queue.common_.name_;
};
constexpr auto QUEUE_ID = [](const auto& queue) -> const int& { return queue.common_.id_; };

/// Reports values of `key` that already occurred in the list.
template <class Value, class Element>
void check_unique(const Place& owner, std::string_view list, std::string_view key,
                  const std::vector<Element>& elements,
                  const typename Index<Element, Value>::Get& get) {
  static_cast<void>(Index<Element, Value>(owner, list, key, elements, get));
}

/// State of the rules.
struct Subject {
  NetworkConfig& config;
  Place root;
  Index<MemoryRegionConfig, std::string> regions{
      root, "memory_regions", "name", memory_regions(config), &MemoryRegionConfig::name_};
  /// False: the endpoints are wrong or missing, and CommonConfig::protocol is a guess.
  bool transport_known{true};
  /// Traits of the engine, after it was resolved.
  EngineTraits traits{};
  /// Flow ids so far, with the paths of their flows.
  std::map<FlowId, std::string> flow_ids{};
  /// Flows of plans so far, with the paths where they are claimed.
  std::map<std::pair<const InterfaceConfig*, FlowId>, std::string> plan_flows{};

  [[nodiscard]] bool raw() const { return config.common_.stream_type == StreamType::RAW; }
  /// Whether the stream is known to be a socket stream.
  [[nodiscard]] bool sockets() const { return !raw() && !root["stream_type"].bad(); }
  [[nodiscard]] bool roce() const {
    return sockets() && config.common_.protocol == SocketProtocol::ROCE;
  }
  [[nodiscard]] bool in_memory() const {
    return config.common_.loopback_ == LoopbackType::LOOPBACK_TYPE_SW;
  }
  [[nodiscard]] bool engine_known() const { return !traits.name.empty(); }
  [[nodiscard]] auto interfaces() const { return placed(config.ifs_, root["interfaces"]); }
};

/// Applies all rules, in an order in which later rules can use values derived by earlier ones.
void apply_rules(NetworkConfig& config, Findings& findings);

// Rules for an interface.
void check_queues_and_flows(Subject& subject, const InterfaceConfig& interface, const Place& at);
void check_reorder(Subject& subject, InterfaceConfig& interface, const Place& at);
/// The bit fields of a plan's method, by their keys.
[[nodiscard]] std::vector<std::pair<std::string_view, const ReorderBitFieldConfig*>> fields_of(
    const ReorderConfig& plan);
/// Rules for the numbers of packets of a plan, at `place`; derives its slots. `flows_key`: the key
/// with its flows. Returns whether they are known.
[[nodiscard]] bool check_numbers(ReorderConfig& plan, const Place& place,
                                 std::string_view flows_key);
/// Rules for `window` and `timeout_us` of a plan whose numbers are known.
void check_window(ReorderConfig& plan, const Place& place);
/// Rules for the modules of a plan's frame, at `place`. Returns whether their sizes are known.
[[nodiscard]] bool check_modules(const ReorderConfig& plan, const Place& place);
/// Rules for the plans of the whole configuration.
void check_joint_reorder(Subject& subject);

/// Raise num_bufs of regions of raw queues to the number that their rings need.
void raise_num_bufs(Subject& subject);

}  // namespace daqiri::config
