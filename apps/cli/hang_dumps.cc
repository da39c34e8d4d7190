// `lockstep hang --dumps DIR`: dumps of PyTorch's Flight Recorder, judged by the server's hang detector.
#include <sys/stat.h>

#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/hang_more.h"
#include "apps/cli/in_flight_view.h"
#include "apps/cli/wrapped.h"
#include "base/files.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "diagnosis/detectors/hang/evidence.h"
#include "diagnosis/verdicts/verdict_sentence.h"
#include "model/rank_text.h"
#include "sources/nccl/flight_dump_reader.h"

namespace lockstep::cli {
namespace {

struct DumpFolder {
  FlightDumps dumps;
  std::vector<Skipped> skipped;
};

Result<DumpFolder> read_folder(const std::string& folder) {
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(folder));
  DumpFolder all;
  for (const std::string& name : names) {
    const std::string file = folder + "/" + name;
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const std::optional<Rank> rank = rank_of_dump(name);
    if (!rank) {
      all.skipped.push_back({file, "its name does not end with a rank"});
      continue;
    }
    Result<std::string> bytes = read_file(file, kFlightDumpBytesMax);
    Result<FlightDump> dump = bytes.ok() ? read_flight_dump(std::move(*bytes)) : Result<FlightDump>(bytes.failure());
    if (!dump.ok()) {
      all.skipped.push_back({file, dump.error()});
      continue;
    }
    dump->file = file;
    dump->time_unix_ns = info.st_mtim.tv_sec * 1'000'000'000ll + info.st_mtim.tv_nsec;
    auto known = all.dumps.find(*rank);
    if (known != all.dumps.end() && known->second.time_unix_ns >= dump->time_unix_ns) {
      all.skipped.push_back({file, format("%s is a newer dump of rank %d", known->second.file.c_str(), rank->value())});
      continue;
    }
    if (known != all.dumps.end())
      all.skipped.push_back({known->second.file, format("%s is a newer dump of rank %d", file.c_str(), rank->value())});
    all.dumps[*rank] = std::move(*dump);
  }
  return all;
}

const char* state_text(OpState state) {
  return state == OpState::kCompleted ? "done" : state == OpState::kStarted ? "on GPU" : "in queue";
}

// The operation a rank is in, or its last.
const DumpOp* place_of(const DumpGroup& group) {
  for (const DumpOp& op : group.ops) {
    if (op.state != OpState::kCompleted) return &op;
  }
  return group.ops.empty() ? nullptr : &group.ops.back();
}

void print_groups(const FlightDumps& dumps) {
  std::map<std::string, std::vector<std::pair<Rank, const DumpGroup*>>> groups;
  for (const auto& [rank, dump] : dumps) {
    for (const DumpGroup& group : dump.groups) groups[group.name + " " + group.ranks].emplace_back(rank, &group);
  }
  constexpr size_t kGroupsShown = 4, kRanksShown = 32;
  size_t shown = 0, idle = 0;
  for (const auto& [key, ranks] : groups) {
    bool waiting = false;
    for (const auto& [rank, group] : ranks) {
      const DumpOp* op = place_of(*group);
      waiting |= op != nullptr && op->state != OpState::kCompleted;
    }
    if (!waiting || shown == kGroupsShown) {
      ++idle;
      continue;
    }
    ++shown;
    const DumpGroup& first = *ranks.front().second;
    std::printf("%s · %lld ranks (%s)\n", first.desc.empty() ? first.name.c_str() : first.desc.c_str(),
                static_cast<long long>(first.size), first.ranks.c_str());
    std::printf("  %5s  %8s  %8s  %-9s %-28s %s\n", "rank", "entered", "done", "state", "operation", "called from");
    size_t lines = 0;
    for (const auto& [rank, group] : ranks) {
      if (++lines > kRanksShown) continue;
      const DumpOp* op = place_of(*group);
      const std::string operation =
          op == nullptr ? "-"
                        : format("%s %lld %s", op->name.c_str(), static_cast<long long>(op->seq), op->sizes.c_str());
      std::printf("  %5d  %8lld  %8lld  %-9s %-28s %s\n", rank.value(), static_cast<long long>(group->last_enqueued),
                  static_cast<long long>(group->last_completed), op == nullptr ? "-" : state_text(op->state),
                  operation.c_str(), op == nullptr || op->caller.file.empty() ? "-" : to_text(op->caller).c_str());
    }
    if (lines > kRanksShown) std::printf("  (%zu more)\n", lines - kRanksShown);
    std::printf("\n");
  }
  if (idle > 0) std::printf("%zu further groups: nothing is under way there, or left out.\n", idle);
}

std::string to_json(const DumpFolder& folder, const std::optional<Finding>& finding, const std::string& sentence,
                    const std::vector<Rank>& missing) {
  JsonWriter json;
  json.begin_object()
      .field("outcome", !finding        ? "clear"
                        : finding->sure ? "hang"
                                        : "suspected")
      .field("sentence", sentence)
      .key("ranks_without_dump")
      .begin_array();
  for (Rank rank : missing) json.number(rank.value());
  json.end_array();
  if (finding) {
    json.key("finding")
        .begin_object()
        .field("cause", to_text(finding->cause))
        .field("layer", to_text(finding->layer))
        .key("ranks");
    json.begin_array();
    for (Rank rank : finding->ranks) json.number(rank.value());
    json.end_array().key("victims").begin_array();
    for (Rank rank : finding->victims) json.number(rank.value());
    json.end_array().key("claims").begin_array();
    for (const Claim& entry : finding->chain)
      json.begin_object().field("kind", to_text(entry.kind)).field("claim", entry.claim).end_object();
    json.end_array().end_object();
  }
  json.key("dumps").begin_array();
  for (const auto& [rank, dump] : folder.dumps) {
    json.begin_object()
        .field("rank", rank.value())
        .field("file", dump.file)
        .field("version", dump.version)
        .field("entries", dump.entries)
        .field("last_operation", dump.last.name)
        .field("last_seq", dump.last.seq)
        .field("called_from", dump.last.caller.file.empty() ? std::string() : to_text(dump.last.caller))
        .end_object();
  }
  json.end_array().key("skipped").begin_array();
  for (const Skipped& one : folder.skipped)
    json.begin_object().field("file", one.file).field("error", one.error).end_object();
  json.end_array().end_object();
  return json.take();
}

}  // namespace

int hang_of_dumps(const std::string& path, bool json) {
  Result<DumpFolder> folder = read_folder(path);
  if (!folder.ok()) {
    std::fprintf(stderr, "lockstep hang: --dumps: %s\n", folder.error().c_str());
    return kExitNotFound;
  }
  for (const Skipped& one : folder->skipped)
    std::fprintf(stderr, "lockstep hang: %s: %s\n", one.file.c_str(), one.error.c_str());
  if (folder->dumps.empty()) {
    std::fprintf(stderr, "lockstep hang: no dump of PyTorch's Flight Recorder in %s\n", path.c_str());
    return kExitNotFound;
  }
  JobWindow window;
  const std::optional<Finding> finding = find_hang_in_dumps(folder->dumps, window);
  const std::vector<Rank> missing = ranks_without_dump(folder->dumps);
  std::string sentence = finding ? verdict_sentence(*finding, {finding->since_step, finding->through_step})
                                 : "Nothing is stuck: every rank is where the others are.";
  // Who left no dump may be the one everybody waits for.
  const bool inside = !finding || finding->cause == Cause::kInOperationStall;
  if (inside && !missing.empty())
    sentence = format("Cannot tell: rank %s left no dump; the others wait for nobody among themselves.",
                      human_ranks(missing).c_str());
  const bool hang = finding && !(inside && !missing.empty());
  if (json) {
    std::printf("%s\n", to_json(*folder, hang ? finding : std::nullopt, sentence, missing).c_str());
    return hang ? kExitNo : kExitOk;
  }
  std::printf("%zu dumps of PyTorch's Flight Recorder%s\n\n", folder->dumps.size(),
              missing.empty() ? "" : format(" · none of rank %s", human_ranks(missing).c_str()).c_str());
  print_wrapped(sentence, hang ? 7 : 0, !hang ? "" : finding->sure ? "HANG" : "HANG?");
  if (hang) {
    for (const Claim& entry : finding->chain) {
      if (entry.kind == ClaimKind::kEvent && entry.query.find("/stacks") != std::string::npos)
        print_wrapped(entry.claim, 7);
    }
  }
  std::printf("\n");
  print_groups(folder->dumps);
  return hang ? kExitNo : kExitOk;
}

}  // namespace lockstep::cli
