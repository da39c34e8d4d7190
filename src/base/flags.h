// Command-line options, one habit for every program: `--name VALUE` or `--name=VALUE`, positional words, `--help`.
// A mistake is one line that names the flag, what was wrong and what to do.
//
// A daemon's options may also stand in a file and in the environment (also_from): the command line wins over the
// environment, the environment over the file. There `--spool-mb 64` is `spool-mb = 64`, or PREFIX_SPOOL_MB=64. Where the
// file has another format, whoever can read that gives its values (from_file).
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

// A whole number as people are shown it: "1,024" is 1024. Anything else is nullopt.
std::optional<int64_t> parse_shown_int(std::string_view text);

class Flags {
 public:
  // program: "lockstep why"; summary: one line; positional: "" where no word is taken, "JOB" for exactly one,
  // "[NAME]" for one or none, "PATH..." for one or more.
  Flags(std::string program, std::string summary, std::string positional = "");

  Flags& text(std::string* target, std::string name, std::string value_name, std::string help);
  Flags& number(int64_t* target, std::string name, std::string value_name, std::string help, int64_t minimum,
                int64_t maximum);
  Flags& decimal(double* target, std::string name, std::string value_name, std::string help, double minimum,
                 double maximum);
  // May be given several times, and several values may be joined by commas.
  Flags& list(std::vector<std::string>* target, std::string name, std::string value_name, std::string help);
  // "--watch" or "--watch 5": a next word that is no number is not its value. without: what it is by itself.
  Flags& optional_number(int64_t* target, std::string name, std::string value_name, std::string help, int64_t minimum,
                         int64_t maximum, int64_t without);
  Flags& toggle(bool* target, std::string name, std::string help);

  // The option added last may hold a secret: effective() does not show it.
  Flags& secret();
  // Adds --config FILE and --check-config, and reads the file and the variables that begin with `prefix`
  // ("LOCKSTEP_AGENT_"). default_file is read where --config is not given, if it is there; a file that is asked for
  // must be there.
  Flags& also_from(std::string prefix, std::string default_file);
  // Adds --config FILE and --check-config. Where a file is asked for, `read` gives what it says (give()), before the words
  // of the command line are looked at, which win. help: of --config.
  using FileReader = std::function<Result<void>(Flags& flags, const std::string& path)>;
  Flags& from_file(std::string help, FileReader read);

  // What an option takes; kNone: there is no such option, or not in a file. name: without its dashes.
  enum class Takes { kNone, kToggle, kOne, kSeveral };
  Takes takes(const std::string& name) const;
  // What `file` says of an option, from `where` on ("FILE:LINE"). Several values for kSeveral alone.
  Result<void> give(const std::string& name, const std::vector<std::string>& values, const std::string& file,
                    const std::string& where);

  // arguments: without the program (and command) name. After an error nothing may be relied on.
  Result<void> parse(const std::vector<std::string>& arguments);

  const std::vector<std::string>& positional() const { return words_; }
  // What there is to say of the program itself: for completion and manual pages.
  struct Option {
    std::string name;
    std::string value_name;  // empty: takes none
    std::string help;
    bool value_optional = false;
    bool needs_value() const { return !value_name.empty() && !value_optional; }
  };
  std::vector<Option> options() const;
  const std::string& program() const { return program_; }
  const std::string& summary() const { return summary_; }
  const std::string& positional_name() const { return positional_name_; }
  bool help_wanted() const { return help_wanted_; }
  bool check_wanted() const { return check_wanted_; }
  std::string help() const;
  // Every option that is not at its default, one line each: `spool-mb = 64   # LOCKSTEP_AGENT_SPOOL_MB`.
  std::string effective() const;

  static constexpr uint64_t kConfigBytesMax = 1 << 20;

 private:
  struct Flag {
    std::string name;
    std::string value_name;  // empty: a toggle
    std::string help;
    std::function<Result<void>(const std::string&)> set;
    std::function<void()> clear;  // of a list: a stronger origin replaces what a weaker one gave
    bool secret = false;
    bool value_optional = false;
    std::string shown;   // as given
    std::string origin;  // empty: at its default
  };
  Flag* find(const std::string& name);
  void add_config_flags(std::string help);
  Result<void> read_sources(const std::vector<std::string>& arguments);
  Error unknown(const std::string& name, const std::string& where);
  Result<void> assign(Flag& flag, const std::string& value, const std::string& origin);
  Result<void> read_config(const std::string& path);
  Result<void> read_environment();
  Result<void> parse_words(const std::vector<std::string>& arguments);
  std::string program_;
  std::string summary_;
  std::string positional_name_;
  std::vector<Flag> flags_;
  std::vector<std::string> words_;
  bool help_wanted_ = false;
  std::string environment_prefix_;  // empty: neither file nor environment is read
  std::string default_file_;
  FileReader read_file_;  // nullptr: a file is lines of `name = value`
  std::string config_path_;
  bool check_wanted_ = false;
};

}  // namespace lockstep
