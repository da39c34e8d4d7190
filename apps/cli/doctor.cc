// `lockstep doctor`: what is running here, what is missing, and how to switch it on. One line a check.
#include <dlfcn.h>
#include <simdjson.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/run_agent.h"
#include "apps/cli/server_call.h"
#include "apps/cli/terminal.h"
#include "apps/cli/wrapped.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/process.h"
#include "base/text.h"
#include "net/http_client.h"
#include "recorder/reader.h"

namespace lockstep::cli {
namespace {

enum class State { kOk, kNote, kWrong };

struct Check {
  std::string name;
  State state;
  std::string found;
  std::string todo;  // empty when there is nothing to do
};

const char* to_text(State state) {
  switch (state) {
    case State::kOk:
      return "ok";
    case State::kNote:
      return "note";
    case State::kWrong:
      return "wrong";
  }
  return "?";
}

Check check_server(const std::string& server) {
  Response answer = ask(server, "/readyz", "server");
  if (answer.exit_code == kExitOk) return {"server", State::kOk, page_of(server) + " is ready", ""};
  if (answer.exit_code != kExitNotFound) return {"server", State::kWrong, answer.message, "lockstepd --data DIR"};
  return {"server", State::kWrong, server + " answers, but not as a Lockstep server does: " + answer.message,
          "--server with an address of the server (lockstepd --http, usually port 7070)"};
}

// What agents and server take, and what of it is not known. A server of an earlier release does not say.
void check_overhead(const std::string& server, std::vector<Check>& checks) {
  const Response answer = ask(server, "/api/overhead", "overhead");
  simdjson::dom::parser parser;
  Json document;
  if (answer.exit_code != kExitOk || parser.parse(answer.body).get(document)) return;
  std::string unknown;
  for (const Json row : list_of(document, "unknown"))
    unknown += (unknown.empty() ? "" : "; ") + text_of(row, "sentence");
  if (!unknown.empty()) unknown = " Unknown: " + unknown + ".";
  checks.push_back({"overhead", State::kOk, text_of(document, "sentence") + unknown, ""});
}

// What the agent says of itself and of each of its sources: what works on this node, and how to switch on the rest.
void check_agent(const std::string& agent, const std::string& token_file, std::vector<Check>& checks) {
  Response answer = ask_agent(agent, token_file, "/checks", "agent");
  if (answer.exit_code != kExitOk) {
    checks.push_back({"agent", State::kNote, format("no agent answers at %s", agent.c_str()),
                      "lockstep-agent --data DIR --server http://SERVER:4318, or lockstep run, which starts one"});
    return;
  }
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  simdjson::dom::array sources;
  if (parser.parse(answer.body).get(document) != simdjson::SUCCESS ||
      document["checks"].get_array().get(sources) != simdjson::SUCCESS) {
    checks.push_back({"agent", State::kWrong, format("what answers at %s is no Lockstep agent", agent.c_str()), ""});
    return;
  }
  checks.push_back({"agent", State::kOk, agent + " is running", ""});
  auto text = [](const simdjson::dom::element& object, const char* key) {
    std::string_view value;
    return object[key].get(value) == simdjson::SUCCESS ? std::string(value) : std::string();
  };
  for (const simdjson::dom::element source : sources) {
    bool works = false, vital = false;
    (void)!source["works"].get(works);
    (void)!source["vital"].get(vital);
    // A source that is not there may not be wanted here (no RDMA on a laptop): it is a note, not a fault.
    checks.push_back({text(source, "what"),
                      works   ? State::kOk
                      : vital ? State::kWrong
                              : State::kNote,
                      text(source, "found"), works ? std::string() : text(source, "todo")});
  }
}

// As NCCL looks for it: the name as it stands, then as a part of a library's name, both where the loader looks.
Check check_chosen_plugin(const std::string& chosen, const std::string& ours) {
  const std::string setting = "NCCL_PROFILER_PLUGIN=" + chosen, todo = "export NCCL_PROFILER_PLUGIN=" + ours;
  std::string why;
  for (const std::string& name : {chosen, "libnccl-profiler-" + chosen + ".so"}) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (why.empty()) why = dlerror();
      continue;
    }
    const bool is_ours = dlsym(library, "lockstep_use_clock") != nullptr;
    dlclose(library);
    if (is_ours) return {"plugin", State::kOk, "loadable; " + setting, ""};
    return {"plugin", State::kWrong, setting + " loads another plugin than Lockstep's", todo};
  }
  return {"plugin", State::kWrong, "NCCL would not find it: " + setting + ": " + why, todo};
}

Check check_plugin() {
  std::string path = program_directory() + "/../lib/libnccl-profiler-lockstep.so";
  if (char* real = realpath(path.c_str(), nullptr)) {
    path = real;
    std::free(real);
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {"plugin", State::kWrong, dlerror(), "./dev build"};
  for (int version = 1; version <= 7; ++version) {
    const std::string symbol = format("ncclProfiler_v%d", version);
    if (dlsym(library, symbol.c_str()) == nullptr)
      return {"plugin", State::kWrong, path + " does not export " + symbol, "./dev build"};
  }
  const char* chosen = std::getenv("NCCL_PROFILER_PLUGIN");
  if (chosen == nullptr || *chosen == '\0')
    return {"plugin", State::kNote, "built and loadable; NCCL_PROFILER_PLUGIN is not set in this shell",
            "export NCCL_PROFILER_PLUGIN=" + path};
  return check_chosen_plugin(chosen, path);
}

Check check_recorders() {
  std::string folder = recorder_directory();
  Result<std::vector<std::string>> names = list_directory(folder);
  if (!names.ok()) return {"recorders", State::kNote, folder + " does not exist yet: no process has recorded here", ""};
  size_t readable = 0, live = 0;
  std::string bad;
  for (const std::string& name : *names) {
    if (!name.ends_with(kRecorderSuffix)) continue;
    Result<std::unique_ptr<RecorderReader>> reader = RecorderReader::open(folder + "/" + name);
    if (!reader.ok()) {
      bad = name + ": " + reader.error();
      continue;
    }
    ++readable;
    live += access(format("/proc/%d", (*reader)->header().pid).c_str(), F_OK) == 0;
  }
  if (!bad.empty()) return {"recorders", State::kWrong, bad, "remove the file if no job of this version writes it"};
  if (access(folder.c_str(), W_OK) != 0)
    return {"recorders", State::kWrong, folder + " cannot be written",
            "set LOCKSTEP_RECORDER_DIR to a folder in shared memory that jobs can write"};
  return {"recorders", State::kOk, format("%s: %zu readable, %zu of live processes", folder.c_str(), readable, live),
          ""};
}

Check check_shared_memory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0)
    return {"shared memory", State::kWrong, std::string("/dev/shm: ") + std::strerror(errno),
            "mount a tmpfs on /dev/shm (containers: --shm-size)"};
  double free_mb = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / 1e6;
  if (free_mb < 64)
    return {"shared memory", State::kWrong, format("/dev/shm has %.0f MB free; a process needs about 16", free_mb),
            "enlarge /dev/shm (containers: --shm-size)"};
  return {"shared memory", State::kOk, format("/dev/shm has %.0f MB free", free_mb), ""};
}

// What can be judged of a job: one line a question, what is missing behind it.
int show_coverage(const std::string& server, const std::string& job, bool json) {
  const Response answer = ask(server, "/api/jobs/" + url_part(job) + "/coverage", "lockstep doctor");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(answer.body).get(document)) return not_understood("lockstep doctor");
  const simdjson::dom::array rows = list_of(document, "coverage");
  size_t width = 0;
  for (const Json row : rows) width = std::max(width, text_of(row, "question").size());
  // Where it is narrow, what is said of a question stands below it.
  if (const std::optional<size_t> all = row_columns(); all && width + 38 > *all) width = 0;
  const int columns = static_cast<int>(width);
  // What is missing comes last: there the eye rests.
  std::string said;  // what several need is said behind the last of them
  const auto say = [&](const std::string& todo) {
    if (!said.empty() && todo != said)
      std::fputs(wrapped_row("do: " + said, width == 0 ? 2 : width + 10).c_str(), stdout);
    said = todo;
  };
  for (const char* wanted : {"judged", "partly", "not"}) {
    for (const Json row : rows) {
      if (text_of(row, "judged") != wanted) continue;
      say(text_of(row, "todo"));
      const std::string question = text_of(row, "question");
      std::fputs(row_with_text(format("%-6s  %-*s", wanted, columns, question.c_str()), text_of(row, "why")).c_str(),
                 stdout);
    }
  }
  say("");
  std::printf("\n");
  print_wrapped(text_of(document, "job_id") + ": " + text_of(document, "sentence"));
  return kExitOk;
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  std::string server = default_server(), agent, agent_token_file;
  bool json = false;
  Flags flags("lockstep doctor",
              "what is running, what is missing, and how to switch it on; with JOB: what can be judged of it, and why",
              "[JOB]");
  add_server_flags(flags, &server)
      .text(&agent, "--agent", "URL", "this node's agent (default: that of lockstep run, else http://127.0.0.1:9410)")
      .text(&agent_token_file, "--agent-token-file", "FILE", "its bearer token, where it asks for one")
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments, "exit codes: 0 nothing wrong, 1 something is\n"))
    return *code;
  if (!flags.positional().empty()) return show_coverage(server, flags.positional()[0], json);
  if (agent.empty()) agent = agent_page(recorder_directory());
  std::vector<Check> checks = {check_server(server)};
  if (checks.front().state == State::kOk) check_overhead(server, checks);
  check_agent(agent, agent_token_file, checks);
  for (const Check& check : {check_plugin(), check_recorders(), check_shared_memory()}) checks.push_back(check);
  size_t width = 14;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  bool wrong = false;
  JsonWriter out;
  out.begin_object().key("checks").begin_array();
  for (const Check& check : checks) {
    wrong |= check.state == State::kWrong;
    out.begin_object()
        .field("name", check.name)
        .field("state", to_text(check.state))
        .field("found", check.found)
        .field("todo", check.todo)
        .end_object();
    if (json) continue;
    const int columns = static_cast<int>(width);
    const std::string state = check.state == State::kOk     ? "ok"
                              : check.state == State::kNote ? painted(Paint::kWarn, "note")
                                                            : painted(Paint::kBad, "wrong");
    const std::string head = padded(state, 6) + " " + padded(check.name, width) + " ";
    std::fputs(wrapped_row(check.found, width + 8, head).c_str(), stdout);
    if (!check.todo.empty()) std::printf("       %-*s do: %s\n", columns, "", check.todo.c_str());
  }
  out.end_array().end_object();
  if (json) std::printf("%s\n", out.text().c_str());
  return wrong ? kExitNo : kExitOk;
}

}  // namespace lockstep::cli
