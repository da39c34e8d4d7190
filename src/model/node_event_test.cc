#include "model/node_event.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep {
namespace {

NodeEvent full_event() {
  NodeEvent event;
  event.name = "gpu.xid";
  event.time_unix_ns = 1'700'000'000'000'000'000;
  event.severity = EventSeverity::kCritical;
  event.gpu_uuid = "GPU-6cbdbcb1";
  event.device = "0000:1b:00.0";
  event.code = 145;
  event.sub_code = 4;
  event.count = 800'000;
  event.pid = 4242;
  event.process = "python3";
  event.job_id = "llama-70b";
  event.rank = 5_rank;
  event.text = "NVRM: Xid (PCI:0000:1b:00): 145, RLW_REMAP Fatal";
  event.meaning = "NVLink5";
  event.action = "reset the GPU";
  event.source = "kmsg+driver";
  event.secondary = true;
  return event;
}

LogRecord with(LogRecord record, std::string_view key, Value value) {
  for (Attribute& attribute : record.attributes) {
    if (attribute.key == key) attribute.value = std::move(value);
  }
  return record;
}

std::string error_of(const LogRecord& record) {
  Result<NodeEvent> event = node_event_from_record(record);
  return event.ok() ? "accepted" : event.error();
}

TEST(NodeEvent, IsTheSameAfterBeingARecord) {
  const NodeEvent event = full_event();
  const LogRecord record = to_record(event);
  EXPECT_EQ(record.event_name, "gpu.xid");
  EXPECT_EQ(record.severity, 17);
  EXPECT_EQ(record.severity_text, "critical");
  Result<NodeEvent> back = node_event_from_record(record);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, event);
}

TEST(NodeEvent, SendsOnlyWhatItKnows) {
  NodeEvent event;
  event.name = "host.mce";
  const LogRecord record = to_record(event);
  EXPECT_TRUE(record.attributes.empty());
  Result<NodeEvent> back = node_event_from_record(record);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, event);
}

TEST(NodeEvent, KeepsEverySeverityAlsoWhereOnlyTheNumberCameThrough) {
  for (EventSeverity severity :
       {EventSeverity::kInfo, EventSeverity::kApp, EventSeverity::kWarn, EventSeverity::kCritical}) {
    NodeEvent event = full_event();
    event.severity = severity;
    LogRecord record = to_record(event);
    EXPECT_EQ(node_event_from_record(record)->severity, severity);
    record.severity_text.clear();
    EXPECT_EQ(node_event_from_record(record)->severity, severity) << record.severity;
  }
}

TEST(NodeEvent, BecomesOneLineOfValidTextOfBoundedLength) {
  NodeEvent event = full_event();
  event.text = std::string(1023, 'x') + "\xC3\xA4 and more";  // the last character would be cut in two
  event.process = "a\xFF\nb\x1b[31m\xC3";
  event.meaning = std::string(4000, 'm');
  Result<NodeEvent> back = node_event_from_record(to_record(event));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(back->text, std::string(1023, 'x'));
  EXPECT_EQ(back->process, "a? b [31m?");
  EXPECT_EQ(back->meaning, std::string(512, 'm'));
}

TEST(NodeEvent, KeepsLettersBeyondAscii) {
  NodeEvent event = full_event();
  event.process = "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80";
  EXPECT_EQ(node_event_from_record(to_record(event))->process, event.process);
}

TEST(NodeEvent, AnythingImpossibleIsOneClearLine) {
  const LogRecord good = to_record(full_event());
  EXPECT_EQ(error_of(with(good, "count", 0)), "gpu.xid: count is not a whole number of 1 to 1000000000000000");
  EXPECT_EQ(error_of(with(good, "count", "3")), "gpu.xid: count is not a whole number of 1 to 1000000000000000");
  EXPECT_EQ(error_of(with(good, "code", -2)), "gpu.xid: code is not a whole number of -1 to 4294967295");
  EXPECT_EQ(error_of(with(good, "rank", 20'000'000)), "gpu.xid: rank is not a whole number of -1 to 10000000");
  EXPECT_EQ(error_of(with(good, "pid", int64_t{1} << 40)), "gpu.xid: pid is not a whole number of -1 to 4194304");
  EXPECT_EQ(error_of(with(good, "job_id", "a\nb")), "gpu.xid: job_id is not one line of text of at most 256 bytes");
  EXPECT_EQ(error_of(with(good, "device", std::string(257, 'd'))),
            "gpu.xid: device is not one line of text of at most 256 bytes");
  EXPECT_EQ(error_of(with(good, "secondary", 1)), "gpu.xid: secondary is not true or false");
  LogRecord record = good;
  record.severity_text = "loud";
  EXPECT_EQ(error_of(record), "gpu.xid: the severity is none of info, app, warn, critical");
  record = good;
  record.body = ValueList{1};
  EXPECT_EQ(error_of(record), "gpu.xid: body is not one line of text of at most 1024 bytes");
  record = good;
  record.time_unix_ns = -1;
  EXPECT_EQ(error_of(record), "gpu.xid: the time is before 1970");
}

TEST(NodeEvent, ANameNeedsADotAndIsPlain) {
  for (const char* name : {"", "gpu", ".gpu", "gpu.", "Gpu.xid", "gpu.x d", "gpu.\n"}) {
    LogRecord record = to_record(full_event());
    record.event_name = name;
    EXPECT_FALSE(node_event_from_record(record).ok()) << name;
  }
}

}  // namespace
}  // namespace lockstep
