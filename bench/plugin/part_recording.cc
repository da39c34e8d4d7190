// What NCCL really called, in a real job.
#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "bench/plugin/allocations.h"
#include "bench/plugin/job.h"
#include "testing/temporary_folder.h"

namespace lockstep::plugin_bench {
namespace {

// The recording's first rank alone: the others would only be loaded to be thrown away.
Result<replay::Recording> load_first_rank(const std::string& folder) {
  const std::vector<std::string> names = LOCKSTEP_TRY(list_directory(folder));
  const auto first = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("rank") && name.find(".calls") != std::string::npos;
  });
  if (first == names.end()) return Error{folder + ": no rankR.calls in it"};
  const testing::TemporaryFolder alone;
  std::error_code failed;
  std::filesystem::create_symlink(std::filesystem::absolute(folder) / *first, alone.path() + "/" + *first, failed);
  if (failed) return Error{"no place for one rank of " + folder + ": " + failed.message()};
  return replay::load_recording(alone.path(), {});
}

}  // namespace

Result<void> part_recording(Job& job, const Emit& emit, const std::string& folder) {
  const replay::Recording recording = LOCKSTEP_TRY(load_first_rank(folder));
  const replay::RankCalls& calls = recording.ranks[0].calls;
  uint32_t objects = 0;
  Script script = make_script(job.host, calls, objects);
  std::vector<void*> handles(objects);
  auto meter = Meter::make();
  uint64_t allocations = 0;
  std::vector<void*> ended;
  // The first time through is for the caches and the pages; its communicators are others.
  for (const uint64_t other : {uint64_t{1} << 63, uint64_t{0}}) {
    std::vector<void*> contexts;
    for (const replay::CallLine& line : calls.inits) {
      const std::string name(line.name);
      contexts.push_back(job.host.init(line.comm_id ^ other, name.empty() ? nullptr : name.c_str(), line.nodes,
                                       line.world, line.rank));
    }
    const uint64_t allocated = allocations_of_this_thread();
    if (other != 0) {
      play<false>(job.host, script, contexts.data(), handles.data(), {}, job.timer, nullptr);
    } else {
      play<true>(job.host, script, contexts.data(), handles.data(), {}, job.timer, meter.get());
      allocations = allocations_of_this_thread() - allocated;
    }
    for (const replay::Call& call : calls.calls) {
      if (call.kind == replay::CallKind::kFinalize) ended.push_back(contexts[call.context]);
    }
  }
  for (void* context : ended) job.host.finalize(context);
  const std::string part = "recording:" + std::filesystem::path(folder).filename().string();
  emit_meter(emit, part, *meter, job.timer);
  emit(part + "/allocations", as_double(allocations));
  return {};
}

}  // namespace lockstep::plugin_bench
