// `lockstep completion bash|zsh|fish`: what a shell needs to complete commands, options and names of jobs, made from the
// table of commands and each command's own options.
//
// Names of jobs come from whoever sends data: the scripts never let a shell expand them, and quote what is inserted.
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep completion";
constexpr int64_t kJobsMs = 500;
constexpr size_t kJobsMax = 1000;

bool takes_job(const CommandUse& use) {
  return use.positional.starts_with("JOB") || use.positional.starts_with("[JOB");
}

bool is_job_value(const Flags::Option& option) {
  return option.name == "--job";
}

// The words that may follow a command: those of its subcommands.
std::string sub_name(const CommandUse& sub) {
  return sub.name.substr(sub.name.rfind(' ') + 1);
}

// "why" and "incidents show": each case of the scripts.
void for_each_use(const std::function<void(const std::string& key, const CommandUse& use)>& each) {
  for (const Command& command : commands()) {
    const CommandUse use = describe(command);
    each(command.name, use);
    for (const CommandUse& sub : use.subcommands) each(std::string(command.name) + " " + sub_name(sub), sub);
  }
}

std::string option_names(const CommandUse& use) {
  std::string names;
  for (const Flags::Option& option : use.options) names += (names.empty() ? "" : " ") + option.name;
  return names;
}

// Options whose value is the next word, as a pattern of `case`.
std::string value_pattern(const CommandUse& use, bool of_jobs) {
  std::string pattern;
  for (const Flags::Option& option : use.options) {
    if (option.needs_value() && is_job_value(option) == of_jobs) pattern += (pattern.empty() ? "" : "|") + option.name;
  }
  return pattern;
}

std::string bash_script() {
  std::string names, subs, cases;
  for (const Command& command : commands()) names += (names.empty() ? "" : " ") + std::string(command.name);
  for_each_use([&](const std::string& key, const CommandUse& use) {
    std::string below;
    for (const CommandUse& sub : use.subcommands) below += (below.empty() ? "" : " ") + sub_name(sub);
    if (!below.empty()) subs += format("    %s) subs=%s ;;\n", key.c_str(), shell_word(below).c_str());
    cases += format("    %s) options=%s; values=%s; job_values=%s; jobs=%d ;;\n", shell_word(key).c_str(),
                    shell_word(option_names(use)).c_str(), shell_word("|" + value_pattern(use, false) + "|").c_str(),
                    shell_word("|" + value_pattern(use, true) + "|").c_str(), takes_job(use) ? 1 : 0);
  });
  return format(R"SH(# lockstep completion bash: in ~/.bashrc: source <(lockstep completion bash)
_lockstep_jobs() {
  local job
  while IFS= read -r job; do
    [[ $job == "$1"* ]] && COMPREPLY+=("$(printf %%q "$job")")
  done < <("${COMP_WORDS[0]}" completion --jobs 2>/dev/null)
}
_lockstep() {
  local current=${COMP_WORDS[COMP_CWORD]} previous= key= subs= options= values= job_values= jobs=0
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W %s -- "$current"))
    return
  fi
  previous=${COMP_WORDS[COMP_CWORD - 1]}
  key=${COMP_WORDS[1]}
  case $key in
%s  esac
  if ((COMP_CWORD > 2)) && [[ -n $subs && " $subs " == *" ${COMP_WORDS[2]} "* ]]; then
    key="$key ${COMP_WORDS[2]}"
    subs=
  fi
  case $key in
%s  esac
  if [[ $job_values == *"|$previous|"* ]]; then
    _lockstep_jobs "$current"
  elif [[ $values == *"|$previous|"* ]]; then
    :
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -n $subs ]] && ((COMP_CWORD == 2)); then
    COMPREPLY=($(compgen -W "$subs" -- "$current"))
  elif ((jobs)); then
    _lockstep_jobs "$current"
  fi
}
# Where nothing is known, files.
complete -o default -F _lockstep lockstep
)SH",
                shell_word(names).c_str(), subs.c_str(), cases.c_str());
}

// "--server:help" for _describe, whose separator is the colon.
std::string described_word(const std::string& word, const std::string& help) {
  std::string name;
  for (char c : word) name += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_word(name + ":" + help);
}

std::string zsh_script() {
  std::string names, pairs, cases;
  for (const Command& command : commands()) names += "    " + described_word(command.name, command.help) + "\n";
  for_each_use([&](const std::string& key, const CommandUse& use) {
    if (key.find(' ') != std::string::npos) pairs += (pairs.empty() ? "" : "|") + shell_word(key);
    cases += "    (" + shell_word(key) + ")\n      options=(";
    for (const Flags::Option& option : use.options) cases += " " + described_word(option.name, option.help);
    cases += ")\n      subs=(";
    for (const CommandUse& sub : use.subcommands) cases += " " + described_word(sub_name(sub), sub.summary);
    cases += format(")\n      jobs=%d ;;\n", takes_job(use) ? 1 : 0);
  });
  return format(R"SH(#compdef lockstep
# lockstep completion zsh: in ~/.zshrc, after compinit: source <(lockstep completion zsh)
_lockstep() {
  local -a names options subs found
  local jobs=0 key
  names=(
%s  )
  if ((CURRENT == 2)); then
    _describe command names
    return
  fi
  key=$words[2]
  ((CURRENT > 3)) && case "$words[2] $words[3]" in
    (%s) key="$words[2] $words[3]" ;;
  esac
  case $key in
%s  esac
  if [[ $words[CURRENT] == -* ]]; then
    _describe option options
  elif ((jobs)) || [[ $words[CURRENT-1] == --job ]]; then
    found=("${(@f)$(lockstep completion --jobs 2>/dev/null)}")
    compadd -a found
  elif ((CURRENT == 3 && ${#subs})); then
    _describe subcommand subs
  else
    _files
  fi
}
compdef _lockstep lockstep
)SH",
                names.c_str(), pairs.c_str(), cases.c_str());
}

std::string fish_script() {
  std::string out =
      "# lockstep completion fish: lockstep completion fish > ~/.config/fish/completions/lockstep.fish\n"
      "complete -c lockstep -f\n";
  for (const Command& command : commands())
    out += format("complete -c lockstep -n __fish_use_subcommand -a %s -d %s\n", command.name,
                  shell_word(command.help).c_str());
  for_each_use([&](const std::string& key, const CommandUse& use) {
    std::string seen;
    for (std::string_view word : split(key, ' ')) {
      seen +=
          (seen.empty() ? "__fish_seen_subcommand_from " : "; and __fish_seen_subcommand_from ") + std::string(word);
    }
    const std::string where = "complete -c lockstep -n " + shell_word(seen);
    for (const CommandUse& sub : use.subcommands)
      out += where + format(" -a %s -d %s\n", sub_name(sub).c_str(), shell_word(sub.summary).c_str());
    if (takes_job(use)) out += where + " -a '(lockstep completion --jobs 2>/dev/null)' -d job\n";
    for (const Flags::Option& option : use.options) {
      const char* value = !option.needs_value()  ? ""
                          : is_job_value(option) ? " -x -a '(lockstep completion --jobs 2>/dev/null)'"
                                                 : " -r -F";
      out += where + format(" -l %s%s -d %s\n", option.name.substr(option.name.find_first_not_of('-')).c_str(), value,
                            shell_word(option.help).c_str());
    }
  });
  return out;
}

// One a line; nothing, and no word about it, where the server does not answer at once. A job called "--server=..." would
// be taken for an option, and the next call's token sent there: such a name has to be typed, behind "--".
int print_jobs(const std::string& server) {
  const Response answer = ServerCalls(server, kProgram, kJobsMs).ask(format("/api/jobs?limit=%zu", kJobsMax));
  if (answer.exit_code != kExitOk) return answer.exit_code;
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(answer.body).get(document)) return kExitFailed;
  for (Json job : list_of(document, "jobs")) {
    const std::string id = text_of(job, "job_id");
    if (!id.starts_with("-")) std::printf("%s\n", id.c_str());
  }
  return kExitOk;
}

}  // namespace

int run_completion(const Arguments& arguments) {
  std::string server = default_server();
  bool jobs = false;
  Flags flags(kProgram, "completion of commands, options and jobs, for a shell to read", "[bash|zsh|fish]");
  add_server_flags(flags, &server)
      .toggle(&jobs, "--jobs", "instead: the jobs that the server names within half a second");
  if (std::optional<int> code = answered(flags, arguments,
                                         "bash: source <(lockstep completion bash)\n"
                                         "zsh:  source <(lockstep completion zsh)\n"
                                         "fish: lockstep completion fish > ~/.config/fish/completions/lockstep.fish\n"))
    return *code;
  if (jobs) return print_jobs(server);
  const std::string shell = flags.positional().empty() ? "" : flags.positional()[0];
  if (shell != "bash" && shell != "zsh" && shell != "fish") {
    std::fprintf(stderr, "%s: which shell: bash, zsh or fish\n", kProgram);
    return kExitUsage;
  }
  const std::string script = shell == "bash" ? bash_script() : shell == "zsh" ? zsh_script() : fish_script();
  std::fputs(script.c_str(), stdout);
  return kExitOk;
}

}  // namespace lockstep::cli
