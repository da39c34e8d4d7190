// A recording played into the real plugin, its recorders drained into the real assembler: what an agent would make of
// that job, without what it tells.
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
#include <filesystem>
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

namespace lockstep {

class RecordedRun {
 public:
  using OnStep = std::function<void(const Identity& identity, ClosedStep step)>;
  using OnComms = std::function<void(const Identity& identity, const std::vector<InFlightComm>& comms)>;

  static constexpr int64_t kLookNs = 40'000'000;

  // Calls back for every step that is over, and with each rank's communicators. The job is called "job".
  static Result<void> play(const std::string& recording_folder, OnStep on_step, OnComms on_comms = {}) {
    char folder[] = "/tmp/lockstep-recorded-run-XXXXXX";
    if (mkdtemp(folder) == nullptr) return Error{"cannot make a folder for recorders"};
    Result<void> played = RecordedRun(folder, std::move(on_step), std::move(on_comms)).run(recording_folder);
    std::filesystem::remove_all(folder);
    return played;
  }

 private:
  struct Rank {
    std::unique_ptr<RecorderReader> reader;
    Identity identity;
    RankAssembler assembler;
    std::vector<Record> records;
    size_t given = 0;
    uint64_t lost = 0;
  };

  RecordedRun(std::string folder, OnStep on_step, OnComms on_comms)
      : folder_(std::move(folder)), on_step_(std::move(on_step)), on_comms_(std::move(on_comms)) {}

  Result<void> run(const std::string& recording_folder) {
    Result<replay::Recording> recording = replay::load_recording(recording_folder, {});
    if (!recording.ok()) return Error{recording.error()};
    const std::string libraries = LOCKSTEP_LIBRARY_DIRECTORY;
    Result<replay::Replay> playing = replay::Replay::start(
        *recording, {4.0, "job", libraries + "/libnccl-profiler-lockstep.so", libraries + "/liblockstep.so", folder_});
    if (!playing.ok()) return Error{playing.error()};
    for (int i = 0; i < 10'000; ++i) {
      drain_all();
      Result<replay::Replay::Progress> progress = playing->progress();
      if (!progress.ok()) return Error{progress.error()};
      if (progress->through) {
        drain_all();
        for (auto& [name, rank] : ranks_) {
          const std::vector<InFlightComm> comms = rank.reader->in_flight();
          if (on_comms_) on_comms_(rank.identity, comms);
          rank.assembler.set_comms(comms);
        }
        playing->stop();
        give_all();
        return {};
      }
      usleep(10'000);
    }
    return Error{"the replay is not through"};
  }

  void drain_all() {
    Result<std::vector<std::string>> names = list_directory(folder_);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
      if (!name.ends_with(kRecorderSuffix) || ranks_.contains(name)) continue;
      auto reader = RecorderReader::open(folder_ + "/" + name);
      if (!reader.ok()) continue;  // being made
      const RecorderHeader header = (*reader)->header();
      if (header.rank < 0) continue;
      const Identity identity{"job",       header.attempt, header.rank, header.world_size, header.local_rank,
                              header.host, header.gpu_uuid};
      ranks_.emplace(name, Rank{std::move(*reader),
                                identity,
                                RankAssembler(header.anchor_unix_ns - header.anchor_monotonic_ns),
                                {},
                                0,
                                0});
    }
    for (auto& [name, rank] : ranks_) {
      std::vector<Record>& records = rank.records;
      const auto drained = rank.reader->drain([&](uint32_t, const Record& record) { records.push_back(record); });
      rank.lost += drained.overwritten + drained.torn;
    }
  }

  void give_all() {
    uint64_t now_ns = UINT64_MAX;
    for (auto& [name, rank] : ranks_) {
      std::stable_sort(rank.records.begin(), rank.records.end(),
                       [](const Record& a, const Record& b) { return a.head.time_ns < b.head.time_ns; });
      if (!rank.records.empty()) now_ns = std::min(now_ns, rank.records.front().head.time_ns);
    }
    for (bool is_over = false; !is_over;) {
      now_ns += kLookNs;
      is_over = true;
      for (auto& [name, rank] : ranks_) {
        while (rank.given < rank.records.size() && rank.records[rank.given].head.time_ns <= now_ns)
          rank.assembler.add(rank.records[rank.given++]);
        is_over &= rank.given == rank.records.size();
        rank.assembler.end_drain(static_cast<int64_t>(now_ns), std::exchange(rank.lost, 0));
        take(rank, now_ns, false);
      }
    }
    for (auto& [name, rank] : ranks_) take(rank, now_ns, true);
  }

  void take(Rank& rank, uint64_t now_ns, bool flush) {
    for (ClosedStep& closed : rank.assembler.take_steps(static_cast<int64_t>(now_ns), flush))
      on_step_(rank.identity, std::move(closed));
  }

  const std::string folder_;
  const OnStep on_step_;
  const OnComms on_comms_;
  std::map<std::string, Rank> ranks_;
};

}  // namespace lockstep
