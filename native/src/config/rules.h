/// What must hold between the values of a configuration, and what follows from them.
#pragma once

#include <algorithm>
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
  /// Reports the values that stand in `owner.list` before.
  template <class Base>
  Index(const Place& owner, std::string_view list, std::string_view key,
        const std::vector<Element>& elements, Value Base::* member)
      : elements_(elements),
        member_(member),
        kind_(concat(key == "id" ? "an " : "a ", key)),
        list_(list),
        known_(!owner[list].bad()) {
    for (const auto& [element, place] : placed(elements, owner[list])) {
      const Place at = place[key];
      const bool bad = at.bad();
      const auto [first, is_new] = first_.emplace(element.*member, &element);
      known_ = known_ && is_new && !bad;
      if (!is_new && !bad)
        at.error("found ", shown(first->first), ", also the ", key, " of ",
                 owner[list][static_cast<std::size_t>(first->second - elements.data())].path(),
                 "; accepts ", kind_, " of its own");
    }
  }

  [[nodiscard]] const Element* find(const Value& value) const {
    const auto found = first_.find(value);
    return found == first_.end() ? nullptr : found->second;
  }
  /// Null, and reported at `at`, when there is no such element. While some element's own key is
  /// wrong or taken, a reference that leads nowhere is no second mistake.
  const Element* find(const Value& value, const Place& at, std::string_view what) const {
    const Element* found = find(value);
    if (found != nullptr || !known_) return found;
    constexpr std::size_t MOST_LISTED = 16;
    std::string accepted;
    for (std::size_t i = 0; i < std::min(elements_.size(), MOST_LISTED); ++i)
      accepted += concat(i > 0 ? ", " : "", shown(elements_[i].*member_));
    if (elements_.size() > MOST_LISTED) accepted += ", ...";
    if (elements_.empty()) accepted = concat(kind_, " under ", list_, ", which is empty");
    at.error("found ", shown(value), ", which is no ", what, "; accepts ", accepted);
    return nullptr;
  }

 private:
  const std::vector<Element>& elements_;
  Value Element::* member_;
  std::string kind_;
  std::string_view list_;
  bool known_;
  std::map<Value, const Element*> first_;
};

/// Reports the values of `key` that stand in the list before.
template <class Element, class Base, class Value>
void check_unique(const Place& owner, std::string_view list, std::string_view key,
                  const std::vector<Element>& elements, Value Base::* member) {
  static_cast<void>(Index<Element, Value>(owner, list, key, elements, member));
}

/// What the rules work on.
struct Subject {
  NetworkConfig& config;
  Place root;
  Index<MemoryRegionConfig, std::string> regions{root, "memory_regions", "name", config.mrs_,
                                                 &MemoryRegionConfig::name_};
  /// False: the endpoints are wrong or missing, and CommonConfig::protocol is a guess.
  bool transport_known{true};
  /// Of the engine, once it is resolved.
  EngineTraits traits{};
  /// The flow ids given so far, and by which flows.
  std::map<FlowId, std::string> flow_ids{};

  [[nodiscard]] bool raw() const { return config.common_.stream_type == StreamType::RAW; }
  /// The stream is known to be one of sockets.
  [[nodiscard]] bool sockets() const { return !raw() && !root["stream_type"].bad(); }
  [[nodiscard]] bool in_memory() const { return config.common_.loopback_ == LoopbackType::SW; }
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
