// Lists the keys of the schema.
#include "config/schema.h"

namespace daqiri::config {
namespace {

class KeyList final : public Fields {
 public:
  KeyList() : Fields(Walk::LIST) {}

  std::vector<std::string> keys;

  void integer(Key key, std::int64_t&, const Range&) override { add(key); }
  void one_of(Key key, int&, Names) override { add(key); }
  void flag(Key key, bool&) override { add(key); }
  void text(Key key, std::string&) override { add(key); }
  void formatted(Key key, std::string_view, const Parse&, const Print&) override { add(key); }
  void texts(Key key, std::vector<std::string>&) override { add(key); }
  void words(Key key, std::vector<std::string>&, Names) override { add(key); }
  void integers(Key key, std::vector<std::int64_t>&, const Range&) override { add(key); }
  using Fields::map;
  void map(Key key, bool&, const std::function<void()>& body) override { nest(key, ".", body); }
  void refused(std::string_view, std::string_view) override {}

 protected:
  void list_of(Key key, std::size_t, const std::function<void(std::size_t)>& body) override {
    nest(key, "[].", [&] { body(0); });
  }

 private:
  void add(Key key) { keys.push_back(prefix_ + std::string(key.name)); }

  void nest(Key key, std::string_view separator, const std::function<void()>& body) {
    add(key);
    const std::string outer = prefix_;
    prefix_ += std::string(key.name) + std::string(separator);
    body();
    prefix_ = outer;
  }

  std::string prefix_;
};

}  // namespace

std::vector<std::string> known_keys() {
  KeyList list;
  NetworkConfig config;
  walk_config(list, config);
  return std::move(list.keys);
}

}  // namespace daqiri::config
