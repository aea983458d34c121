/// Writes configuration structs as a document, every default included.
#pragma once

#include "config/document.h"
#include "config/fields.h"

namespace daqiri::config {

class Writer final : public Fields {
 public:
  Writer() : Fields(Walk::WRITE) { root_.kind = Node::Kind::MAP; }

  [[nodiscard]] Node take() && { return std::move(root_); }

  void integer(Key key, std::int64_t& value, const Range& range) override;
  void one_of(Key key, int& value, Names names) override;
  void flag(Key key, bool& value) override;
  void text(Key key, std::string& value) override;
  void formatted(Key key, std::string_view accepts, const Parse& parse,
                 const Print& print) override;
  void texts(Key key, std::vector<std::string>& values) override;
  void words(Key key, std::vector<std::string>& values, Names names) override;
  void integers(Key key, std::vector<std::int64_t>& values, const Range& range) override;
  using Fields::map;
  void map(Key key, bool& present, const std::function<void()>& body) override;
  void refused(std::string_view, std::string_view) override {}

 protected:
  void list_of(Key key, std::size_t size, const std::function<void(std::size_t)>& body) override;

 private:
  void add(Key key, Node value);
  /// What `body` writes, as a map.
  Node nested(const std::function<void()>& body);

  Node root_;
};

}  // namespace daqiri::config
