#include "alert/rules/rule_template.h"

#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <variant>

#include "base/text.h"
#include "base/utc_time.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

using Item = std::variant<double, std::string, bool>;
// Thrown and caught within one parse or one expansion.
struct Failed {
  std::string line;
};

enum class Data : uint8_t { kLabels, kValue, kExternalLabels, kExternalUrl };

}  // namespace

// A piece of a template: text, something to print, or a choice.
struct RuleTemplate::Node {
  // What stands between two bars, or in brackets: a function with arguments, or a single operand.
  struct Operand;
  struct Command {
    std::string function;  // empty: the operand itself
    std::vector<Operand> operands;
  };
  using Pipeline = std::vector<Command>;
  struct Operand {
    enum class Kind : uint8_t { kConstant, kData, kPipeline } kind = Kind::kConstant;
    Item constant = 0.0;
    Data data = Data::kValue;
    std::string field;  // of the labels
    Pipeline pipeline = {};
  };
  std::string text;
  Pipeline pipeline;  // printed, or the condition
  bool is_choice = false;
  std::vector<Node> then, otherwise;
};

namespace {

using Node = RuleTemplate::Node;

double number_of(const Item& item) {
  if (const double* number = std::get_if<double>(&item)) return *number;
  if (const std::string* text = std::get_if<std::string>(&item)) {
    if (const std::optional<double> number = parse_double(*text)) return *number;
    throw Failed{"\"" + as_one_line(text->substr(0, 40)) + "\" is no number"};
  }
  throw Failed{"true and false are no numbers"};
}

std::string text_of(const Item& item) {
  if (const double* number = std::get_if<double>(&item)) return go_number(*number);
  if (const bool* truth = std::get_if<bool>(&item)) return *truth ? "true" : "false";
  return std::get<std::string>(item);
}

bool truth_of(const Item& item) {
  if (const double* number = std::get_if<double>(&item)) return *number != 0;
  if (const bool* truth = std::get_if<bool>(&item)) return *truth;
  return !std::get<std::string>(item).empty();
}

std::string scaled(double value, std::span<const char* const> larger, std::span<const char* const> smaller, double step,
                   const char* unit) {
  const char* prefix = "";
  if (std::abs(value) >= 1) {
    for (const char* one : larger) {
      if (std::abs(value) < step) break;
      prefix = one;
      value /= step;
    }
  } else {
    for (const char* one : smaller) {
      if (std::abs(value) >= 1) break;
      prefix = one;
      value *= step;
    }
  }
  return format("%.4g%s%s", value, prefix, unit);
}

constexpr const char* kLarger[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
constexpr const char* kSmaller[] = {"m", "u", "n", "p", "f", "a", "z", "y"};
constexpr const char* kLarger1024[] = {"ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"};

bool is_plain(double value) {
  return !std::isnan(value) && !std::isinf(value);
}

std::string special(double value) {
  return std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
}

std::string humanize(double value) {
  if (!is_plain(value)) return special(value);
  return value == 0 ? "0" : scaled(value, kLarger, kSmaller, 1000, "");
}

std::string humanize1024(double value) {
  if (!is_plain(value)) return special(value);
  return std::abs(value) <= 1 ? format("%.4g", value) : scaled(value, kLarger1024, {}, 1024, "");
}

std::string humanize_duration(double value) {
  if (!is_plain(value)) return special(value);
  if (value == 0) return "0s";
  if (std::abs(value) < 1) return scaled(value, {}, kSmaller, 1000, "s");
  const char* sign = value < 0 ? "-" : "";
  value = std::abs(value);
  if (value < 60 || value >= 9.2e18) return format("%s%.4gs", sign, value);
  const long long all = static_cast<long long>(value);
  const long long seconds = all % 60, minutes = all / 60 % 60, hours = all / 3600 % 24, days = all / 86400;
  if (days != 0) return format("%s%lldd %lldh %lldm %llds", sign, days, hours, minutes, seconds);
  if (hours != 0) return format("%s%lldh %lldm %llds", sign, hours, minutes, seconds);
  return format("%s%lldm %llds", sign, minutes, seconds);
}

std::string humanize_timestamp(double value) {
  if (!is_plain(value)) return special(value);
  if (std::abs(value) > 2.5e11) throw Failed{go_number(value) + " is no time"};
  const int64_t ms = static_cast<int64_t>(std::floor(value * 1000 + 0.5));
  std::string text = utc_time(ms >= 0 ? ms : ms - 999, "%Y-%m-%d %H:%M:%S");
  if (const int64_t rest = ((ms % 1000) + 1000) % 1000; rest != 0) {
    std::string part = format("%03lld", static_cast<long long>(rest));
    while (part.ends_with('0')) part.pop_back();
    text += "." + part;
  }
  return text + " +0000 UTC";
}

// Go's verbs, for what rules hand over: texts and floats.
std::string print_formatted(const std::vector<Item>& items) {
  const std::string pattern = text_of(items.at(0));
  std::string out;
  size_t next = 1;
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] != '%') {
      out += pattern[at];
      continue;
    }
    const size_t begin = at++;
    while (at < pattern.size() && std::string_view("+-# 0123456789.").find(pattern[at]) != std::string_view::npos) ++at;
    if (at >= pattern.size()) return out + "%!(NOVERB)";
    const char verb = pattern[at];
    if (verb == '%') {
      out += '%';
      continue;
    }
    std::string spec = pattern.substr(begin, at - begin);
    if (spec.size() > 12) throw Failed{"printf: " + spec + " is too long"};
    // A width or precision of thousands is a mistake.
    for (const std::string_view part : split(std::string_view(spec).substr(1), '.')) {
      if (parse_int(part.substr(std::min(part.size(), part.find_first_not_of("+-# 0")))).value_or(0) > 200)
        throw Failed{"printf: a width above 200"};
    }
    if (next >= items.size()) {
      out += format("%%!%c(MISSING)", verb);
      continue;
    }
    const Item& item = items[next++];
    if (verb == 's' || verb == 'v') {
      const std::string text = text_of(item);
      char buffer[8192];
      std::snprintf(buffer, sizeof buffer, (spec + "s").c_str(), text.substr(0, 4000).c_str());
      out += buffer;
    } else if (verb == 'q') {
      out += "\"" + text_of(item) + "\"";
    } else if (std::string_view("fFeEgG").find(verb) != std::string_view::npos &&
               std::holds_alternative<double>(item)) {
      const double value = std::get<double>(item);
      if (!is_plain(value)) {
        out += special(value);
        continue;
      }
      char buffer[1024];
      if (verb == 'g' && spec.find('.') == std::string::npos) {
        std::snprintf(buffer, sizeof buffer, (spec + "s").c_str(), go_number(value).c_str());
      } else {
        std::snprintf(buffer, sizeof buffer, (spec + verb).c_str(), value);
      }
      out += buffer;
    } else {
      out += format("%%!%c(%s=%s)", verb, std::holds_alternative<double>(item) ? "float64" : "string",
                    text_of(item).c_str());
    }
  }
  return out;
}

int compare(const Item& a, const Item& b) {
  if (std::holds_alternative<double>(a) && std::holds_alternative<double>(b)) {
    const double x = std::get<double>(a), y = std::get<double>(b);
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.index() != b.index()) throw Failed{"incompatible types for comparison"};
  return text_of(a).compare(text_of(b));
}

std::string replaced(const Item& pattern, const Item& by, const Item& text) {
  RE2::Options quiet;
  quiet.set_log_errors(false);
  const RE2 regex(text_of(pattern), quiet);
  if (!regex.ok()) throw Failed{"reReplaceAll: " + as_one_line(regex.error())};
  // Go writes $1 where RE2 has \1.
  std::string rewrite;
  const std::string given = text_of(by);
  for (size_t at = 0; at < given.size(); ++at) {
    const bool braced = given.compare(at, 2, "${") == 0;
    const size_t digit = at + (braced ? 2 : 1);
    if (given[at] == '$' && digit < given.size() && std::isdigit(static_cast<unsigned char>(given[digit])) != 0) {
      rewrite += '\\';
      rewrite += given[digit];
      at = digit + (braced && digit + 1 < given.size() && given[digit + 1] == '}' ? 1 : 0);
    } else {
      rewrite += given[at] == '\\' ? "\\\\" : std::string(1, given[at]);
    }
  }
  std::string out = text_of(text);
  // What it can become at most, before it does: every match is of other bytes of the text.
  std::string without = out;
  const auto matches = static_cast<size_t>(RE2::GlobalReplace(&without, regex, ""));
  const auto groups = static_cast<size_t>(std::count(rewrite.begin(), rewrite.end(), '\\'));
  if (matches * rewrite.size() + (groups + 1) * out.size() > kExpandedBytesMax) throw Failed{"it becomes too long"};
  RE2::GlobalReplace(&out, regex, rewrite);
  return out;
}

bool matched(const Item& pattern, const Item& text) {
  RE2::Options quiet;
  quiet.set_log_errors(false);
  const RE2 regex(text_of(pattern), quiet);
  if (!regex.ok()) throw Failed{"match: " + as_one_line(regex.error())};
  return RE2::PartialMatch(text_of(text), regex);
}

std::string in_title(std::string text) {
  bool begins = true;
  for (char& one : text) {
    if (begins && one >= 'a' && one <= 'z') one = static_cast<char>(one - 'a' + 'A');
    begins = one == ' ';
  }
  return text;
}

std::string in_case(std::string text, bool upper) {
  for (char& one : text) {
    if (upper && one >= 'a' && one <= 'z') one = static_cast<char>(one - 'a' + 'A');
    if (!upper && one >= 'A' && one <= 'Z') one = static_cast<char>(one - 'A' + 'a');
  }
  return text;
}

std::string without_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool is_port = colon != std::string::npos && parse_uint(text.substr(colon + 1)).has_value();
  std::string host = is_port ? text.substr(0, colon) : text;
  if (is_port && host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

struct Function {
  const char* name;
  size_t least, most;
  Item (*run)(const std::vector<Item>&);
};
using Items = const std::vector<Item>&;
constexpr size_t kMany = 32;
constexpr Function kFunctions[] = {
    {"humanize", 1, 1, [](Items items) -> Item { return humanize(number_of(items[0])); }},
    {"humanize1024", 1, 1, [](Items items) -> Item { return humanize1024(number_of(items[0])); }},
    {"humanizeDuration", 1, 1, [](Items items) -> Item { return humanize_duration(number_of(items[0])); }},
    {"humanizePercentage", 1, 1,
     [](Items items) -> Item {
       const double value = number_of(items[0]);
       return is_plain(value) ? format("%.4g%%", 100 * value) : special(value) + "%";
     }},
    {"humanizeTimestamp", 1, 1, [](Items items) -> Item { return humanize_timestamp(number_of(items[0])); }},
    {"printf", 1, kMany, [](Items items) -> Item { return print_formatted(items); }},
    {"print", 0, kMany,
     [](Items items) -> Item {
       std::string all;
       for (const Item& item : items) all += text_of(item);
       return all;
     }},
    {"title", 1, 1, [](Items items) -> Item { return in_title(text_of(items[0])); }},
    {"toUpper", 1, 1, [](Items items) -> Item { return in_case(text_of(items[0]), true); }},
    {"toLower", 1, 1, [](Items items) -> Item { return in_case(text_of(items[0]), false); }},
    {"stripPort", 1, 1, [](Items items) -> Item { return without_port(text_of(items[0])); }},
    {"stripDomain", 1, 1,
     [](Items items) -> Item {
       const std::string text = text_of(items[0]);
       return text.substr(0, text.find('.'));
     }},
    {"reReplaceAll", 3, 3, [](Items items) -> Item { return replaced(items[0], items[1], items[2]); }},
    {"match", 2, 2, [](Items items) -> Item { return matched(items[0], items[1]); }},
    {"safeHtml", 1, 1, [](Items items) -> Item { return items[0]; }},
    {"eq", 2, 2, [](Items items) -> Item { return compare(items[0], items[1]) == 0; }},
    {"ne", 2, 2, [](Items items) -> Item { return compare(items[0], items[1]) != 0; }},
    {"lt", 2, 2, [](Items items) -> Item { return compare(items[0], items[1]) < 0; }},
    {"le", 2, 2, [](Items items) -> Item { return compare(items[0], items[1]) <= 0; }},
    {"gt", 2, 2, [](Items items) -> Item { return compare(items[0], items[1]) > 0; }},
    {"ge", 2, 2, [](Items items) -> Item { return compare(items[0], items[1]) >= 0; }},
    {"not", 1, 1, [](Items items) -> Item { return !truth_of(items[0]); }},
    {"and", 1, kMany,
     [](Items items) -> Item {
       for (const Item& item : items) {
         if (!truth_of(item)) return item;
       }
       return items.back();
     }},
    {"or", 1, kMany,
     [](Items items) -> Item {
       for (const Item& item : items) {
         if (truth_of(item)) return item;
       }
       return items.back();
     }},
};

const Function* find_function(std::string_view name) {
  for (const Function& one : kFunctions) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view text) : text_(text) {}

  std::vector<Node> run() {
    std::vector<Node> nodes = block(0);
    if (ended_by_ != "") throw Failed{"{{ " + ended_by_ + " }} without an if"};
    return nodes;
  }

 private:
  // Up to the end of the text, or to an end or else, which ended_by_ then says.
  std::vector<Node> block(int depth) {
    if (depth > kTemplateDepthMax) throw Failed{"nested too deep"};
    std::vector<Node> nodes;
    ended_by_.clear();
    while (at_ < text_.size()) {
      const size_t open = text_.find("{{", at_);
      std::string plain(text_.substr(at_, open == std::string_view::npos ? std::string_view::npos : open - at_));
      const bool trims = open != std::string_view::npos && text_.compare(open, 3, "{{-") == 0 &&
                         open + 3 < text_.size() && is_space(text_[open + 3]);
      if (trim_next_) plain.erase(0, std::min(plain.size(), plain.find_first_not_of(" \t\r\n")));
      trim_next_ = false;
      if (trims) plain.erase(plain.find_last_not_of(" \t\r\n") + 1);
      if (!plain.empty()) nodes.push_back(Node{.text = std::move(plain)});
      if (open == std::string_view::npos) {
        at_ = text_.size();
        break;
      }
      at_ = open + (trims ? 3 : 2);
      if (comment()) continue;
      skip();
      const std::string word(peek_word());
      if (word == "end" || word == "else") {
        at_ += word.size();
        ended_by_ = word;
        return nodes;  // whoever asked closes the brackets
      }
      nodes.push_back(word == "if" ? choice(depth) : Node{.pipeline = whole_pipeline()});
    }
    return nodes;
  }

  Node choice(int depth) {
    at_ += 2;
    Node node{.pipeline = whole_pipeline(), .is_choice = true};
    node.then = block(depth + 1);
    if (ended_by_ == "else") {
      skip();
      if (peek_word() == "if") {
        node.otherwise.push_back(choice(depth + 1));  // its end is ours
        ended_by_.clear();
        return node;
      }
      close();
      node.otherwise = block(depth + 1);
    }
    if (ended_by_ != "end") throw Failed{"an if without its {{ end }}"};
    close();
    ended_by_.clear();
    return node;
  }

  static bool is_space(char one) { return one == ' ' || one == '\t' || one == '\n' || one == '\r'; }
  static bool is_word(char one) { return std::isalnum(static_cast<unsigned char>(one)) != 0 || one == '_'; }

  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  bool comment() {
    size_t from = at_;
    while (from < text_.size() && is_space(text_[from])) ++from;
    if (text_.compare(from, 2, "/*") != 0) return false;
    const size_t end = text_.find("*/", from + 2);
    if (end == std::string_view::npos) throw Failed{"a comment without its end"};
    at_ = end + 2;
    close();
    return true;
  }

  void close() {
    skip();
    if (text_.compare(at_, 3, "-}}") == 0) {
      trim_next_ = true;
      at_ += 3;
      return;
    }
    if (text_.compare(at_, 2, "}}") != 0)
      throw Failed{at_ >= text_.size() ? "{{ without }}"
                                       : "\"" + as_one_line(text_.substr(at_, 20)) + "\" is not understood"};
    at_ += 2;
  }

  std::string_view peek_word() const {
    size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  Node::Pipeline whole_pipeline() {
    Node::Pipeline found = pipeline(0);
    close();
    return found;
  }

  Node::Pipeline pipeline(int depth) {
    if (depth > kTemplateDepthMax) throw Failed{"nested too deep"};
    Node::Pipeline commands;
    do {
      commands.push_back(command(depth));
      skip();
    } while (at_ < text_.size() && text_[at_] == '|' && ++at_ > 0);
    for (size_t i = 0; i < commands.size(); ++i) check(commands[i], i > 0);
    return commands;
  }

  static void check(const Node::Command& command, bool piped) {
    if (command.function.empty()) {
      if (piped) throw Failed{"behind a | has to be a function"};
      return;
    }
    const Function& function = *find_function(command.function);
    const size_t given = command.operands.size() + (piped ? 1 : 0);
    if (given < function.least || given > function.most)
      throw Failed{format("%s takes %zu arguments, not %zu", function.name, function.least, given)};
  }

  Node::Command command(int depth) {
    Node::Command command;
    skip();
    if (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_])) != 0) {
      const std::string word(peek_word());
      if (word != "true" && word != "false") {
        if (find_function(word) == nullptr) {
          const std::optional<std::string> near = did_you_mean(word, template_functions());
          throw Failed{format("function \"%s\" is not known in templates of rules here%s", word.substr(0, 40).c_str(),
                              near ? ("; did you mean " + *near + "?").c_str() : "")};
        }
        at_ += word.size();
        command.function = word;
      }
    }
    while (true) {
      skip();
      const char next = at_ < text_.size() ? text_[at_] : '\0';
      const bool ends = next == '\0' || next == '|' || next == ')' || next == '}' || text_.compare(at_, 3, "-}}") == 0;
      if (ends) break;
      command.operands.push_back(operand(depth));
      if (command.operands.size() > kMany) throw Failed{"too many arguments"};
    }
    if (command.function.empty() && command.operands.size() != 1)
      throw Failed{command.operands.empty() ? "nothing stands where a value has to be" : "a value takes no arguments"};
    return command;
  }

  Node::Operand operand(int depth) {
    const char first = text_[at_];
    if (first == '(') {
      ++at_;
      Node::Operand inner{.kind = Node::Operand::Kind::kPipeline, .pipeline = pipeline(depth + 1)};
      skip();
      if (at_ >= text_.size() || text_[at_] != ')') throw Failed{"( without )"};
      ++at_;
      return inner;
    }
    if (first == '"' || first == '`') return {.constant = quoted(first)};
    if (first == '$' || first == '.') return data();
    if (peek_word() == "true" || peek_word() == "false") {
      const bool truth = peek_word() == "true";
      at_ += truth ? 4 : 5;
      return {.constant = truth};
    }
    size_t end = at_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.' ||
                                  ((text_[end] == '-' || text_[end] == '+') &&
                                   (end == at_ || text_[end - 1] == 'e' || text_[end - 1] == 'E'))))
      ++end;
    const std::optional<double> number = end > at_ ? parse_double(text_.substr(at_, end - at_)) : std::nullopt;
    if (!number) throw Failed{"\"" + as_one_line(text_.substr(at_, 20)) + "\" is not understood"};
    at_ = end;
    return {.constant = *number};
  }

  std::string quoted(char mark) {
    std::string text;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == mark) {
        ++at_;
        return text;
      }
      if (mark == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        const char escaped = text_[++at_];
        text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
      } else {
        text += text_[at_];
      }
    }
    throw Failed{"a text without its closing quote"};
  }

  Node::Operand data() {
    const bool dollar = text_[at_] == '$';
    ++at_;
    const std::string word(peek_word());
    static constexpr std::pair<const char*, Data> kDollar[] = {{"labels", Data::kLabels},
                                                               {"value", Data::kValue},
                                                               {"externalLabels", Data::kExternalLabels},
                                                               {"externalURL", Data::kExternalUrl}};
    static constexpr std::pair<const char*, Data> kDot[] = {{"Labels", Data::kLabels},
                                                            {"Value", Data::kValue},
                                                            {"ExternalLabels", Data::kExternalLabels},
                                                            {"ExternalURL", Data::kExternalUrl}};
    for (const auto& [name, data] : dollar ? kDollar : kDot) {
      if (word != name) continue;
      at_ += word.size();
      Node::Operand operand{.kind = Node::Operand::Kind::kData, .data = data};
      if (data != Data::kLabels && data != Data::kExternalLabels) return operand;
      if (at_ >= text_.size() || text_[at_] != '.')
        throw Failed{format("%s needs a label: %s.host", word.c_str(), word.c_str())};
      ++at_;
      operand.field = peek_word();
      at_ += operand.field.size();
      if (operand.field.empty()) throw Failed{"a label's name is missing behind the dot"};
      return operand;
    }
    throw Failed{format("%c%s is not known: $labels.NAME, $value, $externalLabels.NAME and $externalURL are",
                        dollar ? '$' : '.', word.substr(0, 40).c_str())};
  }

  const std::string_view text_;
  size_t at_ = 0;
  bool trim_next_ = false;
  std::string ended_by_;
};

Item value_of(const Node::Pipeline& pipeline, const TemplateData& data);

Item value_of(const Node::Operand& operand, const TemplateData& data) {
  if (operand.kind == Node::Operand::Kind::kConstant) return operand.constant;
  if (operand.kind == Node::Operand::Kind::kPipeline) return value_of(operand.pipeline, data);
  if (operand.data == Data::kValue) return data.value;
  if (operand.data == Data::kExternalUrl) return std::string(data.external_url);
  return std::string(operand.data == Data::kLabels ? label_value(data.labels, operand.field) : "");
}

Item value_of(const Node::Pipeline& pipeline, const TemplateData& data) {
  std::optional<Item> piped;
  for (const Node::Command& command : pipeline) {
    if (command.function.empty()) {
      piped = value_of(command.operands.front(), data);
      continue;
    }
    std::vector<Item> items;
    for (const Node::Operand& operand : command.operands) items.push_back(value_of(operand, data));
    if (piped) items.push_back(std::move(*piped));
    piped = find_function(command.function)->run(items);
    const std::string* text = std::get_if<std::string>(&*piped);
    if (text != nullptr && text->size() > kExpandedBytesMax) throw Failed{"it becomes too long"};
  }
  return *piped;
}

void print(const std::vector<Node>& nodes, const TemplateData& data, std::string& out) {
  for (const Node& node : nodes) {
    if (node.is_choice) {
      print(truth_of(value_of(node.pipeline, data)) ? node.then : node.otherwise, data, out);
    } else {
      out += node.pipeline.empty() ? node.text : text_of(value_of(node.pipeline, data));
    }
    if (out.size() > kExpandedBytesMax) throw Failed{"it becomes too long"};
  }
}

}  // namespace

std::vector<std::string> template_functions() {
  std::vector<std::string> names;
  for (const Function& one : kFunctions) names.emplace_back(one.name);
  return names;
}

std::string go_number(double value) {
  if (!is_plain(value)) return special(value);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const int exponent =
      static_cast<int>(parse_int(text.substr(text.find('e') + (text[text.find('e') + 1] == '+' ? 2 : 1))).value_or(0));
  if (exponent < -4 || exponent >= 6) return std::string(text);
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  return {buffer, static_cast<size_t>(fixed - buffer)};
}

Result<RuleTemplate> RuleTemplate::parse(std::string_view text) {
  if (text.size() > kTemplateBytesMax) return Error{format("a template has at most %zu bytes", kTemplateBytesMax)};
  try {
    RuleTemplate parsed;
    parsed.text_ = text;
    parsed.nodes_ = std::make_shared<const std::vector<Node>>(TemplateParser(text).run());
    return parsed;
  } catch (const Failed& failed) {
    return Error{failed.line};
  }
}

std::string RuleTemplate::expand(const TemplateData& data) const {
  std::string out;
  try {
    print(*nodes_, data, out);
  } catch (const Failed& failed) {
    return "<error expanding template: " + failed.line + ">";
  }
  return out;
}

}  // namespace lockstep
