#include "base/flags.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/files.h"
#include "base/text.h"

extern char** environ;

namespace lockstep {
namespace {

// "--spool-mb" -> "SPOOL_MB"
std::string variable_part(const std::string& flag_name) {
  std::string part;
  for (char letter : flag_name.substr(2)) part += letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
  return part;
}

}  // namespace

std::optional<int64_t> parse_shown_int(std::string_view text) {
  if (text.find(',') == std::string_view::npos) return parse_int(text);
  std::string digits;
  const std::vector<std::string_view> groups = split(text, ',');
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string_view group = i == 0 && groups[0].starts_with('-') ? groups[0].substr(1) : groups[i];
    const bool fits = i == 0 ? !group.empty() && group.size() <= 3 : group.size() == 3;
    if (!fits || group.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
    digits += groups[i];
  }
  return parse_int(digits);
}

Flags::Flags(std::string program, std::string summary, std::string positional)
    : program_(std::move(program)), summary_(std::move(summary)), positional_name_(std::move(positional)) {}

Flags& Flags::text(std::string* target, std::string name, std::string value_name, std::string help) {
  flags_.push_back(
      {std::move(name), std::move(value_name), std::move(help), [target](const std::string& value) -> Result<void> {
         *target = value;
         return {};
       }});
  return *this;
}

Flags& Flags::number(int64_t* target, std::string name, std::string value_name, std::string help, int64_t minimum,
                     int64_t maximum) {
  flags_.push_back({name, std::move(value_name), std::move(help), [=](const std::string& value) -> Result<void> {
                      auto parsed = parse_shown_int(value);
                      if (!parsed || *parsed < minimum || *parsed > maximum) {
                        return Error{format("%s takes a whole number from %lld to %lld, not \"%s\"", name.c_str(),
                                            static_cast<long long>(minimum), static_cast<long long>(maximum),
                                            value.c_str())};
                      }
                      *target = *parsed;
                      return {};
                    }});
  return *this;
}

Flags& Flags::optional_number(int64_t* target, std::string name, std::string value_name, std::string help,
                              int64_t minimum, int64_t maximum, int64_t without) {
  number(target, std::move(name), std::move(value_name), std::move(help), minimum, maximum);
  flags_.back().set = [target, without, set = flags_.back().set](const std::string& value) -> Result<void> {
    if (!value.empty()) return set(value);
    *target = without;
    return {};
  };
  flags_.back().value_optional = true;
  return *this;
}

Flags& Flags::decimal(double* target, std::string name, std::string value_name, std::string help, double minimum,
                      double maximum) {
  flags_.push_back({name, std::move(value_name), std::move(help), [=](const std::string& value) -> Result<void> {
                      auto parsed = parse_double(value);
                      if (!parsed || !(*parsed >= minimum && *parsed <= maximum)) {
                        return Error{format("%s takes a number from %g to %g, not \"%s\"", name.c_str(), minimum,
                                            maximum, value.c_str())};
                      }
                      *target = *parsed;
                      return {};
                    }});
  return *this;
}

Flags& Flags::list(std::vector<std::string>* target, std::string name, std::string value_name, std::string help) {
  flags_.push_back(
      {std::move(name), std::move(value_name), std::move(help), [target](const std::string& value) -> Result<void> {
         for (std::string_view item : split(value, ',')) target->emplace_back(trim(item));
         return {};
       }});
  flags_.back().clear = [target] { target->clear(); };
  return *this;
}

Flags& Flags::toggle(bool* target, std::string name, std::string help) {
  flags_.push_back({name, "", std::move(help), [target, name](const std::string& value) -> Result<void> {
                      // From a file or the environment it has a value.
                      const bool on = value.empty() || value == "true" || value == "1" || value == "yes";
                      if (!on && value != "false" && value != "0" && value != "no")
                        return Error{format("%s is true or false, not \"%s\"", name.c_str(), value.c_str())};
                      *target = on;
                      return {};
                    }});
  return *this;
}

Flags& Flags::secret() {
  flags_.back().secret = true;
  return *this;
}

Flags& Flags::also_from(std::string prefix, std::string default_file) {
  environment_prefix_ = std::move(prefix);
  default_file_ = std::move(default_file);
  add_config_flags(format("options as `name = value` lines (default %s)", default_file_.c_str()));
  return *this;
}

Flags& Flags::from_file(std::string help, FileReader read) {
  read_file_ = std::move(read);
  add_config_flags(std::move(help));
  return *this;
}

void Flags::add_config_flags(std::string help) {
  text(&config_path_, "--config", "FILE", std::move(help));
  toggle(&check_wanted_, "--check-config", "say what the options come to, and where from, and end");
}

Flags::Takes Flags::takes(const std::string& name) const {
  const std::string option = "--" + name;
  if (option == "--config" || option == "--check-config") return Takes::kNone;
  for (const Flag& flag : flags_) {
    if (flag.name == option)
      return flag.value_name.empty() ? Takes::kToggle : flag.clear ? Takes::kSeveral : Takes::kOne;
  }
  return Takes::kNone;
}

Result<void> Flags::give(const std::string& name, const std::vector<std::string>& values, const std::string& file,
                         const std::string& where) {
  const std::string option = "--" + name;
  if (takes(name) == Takes::kNone) return unknown(option, where + ": ");
  for (const std::string& value : values) {
    if (Result<void> set = assign(*find(option), value, file); !set.ok())
      return prefixed(set.failure(), format("%s: %s: ", program_.c_str(), where.c_str()));
  }
  return {};
}

Flags::Flag* Flags::find(const std::string& name) {
  auto flag = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& candidate) { return candidate.name == name; });
  return flag == flags_.end() ? nullptr : &*flag;
}

Error Flags::unknown(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const Flag& candidate : flags_) names.push_back(candidate.name);
  auto near = did_you_mean(name, names);
  const std::string shown = where.empty() ? name : name.substr(2);
  return Error{format("%s: %sno option %s.%s (%s --help lists them)", program_.c_str(), where.c_str(), shown.c_str(),
                      near ? (" Did you mean " + (where.empty() ? *near : near->substr(2)) + "?").c_str() : "",
                      program_.c_str())};
}

Result<void> Flags::assign(Flag& flag, const std::string& value, const std::string& origin) {
  if (flag.origin != origin) {
    if (flag.clear) flag.clear();
    flag.shown.clear();
  }
  LOCKSTEP_TRY(flag.set(value));
  const std::string given = flag.value_name.empty() && value.empty() ? "true" : value;
  flag.shown = flag.clear && !flag.shown.empty() ? flag.shown + "," + given : given;
  flag.origin = origin;
  return {};
}

Result<void> Flags::read_config(const std::string& path) {
  Result<std::string> content = read_file(path, kConfigBytesMax);
  if (!content.ok()) return prefixed(content.failure(), format("%s: --config: ", program_.c_str()));
  int number = 0;
  for (std::string_view line : split(*content, '\n')) {
    ++number;
    line = trim(line);
    if (line.empty() || line[0] == '#') continue;
    const std::string where = format("%s line %d: ", path.c_str(), number);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      return Error{format("%s: %snot `name = value`: \"%.*s\"", program_.c_str(), where.c_str(),
                          static_cast<int>(std::min<size_t>(line.size(), 80)), line.data())};
    const std::string name = "--" + std::string(trim(line.substr(0, equals)));
    std::string_view value = trim(line.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    Flag* flag = find(name);
    if (flag == nullptr || name == "--config" || name == "--check-config") return unknown(name, where);
    if (Result<void> set = assign(*flag, std::string(value), path); !set.ok())
      return prefixed(set.failure(), format("%s: %s", program_.c_str(), where.c_str()));
  }
  return {};
}

Result<void> Flags::read_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(environment_prefix_)) continue;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string variable(text.substr(0, equals));
    const std::string part = variable.substr(environment_prefix_.size());
    auto flag =
        std::find_if(flags_.begin(), flags_.end(), [&](const Flag& each) { return variable_part(each.name) == part; });
    if (part == "CONFIG") continue;
    if (flag == flags_.end() || part == "CHECK_CONFIG")
      return Error{format("%s: the environment has %s, but there is no option of that name (%s --help lists them)",
                          program_.c_str(), variable.c_str(), program_.c_str())};
    if (Result<void> set = assign(*flag, std::string(text.substr(equals + 1)), variable); !set.ok())
      return prefixed(set.failure(), format("%s: %s: ", program_.c_str(), variable.c_str()));
  }
  return {};
}

std::string Flags::effective() const {
  std::string out;
  for (const Flag& flag : flags_) {
    if (flag.origin.empty() || flag.name == "--check-config") continue;
    out += format("%s = %s   # %s\n", flag.name.substr(2).c_str(), flag.secret ? "(not shown)" : flag.shown.c_str(),
                  flag.origin.c_str());
  }
  return out;
}

Result<void> Flags::parse(const std::vector<std::string>& arguments) {
  if (!environment_prefix_.empty() || read_file_) {
    LOCKSTEP_TRY(read_sources(arguments));
  }
  return parse_words(arguments);
}

// The file and the environment. Which file, is on the command line or in the environment: looked up first, because the
// file is the weakest.
Result<void> Flags::read_sources(const std::vector<std::string>& arguments) {
  std::string path;
  bool is_asked_for = false;
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") return {};
    if (arguments[i] == "--config" && i + 1 < arguments.size()) {
      path = arguments[++i];
      is_asked_for = true;
    } else if (arguments[i].starts_with("--config=")) {
      path = arguments[i].substr(9);
      is_asked_for = true;
    }
  }
  if (read_file_) return is_asked_for ? read_file_(*this, path) : Result<void>();
  if (const char* variable = std::getenv((environment_prefix_ + "CONFIG").c_str()); path.empty() && variable)
    path = variable;
  if (path.empty() && access(default_file_.c_str(), F_OK) == 0) path = default_file_;
  if (!path.empty()) {
    LOCKSTEP_TRY(read_config(path));
  }
  return read_environment();
}

Result<void> Flags::parse_words(const std::vector<std::string>& arguments) {
  bool flags_ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!flags_ended && word == "--") {
      flags_ended = true;
      continue;
    }
    if (!flags_ended && (word == "--help" || word == "-h")) {
      help_wanted_ = true;
      return {};
    }
    if (flags_ended || word.size() < 2 || word[0] != '-') {
      words_.push_back(word);
      continue;
    }
    size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    Flag* flag = find(name);
    if (flag == nullptr) return unknown(name, "");
    std::string value;
    if (flag->value_name.empty()) {
      if (equals != std::string::npos) return Error{format("%s: %s takes no value", program_.c_str(), name.c_str())};
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (flag->value_optional) {
      if (i + 1 < arguments.size() && parse_shown_int(arguments[i + 1])) value = arguments[++i];
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return Error{format("%s: %s needs a value: %s %s", program_.c_str(), name.c_str(), name.c_str(),
                          flag->value_name.c_str())};
    }
    if (Result<void> set = assign(*flag, value, "command line"); !set.ok())
      return prefixed(set.failure(), program_ + ": ");
  }
  if (positional_name_.empty() && !words_.empty()) {
    return Error{
        format("%s: unexpected word \"%s\" (%s --help)", program_.c_str(), words_.front().c_str(), program_.c_str())};
  }
  const bool several = positional_name_.ends_with("...");
  if (several && words_.empty())
    return Error{format("%s: needs at least one %s (%s --help)", program_.c_str(),
                        positional_name_.substr(0, positional_name_.size() - 3).c_str(), program_.c_str())};
  const bool optional = positional_name_.starts_with("[");
  if (optional && words_.size() > 1) {
    return Error{format("%s: takes at most one %s, got %zu (%s --help)", program_.c_str(),
                        positional_name_.substr(1, positional_name_.size() - 2).c_str(), words_.size(),
                        program_.c_str())};
  }
  if (!several && !optional && !positional_name_.empty() && words_.size() != 1) {
    return Error{format("%s: takes exactly one %s, got %zu (%s --help)", program_.c_str(), positional_name_.c_str(),
                        words_.size(), program_.c_str())};
  }
  return {};
}

std::vector<Flags::Option> Flags::options() const {
  std::vector<Option> options;
  for (const Flag& flag : flags_) options.push_back({flag.name, flag.value_name, flag.help, flag.value_optional});
  options.push_back({"--help", "", "this text"});
  return options;
}

std::string Flags::help() const {
  std::string text = format("%s: %s\n\nusage: %s%s%s [options]\n\n", program_.c_str(), summary_.c_str(),
                            program_.c_str(), positional_name_.empty() ? "" : " ", positional_name_.c_str());
  size_t width = 6;
  for (const Flag& flag : flags_) width = std::max(width, flag.name.size() + 1 + flag.value_name.size());
  for (const Flag& flag : flags_) {
    std::string left = flag.name + (flag.value_name.empty() ? "" : " " + flag.value_name);
    text += format("  %-*s  %s\n", static_cast<int>(width), left.c_str(), flag.help.c_str());
  }
  text += format("  %-*s  %s\n", static_cast<int>(width), "--help", "this text");
  return text;
}

}  // namespace lockstep
