#include "sources/kernel/xid_table.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/text.h"
#include "sources/kernel/kernel_metrics.h"

namespace lockstep {
namespace {

std::string numbers_of(const XidRow& row) {
  return row.first == row.last ? std::to_string(row.first) : format("%d-%d", row.first, row.last);
}

TEST(XidTable, ThePageHasEveryRowWordForWord) {
  Result<std::string> page = read_file(SOURCES_XID_PAGE, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error();
  size_t at = 0;
  const auto expect_next = [&](const std::string& row) {
    const size_t found = page->find(row, at);
    EXPECT_NE(found, std::string::npos) << "missing, or not in this order:" << row;
    if (found != std::string::npos) at = found;
  };
  for (const XidRow& row : kXidTable) {
    expect_next(format("\n| %s | %s | %s | %s | %s |\n", numbers_of(row).c_str(), row.meaning, to_text(row.bucket),
                       to_text(row.severity), row.action));
  }
  expect_next(format("\n| any other | %s | %s | %s | %s |\n", kXidUnknown.meaning, to_text(kXidUnknown.bucket),
                     to_text(kXidUnknown.severity), kXidUnknown.action));
  for (const RecoveryRow& row : kRecoveryTable) {
    expect_next(format("\n| %d | %s | %s | %s |\n", row.value, row.meaning, to_text(row.severity), row.action));
  }
  for (const MetricDescriptor& metric : kKernelMetrics) {
    expect_next(format("\n| `%s` | %s | %s | %s | %s |\n", metric.name,
                       metric.kind == MetricKind::kSum ? "counter" : "gauge", metric.unit, metric.labels, metric.help));
  }
}

TEST(XidTable, IsInOrderAndLeavesNothingUnsaid) {
  int16_t before = -1;
  for (const XidRow& row : kXidTable) {
    EXPECT_GT(row.first, before);
    before = row.first;
    EXPECT_GE(row.last, row.first);
    EXPECT_NE(std::string(row.meaning), "");
    EXPECT_NE(std::string(row.action), "");
  }
}

TEST(XidTable, TheNarrowerRowCounts) {
  EXPECT_STREQ(xid_row(69).meaning, "graphics class error");
  EXPECT_EQ(xid_row(70).first, 68);
  EXPECT_EQ(xid_row(79).severity, EventSeverity::kCritical);
  EXPECT_EQ(xid_row(45).role, XidRole::kNeverPrimary);
}

TEST(XidTable, ANumberThatIsNotThereIsAWarningThatSaysSo) {
  for (int64_t code : {-1, 0, 1, 80, 999, 1'000'000}) {
    EXPECT_EQ(&xid_row(code), &kXidUnknown) << code;
    EXPECT_EQ(xid_row(code).severity, EventSeverity::kWarn);
  }
  EXPECT_EQ(recovery_row(6), nullptr);
  EXPECT_EQ(recovery_row(-1), nullptr);
}

TEST(XidTable, OnNvLink5OnlyTheWordsOfTheLineDecide) {
  const auto severity = [](int64_t code, NvLinkReport report, int driver) {
    return nvlink_advice(code, report, driver).severity;
  };
  EXPECT_EQ(severity(145, {"RLW_REMAP", true, 1, 0x4, 0x40}, 580), EventSeverity::kCritical);
  EXPECT_EQ(severity(145, {"RLW_REMAP", false, 1, 0x4, 0x2}, 580), EventSeverity::kWarn);
  EXPECT_STREQ(nvlink_advice(145, {"RLW_REMAP", false, 1, 0x4, 0x2}, 580).action,
               "do what an XID 154 beside it asks for; without one, restart the job");
  EXPECT_STREQ(nvlink_advice(145, {"RLW_SRC_TRACK", false, 1, 0x7, 0x8}, 580).action,
               "do what an XID 154 beside it asks for; without one, restart the job");
  EXPECT_STREQ(nvlink_advice(145, {"RLW_REMAP", false, 1, 0x4, 0x100}, 580).action, "nothing now; watch this link");
  // Packets lost for good: bit 7 of newer drivers, bit 10 of older ones.
  EXPECT_EQ(severity(145, {"RLW_RXPIPE", false, 1, 0x86, 0x1}, 580), EventSeverity::kCritical);
  EXPECT_EQ(severity(145, {"RLW_RXPIPE", false, 1, 0x06, 0x1}, 580), EventSeverity::kWarn);
  EXPECT_EQ(severity(145, {"RLW_RXPIPE", false, 1, 0x4c2, 0x1}, 570), EventSeverity::kCritical);
  EXPECT_EQ(severity(145, {"RLW_RXPIPE", false, 1, 0x0c2, 0x1}, 570), EventSeverity::kWarn);
  // A link that was taken down by software asks nothing of its GPU.
  EXPECT_EQ(severity(149, {"NETIR_LINK_EVT", true, 0, 38u << 20 | 0x11, 0}, 580), EventSeverity::kWarn);
  EXPECT_EQ(severity(149, {"NETIR_LINK_EVT", true, 0, 42u << 20 | 0x11, 0}, 580), EventSeverity::kCritical);
  EXPECT_EQ(severity(149, {"NETIR_BER_EVENT", false, 0, 0x13, 0}, 580), EventSeverity::kWarn);
  EXPECT_EQ(nvlink_advice(149, {"NETIR_LINK_EVT", true, 0, 42u << 20 | 0x11, 0}, 580).meaning,
            "NVLink5 link event: NETIR_LINK_EVT, fatal, link 0, cause 42 (signal or cable)");
}

}  // namespace
}  // namespace lockstep
