// diagnosis_bench: what one large job costs diagnosis on one core, and what a step summary costs on its way there.
//
//   diagnosis_bench [--ranks 8192,32768,98304] [--played 40] [--fed 500]
//
// The job: tp 8 x pp 16 x dp, steps of 10 s, GPUs of one host late, slow links and slow input from step 20 on. `played`
// steps are simulated; from there to `fed` the last simulated step is told again with a new number, so that the state
// after many steps is seen without simulating them. Only what the engine (or a stage) does is timed, as CPU time of the
// one thread; its memory is what its calls leave allocated. The verdicts are printed and their causes are checked, so
// that fast and wrong fails.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/flags.h"
#include "base/text.h"
#include "diagnosis/engine.h"
#include "ingest/otlp/admission.h"
#include "model/events.h"
#include "model/rank_text.h"
#include "sim/fleet/fleet.h"
#include "sim/scenario/conditions.h"
#include "sim/scenario/scenario.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr int64_t kStartNs = 1'700'000'000'000'000'000;
constexpr int64_t kFaultStep = 20;
constexpr int kRanksPerHost = 8;

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

int64_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// CPU time and memory of whatever is done inside.
struct Meter {
  double seconds = 0;
  int64_t bytes = 0;
  template <typename Work>
  double run(Work work) {
    const int64_t bytes_before = allocated();
    const double before = cpu_s();
    work();
    const double took = cpu_s() - before;
    seconds += took;
    bytes += allocated() - bytes_before;
    return took;
  }
};

double middle_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result<sim::Scenario> job_of(int64_t ranks) {
  const int64_t dp = ranks / 128;
  const std::string yaml = format(
      "name: diagnosis-bench\nseed: 5\nsteps: 1000\n"
      "jobs:\n  - {job: big, tp: 8, pp: 16, dp: %lld, micro_batches: 64, step_ms: 10000, overlap: 0.5}\n"
      "faults:\n"
      "  - {cause: throttle-thermal, rank: %lld, from_step: %lld, severity: 0.25}\n"
      "  - {cause: nic-degraded, rank: %lld, from_step: %lld, severity: 6}\n"
      "  - {cause: data-loader, host: %lld, from_step: %lld, severity: 0.15}\n",
      static_cast<long long>(dp), static_cast<long long>(ranks / 3), static_cast<long long>(kFaultStep),
      static_cast<long long>(ranks / 2 + 5), static_cast<long long>(kFaultStep),
      static_cast<long long>(ranks / kRanksPerHost / 5), static_cast<long long>(kFaultStep));
  return sim::parse_scenario(yaml, "diagnosis_bench");
}

struct Row {
  int64_t ranks = 0;
  double rows_per_s = 0;
  double feed_us = 0;                    // per rank and step
  double look_ms = 0, look_ms_most = 0;  // from the last rank's report to the verdicts
  double idle_ms = 0;                    // a look in the middle of a step
  int64_t bytes_50 = 0, bytes_end = 0;
  int64_t steps = 0;
  std::string verdicts;
  bool right = true;
};

// The job's steps, one after another: some are simulated, the others are like the last of these.
class StepSource {
 public:
  StepSource(const sim::Scenario& scenario, int64_t played)
      : plan_(scenario.jobs.front()),
        shape_(sim::shape_of(scenario, plan_, 0, plan_.dp)),
        fleet_(shape_, kStartNs),
        conditions_(scenario, plan_, shape_),
        played_(played),
        step_(static_cast<size_t>(shape_.world_size())) {
    for (Rank rank : all_ranks(shape_.world_size())) who_.push_back(fleet_.identity(rank));
  }

  void next(int64_t number) {
    if (number < played_) {
      fleet_.play_under(conditions_.at(StepNumber{number}).conditions);
      for (size_t rank = 0; rank < step_.size(); ++rank) step_[rank] = fleet_.summary(rank_at(rank));
      now_ns_ = fleet_.now_unix_ns();
      return;
    }
    const int64_t later = step_.front().duration_ns;
    for (StepSummary& summary : step_) {
      summary.step = StepNumber{number};
      summary.start_unix_ns += later;
    }
    now_ns_ += later;
  }
  size_t ranks() const { return who_.size(); }
  const Identity& who(size_t rank) const { return who_[rank]; }
  const StepSummary& of(size_t rank) const { return step_[rank]; }
  std::vector<CommInit> groups(size_t rank) { return fleet_.comm_inits(rank_at(rank)); }
  int64_t now_ns() const { return now_ns_; }

 private:
  const sim::JobPlan& plan_;
  const sim::JobShape shape_;
  sim::Fleet fleet_;
  const sim::JobConditions conditions_;
  const int64_t played_;
  std::vector<Identity> who_;
  std::vector<StepSummary> step_;
  int64_t now_ns_ = 0;
};

// The bytes that the engine keeps of them.
int64_t tell_groups(StepSource& source, DiagnosisEngine& engine) {
  std::vector<std::vector<CommInit>> groups;
  for (size_t rank = 0; rank < source.ranks(); ++rank) groups.push_back(source.groups(rank));
  Meter meter;
  meter.run([&] {
    for (size_t rank = 0; rank < source.ranks(); ++rank) {
      for (const CommInit& comm : groups[rank]) engine.on_comm(source.who(rank), comm, kStartNs);
    }
  });
  const auto ranks = static_cast<double>(source.ranks());
  std::printf("%zu ranks: told of its groups in %.2f s of CPU, %.0f bytes per rank\n", source.ranks(), meter.seconds,
              static_cast<double>(meter.bytes) / ranks);
  return meter.bytes;
}

// What the engine says while the faults are simulated.
struct Said {
  std::map<std::string, std::pair<int64_t, int64_t>> found;  // cause and rank: suspected and confirmed in step
  std::set<Layer> layers;                                    // of confirmed verdicts

  void note(const std::vector<Verdict>& verdicts, int64_t step) {
    for (const Verdict& verdict : verdicts) {
      std::string key =
          to_text(verdict.culprit.cause) + std::string(" of rank ") + human_ranks(verdict.culprit.ranks, 3);
      auto [at, fresh] = found.try_emplace(key, step, -1);
      if (verdict.state != VerdictState::kConfirmed) continue;
      if (at->second.second < 0) at->second.second = step;
      layers.insert(verdict.culprit.layer);
    }
  }
  std::string text() const {
    std::string lines;
    for (const auto& [key, when] : found)
      lines += format("  %s: suspected with step %lld, confirmed with step %lld\n", key.c_str(),
                      static_cast<long long>(when.first), static_cast<long long>(when.second));
    return lines;
  }
};

Row measure(int64_t ranks, int64_t played, int64_t fed) {
  Row row{.ranks = ranks, .steps = fed};
  const Result<sim::Scenario> scenario = job_of(ranks);
  if (!scenario.ok()) {
    std::fprintf(stderr, "diagnosis_bench: %s\n", scenario.error().c_str());
    row.right = false;
    return row;
  }
  StepSource source(*scenario, played);
  DiagnosisEngine engine;
  Meter meter;
  meter.bytes = tell_groups(source, engine);
  Said said;
  std::vector<double> looks, halfway;
  double feeding = 0, looking = 0;
  const size_t half = source.ranks() / 2;
  for (int64_t number = 0; number < fed; ++number) {
    source.next(number);
    // Ranks report in the order of their hosts; in the middle of the step the engine looks, too.
    for (const auto& [from, to] : {std::pair<size_t, size_t>{0, half}, {half, source.ranks()}}) {
      feeding += meter.run([&, from = from, to = to] {
        for (size_t rank = from; rank < to; ++rank) engine.on_step(source.who(rank), source.of(rank), source.now_ns());
      });
      const double look = meter.run([&] {
        engine.tick(source.now_ns());
        engine.take_changed();
      });
      looking += look;
      (to == source.ranks() ? looks : halfway).push_back(look);
    }
    if (number < played) said.note(engine.verdicts("big"), number);
    if (number == 49) row.bytes_50 = meter.bytes;
  }
  row.bytes_end = meter.bytes;
  if (row.bytes_50 == 0) row.bytes_50 = meter.bytes;
  const double rows = static_cast<double>(ranks * fed);
  row.rows_per_s = rows / (feeding + looking);
  row.feed_us = feeding / rows * 1e6;
  row.look_ms = middle_of(looks) * 1e3;
  row.look_ms_most = *std::max_element(looks.begin(), looks.end()) * 1e3;
  row.idle_ms = middle_of(halfway) * 1e3;
  row.verdicts = said.text();
  // Two causes without node signals: own kernels, and input. The link is found by its flows.
  row.right = said.layers.contains(Layer::kGpu) && said.layers.contains(Layer::kInput);
  return row;
}

// What each stage costs a rank and step between the socket and the engine, for one step of a job of 8,192 ranks.
void measure_way() {
  const Result<sim::Scenario> scenario = job_of(8192);
  const sim::JobPlan& plan = scenario->jobs.front();
  const sim::JobShape shape = sim::shape_of(*scenario, plan, 0, plan.dp);
  sim::Fleet fleet(shape, kStartNs);
  const sim::JobConditions conditions(*scenario, plan, shape);
  Counters counters(kStoreCounters);
  MemoryStepStore store({}, counters);
  DiagnosisEngine engine;
  Meter decode, check, read, keep, log, look;
  size_t bytes = 0, rows = 0;
  for (int64_t number = 0; number < 6; ++number) {
    fleet.play_under(conditions.at(StepNumber{number}).conditions);
    const int64_t now_ns = fleet.now_unix_ns();
    std::vector<std::string> wire;  // a request per host
    for (Rank first = 0_rank; first < Rank{shape.world_size()}; first += kRanksPerHost) {
      Batch batch{.signal = Signal::kLogs};
      for (Rank rank = first; rank < first + kRanksPerHost; ++rank) {
        ResourceGroup& group = batch.groups.emplace_back();
        group.resource = to_resource(fleet.identity(rank));
        group.logs.push_back(to_record(fleet.summary(rank)));
      }
      wire.push_back(otlp::encode(batch));
      bytes += wire.back().size();
      rows += kRanksPerHost;
    }
    std::vector<Batch> reported;
    decode.run([&] {
      for (const std::string& one : wire) reported.push_back(*otlp::decode(Signal::kLogs, one));
    });
    check.run([&] {
      for (Batch& batch : reported) admit(batch, now_ns);
    });
    std::vector<std::pair<Identity, StepSummary>> all;
    read.run([&] {
      for (const Batch& batch : reported) {
        for (const ResourceGroup& group : batch.groups)
          all.emplace_back(*identity_from_resource(group.resource), *step_from_record(group.logs.front()));
      }
    });
    keep.run([&] {
      for (const auto& [identity, summary] : all) store.append_step(identity, summary, now_ns);
    });
    log.run([&] {
      for (const Batch& batch : reported) {
        for (const ResourceGroup& group : batch.groups)
          store.append_log(std::make_shared<const Attributes>(group.resource), group.logs.front());
      }
    });
    look.run([&] {
      for (const auto& [identity, summary] : all) engine.on_step(identity, summary, now_ns);
    });
  }
  const auto each = [&](const Meter& meter) { return meter.seconds / static_cast<double>(rows) * 1e6; };
  const auto kept = [&](const Meter& meter) { return static_cast<double>(meter.bytes) / static_cast<double>(rows); };
  std::printf("\n| stage | us of CPU per rank and step | bytes kept |\n|---|---|---|\n");
  std::printf("| OTLP bytes (%.0f) to a batch | %.1f | |\n", static_cast<double>(bytes) / static_cast<double>(rows),
              each(decode));
  std::printf("| admission | %.1f | |\n", each(check));
  std::printf("| batch to identity and step summary | %.1f | |\n", each(read));
  std::printf("| step store | %.1f | %.0f |\n", each(keep), kept(keep));
  std::printf("| log ring | %.1f | %.0f |\n", each(log), kept(log));
  std::printf("| engine, taking it | %.1f | %.0f |\n", each(look), kept(look));
}

int run(const std::vector<std::string>& arguments) {
  std::string ranks = "8192,32768,98304";
  int64_t played = 40, fed = 500;
  Flags flags("diagnosis_bench", "what one large job costs diagnosis on one core");
  flags.text(&ranks, "--ranks", "N,N", "sizes of the job, multiples of 128 (default 8192,32768,98304)")
      .number(&played, "--played", "N", "steps that are simulated (default 40)", kFaultStep + 4, 100'000)
      .number(&fed, "--fed", "N", "steps that are told in all (default 500)", kFaultStep + 4, 1'000'000);
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  if (flags.help_wanted()) {
    std::fputs(flags.help().c_str(), stdout);
    return 0;
  }
  std::vector<Row> rows;
  for (std::string_view rest = ranks; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::optional<int64_t> count = parse_int(rest.substr(0, comma));
    rest.remove_prefix(std::min(rest.size(), comma + 1));
    if (!count || *count < 256 || *count % 128 != 0) {
      std::fprintf(stderr, "diagnosis_bench: --ranks takes multiples of 128 from 256 on\n");
      return 2;
    }
    rows.push_back(measure(*count, std::min(played, fed), fed));
    std::printf("%s", rows.back().verdicts.c_str());
    std::fflush(stdout);
  }
  std::printf(
      "\n| ranks | ranks x steps per second, one core | us per rank and step: taken | last report to verdict: ms of "
      "CPU, median (most) | a look in mid-step, ms | bytes per rank after 50 steps | after %lld "
      "|\n|---|---|---|---|---|---|---|\n",
      static_cast<long long>(fed));
  bool right = true;
  for (const Row& row : rows) {
    right &= row.right;
    std::printf("| %s | %s | %.2f | %.0f (%.0f) | %.1f | %s | %s |\n", with_thousands(row.ranks).c_str(),
                with_thousands(static_cast<int64_t>(row.rows_per_s)).c_str(), row.feed_us, row.look_ms,
                row.look_ms_most, row.idle_ms, with_thousands(row.bytes_50 / row.ranks).c_str(),
                with_thousands(row.bytes_end / row.ranks).c_str());
  }
  measure_way();
  if (!right) std::fprintf(stderr, "diagnosis_bench: a verdict is missing\n");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run({argv + 1, argv + argc});
}
