#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/files.h"
#include "base/text.h"
#include "sources/nccl/flight_dump_reader.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

// The structure that PyTorch's tutorial shows, pickled by Python: no release of PyTorch wrote these bytes.
constexpr const char* kWriter = R"python(
import pickle, sys
library = {"name": "all_reduce", "filename": "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", "line": 2696}
mine = {"name": "train_step", "filename": "/job/train.py", "line": 88}
def entry(seq, state, name="nccl:all_reduce", group=("0", "default_pg"), pg_id=0, sizes=((3, 4),), p2p=False):
    return {"frames": [library, mine], "record_id": seq, "pg_id": pg_id, "process_group": group, "collective_seq_id": seq,
            "p2p_seq_id": 0, "op_id": seq, "profiling_name": name, "time_created_ns": 1724779239936775119 + seq,
            "input_sizes": sizes, "input_dtypes": ["Float"], "output_sizes": sizes, "output_dtypes": ["Float"], "state": state,
            "time_discovered_started_ns": None, "time_discovered_completed_ns": 5 if state == "completed" else None,
            "retired": state == "completed", "timeout_ms": 600000, "is_p2p": p2p}
entries = [entry(n, "completed") for n in range(1, 57)] + [entry(57, "started"), entry(58, "scheduled", sizes=[[5], [2, 2]])]
entries += [entry(1, "completed", group=("1", "tp"), pg_id=1), entry(3, "scheduled", "nccl:send 0->1", p2p=True)]
dump = {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                                         "1": {"name": "1", "desc": "tp", "ranks": [0, 1]},
                                         "7": {"name": "7", "desc": "dp", "ranks": "[0,2]"}},
        "pg_status": {"0": {"last_enqueued_collective": 58, "last_started_collective": 57, "last_completed_collective": 56},
                      "7": {"last_enqueued_collective": "9", "last_started_collective": -1, "last_completed_collective": "9"}},
        "entries": entries}
pickle.dump(dump, open(sys.argv[1], "wb"), int(sys.argv[2]))
)python";

class Written : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (std::system("python3 -c pass") != 0) GTEST_SKIP() << "no python3 here";
    std::ofstream(folder_.path() + "/writer.py") << kWriter;
    const std::string dump = folder_.path() + "/trace_3";
    ASSERT_EQ(
        std::system(format("python3 %s/writer.py %s %d", folder_.path().c_str(), dump.c_str(), GetParam()).c_str()), 0);
    Result<std::string> bytes = read_file(dump, kFlightDumpBytesMax);
    ASSERT_TRUE(bytes.ok());
    bytes_ = std::move(*bytes);
  }
  testing::TemporaryFolder folder_;
  std::string bytes_;
};

TEST_P(Written, IsReducedToWhereEachGroupStands) {
  Result<FlightDump> dump = read_flight_dump(bytes_);
  ASSERT_TRUE(dump.ok()) << dump.error();
  EXPECT_EQ(dump->version, "2.10");
  EXPECT_EQ(dump->entries, 60);
  EXPECT_EQ(dump->p2p, 1);
  ASSERT_EQ(dump->groups.size(), 3u);
  const DumpGroup& world = dump->groups[0];  // something is under way there
  EXPECT_EQ(world.desc, "default_pg");
  EXPECT_EQ(world.ranks, "0-3");
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.last_enqueued, 58);
  EXPECT_EQ(world.last_started, 57);
  EXPECT_EQ(world.last_completed, 56);
  ASSERT_EQ(world.ops.size(), 3u);
  EXPECT_EQ(world.ops[0].seq, 56);
  EXPECT_EQ(world.ops[1].seq, 57);
  EXPECT_EQ(world.ops[1].name, "all_reduce");
  EXPECT_EQ(world.ops[1].sizes, "[[3, 4]]");
  EXPECT_EQ(world.ops[1].elements, 12);
  EXPECT_EQ(world.ops[1].dtype, "Float");
  EXPECT_EQ(world.ops[1].state, OpState::kStarted);
  EXPECT_EQ(to_text(world.ops[1].caller), "train_step, train.py:88");
  EXPECT_EQ(world.ops[2].sizes, "[[5], [2, 2]]");
  EXPECT_EQ(world.ops[2].elements, 9);
  for (const DumpGroup& group : dump->groups) {
    if (group.desc != "dp") continue;
    EXPECT_EQ(group.last_enqueued, 9);  // all of its operations have left the ring
    EXPECT_TRUE(group.ops.empty());
  }
  EXPECT_EQ(dump->last.name, "send 0->1");
  EXPECT_EQ(dump->frames.size(), 2u);
  Result<FlightDump> back = flight_dump_from_record(to_record(*dump));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, *dump);
}

TEST_P(Written, CutAnywhereIsNoDump) {
  for (size_t length = 0; length < bytes_.size(); length += 97)
    EXPECT_FALSE(read_flight_dump(bytes_.substr(0, length)).ok());
}

INSTANTIATE_TEST_SUITE_P(FlightDump, Written, ::testing::Values(2, 3, 4, 5));

TEST(FlightDump, AnotherPickleIsNotTakenForOne) {
  using namespace std::string_literals;
  Result<FlightDump> dump = read_flight_dump("\x80\x02}."s);
  ASSERT_FALSE(dump.ok());
  EXPECT_NE(dump.error().find("no dump of PyTorch's Flight Recorder"), std::string::npos) << dump.error();
}

TEST(FlightDump, TheNameEndsWithTheRank) {
  EXPECT_EQ(rank_of_dump("/tmp/nccl_trace_rank_12"), 12_rank);
  EXPECT_EQ(rank_of_dump("trace_"), std::nullopt);
  EXPECT_EQ(rank_of_dump("trace_99999999999999999999"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
