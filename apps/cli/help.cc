// `lockstep help`: the commands, one of them, or manual pages. All of it comes from the table of commands and from the
// options that each command and program has: there is no second list.
#include <cstdio>
#include <map>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "base/flags.h"
#include "base/process.h"
#include "base/text.h"
#include "base/version.h"

namespace lockstep::cli {
namespace {

// As groff takes it for text: nothing in it is a request or an escape.
std::string groff(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_line = i == 0 || text[i - 1] == '\n';
    if (begins_line && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\')
      out += "\\e";
    else if (text[i] == '-')
      out += "\\-";
    else
      out += text[i];
  }
  return out;
}

void add_options(std::string& out, const std::vector<Flags::Option>& options) {
  for (const Flags::Option& option : options) {
    out += ".TP\n\\fB" + groff(option.name) + "\\fR";
    if (!option.value_name.empty()) out += " \\fI" + groff(option.value_name) + "\\fR";
    out += "\n" + groff(option.help.empty() ? "no value" : option.help) + "\n";
  }
}

// What stands behind the options of a help text: lines as they are.
void add_lines(std::string& out, std::string_view text) {
  if (trim(text).empty()) return;
  out += ".PP\n.nf\n" + groff(trim(text)) + "\n.fi\n";
}

std::string page_head(const std::string& program, int section, const std::string& summary) {
  std::string title = program;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return format(".TH %s %d \"\" \"%s\" \"Lockstep\"\n.SH NAME\n%s \\- %s\n", groff(title).c_str(), section,
                groff(version_line(program)).c_str(), groff(program).c_str(), groff(summary).c_str());
}

void add_command(std::string& out, const CommandUse& use) {
  out += ".SS \"" + groff(use.name) + (use.positional.empty() ? "" : " " + groff(use.positional)) + "\"\n";
  out += groff(use.summary) + "\n";
  add_options(out, use.options);
  add_lines(out, use.more_help);
  for (const CommandUse& sub : use.subcommands) add_command(out, sub);
}

std::string own_page() {
  std::string out = page_head("lockstep", 1, "why a distributed GPU job is slow, or stuck");
  out +=
      ".SH SYNOPSIS\n.B lockstep\n.I COMMAND\n.RI [ options ]\n.SH DESCRIPTION\nAsks a Lockstep server (see\n.BR "
      "lockstepd "
      "(8))\nor reads what a job has recorded on this node. Errors are one line on standard error.\n.SH COMMANDS\n";
  for (const Command& command : commands()) add_command(out, describe(command));
  out += ".SH ENVIRONMENT\n";
  add_options(out, {{"LOCKSTEP_SERVER", "", "the server, any of its addresses, where --server is not given"},
                    {"LOCKSTEP_TOKEN_FILE", "", "the file with the token, where --token-file is not given"},
                    {"LOCKSTEP_BASELINES", "", "the folder of baselines, where --baselines is not given"},
                    {"COLUMNS", "", "how wide output is, instead of the terminal's width"},
                    {"NO_COLOR", "", "no colour; --color always or never wins"}});
  out += ".SH EXIT STATUS\n";
  add_options(out, {{"0", "", "answered"},
                    {"1", "", "the answer is no: an open verdict, a failed check, an alert that fires"},
                    {"2", "", "wrong usage"},
                    {"3", "", "the server cannot be reached"},
                    {"4", "", "not found"},
                    {"5", "", "anything else went wrong"},
                    {"6", "", "two runs that cannot be compared"}});
  return out + ".SH SEE ALSO\n.BR lockstepd (8),\n.BR lockstep\\-agent (8)\n";
}

// Of the program beside this one, by what it says of itself (base/flags.h has the form).
Result<std::string> page_of_program(const std::string& program) {
  ChildProcess::Options options;
  options.arguments = {program_directory() + "/" + program, "--help"};
  options.stderr_path = "/dev/null";
  ChildProcess process = LOCKSTEP_TRY(ChildProcess::start(std::move(options)));
  constexpr int64_t kWaitMs = 5'000;
  constexpr size_t kLinesMax = 1'000;
  std::vector<std::string> lines;
  for (size_t i = 0; i < kLinesMax; ++i) {
    Result<std::string> line = process.read_line(kWaitMs);
    if (!line.ok()) break;
    lines.push_back(std::move(*line));
  }
  process.stop();
  const std::string begin = program + ": ";
  if (lines.empty() || !lines[0].starts_with(begin)) return Error{format("%s says nothing of itself", program.c_str())};
  std::vector<Flags::Option> found;
  std::string more;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const std::string_view text = trim(line);
    if (text.starts_with("usage:")) continue;
    // "  --name VALUE  help"
    const size_t gap = text.find("  ");
    if (line.starts_with("  --") && gap != std::string_view::npos && more.empty()) {
      const std::string_view left = text.substr(0, gap);
      const size_t space = left.find(' ');
      found.push_back({std::string(left.substr(0, space)),
                       space == std::string_view::npos ? "" : std::string(left.substr(space + 1)),
                       std::string(trim(text.substr(gap)))});
    } else if (!text.empty() || !more.empty()) {
      more += std::string(line) + "\n";
    }
  }
  std::string out = page_head(program, 8, lines[0].substr(begin.size()));
  out += ".SH SYNOPSIS\n.B " + groff(program) + "\n.RI [ options ]\n.SH OPTIONS\n";
  add_options(out, found);
  add_lines(out, more);
  return out + ".SH SEE ALSO\n.BR lockstep (1)\n";
}

}  // namespace

void print_commands(FILE* out) {
  std::fputs("lockstep: why is my distributed GPU job slow, or stuck?\n\nusage: lockstep COMMAND [options]\n\n", out);
  for (const Command& command : commands()) std::fprintf(out, "  %-10s %s\n", command.name, command.help);
  std::fputs(
      "\nlockstep COMMAND --help shows more. The server is http://127.0.0.1:7070 unless --server or\n"
      "LOCKSTEP_SERVER says otherwise; any of its addresses will do. --color auto|always|never.\n",
      out);
}

int run_help(const Arguments& arguments) {
  bool man = false;
  Flags flags("lockstep help", "the commands; with COMMAND its options; with --man a manual page, for man -l -",
              "[COMMAND|PROGRAM]");
  flags.toggle(&man, "--man", "the manual page of lockstep, or of the program lockstepd or lockstep-agent, in groff");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const std::string about = flags.positional().empty() ? "" : flags.positional()[0];
  if (man) {
    const bool is_other = about == "lockstepd" || about == "lockstep-agent";
    if (!is_other && !about.empty() && about != "lockstep") {
      std::fprintf(stderr, "lockstep help: --man is of lockstep, lockstepd or lockstep-agent, not \"%s\"\n",
                   as_one_line(about).c_str());
      return kExitUsage;
    }
    const Result<std::string> page = is_other ? page_of_program(about) : Result<std::string>(own_page());
    if (!page.ok()) {
      std::fprintf(stderr, "lockstep help: %s\n", page.error().c_str());
      return kExitFailed;
    }
    std::fputs(page->c_str(), stdout);
    return kExitOk;
  }
  if (about.empty()) {
    print_commands(stdout);
    return kExitOk;
  }
  for (const Command& command : commands()) {
    if (about == command.name) return command.run({"--help"});
  }
  std::fprintf(stderr, "lockstep help: no command \"%s\" (lockstep help lists them)\n", as_one_line(about).c_str());
  return kExitUsage;
}

}  // namespace lockstep::cli
