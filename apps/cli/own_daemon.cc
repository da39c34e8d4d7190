#include "apps/cli/own_daemon.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kReadyMs = 20'000;

}  // namespace

Result<TemporaryFolder> TemporaryFolder::make(const std::string& name) {
  const char* const base = getenv("TMPDIR");
  std::string path = std::string(base && *base ? base : "/tmp") + "/" + name + "-XXXXXX";
  if (!mkdtemp(path.data())) return Error{"cannot make a temporary folder " + path};
  return TemporaryFolder(path);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string last_log_line(const std::string& path) {
  const Result<std::string> text = read_file(path, 64u << 20);
  if (!text.ok()) return "no log";
  const std::string_view trimmed = trim(*text);
  return std::string(trimmed.substr(trimmed.rfind('\n') + 1));
}

Result<Daemon> start_daemon(const std::string& program, std::vector<std::string> arguments, const std::string& folder) {
  ChildProcess::Options options;
  options.arguments = std::move(arguments);
  options.arguments.insert(options.arguments.begin(), program_directory() + "/" + program);
  options.environment = {{"LOCKSTEP_RECORDER_DIR", folder + "/recorder"}};
  options.stderr_path = folder + "/" + program + ".log";
  const std::string log = options.stderr_path;
  ChildProcess process = LOCKSTEP_TRY(ChildProcess::start(std::move(options)));
  const Result<std::string> ready = process.read_line(kReadyMs);
  if (!ready.ok() || !ready->starts_with("ready ")) {
    return Error{format("%s is not ready (%s); its last word: %s", program.c_str(),
                        ready.ok() ? ready->c_str() : ready.error().c_str(), last_log_line(log).c_str())};
  }
  Daemon daemon{std::move(process), {}};
  for (const std::string_view word : split(*ready, ' ')) {
    const size_t equals = word.find('=');
    if (equals != std::string_view::npos) daemon.receivers.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return daemon;
}

}  // namespace lockstep::cli
