// Steps inferred from the pattern of operations (docs/guide/inferred-steps.md) against those that the job told.
// Recorded callbacks are played into the real plugin with their step marks; what its recorders hold is then read twice,
// as it is and without the marks. Holds how many steps are found, that every rank gives a step the same number, how far
// boundaries are from those told, and that the culprit is the same; and that it is also where half of the ranks report
// late. Prints the table of bench/results/inferred-steps.md:
//   build/dev/tests/recordings_test --gtest_filter='*InferredSteps*' | grep '^|'
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/engine.h"
#include "sources/nccl/rank_assembler.h"
#include "tests/golden/recorded_run.h"

namespace lockstep {
namespace {

// A few steps of these recordings.
constexpr int64_t kLagNs = 600'000'000;

constexpr int32_t kNobody = -1;
constexpr int32_t kNotJudged = -2;  // a hang is no matter of steps

struct Expected {
  const char* name;
  int64_t number_is_reported_minus;  // warm-up steps have a pattern of their own, or none
  size_t unseen_first;               // told steps before the first inferred one, at most
  double start_ms_median;            // inferred start after the told one: what a step does before its first operation
  int32_t culprit;
  const char* layer;  // what can be known without phases
};

// ddp: the first step has other buckets, and the first anchor only opens a step. hyb: only the latter.
constexpr Expected kCases[] = {
    {"ddp_healthy", 1, 2, 15, kNobody, ""}, {"ddp_compute_r2", 1, 2, 15, 2, "gpu"},
    {"ddp_link_r1", 1, 2, 15, 1, "link"},   {"ddp_pulse_r0", 1, 2, 15, 0, "host"},
    {"hyb_healthy", 0, 1, 2, kNobody, ""},  {"hyb_compute_r5", 0, 1, 2, 5, "gpu"},
    {"hyb_data_r6", 0, 1, 2, 6, "host"},    {"ddp_hang_missing_r1", 12, 2, 15, kNotJudged, ""},
};

void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.name;
}

using Ranks = std::vector<RecordedRank>;

// With the job's own marks, or as if it had made none.
std::map<StepNumber, StepSummary> steps_of(const RecordedRank& rank, bool with_marks) {
  RankAssembler assembler(rank.header.anchor_unix_ns - rank.header.anchor_monotonic_ns);
  std::map<StepNumber, StepSummary> steps;
  auto take = [&](bool flush) {
    for (ClosedStep& closed : assembler.take_steps(0, flush)) {
      EXPECT_EQ(closed.summary.inferred, closed.detail.inferred);
      EXPECT_TRUE(closed.summary.inferred || with_marks);
      if (closed.summary.inferred && with_marks) continue;  // of a rank that kept no log
      EXPECT_TRUE(steps.emplace(closed.summary.step, closed.summary).second) << "step " << closed.summary.step;
    }
  };
  assembler.set_comms(rank.comms);
  EXPECT_EQ(rank.lost, 0u);
  std::vector<Record> records;
  for (const Record& record : rank.records) {
    const RecordType type = record.head.type;
    if (with_marks || (type != RecordType::kStepBegin && type != RecordType::kStepEnd &&
                       type != RecordType::kPhaseBegin && type != RecordType::kPhaseEnd))
      records.push_back(record);
  }
  for (size_t i = 0; i < records.size();) {
    const uint64_t until_ns = records[i].head.time_ns + RecordedRun::kLookNs;
    for (; i < records.size() && records[i].head.time_ns < until_ns; ++i) assembler.add(records[i]);
    assembler.end_drain(0, 0);
    take(false);
  }
  take(true);
  return steps;
}

struct Judged {
  std::vector<Verdict> verdicts;
};

// What the second half of the ranks sends comes this much later.
Judged judge(const std::map<Rank, std::map<StepNumber, StepSummary>>& steps, const Ranks& ranks, int64_t lag_ns = 0) {
  DiagnosisEngine engine;
  auto identity_of = [&](Rank number) {
    for (const RecordedRank& rank : ranks) {
      const RecorderHeader& header = rank.header;
      if (Rank{header.rank} == number)
        return Identity{header.job_id,     header.attempt, Rank{header.rank}, header.world_size,
                        header.local_rank, header.host,    header.gpu_uuid};
    }
    return Identity{};
  };
  std::map<Rank, Identity> identities;
  for (const RecordedRank& rank : ranks) {
    const Identity& identity = identities[Rank{rank.header.rank}] = identity_of(Rank{rank.header.rank});
    for (const InFlightComm& comm : rank.comms)
      engine.on_comm(identity, {CommId{comm.comm_id}, comm.size, comm.rank_in_comm, comm.nodes, comm.name},
                     rank.header.anchor_unix_ns);
  }
  std::vector<std::pair<Rank, const StepSummary*>> in_order;
  for (const auto& [rank, its] : steps) {
    for (const auto& [number, step] : its) in_order.emplace_back(rank, &step);
  }
  auto heard_at = [&](const auto& sent) {
    const auto& [rank, step] = sent;
    return step->start_unix_ns + step->duration_ns + (2 * index_of(rank) >= ranks.size() ? lag_ns : 0);
  };
  std::sort(in_order.begin(), in_order.end(), [&](const auto& a, const auto& b) { return heard_at(a) < heard_at(b); });
  for (const auto& sent : in_order) {
    engine.on_step(identities[sent.first], *sent.second, heard_at(sent));
    engine.tick(heard_at(sent));
  }
  return {engine.verdicts("")};
}

using StepsOfRanks = std::map<Rank, std::map<StepNumber, StepSummary>>;

// Inferred steps beside those that the job reported.
struct Compared {
  std::vector<double> start_ms, length_ms;  // how far they are apart
  size_t reported = 0, found = 0, other_number = 0;

  double largest_start_ms() const {
    double largest = 0;
    for (double ms : start_ms) largest = std::max(largest, std::abs(ms));
    return largest;
  }
};

Compared compare(const StepsOfRanks& reported, const StepsOfRanks& inferred, int64_t number_is_reported_minus) {
  Compared compared;
  for (const auto& [rank, its] : reported) {
    const std::map<StepNumber, StepSummary>& mine = inferred.at(rank);
    for (const auto& [number, step] : its) {
      ++compared.reported;
      auto same = mine.find(number - number_is_reported_minus);
      if (same == mine.end()) continue;
      // The same step has its middle within the reported one.
      const int64_t offset_ns = same->second.start_unix_ns - step.start_unix_ns;
      if (std::abs(offset_ns) > step.duration_ns) {
        ++compared.other_number;
        continue;
      }
      ++compared.found;
      compared.start_ms.push_back(static_cast<double>(offset_ns) / 1e6);
      compared.length_ms.push_back(std::abs(static_cast<double>(same->second.duration_ns - step.duration_ns)) / 1e6);
    }
  }
  return compared;
}

std::set<std::set<StepNumber>> numberings_of(const StepsOfRanks& steps) {
  std::set<std::set<StepNumber>> numberings;
  for (const auto& [rank, its] : steps) {
    std::set<StepNumber> numbers;
    for (const auto& [number, step] : its) numbers.insert(number);
    numberings.insert(numbers);
  }
  return numberings;
}

std::string named(const Judged& judged) {
  if (judged.verdicts.empty()) return "nobody";
  std::string names;
  for (const Verdict& verdict : judged.verdicts) {
    if (!names.empty()) names += "; ";
    names += "rank";
    for (Rank rank : verdict.culprit.ranks) names += " " + std::to_string(rank.value());
    names += format(", %s (%s)", to_text(verdict.culprit.layer), to_text(verdict.state));
  }
  return names;
}

class InferredSteps : public ::testing::TestWithParam<Expected> {};

TEST_P(InferredSteps, AreThoseThatTheJobTold) {
  const Expected& expected = GetParam();
  const Result<Ranks>& recorded = RecordedRun::record(std::string(LOCKSTEP_TEST_DATA "/recordings/") + expected.name);
  ASSERT_TRUE(recorded.ok()) << recorded.error();

  StepsOfRanks inferred, reported;
  for (const RecordedRank& rank : *recorded) {
    inferred[Rank{rank.header.rank}] = steps_of(rank, false);
    reported[Rank{rank.header.rank}] = steps_of(rank, true);
  }
  const Compared compared = compare(reported, inferred, expected.number_is_reported_minus);
  const size_t numberings = numberings_of(inferred).size();
  const Judged from_reported = judge(reported, *recorded), from_inferred = judge(inferred, *recorded);
  const Judged from_late = judge(reported, *recorded, kLagNs);
  printf("| `%s` | %zu | %zu | %zu | %s | %.1f | %.1f | %.1f | %s | %s |\n", expected.name, compared.reported,
         compared.found, compared.other_number, numberings == 1 ? "yes" : "no", upper_median_of(compared.start_ms),
         compared.largest_start_ms(), upper_median_of(compared.length_ms), named(from_reported).c_str(),
         named(from_inferred).c_str());

  EXPECT_EQ(compared.other_number, 0u);
  if (expected.culprit == kNotJudged) {
    // Who waits for ever has one step more than who is missing.
    EXPECT_LE(numberings, 2u);
  } else {
    EXPECT_EQ(numberings, 1u) << "ranks count differently";
    const std::string who = "rank " + std::to_string(expected.culprit) + ", " + expected.layer + " (confirmed)";
    EXPECT_EQ(named(from_inferred), expected.culprit == kNobody ? "nobody" : who);
    EXPECT_EQ(named(from_late), named(from_reported)) << "of half of the ranks, reports came late";
  }
  EXPECT_LE(std::abs(upper_median_of(compared.start_ms)), expected.start_ms_median);
  for (const auto& [rank, its] : reported) {
    if (its.empty()) continue;  // it told none
    EXPECT_GE(inferred[rank].size() + expected.unseen_first, its.size()) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Recordings, InferredSteps, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace lockstep
