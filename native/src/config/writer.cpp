#include "config/writer.h"

#include <algorithm>

namespace daqiri::config {

void Writer::add(Key key, Node value) {
  root_.entries.push_back({Node::scalar(std::string(key.name), false), std::move(value)});
}

Node Writer::nested(const std::function<void()>& body) {
  Node outer = std::move(root_);
  root_ = Node{};
  root_.kind = Node::Kind::MAP;
  body();
  std::swap(outer, root_);
  return outer;
}

void Writer::integer(Key key, std::int64_t& value, const Range&) {
  add(key, Node::scalar(std::to_string(value), false));
}

void Writer::one_of(Key key, int& value, Names names) {
  const std::string text = text_of(names, value);
  // Readers of YAML 1.1 take off for false.
  const bool quote = text.empty() || text == "off";
  add(key, Node::scalar(text, quote));
}

void Writer::flag(Key key, bool& value) { add(key, Node::scalar(value ? "true" : "false", false)); }

void Writer::text(Key key, std::string& value) { add(key, Node::scalar(value, true)); }

void Writer::formatted(Key key, std::string_view, const Parse&, const Print& print) {
  std::string text = print();
  if (text.empty()) return;
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  });
  add(key, Node::scalar(std::move(text), !plain));
}

void Writer::texts(Key key, std::vector<std::string>& values) {
  Node list;
  list.kind = Node::Kind::LIST;
  for (const std::string& value : values) list.items.push_back(Node::scalar(value, true));
  add(key, std::move(list));
}

void Writer::words(Key key, std::vector<std::string>& values, Names) { texts(key, values); }

void Writer::integers(Key key, std::vector<std::int64_t>& values, const Range&) {
  Node list;
  list.kind = Node::Kind::LIST;
  for (const std::int64_t value : values)
    list.items.push_back(Node::scalar(std::to_string(value), false));
  add(key, std::move(list));
}

void Writer::map(Key key, bool& present, const std::function<void()>& body) {
  if (present) add(key, nested(body));
}

void Writer::list_of(Key key, std::size_t size, const std::function<void(std::size_t)>& body) {
  Node list;
  list.kind = Node::Kind::LIST;
  for (std::size_t i = 0; i < size; ++i) list.items.push_back(nested([&] { body(i); }));
  add(key, std::move(list));
}

}  // namespace daqiri::config
