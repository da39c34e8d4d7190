#include "store/spans/span_file.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "testing/hex.h"

namespace lockstep::spans {
namespace {

TEST(SpanFile, WritesTheBytesOfTheFormatPage) {
  Identity identity{
      .job_id = "j", .attempt = 0, .rank = 0_rank, .world_size = 1, .local_rank = 0, .host = "h", .gpu_uuid = ""};
  StepDetail detail;
  detail.step = 7_step;
  detail.start_unix_ns = 1'000'000;
  detail.duration_ns = 500;
  for (int i = 0; i < 3; ++i) {
    OpSpan op;
    op.comm_id = CommId{0x1f};
    op.comm_size = 1;
    op.function = "AllReduce";
    op.datatype = "bf16";
    op.seq = static_cast<uint64_t>(40 + i);
    op.ordinal = static_cast<uint64_t>(41 + i);
    op.bytes = 4096;
    op.start_unix_ns = 1'000'100 + i * 100;
    op.enqueued_unix_ns = op.start_unix_ns - 10 - i;
    op.duration_ns = 50 + i;
    op.timed = true;
    detail.ops.push_back(op);
  }
  SpanColumnsBuilder builder;
  builder.begin_source(to_resource(identity), "", "");
  for (const Span& span : to_spans(identity, detail, SampledFor::kPeriodic)) builder.add(span);
  std::string content = SpanFile::start_content();
  EXPECT_EQ(testing::spaced_hex(content), "4c 53 53 50 41 4e 53 0a 01 00 00 00 00 00 00 00");
  const RowGroupMeta meta = write_row_group(builder.take(), content);
  auto section = [&](Section wanted) {
    for (const SectionPlace& place : meta.sections) {
      if (place.section == static_cast<uint32_t>(wanted))
        return testing::spaced_hex(content.substr(place.offset, place.bytes));
    }
    return std::string("missing");
  };
  EXPECT_EQ(section(Section::kShape), "01 01 00 0e");
  EXPECT_EQ(section(Section::kName), "01 04 08 b0 bb");
  EXPECT_EQ(section(Section::kGroupStart), "00 80 89 7a");
  EXPECT_EQ(section(Section::kStartDelta), "00 c8 01");
  EXPECT_EQ(section(Section::kDuration), "01 09 64 c2 01 04 10 00");
  EXPECT_EQ(section(Section::kSpanIdPlace), "01 02 00 90");
  EXPECT_EQ(section(Section::kSpanId), "00");
  EXPECT_EQ(section(Section::kParentKind), "01 01 00 0e");
}

TEST(SpanFile, SaysWhatIsInItByItsName) {
  SpanFileInfo info;
  info.number = 3;
  info.first_sequence = 70;
  info.last_sequence = 90;
  EXPECT_EQ(info.name(), "spans-3-70-90.blk");
  std::optional<SpanFileInfo> read = SpanFileInfo::from_name(info.name());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, 3u);
  EXPECT_EQ(read->first_sequence, 70u);
  EXPECT_EQ(read->last_sequence, 90u);
  for (const char* name : {"", "spans-.blk", "spans-1-2.blk", "spans-1-2-x.blk", "spans-1-2-3.blk.part", "x"})
    EXPECT_FALSE(SpanFileInfo::from_name(name)) << name;
}

TEST(SpanFile, RefusesWhatIsNoFileWithOneLine) {
  for (const std::string& content :
       {std::string(), std::string(100, 'x'), SpanFile::start_content() + std::string(24, '\0')}) {
    Result<std::shared_ptr<const SpanFile>> file = SpanFile::from_bytes(content);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::spans
