// What is written is read back by a reader of its own, field by field; tests/system/test_perfetto.py does the same with
// libprotobuf.
#include "query/export/perfetto.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json_reader.h"
#include "base/protobuf_wire.h"
#include "base/text.h"

namespace lockstep {
namespace {

using protobuf::WireError;
using protobuf::WireReader;

struct Event {
  std::string process;
  std::string track;
  uint64_t uuid = 0;
  uint64_t type = 0;
  std::string name;
  int64_t time_ns = 0;
  std::map<std::string, std::string> notes;
  std::vector<uint64_t> flows;
  std::vector<uint64_t> ending_flows;
};

struct Trace {
  std::vector<Event> events;
  std::map<uint64_t, std::string> tracks;
  std::map<uint64_t, uint64_t> parents;
  std::map<uint64_t, std::string> processes;  // by track
  size_t snapshots = 0;

  // Slices of a track in the order of time, as the trace processor sorts them (stable); they must nest.
  std::vector<std::string> slices(const std::string& process, const std::string& track) const {
    std::map<uint64_t, std::vector<const Event*>> by_track;
    for (const Event& event : events) {
      if (event.process == process && event.track == track) by_track[event.uuid].push_back(&event);
    }
    std::vector<std::string> list;
    for (auto& [uuid, lane] : by_track) {
      std::stable_sort(lane.begin(), lane.end(),
                       [](const Event* a, const Event* b) { return a->time_ns < b->time_ns; });
      std::vector<const Event*> open;
      for (const Event* event : lane) {
        if (event->type == 1) open.push_back(event);
        if (event->type == 3) list.push_back(format("%s@%lld", event->name.c_str(), (long long)event->time_ns));
        if (event->type != 2) continue;
        EXPECT_FALSE(open.empty()) << "an end without a beginning on " << track;
        if (open.empty()) continue;
        list.push_back(format("%s %lld-%lld", open.back()->name.c_str(), (long long)open.back()->time_ns,
                              (long long)event->time_ns));
        open.pop_back();
      }
      EXPECT_TRUE(open.empty()) << "a slice of " << track << " does not end";
    }
    return list;
  }
  const Event* find(const std::string& process, const std::string& name, uint64_t type = 1) const {
    for (const Event& event : events) {
      if (event.process == process && event.name == name && event.type == type) return &event;
    }
    return nullptr;
  }
};

// Field numbers as in perfetto's trace_packet.proto, track_descriptor.proto and track_event.proto.
class TraceReader {
 public:
  Trace read(std::string_view bytes) {
    WireReader file(bytes, error_);
    while (file.next()) {
      EXPECT_EQ(file.tag(), protobuf::tag_of(1, protobuf::kBytes));
      packet(file.message());
    }
    // After all packets: names may be told later than they are used.
    for (const Raw& one : raw_) event(one);
    EXPECT_EQ(error_.what, nullptr) << error_.what;
    return std::move(trace_);
  }

 private:
  struct Raw {
    std::string event;
    int64_t time_ns;
  };

  void packet(WireReader packet) {
    Raw one{{}, 0};
    while (packet.next()) {
      switch (packet.tag() >> 3) {
        case 6:
          packet.skip();
          ++trace_.snapshots;
          break;
        case 8:
          one.time_ns = static_cast<int64_t>(packet.varint());
          break;
        case 11:
          one.event = packet.bytes();
          break;
        case 12:
          interned_data(packet.message());
          break;
        case 60:
          descriptor(packet.message());
          break;
        default:
          packet.skip();
      }
    }
    if (!one.event.empty()) raw_.push_back(std::move(one));
  }

  void interned_data(WireReader data) {
    while (data.next()) {
      const uint32_t field = data.tag() >> 3;
      interned_entry(data.message(), field);
    }
  }

  void interned_entry(WireReader message, uint32_t field) {
    uint64_t id = 0;
    std::string text;
    while (message.next()) {
      if (message.tag() == protobuf::tag_of(1, protobuf::kVarint)) {
        id = message.varint();
      } else if (message.tag() == protobuf::tag_of(2, protobuf::kBytes)) {
        text = message.bytes();
      } else {
        message.skip();
      }
    }
    interned_[field][id] = text;
  }

  void descriptor(WireReader descriptor) {
    uint64_t uuid = 0;
    while (descriptor.next()) {
      switch (descriptor.tag() >> 3) {
        case 1:
          uuid = descriptor.varint();
          break;
        case 2:
          trace_.tracks[uuid] = descriptor.bytes();
          break;
        case 3:
          process(descriptor.message(), uuid);
          break;
        case 5:
          trace_.parents[uuid] = descriptor.varint();
          break;
        default:
          descriptor.skip();
      }
    }
  }

  void process(WireReader process, uint64_t uuid) {
    while (process.next()) {
      if (process.tag() >> 3 == 6) {
        trace_.processes[uuid] = process.bytes();
      } else {
        process.skip();
      }
    }
  }

  void event(const Raw& one) {
    Event event;
    event.time_ns = one.time_ns;
    WireReader reader(one.event, error_);
    while (reader.next()) {
      switch (reader.tag() >> 3) {
        case 9:
          event.type = reader.varint();
          break;
        case 10:
          event.name = interned_[2].at(reader.varint());
          break;
        case 11:
          event.uuid = reader.varint();
          break;
        case 47:
          event.flows.push_back(reader.fixed64());
          break;
        case 48:
          event.ending_flows.push_back(reader.fixed64());
          break;
        case 4:
          note(reader.message(), event);
          break;
        default:
          reader.skip();
      }
    }
    event.track = trace_.tracks.at(event.uuid);
    event.process = trace_.processes.at(trace_.parents.at(event.uuid));
    trace_.events.push_back(std::move(event));
  }

  void note(WireReader note, Event& event) {
    std::string name, value;
    while (note.next()) {
      const uint32_t field = note.tag() >> 3;
      const uint64_t number = note.varint();
      if (field == 1) name = interned_[3].at(number);
      if (field == 2) value = number ? "true" : "false";
      if (field == 4) value = std::to_string(static_cast<int64_t>(number));
      if (field == 17) value = interned_[29].at(number);
    }
    event.notes[name] = value;
  }

  Trace trace_;
  WireError error_;
  std::map<uint32_t, std::map<uint64_t, std::string>> interned_;
  std::vector<Raw> raw_;
};

Trace read(std::string_view bytes) {
  return TraceReader().read(bytes);
}

OpSpan collective(uint64_t ordinal, int64_t start, int64_t duration) {
  OpSpan op;
  op.comm_id = CommId{0x1a};
  op.comm_size = 2;
  op.function = "AllReduce";
  op.datatype = "ncclFloat32";
  op.seq = ordinal - 1;
  op.ordinal = ordinal;
  op.bytes = 4096;
  op.start_unix_ns = start;
  op.enqueued_unix_ns = start - 7;
  op.duration_ns = duration;
  op.timed = true;
  return op;
}

RankDetail rank_of(Rank rank, int64_t start) {
  RankDetail detail;
  detail.identity = {.job_id = "llama", .rank = rank, .world_size = 2, .host = "node-" + std::to_string(rank.value())};
  detail.detail.step = 12_step;
  detail.detail.start_unix_ns = start;
  detail.detail.duration_ns = 1'000;
  return detail;
}

class PerfettoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    details_ = {rank_of(0_rank, 10'000), rank_of(1_rank, 10'050)};
    details_[0].detail.ops = {collective(1, 10'100, 400)};
    details_[1].detail.ops = {collective(1, 10'300, 200)};
    step_.job_id = "llama";
    step_.step = 12_step;
  }
  Trace written() {
    step_.details = details_;
    Result<PerfettoFile> file = perfetto_trace(step_);
    EXPECT_TRUE(file.ok()) << file.error();
    file_ = std::move(*file);
    return read(file_.bytes);
  }
  std::vector<RankDetail> details_;
  PerfettoStep step_;
  PerfettoFile file_;
};

TEST_F(PerfettoTest, DrawsStepPhasesAndCommunicatorsOfEveryRank) {
  details_[0].detail.phases = {{Phase::kForward, "", 10'000, 300}, {Phase::kOther, "attention", 10'100, 100}};
  details_[0].detail.notes = {{10'500, "loss is odd"}};
  step_.comm_names[CommId{0x1a}] = "dp";
  Trace trace = written();
  EXPECT_EQ(trace.snapshots, 1u);
  EXPECT_EQ(trace.slices("rank 0 node-0", "step"), (std::vector<std::string>{"note@10500", "step 12 10000-11000"}));
  EXPECT_EQ(trace.slices("rank 0 node-0", "phases"),
            (std::vector<std::string>{"attention 10100-10200", "forward 10000-10300"}));
  EXPECT_EQ(trace.slices("rank 0 node-0", "dp 0x1a (2 ranks)"), (std::vector<std::string>{"AllReduce 10100-10500"}));
  EXPECT_EQ(trace.slices("rank 1 node-1", "dp 0x1a (2 ranks)"), (std::vector<std::string>{"AllReduce 10300-10500"}));
  EXPECT_EQ(trace.find("rank 0 node-0", "note", 3)->notes.at("text"), "loss is odd");
  EXPECT_EQ(file_.ranks, 2u);
  EXPECT_EQ(file_.slices, 6u);
}

TEST_F(PerfettoTest, SaysOfAnOperationWhatIsKnown) {
  details_[1].detail.ops[0].timed = false;
  details_.push_back(rank_of(2_rank, 10'000));
  details_[2].detail.ops = {collective(1, 10'200, 250)};
  Trace trace = written();
  const Event* first = trace.find("rank 0 node-0", "AllReduce");
  EXPECT_EQ(first->notes.at("bytes"), "4096");
  EXPECT_EQ(first->notes.at("seq"), "0");
  EXPECT_EQ(first->notes.at("ordinal"), "1");
  EXPECT_EQ(first->notes.at("queue_ns"), "7");
  EXPECT_EQ(first->notes.at("wait_ns"), "150") << "beyond what the last to arrive spent, untimed ranks left out";
  EXPECT_EQ(first->notes.at("datatype"), "ncclFloat32");
  EXPECT_EQ(trace.find("rank 2 node-2", "AllReduce")->notes.at("wait_ns"), "0");
  const Event* untimed = trace.find("rank 1 node-1", "AllReduce");
  EXPECT_EQ(untimed->notes.at("untimed"), "true");
  EXPECT_FALSE(untimed->notes.contains("wait_ns"));
}

TEST_F(PerfettoTest, ArrowsJoinTheSameCollectiveAndASendWithItsReceive) {
  OpSpan send;
  send.comm_id = CommId{0x2b};
  send.p2p = true;
  send.function = "Send";
  send.rank_in_comm = 0;
  send.peer = 1;
  send.seq = 3;
  send.start_unix_ns = 10'600;
  send.duration_ns = 50;
  send.timed = true;
  OpSpan receive = send;
  receive.function = "Recv";
  receive.rank_in_comm = 1;
  receive.peer = 0;
  receive.start_unix_ns = 10'550;
  receive.duration_ns = 200;
  OpSpan alone = send;
  alone.seq = 4;
  alone.start_unix_ns = 10'700;
  details_[0].detail.ops.push_back(send);
  details_[0].detail.ops.push_back(alone);
  details_[1].detail.ops.push_back(receive);
  Trace trace = written();
  const Event* here = trace.find("rank 0 node-0", "AllReduce");
  const Event* there = trace.find("rank 1 node-1", "AllReduce");
  ASSERT_EQ(here->flows.size(), 1u);
  EXPECT_EQ(here->flows, there->flows);
  const Event* sent = trace.find("rank 0 node-0", "Send");
  ASSERT_EQ(sent->flows.size(), 1u);
  EXPECT_NE(sent->flows, here->flows);
  EXPECT_EQ(sent->notes.at("peer"), "1");
  std::vector<uint64_t> ending, sends;
  for (const Event& event : trace.events) {
    for (uint64_t id : event.ending_flows) {
      ending.push_back(id);
      EXPECT_EQ(event.type, 2u) << "where the message has arrived, not where it was waited for";
      EXPECT_EQ(event.time_ns, 10'750);
    }
    if (event.name == "Send") sends.insert(sends.end(), event.flows.begin(), event.flows.end());
  }
  EXPECT_EQ(ending, sent->flows);
  EXPECT_EQ(sends.size(), 1u) << "nobody received the second";
  EXPECT_EQ(file_.arrows, 2u);
  EXPECT_EQ(trace.slices("rank 1 node-1", "communicator send/receive 0x2b").size(), 1u);
}

TEST_F(PerfettoTest, OperationsThatOverlapGoToFurtherTracksOfTheSameName) {
  details_[0].detail.ops = {collective(1, 10'100, 400), collective(2, 10'200, 100), collective(3, 10'500, 100),
                            collective(4, 10'600, 0), collective(5, 10'600, 10)};
  Trace trace = written();
  std::vector<std::string> slices = trace.slices("rank 0 node-0", "communicator 0x1a (2 ranks)");
  EXPECT_EQ(slices, (std::vector<std::string>{"AllReduce 10100-10500", "AllReduce 10500-10600", "AllReduce 10600-10600",
                                              "AllReduce 10200-10300", "AllReduce 10600-10610"}));
}

TEST_F(PerfettoTest, PhasesThatCutEachOtherGoToFurtherTracks) {
  details_[0].detail.phases = {{Phase::kForward, "", 10'000, 300},
                               {Phase::kBackward, "", 10'200, 300},
                               {Phase::kInput, "", 10'300, 100},
                               {Phase::kSync, "", 10'200, 100}};
  Trace trace = written();
  std::vector<std::string> slices = trace.slices("rank 0 node-0", "phases");
  EXPECT_EQ(
      std::set<std::string>(slices.begin(), slices.end()),
      (std::set<std::string>{"forward 10000-10300", "backward 10200-10500", "input 10300-10400", "sync 10200-10300"}));
}

TEST_F(PerfettoTest, OnlyTheRanksAskedForAreWrittenButAllAreComparedWith) {
  step_.ranks = {0_rank};
  Trace trace = written();
  EXPECT_EQ(file_.ranks, 1u);
  EXPECT_EQ(trace.processes.size(), 1u);
  EXPECT_EQ(trace.find("rank 0 node-0", "AllReduce")->notes.at("wait_ns"), "200");
  EXPECT_TRUE(trace.find("rank 0 node-0", "AllReduce")->flows.empty()) << "nobody to draw an arrow to";
  step_.ranks = {5_rank};
  step_.details = details_;
  EXPECT_FALSE(perfetto_trace(step_).ok());
  EXPECT_FALSE(perfetto_archive(step_).ok());
}

// Two ranks, the second clock 1 ms ahead, told by twenty collectives.
std::vector<RankDetail> with_clocks_apart() {
  std::vector<RankDetail> details = {rank_of(0_rank, 1'000'000'000), rank_of(1_rank, 1'001'000'000)};
  for (auto& [identity, detail] : details) {
    detail.duration_ns = 100'000'000;
    for (uint64_t i = 0; i < 20; ++i) {
      detail.ops.push_back(collective(i + 1, detail.start_unix_ns + static_cast<int64_t>(i) * 4'000'000, 1'000'000));
      detail.ops.back().rank_in_comm = identity.rank.value();
    }
  }
  return details;
}

TEST_F(PerfettoTest, OneFileIsOnTheAxisOfTheJob) {
  details_ = with_clocks_apart();
  step_.alignment = ClockAlignment::estimate(barrier_ends(details_), message_pairs(details_));
  Trace trace = written();
  EXPECT_EQ(file_.ranks_unknown_clock, 0u);
  EXPECT_NEAR(static_cast<double>(trace.find("rank 0 node-0", "AllReduce")->time_ns),
              static_cast<double>(trace.find("rank 1 node-1", "AllReduce")->time_ns), 1'000);
  EXPECT_TRUE(trace.find("rank 1 node-1", "step 12")->notes.contains("clock_error_ns"));
}

std::map<std::string, std::string> members_of(std::string_view tar) {
  std::map<std::string, std::string> members;
  for (size_t at = 0; at + 512 <= tar.size();) {
    const std::string_view header = tar.substr(at, 512);
    if (header.find_first_not_of('\0') == std::string_view::npos) break;
    const std::string name(header.data());
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(header[i]);
    EXPECT_EQ(sum, std::stoul(std::string(header.substr(148, 6)), nullptr, 8)) << name;
    EXPECT_EQ(header.substr(257, 5), "ustar");
    const size_t size = std::stoul(std::string(header.substr(124, 11)), nullptr, 8);
    members[name] = tar.substr(at + 512, size);
    at += 512 + (size + 511) / 512 * 512;
  }
  return members;
}

TEST_F(PerfettoTest, AnArchiveHasAFilePerRankOnItsOwnClockAndTheOffsetsInItsManifest) {
  details_ = with_clocks_apart();
  step_.details = details_;
  step_.alignment = ClockAlignment::estimate(barrier_ends(details_), message_pairs(details_));
  Result<PerfettoFile> file = perfetto_archive(step_);
  ASSERT_TRUE(file.ok()) << file.error();
  std::map<std::string, std::string> members = members_of(file->bytes);
  ASSERT_EQ(members.size(), 3u);
  Trace second = read(members.at("rank-0001.pftrace"));
  EXPECT_EQ(second.find("rank 1 node-1", "AllReduce")->time_ns, 1'001'000'000) << "as its own clock had it";
  EXPECT_EQ(second.snapshots, 0u) << "only the file that is the axis says what wall time is";
  EXPECT_EQ(read(members.at("rank-0000.pftrace")).snapshots, 1u);
  EXPECT_EQ(second.find("rank 1 node-1", "AllReduce")->flows,
            read(members.at("rank-0000.pftrace")).find("rank 0 node-0", "AllReduce")->flows);

  const std::string& text = members.at("perfetto_manifest.json");
  EXPECT_TRUE(text.starts_with("{\"perfetto_manifest\"")) << "it is known by its beginning";
  Result<JsonDocument> json = JsonDocument::parse(text);
  ASSERT_TRUE(json.ok());
  JsonValue manifest = json->root()["perfetto_manifest"];
  EXPECT_EQ(manifest["version"].integer(), 1);
  EXPECT_EQ(manifest["attributes"]["lockstep.step"].integer(), 12);
  std::vector<JsonValue> files;
  for (JsonValue file_entry : manifest["files"]) files.push_back(file_entry);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0]["path"].string(), "rank-0000.pftrace");
  EXPECT_FALSE(files[0]["clocks"].present()) << "its clock is the axis";
  EXPECT_EQ(files[1]["machine"]["name"].string(), "rank 1 node-1");
  EXPECT_EQ(files[1]["clocks"]["sync_to"]["file"].string(), "rank-0000.pftrace");
  EXPECT_EQ(files[1]["clocks"]["clock"].string(), "BOOTTIME");
  EXPECT_NEAR(static_cast<double>(*files[1]["clocks"]["offset_ns"].integer()), -1'000'000, 1'000)
      << "its clock reads T when the axis reads T + offset";
}

TEST_F(PerfettoTest, TooMuchAtOnceIsRefusedWithALine) {
  step_.details = details_;
  step_.slices_max = 3;
  EXPECT_NE(perfetto_trace(step_).error().find("choose fewer ranks"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
