#include "apps/cli/trace_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "apps/cli/answer_json.h"
#include "apps/cli/server_call.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/text.h"
#include "model/blob_key.h"
#include "model/capture_results.h"
#include "profile/read/nsys_reader.h"

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

// JOB/CAPTURE, and no file of that name.
std::optional<std::pair<std::string, std::string>> capture_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0 || !is_capture_id(std::string_view(path).substr(slash + 1)) ||
      ::access(path.c_str(), F_OK) == 0)
    return std::nullopt;
  return std::pair{path.substr(0, slash), path.substr(slash + 1)};
}

// Why there is no answer, without the program's name, which whoever prints it says.
std::string reason(const Response& answer, const char* program) {
  const std::string before = std::string(program) + ": ";
  return answer.message.starts_with(before) ? answer.message.substr(before.size()) : answer.message;
}

// A file that a server keeps, a piece at a time.
class ServerFile final : public ByteSource {
 public:
  ServerFile(const char* program, const std::string& server, std::string path, uint64_t bytes, ReadProgress& progress)
      : program_(program),
        calls_(server, program, kTimeoutMs),
        path_(std::move(path)),
        bytes_(bytes),
        progress_(progress) {}
  Result<size_t> read(char* into, size_t bytes_max) override {
    if (taken_ == piece_.size() && from_ < bytes_) {
      Response answer = calls_.ask_bytes(path_, from_, std::min(kPieceBytes, bytes_ - from_));
      if (answer.exit_code != kExitOk) return Error{reason(answer, program_)};
      if (answer.body.empty()) return Error{path_ + ": the server sent less than there is"};
      piece_ = std::move(answer.body);
      taken_ = 0;
      from_ += piece_.size();
      progress_.add(piece_.size());
    }
    const size_t given = std::min(bytes_max, piece_.size() - taken_);
    std::memcpy(into, piece_.data() + taken_, given);
    taken_ += given;
    return given;
  }

 private:
  static constexpr uint64_t kPieceBytes = 8 << 20;
  static constexpr int64_t kTimeoutMs = 60'000;
  const char* const program_;
  ServerCalls calls_;
  const std::string path_;
  const uint64_t bytes_;
  ReadProgress& progress_;
  uint64_t from_ = 0;
  std::string piece_;
  size_t taken_ = 0;
};

struct StoredFile {
  std::string path;  // on the server
  std::string name;
  uint64_t bytes = 0;
};

Result<std::vector<StoredFile>> stored_files(const char* program, const std::string& server, const std::string& job,
                                             const std::string& capture) {
  const std::string path = "/api/jobs/" + url_part(job) + "/profiles/" + capture + "/files";
  const Response answer = ask(server, path, program);
  if (answer.exit_code != kExitOk)
    return Error{reason(answer, program),
                 answer.exit_code == kExitNotFound ? ErrorCode::kNotFound : ErrorCode::kUnspecified};
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(answer.body).get(document)) return Error{"the server's answer was not understood"};
  std::vector<StoredFile> files;
  for (const Json file : list_of(document, "files")) {
    const std::string name = text_of(file, "file");
    if (name.starts_with(kResultPrefix)) continue;  // what the server made of the others
    files.push_back({path + "/" + url_part(name), name, static_cast<uint64_t>(number_of(file, "bytes"))});
  }
  if (files.empty()) return Error{job + "/" + capture + ": nothing of this profile is stored", ErrorCode::kNotFound};
  return files;
}

// What is read of a pipe is gone for whoever reads it next.
bool is_export(const std::string& path) {
  struct stat info = {};
  if (path == "-" || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char first[kSqliteMagic.size()];
  return file.valid() && ::read(file.get(), first, sizeof first) == sizeof first &&
         std::string_view(first, sizeof first) == kSqliteMagic;
}

// Each process of an export of Nsight Systems as a rank; one alone is named by its file.
void add_processes(const std::string& file, std::vector<TraceInput>& inputs) {
  const Result<std::vector<NsysProcess>> processes = nsys_processes(file);
  if (!processes.ok()) {
    inputs.push_back({file, std::nullopt, nullptr,
                      [error = processes.failure()](const ReadOptions&) { return Result<TraceEvents>(error); }});
    return;
  }
  for (size_t i = 0; i < processes->size(); ++i) {
    const std::string label = processes->size() == 1 ? file : format("%s, process %zu", file.c_str(), i + 1);
    inputs.push_back({label, std::nullopt, nullptr, [file, process = (*processes)[i]](const ReadOptions& options) {
                        return read_nsys_file(file, process, options);
                      }});
  }
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
      if (name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite"))
        files.push_back(path + "/" + name);
    }
    if (files.size() == before)
      return Error{path + ": no .json, .json.gz or .sqlite file in this folder", ErrorCode::kNotFound};
  }
  return files;
}

Result<ProfileAnalysis> analyze_files(const char* program, const std::vector<std::string>& paths,
                                      const std::string& server, const AnalyzeOptions& options) {
  std::vector<std::string> here;
  std::vector<StoredFile> there;
  for (const std::string& path : paths) {
    if (const auto capture = capture_of(path)) {
      std::vector<StoredFile> files = LOCKSTEP_TRY(stored_files(program, server, capture->first, capture->second));
      there.insert(there.end(), std::make_move_iterator(files.begin()), std::make_move_iterator(files.end()));
    } else {
      here.push_back(path);
    }
  }
  const std::vector<std::string> files = LOCKSTEP_TRY(trace_files(here));
  uint64_t bytes = 0;
  for (const std::string& file : files) bytes += size_of(file);
  for (const StoredFile& file : there) bytes += file.bytes;
  ReadProgress progress(bytes);
  std::vector<TraceInput> inputs;
  for (const std::string& file : files) {
    if (is_export(file)) {
      add_processes(file, inputs);
      continue;
    }
    inputs.push_back({file, std::nullopt, [&progress, file] {
                        uint64_t before = 0;
                        return open_trace_file(file, [&progress, before](uint64_t done) mutable {
                          progress.add(done - before);
                          before = done;
                        });
                      }});
  }
  for (const StoredFile& file : there) {
    inputs.push_back({file.name, std::nullopt, [&, file]() -> Result<std::unique_ptr<ByteSource>> {
                        return std::unique_ptr<ByteSource>(
                            std::make_unique<ServerFile>(program, server, file.path, file.bytes, progress));
                      }});
  }
  Result<ProfileAnalysis> analysis = analyze(inputs, options);
  if (analysis.ok() && analysis->ranks.size() < inputs.size()) {
    std::fprintf(stderr, "%s: %zu of %zu files are no kernel traces and were left out\n", program,
                 inputs.size() - analysis->ranks.size(), inputs.size());
  }
  return analysis;
}

}  // namespace lockstep::cli
