/// What must hold between the values of a configuration, and what follows from them.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/findings.h"
#include "daqiri/config.h"
#include "engine/traits.h"

namespace daqiri::config {

/// Those of the engine that serves the configuration; of none while that is not known.
EngineTraits traits_of(const NetworkConfig& config) noexcept;

inline std::string shown(const std::string& name) { return quoted(name); }
inline std::string shown(std::integral auto number) { return std::to_string(number); }

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
        among_(concat(key == "id" ? "an id" : "a name", " under ", list)),
        known_(!owner[list].bad()) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const Place at = owner[list][i][key];
      const bool bad = at.bad();
      const auto [first, is_new] = first_.emplace(elements[i].*member, i);
      known_ = known_ && is_new && !bad;
      if (!is_new && !bad)
        at.error("found ", shown(first->first), ", also the ", key, " of ",
                 owner[list][first->second].path(), "; accepts ",
                 among_.substr(0, among_.find(' ')), " ", key, " of its own");
    }
  }

  [[nodiscard]] const Element* find(const Value& value) const {
    const auto found = first_.find(value);
    return found == first_.end() ? nullptr : &elements_[found->second];
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
    at.error("found ", shown(value), ", which is no ", what, "; accepts ",
             accepted.empty() ? among_ + ", which is empty" : accepted);
    return nullptr;
  }

 private:
  const std::vector<Element>& elements_;
  Value Element::* member_;
  std::string among_;
  bool known_;
  std::map<Value, std::size_t> first_;
};

template <class Element, class Base, class Value>
Index(const Place&, std::string_view, std::string_view, const std::vector<Element>&, Value Base::*)
    -> Index<Element, Value>;

/// Reports the values of `key` that stand in the list before.
template <class Element, class Base, class Value>
void check_unique(const Place& owner, std::string_view list, std::string_view key,
                  const std::vector<Element>& elements, Value Base::* member) {
  static_cast<void>(Index(owner, list, key, elements, member));
}

/// What the rules work on.
struct Subject {
  Subject(NetworkConfig& subject, Findings& findings)
      : config(subject),
        root(findings),
        regions(root, "memory_regions", "name", config.mrs_, &MemoryRegionConfig::name_) {}

  NetworkConfig& config;
  Place root;
  Index<MemoryRegionConfig, std::string> regions;
  /// False: the endpoints are wrong or missing, and CommonConfig::protocol is a guess.
  bool transport_known{true};
  /// Of the engine, once it is resolved.
  EngineTraits traits{};

  [[nodiscard]] bool raw() const { return config.common_.stream_type == StreamType::RAW; }
  /// The stream is known to be one of sockets.
  [[nodiscard]] bool sockets() const { return !raw() && !root["stream_type"].bad(); }
  [[nodiscard]] bool in_memory() const { return config.common_.loopback_ == LoopbackType::SW; }
  [[nodiscard]] Place interface(std::size_t i) const { return root["interfaces"][i]; }
};

/// All rules, in an order in which the later ones can use what the earlier ones derive.
void apply_rules(NetworkConfig& config, Findings& findings);

/// Transport of a socket stream: CommonConfig::protocol, also filled into endpoints without a
/// scheme.
void resolve_transport(Subject& subject);
/// CommonConfig::engine_type, and the engine's traits.
void resolve_engine(Subject& subject);
void check_sockets(Subject& subject);
void check_queues(Subject& subject);
/// Give regions of raw queues the buffers that their rings need.
void raise_num_bufs(Subject& subject);
void check_flows(Subject& subject);
void check_reorder(Subject& subject);
/// Warn of the values that the engine does not use.
void check_unused(const Subject& subject);

}  // namespace daqiri::config
