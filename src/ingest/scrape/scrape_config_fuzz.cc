// Any bytes as a scrape configuration or a list of targets: one line that names a line, or something that can be used.
#include <cstdlib>

#include "ingest/scrape/scrape_config.h"
#include "ingest/scrape/scrape_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  if (size > 20'000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto check = [](const std::string& error) {
    if (!error.starts_with("line ") || error.find('\n') != std::string::npos) std::abort();
  };
  Result<ScrapeConfig> config = parse_scrape_config(text);
  if (!config.ok()) {
    check(config.error());
  } else {
    for (const ScrapeJob& job : config->jobs) {
      if (job.name.empty() || job.timeout_ns > job.interval_ns || job.timeout_ns <= 0) std::abort();
      for (const TargetGroup& group : job.groups) {
        for (const std::string& address : group.targets) {
          Result<ScrapeTarget> target = resolve_target(job, address, group.labels);
          if (!target.ok() && target.error().find('\n') != std::string::npos) std::abort();
          if (target.ok() && !target->is_dropped && target->timeout_ns > target->interval_ns) std::abort();
        }
      }
    }
  }
  for (const bool with_rules : {false, true}) {
    Result<std::vector<TargetGroup>> groups = parse_target_groups(text, with_rules);
    if (!groups.ok()) check(groups.error());
  }
  return 0;
}
