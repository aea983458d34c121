/// Reads a document into configuration structs, and reports everything that has the wrong form.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/document.h"
#include "config/fields.h"
#include "config/findings.h"

namespace daqiri::config {

/// Keys of a map that the schema does not have.
enum class UnknownKeys {
  /// Errors.
  REFUSED,
  /// Others' keys, never errors; one that looks like a misspelling of ours is a warning.
  FOREIGN,
  IGNORED,
};

class Reader final : public Fields {
 public:
  explicit Reader(Findings& findings) : Fields(Walk::READ), findings_(findings) {}

  /// Walk the keys of `root` with `body`.
  void root(const Node& root, UnknownKeys unknown, const std::function<void()>& body);

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
  void refused(std::string_view name, std::string_view message) override;
  [[nodiscard]] bool given(std::string_view name) const override;
  [[nodiscard]] bool bad(std::string_view name) const override;
  void problem(std::string_view name, const std::string& message) override;
  void ignore_rest() override;

 protected:
  void list_of(Key key, std::size_t size, const std::function<void(std::size_t)>& body) override;

 private:
  struct Missing {
    std::string_view name;
    std::string accepts;
  };
  struct Frame {
    const Node* node;
    std::string path;
    UnknownKeys unknown;
    std::vector<std::string_view> known{};
    std::vector<std::string_view> refused{};
    std::vector<Missing> missing{};
  };

  [[nodiscard]] const Frame& frame() const { return frames_.back(); }
  [[nodiscard]] const Node::Entry* entry(std::string_view name) const;
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return join(frame().path, name);
  }
  /// The value of a key, noted as known; null, and noted as missing, when it is not there.
  const Node* find(Key key, const std::string& accepts);
  /// The text of a scalar; null, and reported, when it is none or was left a placeholder.
  const std::string* scalar(const Node& node, const std::string& path, const std::string& accepts);
  /// Elements of a list; a key without a value is an empty list.
  const std::vector<Node>* items(Key key, const std::string& accepts);
  std::optional<std::int64_t> to_integer(const Node& node, const std::string& path,
                                         const Range& range);
  void walk(const Node& node, std::string path, UnknownKeys unknown,
            const std::function<void()>& body);
  void check_keys();
  void report_unknown(const Node& key, std::vector<std::string_view>& misspelled);

  Findings& findings_;
  std::vector<Frame> frames_;
};

}  // namespace daqiri::config
