/// A YAML document as a small tree that keeps source positions and repeated keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace daqiri::config {

/// 1-based; line 0: unknown.
struct Mark {
  int line{0};
  int column{0};
};

struct Node {
  enum class Kind { NONE, SCALAR, LIST, MAP };
  struct Entry;

  Kind kind;
  Mark mark;
  /// For a scalar.
  std::string text;
  /// Whether the scalar is text regardless of its form: read with quotes, or to be written with
  /// quotes.
  bool quoted;
  std::vector<Node> items;
  std::vector<Entry> entries;

  explicit Node(Kind what = Kind::NONE, std::string scalar = {}, bool in_quotes = false);
  /// For a map: the first entry with this key; null if there is none.
  [[nodiscard]] const Entry* entry(std::string_view name) const;
};

struct Node::Entry {
  Node key;
  Node value;
};

struct Document {
  Node root;
  /// Position of a second document, which is not read.
  std::optional<Mark> next;
};

struct SyntaxProblem {
  Mark mark;
  std::string message;
};

/// Limit for the text, in bytes.
inline constexpr std::size_t MAX_TEXT_SIZE = std::size_t{4} * 1024 * 1024;

/// Parse the first document of `text`. Nesting, size and the expansion of aliases are limited; all
/// scalars are valid UTF-8.
std::optional<SyntaxProblem> parse_yaml(std::string_view text, Document& document);

std::string write_yaml(const Node& root);

}  // namespace daqiri::config
