#include "base/pickle_reader.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kProtocolLeast = 2, kProtocolMost = 5;

// Names of the instructions that we refuse, for the one line that says so.
const char* refused_name(uint8_t code) {
  switch (code) {
    case 'c':
      return "GLOBAL (imports a name)";
    case 0x93:
      return "STACK_GLOBAL (imports a name)";
    case 'R':
      return "REDUCE (calls a function)";
    case 'b':
      return "BUILD (fills an object)";
    case 'i':
    case 'o':
    case 0x81:
    case 0x92:
      return "INST, OBJ or NEWOBJ (makes an object)";
    case 'P':
    case 'Q':
      return "PERSID (asks for an outside object)";
    case 0x82:
    case 0x83:
    case 0x84:
      return "EXT (imports a registered name)";
    case 'B':
    case 'C':
    case 0x8e:
    case 0x96:
    case 0x97:
    case 0x98:
      return "bytes or a buffer (no plain data here)";
    case 0x8f:
    case 0x90:
    case 0x91:
      return "a set (no plain data here)";
    default:
      return nullptr;
  }
}

}  // namespace

// The stack machine of a pickle, without the dangerous half.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, const PickleLimits& limits) : pickle_(pickle), bytes_(pickle.bytes_), limits_(limits) {}

  Result<void> run() {
    while (true) {
      if (at_ >= bytes_.size()) return wrong("it ends before its STOP: cut short");
      const auto code = static_cast<uint8_t>(bytes_[at_++]);
      if (at_ == 1 && code != 0x80) return wrong("it does not begin with PROTO: no pickle of protocol 2 to 5");
      if (code == '.') break;
      step(code);
      if (!error_.empty()) return wrong(error_);
    }
    if (at_ != bytes_.size()) return wrong("bytes follow its STOP");
    if (stack_.size() != 1 || !marks_.empty()) return wrong("its STOP leaves no single value");
    pickle_.root_ = stack_[0];
    return {};
  }

 private:
  using Kind = Pickle::Kind;

  Error wrong(const std::string& what) const { return Error{format("pickle, byte %zu: %s", at_, what.c_str())}; }
  void fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

  uint64_t little(size_t bytes) {
    if (bytes_.size() - at_ < bytes) {
      fail("it ends inside a value: cut short");
      at_ = bytes_.size();
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(bytes_[at_ + i])} << (8 * i);
    at_ += bytes;
    return value;
  }

  void push(Pickle::Node node) {
    if (pickle_.nodes_.size() >= limits_.values_max) return fail(format("more than %zu values", limits_.values_max));
    stack_.push_back(static_cast<uint32_t>(pickle_.nodes_.size()));
    pickle_.nodes_.push_back(node);
  }
  void push_int(int64_t value) { push({.kind = Kind::kInt, .integer = value}); }
  void push_text(uint64_t length_untrusted) {
    if (!error_.empty()) return;
    if (length_untrusted > bytes_.size() - at_) return fail("a text that goes past the end: cut short");
    push({.kind = Kind::kText, .integer = static_cast<int64_t>(at_), .number = static_cast<double>(length_untrusted)});
    at_ += length_untrusted;
  }
  // A two's complement number, little end first.
  void push_long(uint64_t length_untrusted) {
    if (!error_.empty()) return;
    if (length_untrusted > 8) return fail("a number of more than 64 bits");
    if (length_untrusted == 0) return push_int(0);
    uint64_t value = little(length_untrusted);
    const unsigned unused = 64 - 8 * static_cast<unsigned>(length_untrusted);
    push_int(static_cast<int64_t>(value << unused) >> unused);
  }
  void push_container(Kind kind, std::vector<uint32_t> items) {
    push({.kind = kind, .items = static_cast<uint32_t>(pickle_.items_.size())});
    if (error_.empty()) pickle_.items_.push_back(std::move(items));
  }

  // The stack above the topmost mark, or the whole of it where there is none.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool has(size_t count) {
    if (stack_.size() - floor() >= count) return true;
    fail("an instruction finds too few values");
    return false;
  }
  std::vector<uint32_t> take(size_t count) {
    if (!has(count)) return {};
    std::vector<uint32_t> taken(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return taken;
  }
  std::vector<uint32_t> take_to_mark() {
    if (marks_.empty()) {
      fail("an instruction finds no mark");
      return {};
    }
    std::vector<uint32_t> taken = take(stack_.size() - marks_.back());
    marks_.pop_back();
    return taken;
  }
  void add_to(Kind kind, const std::vector<uint32_t>& items) {
    if (!error_.empty() || !has(1)) return;
    const Pickle::Node& target = pickle_.nodes_[stack_.back()];
    if (target.kind != kind) return fail("items for a value that takes none");
    if (kind == Kind::kDict && items.size() % 2 != 0) return fail("a key without a value");
    std::vector<uint32_t>& into = pickle_.items_[target.items];
    into.insert(into.end(), items.begin(), items.end());
  }
  void put(uint64_t index) {
    if (!error_.empty() || !has(1)) return;
    if (memo_.size() >= limits_.values_max) return fail(format("more than %zu values", limits_.values_max));
    memo_[static_cast<uint32_t>(index)] = stack_.back();
  }
  void push_again(uint32_t node) {
    if (stack_.size() >= limits_.values_max) return fail(format("more than %zu values", limits_.values_max));
    stack_.push_back(node);
  }
  void get(uint64_t index) {
    if (!error_.empty()) return;
    auto found = memo_.find(static_cast<uint32_t>(index));
    if (found == memo_.end()) return fail("a value is used that was never remembered");
    push_again(found->second);
  }

  void step(uint8_t code) {
    switch (code) {
      case 0x80: {  // PROTO
        const auto protocol = static_cast<int64_t>(little(1));
        if (error_.empty() && (protocol < kProtocolLeast || protocol > kProtocolMost))
          fail(format("protocol %lld (2 to 5 are read)", static_cast<long long>(protocol)));
        return;
      }
      case 0x95:  // FRAME: how much follows in one piece; we have the whole
        little(8);
        return;
      case 'N':
        return push({});
      case 0x88:
        return push({.kind = Kind::kBool, .integer = 1});
      case 0x89:
        return push({.kind = Kind::kBool});
      case 'J':  // BININT
        return push_int(static_cast<int32_t>(static_cast<uint32_t>(little(4))));
      case 'K':
        return push_int(static_cast<int64_t>(little(1)));
      case 'M':
        return push_int(static_cast<int64_t>(little(2)));
      case 0x8a:  // LONG1
        return push_long(little(1));
      case 0x8b:  // LONG4
        return push_long(little(4));
      case 'G': {  // BINFLOAT, big end first
        const uint64_t bits = __builtin_bswap64(little(8));
        return push({.kind = Kind::kFloat, .number = std::bit_cast<double>(bits)});
      }
      case 0x8c:  // SHORT_BINUNICODE
        return push_text(little(1));
      case 'X':
        return push_text(little(4));
      case 0x8d:
        return push_text(little(8));
      case ']':
        return push_container(Kind::kList, {});
      case ')':
        return push_container(Kind::kTuple, {});
      case '}':
        return push_container(Kind::kDict, {});
      case 0x85:
      case 0x86:
      case 0x87: {  // TUPLE1 to TUPLE3
        std::vector<uint32_t> items = take(code - 0x84u);
        return push_container(Kind::kTuple, std::move(items));
      }
      case '(':
        if (marks_.size() >= limits_.depth_max) return fail(format("nested more than %zu deep", limits_.depth_max));
        marks_.push_back(stack_.size());
        return;
      case 't': {
        std::vector<uint32_t> items = take_to_mark();
        return push_container(Kind::kTuple, std::move(items));
      }
      case 'l': {
        std::vector<uint32_t> items = take_to_mark();
        return push_container(Kind::kList, std::move(items));
      }
      case 'd': {
        std::vector<uint32_t> items = take_to_mark();
        if (items.size() % 2 != 0) return fail("a key without a value");
        return push_container(Kind::kDict, std::move(items));
      }
      case 'a':
        return add_to(Kind::kList, take(1));
      case 'e':
        return add_to(Kind::kList, take_to_mark());
      case 's':
        return add_to(Kind::kDict, take(2));
      case 'u':
        return add_to(Kind::kDict, take_to_mark());
      case 'q':
        return put(little(1));
      case 'r':
        return put(little(4));
      case 0x94:  // MEMOIZE
        return put(memo_.size());
      case 'h':
        return get(little(1));
      case 'j':
        return get(little(4));
      case '0':
        take(1);
        return;
      case '1':
        take_to_mark();
        return;
      case '2':
        if (has(1)) push_again(stack_.back());
        return;
      default:
        if (const char* name = refused_name(code)) return fail(format("%s is refused: only plain data is read", name));
        return fail(format("instruction 0x%02x is not known", code));
    }
  }

  Pickle& pickle_;
  const std::string& bytes_;
  const PickleLimits limits_;
  size_t at_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, uint32_t> memo_;
  std::string error_;
};

Result<Pickle> Pickle::parse_untrusted(std::string bytes, const PickleLimits& limits) {
  if (bytes.size() > limits.bytes_max)
    return Error{format("pickle of %zu bytes (limit %zu)", bytes.size(), limits.bytes_max)};
  Pickle pickle;
  pickle.bytes_ = std::move(bytes);
  LOCKSTEP_TRY(PickleMachine(pickle, limits).run());
  return pickle;
}

bool PickleValue::is_none() const {
  return present() && pickle_->nodes_[node_].kind == Pickle::Kind::kNone;
}
bool PickleValue::is_list() const {
  if (!present()) return false;
  const Pickle::Kind kind = pickle_->nodes_[node_].kind;
  return kind == Pickle::Kind::kList || kind == Pickle::Kind::kTuple;
}
bool PickleValue::is_dict() const {
  return present() && pickle_->nodes_[node_].kind == Pickle::Kind::kDict;
}

std::optional<bool> PickleValue::boolean() const {
  if (!present() || pickle_->nodes_[node_].kind != Pickle::Kind::kBool) return std::nullopt;
  return pickle_->nodes_[node_].integer != 0;
}
std::optional<int64_t> PickleValue::integer() const {
  if (!present() || pickle_->nodes_[node_].kind != Pickle::Kind::kInt) return std::nullopt;
  return pickle_->nodes_[node_].integer;
}
std::optional<double> PickleValue::number() const {
  if (std::optional<int64_t> whole = integer()) return static_cast<double>(*whole);
  if (!present() || pickle_->nodes_[node_].kind != Pickle::Kind::kFloat) return std::nullopt;
  return pickle_->nodes_[node_].number;
}
std::optional<std::string_view> PickleValue::text() const {
  if (!present() || pickle_->nodes_[node_].kind != Pickle::Kind::kText) return std::nullopt;
  const Pickle::Node& node = pickle_->nodes_[node_];
  return std::string_view(pickle_->bytes_).substr(static_cast<size_t>(node.integer), static_cast<size_t>(node.number));
}

size_t PickleValue::size() const {
  if (is_list()) return pickle_->items_[pickle_->nodes_[node_].items].size();
  if (is_dict()) return pickle_->items_[pickle_->nodes_[node_].items].size() / 2;
  return 0;
}
PickleValue PickleValue::at(size_t item) const {
  if (item >= size()) return {};
  const std::vector<uint32_t>& items = pickle_->items_[pickle_->nodes_[node_].items];
  return {pickle_, is_dict() ? items[2 * item + 1] : items[item]};
}
PickleValue PickleValue::key(size_t pair) const {
  if (!is_dict() || pair >= size()) return {};
  return {pickle_, pickle_->items_[pickle_->nodes_[node_].items][2 * pair]};
}
PickleValue PickleValue::operator[](std::string_view wanted) const {
  if (!is_dict()) return {};
  for (size_t pair = size(); pair > 0; --pair) {
    if (key(pair - 1).text() == wanted) return at(pair - 1);
  }
  return {};
}

}  // namespace lockstep
