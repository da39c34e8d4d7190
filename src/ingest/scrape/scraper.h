// Scrapes exporters: every target of the configuration at its interval, each at a moment of its own within it, so that
// a fleet does not answer all at once.
//
// Every scrape stores the page's series with the labels job and instance and the target's own, as the job's rules leave
// them, and besides up, scrape_duration_seconds, scrape_samples_scraped, scrape_samples_post_metric_relabeling and
// scrape_series_added. A series that is not on the page any more, and every series of a
// target that does not answer or is not listed any more, gets a stale marker.
// Discovery: files are read again when they change, HTTP lists at their refresh_interval; a list that cannot be read
// leaves the targets as they were.
// A page of a Lockstep agent that also sends to us by itself: what has the node's name (label host) is what it sends, so it
// is there already, and summing it would count it twice. It is left out, counted as refused ("pushed_too") and logged; the
// agent's own counters, which it does not send, are stored.
// Limits: body and samples per page (scrape_config.h), `threads` scrapes at a time: a target whose turn comes late is
// scraped late, and left out where its next turn has come (counted).
// Counts: lockstep_scrapes_total{result}, lockstep_scrape_targets, and samples as MetricIntake counts them.
// Shutdown: stop() interrupts scrapes under way and joins; no stale markers then, as the next start goes on.
// Thread rule: Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "ingest/metric_intake.h"
#include "ingest/scrape/scrape_config.h"
#include "ingest/scrape/scrape_target.h"

namespace lockstep {

inline constexpr std::string_view kScrapeReceiver = "scrape";

class Scraper {
 public:
  // is_pushed: whether the agent of that host sends by itself; empty: nobody knows. Thread-safe.
  using IsPushed = std::function<bool(const std::string& host)>;
  static std::unique_ptr<Scraper> start(ScrapeConfig config, MetricIntake& intake, const Clock& clock,
                                        Counters& counters, size_t threads = 4, IsPushed is_pushed = {});
  virtual ~Scraper() = default;
  virtual void stop() = 0;
  // From now on by this configuration: targets that it lists as before go on, the others become stale.
  virtual void reload(ScrapeConfig config) = 0;
  // Those that are listed now, by job and address, then those that rules dropped (the first 10,000).
  virtual std::vector<ScrapeTarget> targets() const = 0;
};

}  // namespace lockstep
