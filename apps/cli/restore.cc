// `lockstep restore`: a backup as a data folder again.
#include "backup/restore.h"

#include <chrono>
#include <cstdio>
#include <functional>

#include "apps/cli/backup_progress.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {

int run_restore(const Arguments& arguments) {
  int64_t generation = 0;
  std::string s3_endpoint;
  Flags flags("lockstep restore", "a backup as a data folder again: every byte checked before the folder has its name",
              "PLACE DATA...");
  flags
      .number(&generation, "--generation", "N", "which one (default: the newest; lockstep backup list PLACE)", 1,
              1'000'000'000)
      .text(&s3_endpoint, "--s3-endpoint", "URL", kS3EndpointHelp);
  if (std::optional<int> code = answered(flags, arguments,
                                         "exit codes: 0 restored, 2 wrong usage, 4 no such backup, 5 anything else: "
                                         "DATA is then as it was\n"))
    return *code;
  if (flags.positional().size() != 2) {
    std::fprintf(stderr, "lockstep restore: takes PLACE, where the backups are, and DATA, the folder to make of it\n");
    return kExitUsage;
  }
  auto wrong = [](const Error& error) {
    std::fprintf(stderr, "lockstep restore: %s\n", error.message.c_str());
    return error.code == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
  };
  const std::string& data = flags.positional()[1];
  const auto began = std::chrono::steady_clock::now();
  const Result<std::unique_ptr<backup::Repository>> repository =
      backup::open_repository(flags.positional()[0], backup::Access::kRead, s3_endpoint);
  if (!repository.ok()) return wrong(repository.failure());
  Result<backup::Restored> restored = Error{"not restored"};
  {
    BackupProgress progress("restore:");
    restored = backup::restore(**repository, static_cast<uint64_t>(generation), data, std::ref(progress));
  }
  if (!restored.ok()) return wrong(restored.failure());
  if (restored->was_left)
    std::printf("%s.part of a restore that was killed has been taken away\n",
                data.substr(0, data.find_last_not_of('/') + 1).c_str());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("generation %llu: %zu files of %s, all checked, in %.1f s; as of %s. Start it: lockstepd --data %s\n",
              static_cast<unsigned long long>(restored->manifest.generation), restored->manifest.files.size(),
              human_bytes(static_cast<double>(restored->bytes)).c_str(), seconds,
              utc_time(restored->manifest.unix_ns / 1'000'000).c_str(), data.c_str());
  return kExitOk;
}

}  // namespace lockstep::cli
