#include "ingest/scrape/scrape_target.h"

#include <gtest/gtest.h>

#include "ingest/scrape/scrape_config.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

Result<ScrapeTarget> resolved(const std::string& rest, const std::string& address, Labels group = {}) {
  Result<ScrapeConfig> config = parse_scrape_config("scrape_configs:\n- job_name: j\n  scrape_interval: 1m30s\n" +
                                                    std::string("  static_configs: [{targets: [\"a:1\"]}]\n") + rest);
  EXPECT_TRUE(config.ok()) << config.error();
  if (!config.ok()) return config.failure();
  return resolve_target(config->jobs[0], address, group);
}

TEST(ScrapeTargets, AreWhatTheConfigurationSays) {
  const Result<ScrapeTarget> target = resolved("", "host:9100", {{"rack", "r1"}});
  ASSERT_TRUE(target.ok()) << target.error();
  EXPECT_EQ(target->discovered, (Labels{{"__address__", "host:9100"},
                                        {"__metrics_path__", "/metrics"},
                                        {"__scheme__", "http"},
                                        {"__scrape_interval__", "1m30s"},
                                        {"__scrape_timeout__", "10s"},
                                        {"job", "j"},
                                        {"rack", "r1"}}));
  EXPECT_EQ(target->labels, (Labels{{"instance", "host:9100"}, {"job", "j"}, {"rack", "r1"}}));
  EXPECT_EQ(target->address + target->path, "host:9100/metrics");
  EXPECT_EQ(target->interval_ns, 90'000'000'000);
}

TEST(ScrapeTargets, AProbeIsAskedThroughItsExporter) {
  const Result<ScrapeTarget> target = resolved(R"(
  metrics_path: /probe
  params: {module: [http_2xx, second], target: ["?"]}
  relabel_configs:
  - {source_labels: [__address__], target_label: __param_target}
  - {source_labels: [__param_target], target_label: instance}
  - {target_label: __address__, replacement: "exporter:9115"}
)",
                                               "https://example.org/a b");
  ASSERT_TRUE(target.ok()) << target.error();
  EXPECT_EQ(target->address, "exporter:9115");
  EXPECT_EQ(target->path, "/probe?module=http_2xx&module=second&target=https%3A%2F%2Fexample.org%2Fa+b");
  EXPECT_EQ(label_value(target->labels, "instance"), "https://example.org/a b");
}

TEST(ScrapeTargets, LabelsSayHowTheyAreScraped) {
  const Result<ScrapeTarget> target = resolved("", "host:1",
                                               {{"__scheme__", "https"},
                                                {"__metrics_path__", "/own"},
                                                {"__scrape_interval__", "5s"},
                                                {"__param_a", "1"},
                                                {"__meta_pod", "p"}});
  ASSERT_TRUE(target.ok()) << target.error();
  EXPECT_EQ(target->scheme + target->path, "https/own?a=1");
  EXPECT_EQ(target->interval_ns, 5'000'000'000);
  EXPECT_EQ(target->timeout_ns, 5'000'000'000);  // never longer
  EXPECT_EQ(target->labels, (Labels{{"instance", "host:1"}, {"job", "j"}}));
}

TEST(ScrapeTargets, RulesDropThem) {
  const Result<ScrapeTarget> target =
      resolved("  relabel_configs: [{source_labels: [rack], regex: r2, action: keep}]\n", "host:1", {{"rack", "r1"}});
  ASSERT_TRUE(target.ok()) << target.error();
  EXPECT_TRUE(target->is_dropped);
  EXPECT_EQ(label_value(target->discovered, "rack"), "r1");
}

TEST(ScrapeTargets, WhatCannotBeScrapedIsSaidInALine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"__address__", "is no address"},
      {"__scheme__", "neither http nor https"},
      {"__metrics_path__", "begin with /"},
      {"__scrape_interval__", "is not a time"},
  };
  for (const auto& [label, why] : kCases) {
    const Result<ScrapeTarget> target =
        resolved(std::string("  relabel_configs: [{target_label: ") + label + ", replacement: \"x/y z\"}]\n", "host:1");
    ASSERT_FALSE(target.ok()) << label;
    EXPECT_NE(target.error().find(why), std::string::npos) << target.error();
    EXPECT_NE(target.error().find("host:1"), std::string::npos) << target.error();
  }
}

}  // namespace
}  // namespace lockstep
