// `lockstep detail LEVEL`: asks running jobs for more or less detail, through the control word of their recorders or,
// for a whole job, through NCCL RAS.
#include <algorithm>
#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/recorder_folder.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/text.h"
#include "model/ids.h"
#include "recorder/control.h"
#include "recorder/reader.h"
#include "sources/nccl/ras_client.h"

namespace lockstep::cli {
namespace {

std::string mask_text(uint32_t mask) {
  for (const char* level : {"low", "full"}) {
    if (mask_of_level(level) == mask) return format("0x%02x (%s)", mask, level);
  }
  return format("0x%02x", mask);
}

int usage(const std::string& error) {
  std::fprintf(stderr, "lockstep detail: %s\n", error.c_str());
  return kExitUsage;
}

int failed(const std::string& error) {
  std::fprintf(stderr, "lockstep detail: %s\n", error.c_str());
  return kExitFailed;
}

int ask_job(const std::string& address, uint16_t mask) {
  RasOptions options;
  options.address = address;
  options.timeout_ms = 7000;
  if (Result<void> set = ras_set_profiler_mask(options, mask); !set.ok()) return failed(set.error());
  std::printf("The whole job: mask %s asked through RAS at %s. It stays until it is set again.\n",
              mask_text(mask).c_str(), address.c_str());
  return kExitOk;
}

// What is asked of which processes.
struct Request {
  std::optional<uint16_t> mask;  // nothing: the plugin chooses again
  int64_t seconds = 0;
  std::vector<Rank> ranks;  // empty: all
  bool is_for(Rank rank) const { return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }
};

Result<std::vector<Rank>> ranks_of(const std::vector<std::string>& words) {
  std::vector<Rank> ranks;
  for (const std::string& word : words) {
    const std::optional<int64_t> rank = parse_int(word);
    if (!rank || *rank < 0 || *rank > INT32_MAX) return Error{format("--rank takes a rank, not \"%s\"", word.c_str())};
    ranks.push_back(Rank{static_cast<int32_t>(*rank)});
  }
  return ranks;
}

// Asks the process of one recorder. False: it is gone, or it is not meant.
Result<bool> ask_process(const std::string& path, const Request& request) {
  const std::unique_ptr<RecorderReader> reader = LOCKSTEP_TRY(RecorderReader::open(path));
  const RecorderHeader header = reader->header();
  if (!writer_state(*reader, header) || !request.is_for(Rank{header.rank})) return false;
  std::optional<DetailControl> control;
  const int64_t until_s = SystemClock().monotonic_ns() / 1'000'000'000 + request.seconds;
  if (request.mask) control = DetailControl{*request.mask, static_cast<uint32_t>(until_s)};
  if (Result<void> done = ask_detail(path, control); !done.ok())
    return Error{format("rank %d: %s", header.rank, done.error().c_str())};
  const std::string asked =
      control ? format("%s for %lld s", mask_text(*request.mask).c_str(), static_cast<long long>(request.seconds))
              : "for nothing: the plugin chooses";
  std::printf("%-20s rank %-5d pid %-8d mask %s, asked %s\n", header.job_id.c_str(), header.rank, header.pid,
              mask_text(header.mask).c_str(), asked.c_str());
  return true;
}

int ask_processes(const std::string& folder, const Request& request) {
  const Result<std::vector<std::string>> names = list_directory(folder);
  size_t asked = 0, not_asked = 0;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    if (!name.ends_with(kRecorderSuffix)) continue;
    const Result<bool> done = ask_process(folder + "/" + name, request);
    if (!done.ok()) {
      failed(done.error());
      ++not_asked;
    } else if (*done) {
      ++asked;
    }
  }
  if (not_asked > 0) return kExitFailed;
  if (asked > 0) return kExitOk;
  failed(request.ranks.empty() ? nothing_recorded(folder) : "no running process of these ranks in " + folder);
  return kExitNotFound;
}

}  // namespace

int run_detail(const Arguments& arguments) {
  std::string folder = recorder_directory(), ras;
  Request request;
  std::vector<std::string> rank_words;
  Flags flags("lockstep detail", "how much running jobs record: low, full, or auto (the plugin chooses)", "LEVEL");
  flags
      .number(&request.seconds, "--for", "SECONDS", "for so long, then the plugin chooses again (default 60)", 1,
              86'400)
      .text(&folder, "--recorders", "DIR", kRecordersHelp)
      .list(&rank_words, "--rank", "N", "only these ranks; may be repeated, or joined by commas")
      .text(&ras, "--ras", "ADDR",
            "all ranks of the job on all nodes, through NCCL RAS (2.31 on), e.g. localhost:28028");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "A rank looks at the request when it enqueues its next operation: one that hangs does not see it.\n"
                   "exit codes: 0 asked, 2 wrong usage, 4 no such process, 5 somebody could not be asked\n"))
    return *code;
  const std::string& level = flags.positional()[0];
  request.mask = mask_of_level(level);
  if (!request.mask && level != "auto") return usage(format("LEVEL is low, full or auto, not \"%s\"", level.c_str()));
  if (!ras.empty()) {
    if (!rank_words.empty() || request.seconds != 0 || !request.mask)
      return usage("--ras sets low or full for the whole job, until it is set again: no --rank, no --for");
    return ask_job(ras, *request.mask);
  }
  Result<std::vector<Rank>> ranks = ranks_of(rank_words);
  if (!ranks.ok()) return usage(ranks.error());
  request.ranks = std::move(*ranks);
  if (request.seconds == 0) request.seconds = 60;
  return ask_processes(folder, request);
}

}  // namespace lockstep::cli
