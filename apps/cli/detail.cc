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

int ask_job(const std::string& address, uint16_t mask) {
  RasOptions options;
  options.address = address;
  options.timeout_ms = 7000;
  if (Result<void> set = ras_set_profiler_mask(options, mask); !set.ok()) {
    std::fprintf(stderr, "lockstep detail: %s\n", set.error().c_str());
    return kExitFailed;
  }
  std::printf("The whole job: mask %s asked through RAS at %s. It stays until it is set again.\n",
              mask_text(mask).c_str(), address.c_str());
  return kExitOk;
}

}  // namespace

int run_detail(const Arguments& arguments) {
  std::string folder = recorder_directory(), ras;
  int64_t seconds = 0;
  std::vector<std::string> rank_words;
  Flags flags("lockstep detail", "how much running jobs record: low, full, or auto (the plugin chooses)", "LEVEL");
  flags.number(&seconds, "--for", "SECONDS", "for so long, then the plugin chooses again (default 60)", 1, 86'400)
      .text(&folder, "--recorders", "DIR", kRecordersHelp)
      .list(&rank_words, "--rank", "N", "only these ranks; may be repeated, or joined by commas")
      .text(&ras, "--ras", "ADDR",
            "all ranks of the job on all nodes, through NCCL RAS (2.31 on), e.g. localhost:28028");
  const auto usage = [](const std::string& error) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return kExitUsage;
  };
  if (std::optional<int> code =
          answered(flags, arguments,
                   "A rank looks at the request when it enqueues its next operation: one that hangs does not see it.\n"
                   "exit codes: 0 asked, 2 wrong usage, 4 no such process, 5 somebody could not be asked\n"))
    return *code;
  const std::string& level = flags.positional()[0];
  const std::optional<uint16_t> mask = mask_of_level(level);
  if (!mask && level != "auto")
    return usage(format("lockstep detail: LEVEL is low, full or auto, not \"%s\"", level.c_str()));
  if (!ras.empty()) {
    if (!rank_words.empty() || seconds != 0 || !mask)
      return usage(
          "lockstep detail: --ras sets low or full for the whole job, until it is set again: no --rank, no --for");
    return ask_job(ras, *mask);
  }
  std::vector<Rank> wanted;
  for (const std::string& word : rank_words) {
    const std::optional<int64_t> rank = parse_int(word);
    if (!rank || *rank < 0 || *rank > INT32_MAX)
      return usage(format("lockstep detail: --rank takes a rank, not \"%s\"", word.c_str()));
    wanted.push_back(Rank{static_cast<int32_t>(*rank)});
  }
  if (seconds == 0) seconds = 60;

  const Result<std::vector<std::string>> names = list_directory(folder);
  size_t asked = 0, failed = 0;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
    if (!name.ends_with(kRecorderSuffix)) continue;
    const std::string path = folder + "/" + name;
    Result<std::unique_ptr<RecorderReader>> reader = RecorderReader::open(path);
    if (!reader.ok()) {
      std::fprintf(stderr, "lockstep detail: %s\n", reader.error().c_str());
      ++failed;
      continue;
    }
    const RecorderHeader header = (*reader)->header();
    if (!writer_state(**reader, header)) continue;  // gone
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), Rank{header.rank}) == wanted.end()) continue;
    std::optional<DetailControl> request;
    const int64_t until_s = SystemClock().monotonic_ns() / 1'000'000'000 + seconds;
    if (mask) request = DetailControl{*mask, static_cast<uint32_t>(until_s)};
    if (Result<void> done = ask_detail(path, request); !done.ok()) {
      std::fprintf(stderr, "lockstep detail: rank %d: %s\n", header.rank, done.error().c_str());
      ++failed;
      continue;
    }
    ++asked;
    std::printf("%-20s rank %-5d pid %-8d mask %s, asked %s\n", header.job_id.c_str(), header.rank, header.pid,
                mask_text(header.mask).c_str(),
                request ? format("%s for %lld s", mask_text(*mask).c_str(), static_cast<long long>(seconds)).c_str()
                        : "for nothing: the plugin chooses");
  }
  if (failed > 0) return kExitFailed;
  if (asked == 0) {
    const std::string why =
        wanted.empty() ? nothing_recorded(folder) : "no running process of these ranks in " + folder;
    std::fprintf(stderr, "lockstep detail: %s\n", why.c_str());
    return kExitNotFound;
  }
  return kExitOk;
}

}  // namespace lockstep::cli
