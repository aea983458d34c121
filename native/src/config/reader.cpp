// Reads a document into configuration structs, and reports everything that has
// the wrong form.
#include <algorithm>
#include <map>
#include <numeric>

#include "config/schema.h"

namespace daqiri::config {
namespace {

std::string describe(const Node& node) {
  if (node.kind == Node::Kind::SCALAR) return quoted(node.text);
  if (node.kind == Node::Kind::NONE) return "nothing";
  return node.kind == Node::Kind::LIST ? "a list" : "a map";
}

/// Fewest single-character insertions, removals and substitutions that turn one
/// text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

/// What templates leave for the user to fill in: <0000:00:00.0>.
bool has_placeholder(const std::string& text) {
  const std::size_t open = text.find('<');
  return open != std::string::npos && text.find('>', open) != std::string::npos;
}

class Reader final : public Fields {
 public:
  explicit Reader(Findings& findings) : Fields(Walk::READ), findings_(findings) {}

  /// Walk the keys of `node` with `body`.
  void walk(const Node& node, const Place& at, UnknownKeys unknown,
            const std::function<void()>& body) {
    findings_.place(at.path(), node.mark);
    frames_.push_back({&node, at, unknown});
    body();
    check_keys();
    frames_.pop_back();
  }

  using Fields::map;
  void map(Key key, bool& present, const std::function<void()>& body) override {
    const Node* node = find(key, "a map");
    present = node != nullptr;
    if (present && expect(*node, Node::Kind::MAP, at(key.name), "a map", true))
      walk(*node, at(key.name), UnknownKeys::REFUSED, body);
  }
  void refused(std::string_view name, std::string_view message) override {
    frames_.back().refused.push_back(name);
    if (const Node::Entry* entry = entry_of(name)) {
      findings_.key_error(at(name).path(), entry->key.mark, std::string(message));
      findings_.spoil(at(name).path());
    }
  }
  [[nodiscard]] bool given(std::string_view name) const override {
    return entry_of(name) != nullptr;
  }
  [[nodiscard]] bool bad(std::string_view name) const override { return at(name).bad(); }
  void problem(std::string_view name, const std::string& message) override {
    (name.empty() ? frame().at : at(name)).error(message);
  }
  void ignore_rest() override { frames_.back().unknown = UnknownKeys::IGNORED; }

 protected:
  void scalar(Key key, std::string_view accepts, const Read& read,
              const std::optional<Node>&) override {
    if (const Node* node = find(key, accepts)) read_scalar(*node, at(key.name), accepts, read);
  }
  void scalars(Key key, std::string_view accepts, std::string_view each, const Read& read,
               std::vector<std::string>& texts, bool) override {
    const std::vector<Node>* nodes = elements(key, accepts);
    if (nodes == nullptr) return;
    texts.clear();
    for (std::size_t i = 0; i < nodes->size(); ++i) {
      const Place place = at(key.name)[i];
      findings_.place(place.path(), (*nodes)[i].mark);
      read_scalar((*nodes)[i], place, each, read);
      texts.push_back((*nodes)[i].text);
    }
  }
  void list_of(Key key, std::size_t, const std::function<void(std::size_t)>& body) override {
    const std::vector<Node>* nodes = elements(key, "a list of maps");
    for (std::size_t i = 0; nodes != nullptr && i < nodes->size(); ++i) {
      const Node& node = (*nodes)[i];
      const Place place = at(key.name)[i];
      findings_.place(place.path(), node.mark);
      // An element of the wrong kind is kept, empty, so that the others keep
      // their positions.
      expect(node, Node::Kind::MAP, place, "a map");
      walk(node, place, UnknownKeys::REFUSED, [&] { body(i); });
    }
  }

 private:
  struct Frame {
    const Node* node;
    Place at;
    UnknownKeys unknown;
    std::vector<std::string_view> known{}, refused{};
    /// Required keys that are not there, and what they accept.
    std::vector<std::pair<std::string_view, std::string>> missing{};
  };

  [[nodiscard]] const Frame& frame() const { return frames_.back(); }
  [[nodiscard]] Place at(std::string_view name) const { return frame().at[name]; }
  [[nodiscard]] const Node::Entry* entry_of(std::string_view name) const {
    return frame().node->entry(name);
  }

  /// The value of a key, noted as known; null, and noted as missing, when it is
  /// not there.
  const Node* find(Key key, std::string_view accepts) {
    frames_.back().known.push_back(key.name);
    const Node::Entry* match = entry_of(key.name);
    if (match == nullptr) {
      if (key.required) frames_.back().missing.emplace_back(key.name, accepts);
      return nullptr;
    }
    // A key without a value has no place of its own.
    const bool none = match->value.kind == Node::Kind::NONE;
    findings_.place(at(key.name).path(), none ? match->key.mark : match->value.mark);
    return &match->value;
  }

  /// `or_none`: a key without a value is an empty map or list.
  static bool expect(const Node& node, Node::Kind kind, const Place& place,
                     std::string_view accepts, bool or_none = false) {
    const bool good = node.kind == kind || (or_none && node.kind == Node::Kind::NONE);
    if (!good) place.error("found ", describe(node), "; accepts ", accepts);
    return good;
  }

  static void read_scalar(const Node& node, const Place& place, std::string_view accepts,
                          const Read& read) {
    if (!expect(node, Node::Kind::SCALAR, place, accepts)) return;
    const std::string wrong =
        has_placeholder(node.text) ? "a placeholder that was never filled in" : read(node.text);
    if (!wrong.empty())
      place.error("found ", quoted(node.text), ", ", wrong, "; accepts ", accepts);
  }

  /// Elements of a list.
  const std::vector<Node>* elements(Key key, std::string_view accepts) {
    const Node* node = find(key, accepts);
    const bool list =
        node != nullptr && expect(*node, Node::Kind::LIST, at(key.name), accepts, true);
    return list ? &node->items : nullptr;
  }

  void check_keys() {
    std::vector<std::string_view> misspelled;
    std::map<std::string_view, int> lines;
    const auto among = [](const auto& names, std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (const auto& [key, value] : frame().node->entries) {
      if (key.kind != Node::Kind::SCALAR) {
        if (frame().unknown == UnknownKeys::REFUSED)
          findings_.key_error(frame().at.path(), key.mark,
                              concat("found ", describe(key), " as a key; accepts a text"));
        continue;
      }
      const bool ours = among(frame().known, key.text);
      if (!ours && !among(frame().refused, key.text)) report_unknown(key, misspelled);
      const auto [first, is_new] = lines.emplace(key.text, key.mark.line);
      if (ours && !is_new)
        findings_.key_error(
            at(key.text).path(), key.mark,
            concat("the key is given twice, first in line ", first->second, "; keep one"));
    }
    for (const auto& [name, accepts] : frame().missing) {
      if (among(misspelled, name)) {
        findings_.spoil(at(name).path());
      } else {
        at(name).error("required, but not given; accepts ", accepts);
      }
    }
  }

  void report_unknown(const Node& key, std::vector<std::string_view>& misspelled) {
    constexpr std::size_t LONGEST_KEY = 64;
    if (frame().unknown == UnknownKeys::IGNORED || frame().known.empty()) return;
    std::string_view nearest;
    std::string accepted;
    std::size_t best = LONGEST_KEY * 2;
    for (const std::string_view candidate : frame().known) {
      const std::size_t distance = edit_distance(key.text.substr(0, LONGEST_KEY), candidate);
      if (distance < best) nearest = candidate;
      best = std::min(best, distance);
      accepted += concat(accepted.empty() ? "" : ", ", candidate);
    }
    // A slip in three letters makes it likely that this key was meant.
    const bool likely = 3 * best <= nearest.size() + 3 && !given(nearest);
    const std::string name = quoted(key.text);
    const std::string path = at(name.substr(1, name.size() - 2)).path();
    if (frame().unknown == UnknownKeys::REFUSED) {
      if (likely) misspelled.push_back(nearest);
      findings_.key_error(
          path, key.mark,
          concat("unknown key ", name, ", nearest is '", nearest, "'; accepts ", accepted));
    } else if (likely) {
      findings_.warning_at(path, key.mark,
                           concat("is left alone; if it is ours, it is '", nearest, "'"));
    }
  }

  Findings& findings_;
  std::vector<Frame> frames_;
};

}  // namespace

void read_config(const Node& root, UnknownKeys unknown, Findings& findings, NetworkConfig& config) {
  Reader reader(findings);
  reader.walk(root, Place(findings), unknown, [&] { walk_config(reader, config); });
}

}  // namespace daqiri::config
