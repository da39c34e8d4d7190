#include "base/flags.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep {

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
                      auto parsed = parse_int(value);
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
  return *this;
}

Flags& Flags::toggle(bool* target, std::string name, std::string help) {
  flags_.push_back({std::move(name), "", std::move(help), [target](const std::string&) -> Result<void> {
                      *target = true;
                      return {};
                    }});
  return *this;
}

Result<void> Flags::parse(const std::vector<std::string>& arguments) {
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
    auto flag =
        std::find_if(flags_.begin(), flags_.end(), [&](const Flag& candidate) { return candidate.name == name; });
    if (flag == flags_.end()) {
      std::vector<std::string> names;
      for (const Flag& candidate : flags_) names.push_back(candidate.name);
      auto near = did_you_mean(name, names);
      return Error{format("%s: no option %s.%s (%s --help lists them)", program_.c_str(), name.c_str(),
                          near ? (" Did you mean " + *near + "?").c_str() : "", program_.c_str())};
    }
    std::string value;
    if (flag->value_name.empty()) {
      if (equals != std::string::npos) return Error{format("%s: %s takes no value", program_.c_str(), name.c_str())};
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return Error{format("%s: %s needs a value: %s %s", program_.c_str(), name.c_str(), name.c_str(),
                          flag->value_name.c_str())};
    }
    if (Result<void> set = flag->set(value); !set.ok()) return Error{program_ + ": " + set.error()};
  }
  if (positional_name_.empty() && !words_.empty()) {
    return Error{
        format("%s: unexpected word \"%s\" (%s --help)", program_.c_str(), words_.front().c_str(), program_.c_str())};
  }
  const bool several = positional_name_.ends_with("...");
  if (several && words_.empty())
    return Error{format("%s: needs at least one %s (%s --help)", program_.c_str(),
                        positional_name_.substr(0, positional_name_.size() - 3).c_str(), program_.c_str())};
  if (!several && !positional_name_.empty() && words_.size() != 1) {
    return Error{format("%s: takes exactly one %s, got %zu (%s --help)", program_.c_str(), positional_name_.c_str(),
                        words_.size(), program_.c_str())};
  }
  return {};
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
