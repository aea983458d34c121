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
  /// Of a scalar.
  std::string text;
  /// The scalar is a text, whatever it looks like: it was read in quotes, or is written in them.
  bool quoted;
  std::vector<Node> items;
  std::vector<Entry> entries;

  explicit Node(Kind what = Kind::NONE, std::string scalar = {}, bool in_quotes = false);
  /// Of a map: the first with this key; null when there is none.
  [[nodiscard]] const Entry* entry(std::string_view name) const;
};

struct Node::Entry {
  Node key;
  Node value;
};

struct Document {
  Node root;
  /// Where a second document begins, which nobody reads.
  std::optional<Mark> next;
};

struct SyntaxProblem {
  Mark mark;
  std::string message;
};

/// Bytes of text that are parsed at most.
inline constexpr std::size_t MAX_TEXT_SIZE = std::size_t{4} * 1024 * 1024;

/// Parse the first document of `text`. Nesting, size and the expansion of aliases are bounded,
/// and no scalar has bytes that are not UTF-8.
std::optional<SyntaxProblem> parse_yaml(std::string_view text, Document& document);

std::string write_yaml(const Node& root);

/// Offset of the first byte that is not UTF-8; npos: all of it is.
std::size_t find_invalid_utf8(std::string_view text) noexcept;

}  // namespace daqiri::config
