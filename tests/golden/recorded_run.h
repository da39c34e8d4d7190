// A recording played into the real plugin, its recorders drained into the real assembler: what an agent would make of
// that job, without what it tells. A recording is played once in a process; all its tests read what the recorders held.
//
// Records are given to the assembler in the order of their own times, kLookNs at a time, once all are there: on a busy
// machine the replay's threads fall behind each other as NCCL's never do, and nothing here is about that.
//
// Thread rule: Confined.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "recorder/reader.h"
#include "sim/replay/replay.h"
#include "sources/nccl/rank_assembler.h"
#include "testing/temporary_folder.h"

namespace lockstep {

// What a rank's recorder held in the end, in the order of time.
struct RecordedRank {
  RecorderHeader header;
  std::vector<InFlightComm> comms;
  std::vector<Record> records;
  uint64_t lost = 0;
};

class RecordedRun {
 public:
  using OnStep = std::function<void(const Identity& identity, ClosedStep step)>;
  using OnComms = std::function<void(const Identity& identity, const std::vector<InFlightComm>& comms)>;

  static constexpr int64_t kLookNs = 40'000'000;

  // The job is called "job". The answer stays for the process's life.
  static const Result<std::vector<RecordedRank>>& record(const std::string& recording_folder) {
    static std::map<std::string, Result<std::vector<RecordedRank>>> played;
    const auto found = played.find(recording_folder);
    return found != played.end() ? found->second
                                 : played.emplace(recording_folder, play_once(recording_folder)).first->second;
  }

  // Calls back for every step that is over, and with each rank's communicators.
  static Result<void> play(const std::string& recording_folder, const OnStep& on_step, const OnComms& on_comms = {}) {
    const Result<std::vector<RecordedRank>>& recorded = record(recording_folder);
    if (!recorded.ok()) return recorded.failure();
    struct PlayedRank {
      const RecordedRank& recorded;
      Identity identity;
      RankAssembler assembler;
      size_t given = 0;
    };
    std::vector<PlayedRank> ranks;
    uint64_t now_ns = UINT64_MAX;
    for (const RecordedRank& one : *recorded) {
      const RecorderHeader& header = one.header;
      const Identity identity{"job",       header.attempt, Rank{header.rank}, header.world_size, header.local_rank,
                              header.host, header.gpu_uuid};
      ranks.push_back({one, identity, RankAssembler(header.anchor_unix_ns - header.anchor_monotonic_ns)});
      if (on_comms) on_comms(identity, one.comms);
      ranks.back().assembler.set_comms(one.comms);
      if (!one.records.empty()) now_ns = std::min(now_ns, one.records.front().head.time_ns);
    }
    const auto take = [&](PlayedRank& rank, bool flush) {
      for (ClosedStep& closed : rank.assembler.take_steps(static_cast<int64_t>(now_ns), flush))
        on_step(rank.identity, std::move(closed));
    };
    for (bool is_over = false; !is_over;) {
      now_ns += kLookNs;
      is_over = true;
      for (PlayedRank& rank : ranks) {
        const std::vector<Record>& records = rank.recorded.records;
        const bool is_first = rank.given == 0;
        while (rank.given < records.size() && records[rank.given].head.time_ns <= now_ns)
          rank.assembler.add(records[rank.given++]);
        is_over &= rank.given == records.size();
        rank.assembler.end_drain(static_cast<int64_t>(now_ns), is_first ? rank.recorded.lost : 0);
        take(rank, false);
      }
    }
    for (PlayedRank& rank : ranks) take(rank, true);
    return {};
  }

 private:
  struct Open {
    std::unique_ptr<RecorderReader> reader;
    RecordedRank recorded;
  };

  explicit RecordedRun(std::string folder) : folder_(std::move(folder)) {}

  static Result<std::vector<RecordedRank>> play_once(const std::string& recording_folder) {
    // Where this process was held up for so long that recorders wrote over what was not read, it is played again.
    Result<std::vector<RecordedRank>> recorded = Error{"not played"};
    for (int tries = 0; tries < 3; ++tries) {
      const testing::TemporaryFolder folder;
      recorded = RecordedRun(folder.path()).run(recording_folder);
      if (!recorded.ok() ||
          std::all_of(recorded->begin(), recorded->end(), [](const RecordedRank& rank) { return rank.lost == 0; }))
        break;
    }
    return recorded;
  }

  Result<std::vector<RecordedRank>> run(const std::string& recording_folder) {
    replay::Recording recording = LOCKSTEP_TRY(replay::load_recording(recording_folder, {}));
    const std::string libraries = LOCKSTEP_LIBRARY_DIRECTORY;
    replay::Replay playing = LOCKSTEP_TRY(replay::Replay::start(
        recording, {4.0, "job", libraries + "/libnccl-profiler-lockstep.so", libraries + "/liblockstep.so", folder_}));
    for (int i = 0; i < 10'000; ++i) {
      drain_all();
      replay::Replay::Progress progress = LOCKSTEP_TRY(playing.progress());
      if (progress.through) {
        drain_all();
        return all();
      }
      usleep(10'000);  // as often as an agent would look: the recorders are rings
    }
    return Error{"the replay is not through"};
  }

  void drain_all() {
    Result<std::vector<std::string>> names = list_directory(folder_);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
      if (!name.ends_with(kRecorderSuffix) || ranks_.contains(name)) continue;
      auto reader = RecorderReader::open(folder_ + "/" + name);
      if (!reader.ok()) continue;  // being made
      RecorderHeader header = (*reader)->header();
      if (header.rank < 0) continue;
      ranks_.emplace(name, Open{std::move(*reader), {header, {}, {}, 0}});
    }
    for (auto& [name, rank] : ranks_) {
      std::vector<Record>& records = rank.recorded.records;
      const auto drained = rank.reader->drain([&](uint32_t, const Record& record) { records.push_back(record); });
      rank.recorded.lost += drained.overwritten + drained.torn;
    }
  }

  std::vector<RecordedRank> all() {
    std::vector<RecordedRank> list;
    for (auto& [name, rank] : ranks_) {
      rank.recorded.comms = rank.reader->in_flight();
      std::stable_sort(rank.recorded.records.begin(), rank.recorded.records.end(),
                       [](const Record& a, const Record& b) { return a.head.time_ns < b.head.time_ns; });
      list.push_back(std::move(rank.recorded));
    }
    return list;
  }

  const std::string folder_;
  std::map<std::string, Open> ranks_;
};

}  // namespace lockstep
