// Writes configuration structs as a document, every default included, and lists the keys.
#include <utility>

#include "config/schema.h"

namespace daqiri::config {
namespace {

/// While listing, with every key there is: lists have one element.
class Writer final : public Fields {
 public:
  explicit Writer(Walk walk) : Fields(walk) { map_.kind = Node::Kind::MAP; }

  [[nodiscard]] Node take() && { return std::move(map_); }

  using Fields::map;
  void map(Key key, bool& present, const std::function<void()>& body) override {
    if (present || listing()) add(key, nested(body));
  }

 protected:
  void scalar(Key key, std::string_view, const Read&, const std::optional<Node>& written) override {
    if (written || listing()) add(key, written.value_or(Node{}));
  }
  void scalars(Key key, std::string_view, std::string_view, const Read&,
               std::vector<std::string>& texts, bool quoted) override {
    Node list{.kind = Node::Kind::LIST};
    for (const std::string& text : texts) list.items.push_back(Node::scalar(text, quoted));
    add(key, std::move(list));
  }
  void list_of(Key key, std::size_t size, const std::function<void(std::size_t)>& body) override {
    Node list{.kind = Node::Kind::LIST};
    for (std::size_t i = 0; i < (listing() ? 1 : size); ++i)
      list.items.push_back(nested([&] { body(i); }));
    add(key, std::move(list));
  }

 private:
  void add(Key key, Node value) {
    map_.entries.push_back({Node::scalar(std::string(key.name), false), std::move(value)});
  }
  /// What `body` writes, as a map.
  Node nested(const std::function<void()>& body) {
    Node outer = std::exchange(map_, Node{.kind = Node::Kind::MAP});
    body();
    std::swap(outer, map_);
    return outer;
  }

  Node map_;
};

Node write(NetworkConfig config, Fields::Walk walk) {
  Writer writer(walk);
  walk_config(writer, config);
  return std::move(writer).take();
}

void list_keys(const Node& map, const std::string& prefix, std::vector<std::string>& keys) {
  for (const auto& [key, value] : map.entries) {
    keys.push_back(prefix + key.text);
    list_keys(value, keys.back() + ".", keys);
    if (!value.items.empty()) list_keys(value.items.front(), prefix + key.text + "[].", keys);
  }
}

}  // namespace

Node write_config(const NetworkConfig& config) { return write(config, Fields::Walk::WRITE); }

Node default_config() { return write({}, Fields::Walk::LIST); }

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  list_keys(default_config(), {}, keys);
  return keys;
}

}  // namespace daqiri::config
