// Command-line options, one habit for every program: `--name VALUE` or `--name=VALUE`, positional words, `--help`.
// A mistake is one line that names the flag, what was wrong and what to do.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

class Flags {
 public:
  // program: "lockstep why"; summary: one line; positional: "" where no word is taken, "JOB" for exactly one,
  // "PATH..." for one or more.
  Flags(std::string program, std::string summary, std::string positional = "");

  Flags& text(std::string* target, std::string name, std::string value_name, std::string help);
  Flags& number(int64_t* target, std::string name, std::string value_name, std::string help, int64_t minimum,
                int64_t maximum);
  Flags& decimal(double* target, std::string name, std::string value_name, std::string help, double minimum,
                 double maximum);
  // May be given several times, and several values may be joined by commas.
  Flags& list(std::vector<std::string>* target, std::string name, std::string value_name, std::string help);
  Flags& toggle(bool* target, std::string name, std::string help);

  // arguments: without the program (and command) name. After an error nothing may be relied on.
  Result<void> parse(const std::vector<std::string>& arguments);

  const std::vector<std::string>& positional() const { return words_; }
  bool help_wanted() const { return help_wanted_; }
  std::string help() const;

 private:
  struct Flag {
    std::string name;
    std::string value_name;  // empty: a toggle
    std::string help;
    std::function<Result<void>(const std::string&)> set;
  };
  std::string program_;
  std::string summary_;
  std::string positional_name_;
  std::vector<Flag> flags_;
  std::vector<std::string> words_;
  bool help_wanted_ = false;
};

}  // namespace lockstep
