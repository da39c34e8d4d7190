#include "apps/cli/trace_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/mutex.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

using namespace profile;

// One line that is drawn anew, several times a second at most; nothing where standard error is no terminal.
class ReadProgress {
 public:
  explicit ReadProgress(uint64_t bytes) : bytes_(bytes), is_shown_(isatty(STDERR_FILENO) == 1) {}
  ~ReadProgress() {
    if (was_shown_) std::fputs("\r\033[K", stderr);
  }
  // more: bytes read since the last call. Called from several threads.
  void add(uint64_t more) {
    const uint64_t done = done_ += more;
    if (!is_shown_) return;
    MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    was_shown_ = true;
    std::fprintf(stderr, "\r\033[Kreading %.0f %% of %s",
                 bytes_ == 0 ? 100.0 : 100.0 * static_cast<double>(done) / static_cast<double>(bytes_),
                 human_bytes(static_cast<double>(bytes_)).c_str());
  }

 private:
  const uint64_t bytes_;
  const bool is_shown_;
  std::atomic<uint64_t> done_{0};
  Mutex mutex_;
  std::chrono::steady_clock::time_point next_ LOCKSTEP_GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  std::atomic<bool> was_shown_{false};
};

uint64_t size_of(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && info.st_size > 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

}  // namespace

Result<std::vector<std::string>> trace_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    struct stat info = {};
    if (path != "-" && ::stat(path.c_str(), &info) != 0) {
      return Error{format("%s: %s", path.c_str(), std::strerror(errno)), ErrorCode::kNotFound};
    }
    if (path == "-" || !S_ISDIR(info.st_mode)) {
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    for (const std::string& name : LOCKSTEP_TRY(list_directory(path))) {
      if (name.ends_with(".json") || name.ends_with(".json.gz")) files.push_back(path + "/" + name);
    }
    if (files.size() == before) return Error{path + ": no .json or .json.gz file in this folder", ErrorCode::kNotFound};
  }
  return files;
}

Result<ProfileAnalysis> analyze_files(const char* program, const std::vector<std::string>& paths,
                                      const AnalyzeOptions& options) {
  const std::vector<std::string> files = LOCKSTEP_TRY(trace_files(paths));
  uint64_t bytes = 0;
  for (const std::string& file : files) bytes += size_of(file);
  ReadProgress progress(bytes);
  std::vector<TraceInput> inputs;
  for (const std::string& file : files) {
    inputs.push_back({file, std::nullopt, [&progress, file] {
                        uint64_t before = 0;
                        return open_trace_file(file, [&progress, before](uint64_t done) mutable {
                          progress.add(done - before);
                          before = done;
                        });
                      }});
  }
  Result<ProfileAnalysis> analysis = analyze(inputs, options);
  if (analysis.ok() && analysis->ranks.size() < files.size()) {
    std::fprintf(stderr, "%s: %zu of %zu files are no kernel traces and were left out\n", program,
                 files.size() - analysis->ranks.size(), files.size());
  }
  return analysis;
}

}  // namespace lockstep::cli
