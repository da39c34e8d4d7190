// A recording played into the real plugin, its recorders drained into the real assembler: what an agent would make of
// that job, without what it tells.
//
// Thread rule: Confined.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "recorder/reader.h"
#include "sim/replay/replay.h"
#include "sources/nccl/rank_assembler.h"

namespace lockstep {

class RecordedRun {
 public:
  using OnStep = std::function<void(const Identity& identity, ClosedStep step)>;
  using OnComms = std::function<void(const Identity& identity, const std::vector<InFlightComm>& comms)>;

  // Calls back for every step that is over, and with a rank's communicators at every look. The job is called "job".
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
      look(false);
      Result<replay::Replay::Progress> progress = playing->progress();
      if (!progress.ok()) return Error{progress.error()};
      if (progress->through) {
        look(true);
        playing->stop();
        return {};
      }
      usleep(10'000);
    }
    return Error{"the replay is not through"};
  }

  void look(bool last) {
    Result<std::vector<std::string>> names = list_directory(folder_);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
      if (!name.ends_with(kRecorderSuffix) || ranks_.contains(name)) continue;
      auto reader = RecorderReader::open(folder_ + "/" + name);
      if (!reader.ok()) continue;  // being made
      const RecorderHeader header = (*reader)->header();
      if (header.rank < 0) continue;
      const Identity identity{"job",       header.attempt, header.rank, header.world_size, header.local_rank,
                              header.host, header.gpu_uuid};
      ranks_.emplace(
          name, Rank{std::move(*reader), identity, RankAssembler(header.anchor_unix_ns - header.anchor_monotonic_ns)});
    }
    for (auto& entry : ranks_) drain(entry.second, last);
  }

  void drain(Rank& rank, bool last) {
    const std::vector<InFlightComm> in_flight = rank.reader->in_flight();
    if (on_comms_) on_comms_(rank.identity, in_flight);
    rank.assembler.set_comms(in_flight);
    const auto drained = rank.reader->drain([&rank](uint32_t, const Record& record) { rank.assembler.add(record); });
    const int64_t now_ns = SystemClock().monotonic_ns();
    rank.assembler.end_drain(now_ns, drained.overwritten + drained.torn);
    for (ClosedStep& closed : rank.assembler.take_steps(now_ns, last)) on_step_(rank.identity, std::move(closed));
  }

  const std::string folder_;
  const OnStep on_step_;
  const OnComms on_comms_;
  std::map<std::string, Rank> ranks_;
};

}  // namespace lockstep
