// Any 64-byte records, in any order and over any drains, through everything that is made of them.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "sources/nccl/rank_assembler.h"

namespace {

void check(const lockstep::ClosedStep& closed) {
  if (closed.summary.step != closed.detail.step || closed.summary.inferred != closed.detail.inferred) std::abort();
  if (closed.summary.scalars.size() > lockstep::kScalarsPerStepMax) std::abort();
  for (size_t i = 1; i < closed.summary.scalars.size(); ++i) {
    if (closed.summary.scalars[i - 1].name >= closed.summary.scalars[i].name) std::abort();
  }
  for (size_t i = 1; i < closed.detail.ops.size(); ++i) {
    if (closed.detail.ops[i - 1].start_unix_ns > closed.detail.ops[i].start_unix_ns) std::abort();
  }
  for (const lockstep::StepNote& note : closed.detail.notes) {
    if (note.text.empty() || note.text.size() > lockstep::kNoteBytesMax) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::RankAssembler assembler(1'700'000'000'000'000'000);
  std::vector<lockstep::InFlightComm> comms(2);
  for (uint16_t i = 0; i < comms.size(); ++i) {
    comms[i].comm_index = i;
    comms[i].live = true;
    comms[i].comm_id = 100u + i;
    comms[i].size = 4 << i;
    comms[i].rank_in_comm = 1;
  }
  assembler.set_comms(comms);
  int64_t now_ns = 0;
  // A byte in front of each record: the drain ends after it, with or without a loss.
  for (size_t at = 0; at + 65 <= size; at += 65) {
    lockstep::Record record;
    std::memcpy(&record, data + at + 1, sizeof record);
    // Times of a few seconds, mostly: what is far apart has nothing in common.
    if ((data[at] & 8) == 0) {
      record.head.time_ns %= 1u << 30;
      record.head.comm_index %= 4;
    }
    assembler.add(record);
    if ((data[at] & 1) == 0) continue;
    now_ns += 50'000'000;
    assembler.end_drain(now_ns, (data[at] >> 1) & 1);
    for (const lockstep::ClosedStep& closed : assembler.take_steps(now_ns, (data[at] & 4) != 0)) check(closed);
    for (const lockstep::CommGroup& group : assembler.take_groups()) {
      if (group.name.empty() || group.ranks.empty() || group.ranks.size() > lockstep::kGroupRanksMax) std::abort();
    }
  }
  assembler.end_drain(now_ns, 0);
  for (const lockstep::ClosedStep& closed : assembler.take_steps(now_ns, true)) check(closed);
  assembler.step_source();
  assembler.link_fits();
  return 0;
}
