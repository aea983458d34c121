#include "config/document.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "config/findings.h"

namespace daqiri::config {
namespace {

/// Limit for the size of a document in memory, including expanded aliases.
constexpr std::size_t MAX_DOCUMENT_SIZE = std::size_t{64} * 1024 * 1024;

Mark to_mark(const YAML::Mark& mark) {
  return mark.is_null() ? Mark{} : Mark{mark.line + 1, mark.column + 1};
}

struct Refused : std::runtime_error {
  Refused(Mark where, const std::string& message) : std::runtime_error(message), mark(where) {}
  Mark mark;
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  Node root;
  Mark start;

  void OnDocumentStart(const YAML::Mark& mark) override { start = to_mark(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(node_at(mark, Node::Kind::NONE), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node = node_at(mark, Node::Kind::SCALAR, value);
    // "?": neither quotes nor a tag.
    node.quoted = !tag.empty() && tag != "?";
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto target = anchors_.find(anchor);
    if (target == anchors_.end())
      throw Refused(to_mark(mark), "an alias is inside the value that it refers to");
    charge(target->second, to_mark(mark));
    add(target->second, YAML::NullAnchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({node_at(mark, Node::Kind::LIST), anchor});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open_.push_back({node_at(mark, Node::Kind::MAP), anchor});
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    /// While a map is open, its keys and values alternate in `items`.
    Node node;
    YAML::anchor_t anchor;
  };

  Node node_at(const YAML::Mark& mark, Node::Kind kind, const std::string& text = {}) {
    Node node(kind, text);
    node.mark = to_mark(mark);
    charge(node, node.mark);
    return node;
  }

  void charge(const Node& node, Mark mark) {
    size_ += sizeof(Node) + node.text.size();
    if (size_ > MAX_DOCUMENT_SIZE)
      throw Refused(mark,
                    "the document is larger than 64 MiB in memory, aliases expanded; accepts "
                    "smaller ones");
    for (const Node& item : node.items) charge(item, mark);
    for (const auto& [key, value] : node.entries) {
      charge(key, mark);
      charge(value, mark);
    }
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.node.kind == Node::Kind::MAP) {
      std::vector<Node> items = std::exchange(done.node.items, {});
      for (std::size_t i = 0; i + 1 < items.size(); i += 2)
        done.node.entries.push_back({std::move(items[i]), std::move(items[i + 1])});
    }
    add(std::move(done.node), done.anchor);
  }

  void add(Node node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      charge(node, node.mark);
      anchors_[anchor] = node;
    }
    if (open_.empty()) {
      root = std::move(node);
    } else {
      open_.back().node.items.push_back(std::move(node));
    }
  }

  std::vector<Open> open_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::size_t size_{0};
};

/// Finds bytes that yaml-cpp accepts or treats as the end of the file.
std::optional<SyntaxProblem> find_invalid_character(std::string_view text) {
  const auto control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r';
  };
  const auto first_control =
      static_cast<std::size_t>(std::ranges::find_if(text, control) - text.begin());
  const std::size_t offset = std::min(first_control, find_invalid_utf8(text));
  if (offset >= text.size()) return std::nullopt;
  const std::string_view before = text.substr(0, offset);
  // npos + 1 is the beginning of the text.
  const std::size_t line_begin = before.rfind('\n') + 1;
  return SyntaxProblem{{static_cast<int>(std::ranges::count(before, '\n')) + 1,
                        static_cast<int>(offset - line_begin) + 1},
                       concat("found byte ", static_cast<unsigned char>(text[offset]),
                              ", which is not allowed in a YAML file; accepts UTF-8 text without "
                              "control characters")};
}

void emit(YAML::Emitter& out, const Node& node) {
  if (node.kind == Node::Kind::NONE) {
    out << YAML::Null;
  } else if (node.kind == Node::Kind::SCALAR) {
    if (node.quoted) out << YAML::DoubleQuoted;
    out << node.text;
  } else {
    const bool list = node.kind == Node::Kind::LIST;
    if (node.items.empty() && node.entries.empty()) out << YAML::Flow;
    out << (list ? YAML::BeginSeq : YAML::BeginMap);
    for (const Node& item : node.items) emit(out, item);
    for (const auto& [key, value] : node.entries) {
      out << YAML::Key << key.text << YAML::Value;
      emit(out, value);
    }
    out << (list ? YAML::EndSeq : YAML::EndMap);
  }
}

}  // namespace

Node::Node(Kind what, std::string scalar, bool in_quotes)
    : kind(what), text(std::move(scalar)), quoted(in_quotes) {}

const Node::Entry* Node::entry(std::string_view name) const {
  const auto match = std::ranges::find_if(entries, [&](const Entry& each) {
    return each.key.kind == Kind::SCALAR && each.key.text == name;
  });
  return match == entries.end() ? nullptr : &*match;
}

std::optional<SyntaxProblem> parse_yaml(std::string_view text, Document& document) {
  if (text.size() > MAX_TEXT_SIZE)
    return SyntaxProblem{
        {}, concat("the text has ", text.size(), " bytes; accepts at most ", MAX_TEXT_SIZE)};
  if (auto problem = find_invalid_character(text)) return problem;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder first;
    if (!parser.HandleNextDocument(first)) return std::nullopt;
    TreeBuilder second;
    if (parser.HandleNextDocument(second) && second.root.kind != Node::Kind::NONE)
      document.next = second.start;
    document.root = std::move(first.root);
    return std::nullopt;
  } catch (const Refused& refused) {
    return SyntaxProblem{refused.mark, refused.what()};
  } catch (const YAML::Exception& exception) {
    return SyntaxProblem{to_mark(exception.mark), "not valid YAML: " + exception.msg};
  }
}

std::string write_yaml(const Node& root) {
  YAML::Emitter out;
  emit(out, root);
  return std::string(out.c_str()) + "\n";
}

}  // namespace daqiri::config
