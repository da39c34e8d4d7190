// Lockstep's events over the wire: what an agent put in is what a server gets out (docs/formats/events.md).
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/text.h"
#include "model/events.h"
#include "model/node_event.h"
#include "model/rank_evidence.h"
#include "wire/otlp.h"
#include "wire/test_batches.h"

namespace lockstep {
namespace {

// Through OTLP and back.
LogRecord over_the_wire(const LogRecord& record) {
  Batch batch;
  batch.groups.resize(1);
  batch.groups[0].logs = {record};
  Result<Batch> back = otlp::decode(Signal::kLogs, otlp::encode(batch));
  if (!back.ok()) ADD_FAILURE() << back.error();
  return back.ok() && back->record_count() == 1 ? back->groups[0].logs[0] : LogRecord{};
}

CommStatus comm_status() {
  CommStatus comm;
  comm.comm_id = CommId{0xfedcba9876543210};
  comm.size = 8;
  comm.rank_in_comm = 3;
  comm.collectives_enqueued = 100;
  comm.collectives_completed = 99;
  comm.p2p_enqueued = 7;
  comm.p2p_completed = 7;
  comm.collective = {OpState::kStarted, 100, 42, "AllReduce", "bfloat16", 1 << 30, -1, test::kTime};
  comm.p2p = {OpState::kCompleted, 7, 0, "Send", "float", 4096, 2, test::kTime - 5};
  comm.collective.end_not_seen = true;
  comm.collective_calls = 102;
  comm.p2p_calls = 7;
  comm.launched = 101;
  comm.proxy = {"peer", false, 2, test::kTime - 9};
  return comm;
}

// Replaces one attribute of a record.
LogRecord with(LogRecord record, std::string_view key, Value value) {
  for (Attribute& attribute : record.attributes) {
    if (attribute.key == key) attribute.value = std::move(value);
  }
  return record;
}

TEST(Events, StacksAndDumpsSurviveTheWire) {
  RankStack stack;
  stack.time_unix_ns = test::kTime;
  stack.pid = 16311;
  stack.note = "no Python stack: it may not be asked";
  stack.threads_count = 80;
  stack.threads = {{16311, "python3", 'S', "futex_wait", "futex", {"futex_wait_queue", "futex_wait"}}};
  stack.python = {{0x7f2e50a2b740, true, "", {{"load_batch", "/job/loader.py", 41}, {"<module>", "/job/train.py", 3}}}};
  LogRecord record = over_the_wire(to_record(stack));
  EXPECT_EQ(record.event_name, kEventRankStack);
  Result<RankStack> back = rank_stack_from_record(record);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, stack);

  FlightDump dump{.time_unix_ns = test::kTime, .version = "2.10", .file = "/tmp/trace_3", .entries = 60, .p2p = 1};
  dump.last = {57, "all_reduce",      "[[3, 4]]",  "Float",
               12, OpState::kStarted, test::kTime, {"step", "/job/train.py", 88}};
  dump.last_group = "0";
  dump.frames = {{"all_reduce", "/x/distributed_c10d.py", 2696}, {"step", "/job/train.py", 88}};
  dump.groups = {{"0", "default_pg", 4, "0-3", 57, 57, 56, {dump.last}}};
  record = over_the_wire(to_record(dump));
  EXPECT_EQ(record.event_name, kEventCommDump);
  Result<FlightDump> dump_back = flight_dump_from_record(record);
  ASSERT_TRUE(dump_back.ok()) << dump_back.error();
  EXPECT_EQ(*dump_back, dump);

  EXPECT_FALSE(rank_stack_from_record(with(to_record(stack), "threads", ValueList{Value("odd")})).ok());
  EXPECT_FALSE(rank_stack_from_record(with(to_record(stack), "python", ValueList{ValueList{1, 2}})).ok());
  EXPECT_FALSE(rank_stack_from_record(with(to_record(stack), "threads", ValueList(100, Value(1)))).ok());
  EXPECT_FALSE(flight_dump_from_record(with(to_record(dump), "groups", ValueList{ValueList{"0"}})).ok());
  EXPECT_FALSE(flight_dump_from_record(with(to_record(dump), "last", ValueList{"x"})).ok());
}

TEST(Events, AStepSurvivesTheWire) {
  StepSummary step = test::step_summary(12_step);
  step.unseen = step.comms[1].unseen = 7;
  LogRecord record = over_the_wire(to_record(step));
  EXPECT_EQ(record.event_name, kEventTrainStep);
  Result<StepSummary> back = step_from_record(record);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, step);
}

TEST(Events, AStepWithoutCommunicationSurvivesTheWire) {
  StepSummary step;
  step.step = 0_step;
  step.start_unix_ns = test::kTime;
  Result<StepSummary> back = step_from_record(over_the_wire(to_record(step)));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, step);
}

TEST(Events, ARankStatusSurvivesTheWire) {
  RankStatus status;
  status.time_unix_ns = test::kTime;
  status.quiet_ns = 5'000'000'000;
  status.process_alive = false;
  status.finished = true;
  status.step = 77_step;
  status.phase = Phase::kBackward;
  status.comms = {comm_status(), CommStatus{}};
  LogRecord record = over_the_wire(to_record(status));
  EXPECT_EQ(record.event_name, kEventRankStatus);
  Result<RankStatus> back = status_from_record(record);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, status);
}

TEST(Events, ACommunicatorSurvivesTheWire) {
  CommInit comm{CommId{0xfedcba9876543210}, 8, 3, 2, "dp"};
  LogRecord record = over_the_wire(to_record(comm, test::kTime));
  EXPECT_EQ(record.event_name, kEventCommInit);
  EXPECT_EQ(record.time_unix_ns, test::kTime);
  Result<CommInit> back = comm_init_from_record(record);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, comm);
}

TEST(Events, AGapAndTheEndsOfAJobSurviveTheWire) {
  LogRecord gap = over_the_wire(to_record(Gap{"ring_overwritten", 512}, test::kTime));
  EXPECT_EQ(gap.event_name, kEventGap);
  EXPECT_EQ(find_string(gap.attributes, "reason"), "ring_overwritten");
  EXPECT_EQ(find_int(gap.attributes, "records"), 512);
  EXPECT_EQ(over_the_wire(job_start_record(test::kTime)), job_start_record(test::kTime));
  for (bool clean : {true, false})
    for (const std::optional<ExitStatus>& exit :
         {std::optional<ExitStatus>(), {{.code = 0, .signal = 9}}, {{.code = 3, .signal = 0}}}) {
      const RankEnd end{.time_unix_ns = test::kTime, .clean = clean, .exit = exit, .reason = "", .reason_unix_ns = 0};
      const RankEnd raised{.time_unix_ns = test::kTime,
                           .clean = clean,
                           .exit = exit,
                           .reason = "ValueError: index 7",
                           .reason_unix_ns = test::kTime - 5};
      EXPECT_EQ(rank_end_from_record(over_the_wire(job_end_record(raised))), raised);
      EXPECT_EQ(rank_end_from_record(over_the_wire(job_end_record(end))), end);
    }
}

TEST(Events, AnIdentitySurvivesTheWireAsAResource) {
  Identity identity{"llama-70b", 2, 5_rank, 64, 5, "node-17", "GPU-1234"};
  Batch batch;
  batch.groups.resize(1);
  batch.groups[0].resource = to_resource(identity);
  Result<Batch> back = otlp::decode(Signal::kLogs, otlp::encode(batch));
  ASSERT_TRUE(back.ok()) << back.error();
  Result<Identity> identity_back = identity_from_resource(back->groups.at(0).resource);
  ASSERT_TRUE(identity_back.ok()) << identity_back.error();
  EXPECT_EQ(*identity_back, identity);
}

NodeEvent node_event() {
  NodeEvent event;
  event.name = "gpu.xid";
  event.time_unix_ns = test::kTime;
  event.severity = EventSeverity::kCritical;
  event.gpu_uuid = "GPU-6cbdbcb1";
  event.device = "0000:1b:00.0";
  event.code = 149;
  event.sub_code = 17;
  event.count = 800'000;
  event.pid = 4242;
  event.process = "python";
  event.job_id = "llama-70b";
  event.rank = 0_rank;
  event.text = "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08";
  event.meaning = "NVLink5 link event";
  event.action = "drain and reset";
  event.source = "kmsg+driver";
  event.secondary = true;
  return event;
}

TEST(Events, ANodeEventSurvivesTheWire) {
  for (EventSeverity severity :
       {EventSeverity::kInfo, EventSeverity::kApp, EventSeverity::kWarn, EventSeverity::kCritical}) {
    NodeEvent event = node_event();
    event.severity = severity;
    Result<NodeEvent> back = node_event_from_record(over_the_wire(to_record(event)));
    ASSERT_TRUE(back.ok()) << back.error();
    EXPECT_EQ(*back, event);
  }
  NodeEvent bare;
  bare.name = "clock.step";
  bare.time_unix_ns = test::kTime;
  Result<NodeEvent> back = node_event_from_record(over_the_wire(to_record(bare)));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, bare);
}

TEST(Events, TheFormatPageHasEveryAttributeOfANodeEvent) {
  Result<std::string> page = read_file(WIRE_EVENTS_PAGE, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error();
  const size_t begin = page->find("### Node events");
  ASSERT_NE(begin, std::string::npos);
  const std::string part = page->substr(begin, page->find("\n## ", begin) - begin);
  size_t at = 0;
  for (const Attribute& attribute : to_record(node_event()).attributes) {
    const bool number = std::holds_alternative<int64_t>(attribute.value.data);
    const bool flag = std::holds_alternative<bool>(attribute.value.data);
    const std::string row = format("\n| `%s` | %s", attribute.key.c_str(), number ? "int" : flag ? "bool" : "string");
    at = part.find(row, at);
    ASSERT_NE(at, std::string::npos) << "missing, or not in this order:" << row;
  }
  EXPECT_EQ(part.find("\n| `", at + 1), std::string::npos) << "an attribute that is not sent";
  for (EventSeverity severity :
       {EventSeverity::kInfo, EventSeverity::kApp, EventSeverity::kWarn, EventSeverity::kCritical}) {
    NodeEvent event = node_event();
    event.severity = severity;
    const std::string row = format("\n| `%s` | %d |", to_text(severity), to_record(event).severity);
    EXPECT_NE(part.find(row), std::string::npos) << "missing:" << row;
  }
}

TEST(Events, AMalformedStepIsOneClearLine) {
  LogRecord good = to_record(test::step_summary(12_step));
  auto error = [](const LogRecord& record) {
    Result<StepSummary> step = step_from_record(record);
    return step.ok() ? "accepted" : step.error();
  };
  EXPECT_EQ(error(with(good, "step", "12")), "train.step without a step number");
  EXPECT_EQ(error(with(good, "duration_ns", -1)), "train.step 12 has a duration of -1 ns (0 to one day is possible)");
  EXPECT_EQ(error(with(good, "phases", ValueList{1, "x"})), "train.step 12: phase 1 is not a time of 0 to one day");
  EXPECT_EQ(error(with(good, "phases", ValueList(9, 1))), "train.step 12 has 9 phases (limit 8)");
  EXPECT_EQ(error(with(good, "comms", ValueList{ValueList(11, 1)})), "train.step 12: communicator row 0 is malformed");
  EXPECT_EQ(error(with(good, "comms", ValueList{ValueList(12, 0), "row"})),
            "train.step 12: communicator row 1 is malformed");
  EXPECT_EQ(error(with(good, "flows", ValueList{ValueList(9, 1)})), "train.step 12: flow row 0 is malformed");
  EXPECT_EQ(error(with(good, "flows", ValueList{ValueList(10, 1.5)})), "train.step 12: flow row 0 is malformed");
  EXPECT_EQ(error(with(good, "comms", ValueList(kCommsPerStepMax + 1))),
            "train.step 12 has 4097 communicators (limit 4096)");
}

TEST(Events, ALongerRowThanWeKnowIsRead) {
  StepSummary step = test::step_summary(12_step);
  for (CommStep& comm : step.comms) comm.unseen = 1;  // every column that we know is there
  LogRecord record = to_record(step);
  for (Attribute& attribute : record.attributes) {
    if (attribute.key != "comms" && attribute.key != "flows") continue;
    for (Value& row : std::get<ValueList>(attribute.value.data))
      std::get<ValueList>(row.data).emplace_back("a later column");
  }
  Result<StepSummary> back = step_from_record(over_the_wire(record));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, step);
}

TEST(Events, AMalformedRankStatusIsOneClearLine) {
  RankStatus status;
  status.comms = {comm_status()};
  LogRecord good = to_record(status);
  Result<RankStatus> short_row = status_from_record(with(good, "comms", ValueList{ValueList(7, 1)}));
  ASSERT_FALSE(short_row.ok());
  EXPECT_EQ(short_row.error(), "rank.status: communicator row 0 is malformed");
  Result<RankStatus> negative = status_from_record(with(good, "quiet_ns", -5));
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(negative.error(), "rank.status with a negative quiet_ns");
}

TEST(Events, ACommunicatorOrIdentityThatIsNotPossibleIsOneClearLine) {
  Result<CommInit> comm = comm_init_from_record(to_record(CommInit{CommId{1}, 8, 8, 1, ""}, 0));
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.error(), "comm.init: rank 8 of 8 is not possible");
  Result<Identity> nobody = identity_from_resource({});
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error(), "the resource has no lockstep.job_id");
  Result<Identity> outside = identity_from_resource(to_resource({"job", 0, 64_rank, 64, 0, "host", ""}));
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(outside.error(), "lockstep.rank 64 does not fit lockstep.world_size 64");
}

}  // namespace
}  // namespace lockstep
