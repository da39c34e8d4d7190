// `lockstep backup`: everything a server keeps, into a folder or a bucket, while it runs; and what is in such a place.
#include <chrono>
#include <cstdio>
#include <functional>

#include "apps/cli/backup_progress.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "backup/repository.h"
#include "backup/take.h"
#include "base/crc32c.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCommand = "lockstep backup";
// Holding waits until all samples in memory are in a block.
constexpr int64_t kTimeoutMs = 300'000;

std::string bytes_text(uint64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

class ServerFiles final : public backup::HeldFiles {
 public:
  explicit ServerFiles(const std::string& server) : calls_(server, kCommand, kTimeoutMs) {}

  Result<std::string> hold() override { return body_of(calls_.post("/api/backup", "{}")); }
  Result<std::string> read(const std::string& id, const std::string& name, uint64_t from, uint64_t bytes) override {
    Response answer = calls_.ask(format("/api/backup/file?id=%s&name=%s&from=%llu&bytes=%llu", url_part(id).c_str(),
                                        url_part(name).c_str(), static_cast<unsigned long long>(from),
                                        static_cast<unsigned long long>(bytes)));
    const std::string checksum = answer.header("x-lockstep-crc32c");
    std::string content = LOCKSTEP_TRY(body_of(std::move(answer)));
    if (checksum != format("%08x", crc32c(content)))
      return Error{format("%s: %s was damaged on its way: its checksum does not match", kCommand, name.c_str())};
    return content;
  }
  void release(const std::string& id) override {
    // Where this fails the server does it by itself in time.
    (void)calls_.post("/api/backup/release?id=" + url_part(id), "{}");
  }
  int exit_code() const { return exit_code_; }  // of the last call that failed; kExitFailed: none did

 private:
  Result<std::string> body_of(Response answer) {
    if (answer.exit_code == kExitOk) return std::move(answer.body);
    exit_code_ = answer.exit_code;
    return Error{std::move(answer.message)};
  }

  ServerCalls calls_;
  int exit_code_ = kExitFailed;
};

int wrong(const Error& error) {
  const bool is_said = error.message.starts_with(kCommand);
  std::fprintf(stderr, "%s%s%s\n", is_said ? "" : kCommand, is_said ? "" : ": ", error.message.c_str());
  return error.code == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
}

// A place as it was named: DIR or s3://BUCKET/PREFIX.
struct Place {
  std::string text;
  std::string s3_endpoint;
  Result<std::unique_ptr<backup::Repository>> open(backup::Access access) const {
    return backup::open_repository(text, access, s3_endpoint);
  }
};

int take(const Place& place, const std::string& server) {
  const Result<std::unique_ptr<backup::Repository>> repository = place.open(backup::Access::kWrite);
  if (!repository.ok()) return wrong(repository.failure());
  const auto began = std::chrono::steady_clock::now();
  ServerFiles files(server);
  Result<backup::Taken> taken = Error{"not taken"};
  {
    BackupProgress progress("backup:");
    taken = backup::take_backup(files, **repository, std::ref(progress));
  }
  if (!taken.ok()) {
    wrong(taken.failure());
    return files.exit_code();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("generation %llu: %s new of %s in %.1f s; everything acknowledged before %s (record %llu of the log)\n",
              static_cast<unsigned long long>(taken->manifest.generation), bytes_text(taken->bytes_written).c_str(),
              bytes_text(taken->bytes).c_str(), seconds, utc_time(taken->manifest.unix_ns / 1'000'000).c_str(),
              static_cast<unsigned long long>(taken->manifest.log_sequence));
  return kExitOk;
}

int list(const Place& place) {
  const Result<std::unique_ptr<backup::Repository>> repository = place.open(backup::Access::kRead);
  if (!repository.ok()) return wrong(repository.failure());
  const Result<std::vector<uint64_t>> generations = (*repository)->generations();
  if (!generations.ok()) return wrong(generations.failure());
  if (generations->empty()) {
    std::printf("%s holds no whole backup\n", place.text.c_str());
    return kExitNo;
  }
  int code = kExitOk;
  std::printf("%-10s  %-24s  %7s  %10s  %s\n", "generation", "as of", "files", "size", "lockstep");
  for (uint64_t generation : *generations) {
    const Result<backup::Manifest> manifest = backup::find_generation(**repository, generation);
    if (!manifest.ok()) {
      code = wrong(manifest.failure());
      continue;
    }
    std::printf("%-10llu  %-24s  %7zu  %10s  %s\n", static_cast<unsigned long long>(generation),
                utc_time(manifest->unix_ns / 1'000'000).c_str(), manifest->files.size(),
                bytes_text(manifest->bytes()).c_str(), manifest->lockstep.c_str());
  }
  return code;
}

int prune(const Place& place, int64_t keep) {
  if (const Result<std::unique_ptr<backup::Repository>> there = place.open(backup::Access::kRead); !there.ok())
    return wrong(there.failure());  // before a folder is made of it
  const Result<std::unique_ptr<backup::Repository>> repository = place.open(backup::Access::kWrite);
  if (!repository.ok()) return wrong(repository.failure());
  const Result<backup::Pruned> pruned = backup::prune(**repository, static_cast<size_t>(keep));
  if (!pruned.ok()) return wrong(pruned.failure());
  std::printf("%zu generations and %zu pieces of %s removed\n", pruned->generations, pruned->pieces,
              bytes_text(pruned->bytes).c_str());
  return kExitOk;
}

}  // namespace

int run_backup(const Arguments& arguments) {
  std::string server = default_server();
  int64_t keep = 0;
  Place place;
  Flags flags(kCommand,
              "everything a server keeps, into a folder or a bucket, while it runs; what is there already stays",
              "PLACE...");
  add_server_flags(flags, &server)
      .text(&place.s3_endpoint, "--s3-endpoint", "URL", kS3EndpointHelp)
      .number(&keep, "--keep", "N", "with prune: how many of the newest generations stay", 1, 1'000'000);
  if (std::optional<int> code = answered(flags, arguments,
                                         "lockstep backup PLACE           makes a generation\n"
                                         "lockstep backup list PLACE      shows those there are\n"
                                         "lockstep backup prune PLACE --keep N\n"
                                         "lockstep restore PLACE DATA     is the way back\n\n"
                                         "PLACE: a folder, or s3://BUCKET/PREFIX with keys in the environment or\n"
                                         "~/.aws/credentials, as AWS's own tools read them\n\n"
                                         "exit codes: 0 done, 1 there is none (list), 2 wrong usage, 3 no server, 4 "
                                         "not found, 5 anything else\n"))
    return *code;
  const std::vector<std::string>& words = flags.positional();
  const std::string verb = words.size() == 2 ? words[0] : "";
  if (!words.empty()) place.text = words.back();
  if (words.size() == 1 && keep == 0) return take(place, server);
  if (verb == "list" && keep == 0) return list(place);
  if (verb == "prune" && keep > 0) return prune(place, keep);
  std::fprintf(stderr, "%s: takes PLACE, list PLACE, or prune PLACE --keep N (lockstep backup --help)\n", kCommand);
  return kExitUsage;
}

}  // namespace lockstep::cli
