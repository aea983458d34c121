/// Rules between the values of a configuration, and values that are derived from others.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/findings.h"
#include "daqiri/config.h"
#include "engine/traits.h"

namespace daqiri::config {

/// Those of the engine that serves the configuration; of none while that is not known.
EngineTraits traits_of(const NetworkConfig& config) noexcept;

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

/// The elements of a list by a key, `name` or `id`, that is unique in it.
template <class Element, class Value>
class Index {
 public:
  using Get = std::function<const Value&(const Element&)>;

  /// Reports the values that stand in `owner.list` before.
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
                 owner[list][first->second].path(), "; accepts ", kind_, " of its own");
    }
  }

  [[nodiscard]] const Element* find(const Value& value) const {
    const auto found = first_.find(value);
    return found == first_.end() ? nullptr : elements_[found->second];
  }
  /// Null, and reported at `at`, when there is no such element. While some element's own key is
  /// wrong or taken, a reference that leads nowhere is no second mistake.
  const Element* find(const Value& value, const Place& at, std::string_view what) const {
    const Element* found = find(value);
    if (found != nullptr || !known_) return found;
    constexpr std::size_t MOST_LISTED = 16;
    std::string accepted;
    for (std::size_t i = 0; i < std::min(elements_.size(), MOST_LISTED); ++i)
      accepted += concat(i > 0 ? ", " : "", shown(get_(*elements_[i])));
    if (elements_.size() > MOST_LISTED) accepted += ", ...";
    if (elements_.empty()) accepted = concat(kind_, " under ", list_, ", which is empty");
    at.error("found ", shown(value), ", which is no ", what, "; accepts ", accepted);
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

/// Reports the values of `key` that stand in the list before.
template <class Value, class Element>
void check_unique(const Place& owner, std::string_view list, std::string_view key,
                  const std::vector<Element>& elements,
                  const typename Index<Element, Value>::Get& get) {
  static_cast<void>(Index<Element, Value>(owner, list, key, elements, get));
}

/// What the rules work on.
struct Subject {
  NetworkConfig& config;
  Place root;
  Index<MemoryRegionConfig, std::string> regions{
      root, "memory_regions", "name", memory_regions(config), &MemoryRegionConfig::name_};
  /// False: the endpoints are wrong or missing, and CommonConfig::protocol is a guess.
  bool transport_known{true};
  /// Of the engine, once it is resolved.
  EngineTraits traits{};
  /// The flow ids given so far, and by which flows.
  std::map<FlowId, std::string> flow_ids{};

  [[nodiscard]] bool raw() const { return config.common_.stream_type == StreamType::RAW; }
  /// The stream is known to be one of sockets.
  [[nodiscard]] bool sockets() const { return !raw() && !root["stream_type"].bad(); }
  [[nodiscard]] bool in_memory() const {
    return config.common_.loopback_ == LoopbackType::LOOPBACK_TYPE_SW;
  }
  [[nodiscard]] auto interfaces() const { return placed(config.ifs_, root["interfaces"]); }
};

/// All rules, in an order in which the later ones can use what the earlier ones derive.
void apply_rules(NetworkConfig& config, Findings& findings);

// Of an interface.
void check_queues_and_flows(Subject& subject, const InterfaceConfig& interface, const Place& at);
void check_reorder(const Subject& subject, InterfaceConfig& interface, const Place& at);

/// Give regions of raw queues the buffers that their rings need.
void raise_num_bufs(Subject& subject);

}  // namespace daqiri::config
