// One thread keeps the list of targets and hands out turns; workers scrape. A target belongs to one worker at a time.
#include "ingest/scrape/scraper.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/contained.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/text.h"
#include "model/series_labels.h"
#include "net/http_client.h"
#include "store/metric_reader.h"
#include "wire/exposition.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

constexpr int64_t kFileLookNs = 1'000'000'000;
constexpr uint64_t kTargetListBytesMax = 16ull << 20;
constexpr size_t kDroppedMax = 10'000;  // that are remembered, for people to see
// What is told of every target besides its page.
constexpr const char* kOwnSeries[] = {"up", "scrape_duration_seconds", "scrape_samples_scraped",
                                      "scrape_samples_post_metric_relabeling", "scrape_series_added"};
const double kStale = std::bit_cast<double>(kStaleBits);
constexpr const char* kAccept =
    "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

struct Target {
  std::shared_ptr<const ScrapeConfig> config;  // whose is
  const ScrapeJob* job = nullptr;
  ScrapeTarget what;  // its last scrape guarded by the scraper's mutex
  std::string prefix;
  std::string stream;
  int64_t next_ns = 0;  // monotonic
  bool is_listed = true;
  bool is_taken = false;  // by a worker, or waiting for one

  // Of the worker that has it.
  std::unique_ptr<HttpClient> client;
  exposition::Walk walk;
  std::unordered_map<std::string, std::string> relabelled;  // raw labels of the page's: ours; empty: dropped
  std::vector<std::string> shown;                           // raw labels of the last page, in its order
  bool has_spoken = false;                                  // of itself: up and the like
};

struct Outcome {
  int64_t at_unix_ns = 0, took_ns = 0;
  std::string problem;
};

// One that is read again: a file or a URL.
struct Source {
  const ScrapeJob* job = nullptr;
  const ScrapeDiscovery* discovery = nullptr;
  std::string name;  // which it is, also in another configuration
  int64_t next_ns = 0;
  std::string state;  // of files: names and times of change
  std::vector<TargetGroup> groups;
};

class ScraperThreads final : public Scraper {
 public:
  ScraperThreads(ScrapeConfig config, MetricIntake& intake, const Clock& clock, Counters& counters, size_t threads,
                 IsPushed is_pushed)
      : is_pushed_(std::move(is_pushed)),
        intake_(intake),
        clock_(clock),
        counters_(counters),
        log_(clock, "scrape"),
        stop_event_(::eventfd(0, EFD_CLOEXEC)),
        next_config_(std::make_shared<const ScrapeConfig>(std::move(config))) {
    scheduler_ = std::thread([this] { schedule(); });
    for (size_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~ScraperThreads() override { stop(); }

  std::vector<ScrapeTarget> targets() const override {
    std::vector<ScrapeTarget> list;
    MutexLock lock(mutex_);
    for (const auto& [key, target] : targets_) {
      if (target->is_listed) list.push_back(target->what);
    }
    list.insert(list.end(), dropped_.begin(), dropped_.end());
    return list;
  }

  void reload(ScrapeConfig config) override {
    MutexLock lock(mutex_);
    next_config_ = std::make_shared<const ScrapeConfig>(std::move(config));
    changed_.notify_all();
  }

  void stop() override {
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      stopping_ = true;
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t reported = ::write(stop_event_.get(), &one, sizeof one);
    changed_.notify_all();
    scheduler_.join();
    for (std::thread& worker : workers_) worker.join();
  }

 private:
  void schedule() {
    while (true) {
      const int64_t now_ns = clock_.monotonic_ns();
      // What a list makes of itself (YAML, a regular expression, sheer size) ends this round, not the process.
      if (!contained("scrape", "reading the lists of targets", [&] {
            take_config();
            refresh(now_ns);
          }))
        counters_.add("lockstep_scrape_lists_refused_total");
      MutexLock lock(mutex_);
      int64_t next_ns = now_ns + kFileLookNs;
      for (auto target = targets_.begin(); target != targets_.end();) {
        Target& one = *target->second;
        if (one.is_taken) {
          ++target;
          continue;
        }
        if (!one.is_listed && !one.has_spoken) {
          target = targets_.erase(target);
          continue;
        }
        if (one.next_ns <= now_ns || !one.is_listed) {
          one.is_taken = true;
          ready_.push_back(&one);
          const int64_t late = std::max<int64_t>(0, now_ns - one.next_ns) / one.what.interval_ns;
          if (late > 0 && one.is_listed) counters_.add("lockstep_scrapes_total", "result=\"left_out\"", late);
          one.next_ns += (late + 1) * one.what.interval_ns;
        }
        next_ns = std::min(next_ns, one.next_ns);
        ++target;
      }
      counters_.set("lockstep_scrape_targets", "", static_cast<int64_t>(targets_.size()));
      changed_.notify_all();
      // Waits by the wall, whatever clock the rest goes by: a test's clock stands still.
      changed_.wait_for(mutex_, std::chrono::nanoseconds(std::clamp<int64_t>(next_ns - now_ns, 1'000'000, kFileLookNs)),
                        [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || next_config_ != nullptr; });
      if (stopping_) return;
    }
  }

  void take_config() {
    {
      MutexLock lock(mutex_);
      if (next_config_ == nullptr) return;
      config_ = std::move(next_config_);
    }
    const std::vector<Source> before = std::exchange(sources_, {});
    for (const ScrapeJob& job : config_->jobs) {
      for (const ScrapeDiscovery& discovery : job.discoveries) {
        Source source{.job = &job, .discovery = &discovery, .name = job.name + '\n' + discovery.url};
        for (const std::string& file : discovery.files) source.name += '\n' + file;
        // What it was told before holds until it is asked anew.
        for (const Source& known : before) {
          if (known.name == source.name) source.groups = known.groups;
        }
        sources_.push_back(std::move(source));
      }
    }
    listed_ = false;
  }

  void refresh(int64_t now_ns) {
    bool is_first = !listed_;
    bool has_changed = is_first;
    for (Source& source : sources_) {
      if (source.next_ns > now_ns) continue;
      const bool by_file = source.discovery->url.empty();
      source.next_ns =
          now_ns + (by_file ? std::min(kFileLookNs, source.discovery->refresh_ns) : source.discovery->refresh_ns);
      has_changed |= by_file ? read_files(source) : ask_url(source);
    }
    if (!has_changed) return;
    listed_ = true;
    MutexLock lock(mutex_);
    for (auto& [key, target] : targets_) target->is_listed = false;
    dropped_.clear();
    for (const ScrapeJob& job : config_->jobs) {
      for (const TargetGroup& group : job.groups) list(job, group, now_ns);
      for (const Source& source : sources_) {
        if (source.job != &job) continue;
        for (const TargetGroup& group : source.groups) list(job, group, now_ns);
      }
    }
  }

  void list(const ScrapeJob& job, const TargetGroup& group, int64_t now_ns) LOCKSTEP_REQUIRES(mutex_) {
    for (const std::string& address : group.targets) {
      Result<ScrapeTarget> resolved = resolve_target(job, address, group.labels);
      if (!resolved.ok()) {
        log_.warn("target", format("job %s: %s; it is not scraped", job.name.c_str(), resolved.error().c_str()));
        counters_.add("lockstep_scrape_targets_refused_total");
        continue;
      }
      if (resolved->is_dropped) {
        if (dropped_.size() < kDroppedMax) dropped_.push_back(std::move(*resolved));
        continue;
      }
      auto target = std::make_unique<Target>();
      target->config = config_;
      target->job = &job;
      target->what = std::move(*resolved);
      target->prefix = exposition::target_prefix(target->what.labels, job.honor_labels);
      std::string where = target->what.address + '\0' + target->prefix;
      if (target->what.path != job.path) where += '\0' + target->what.path;
      target->stream = std::string(kScrapeReceiver) + '\0' + where;
      const int64_t interval_ns = target->what.interval_ns;
      const std::string key =
          format("%s\n%s\n%lld\n%lld\n%llx\n", job.name.c_str(), target->what.scheme.c_str(),
                 static_cast<long long>(interval_ns), static_cast<long long>(target->what.timeout_ns),
                 static_cast<unsigned long long>(job.how)) +
          where;
      const int64_t phase_ns = static_cast<int64_t>(std::hash<std::string>()(key) % static_cast<uint64_t>(interval_ns));
      target->next_ns = now_ns + phase_ns;
      const auto known = targets_.find(key);
      if (known != targets_.end()) {
        known->second->is_listed = true;
      } else {
        targets_.emplace(key, std::move(target));
      }
    }
  }

  // true: the list is another one.
  bool read_files(Source& source) {
    std::vector<std::string> paths;
    std::string state;
    for (const std::string& pattern : source.discovery->files) {
      const size_t slash = pattern.rfind('/');
      const std::string last = pattern.substr(slash + 1);
      const size_t star = last.find('*');
      if (star == std::string::npos) {
        paths.push_back(pattern);
        continue;
      }
      const std::string folder = slash == 0 ? "/" : pattern.substr(0, slash);
      Result<std::vector<std::string>> names = list_directory(folder);
      if (!names.ok()) continue;
      for (const std::string& name : *names) {
        if (name.size() + 1 >= last.size() && name.starts_with(last.substr(0, star)) &&
            name.ends_with(last.substr(star + 1))) {
          paths.push_back(pattern.substr(0, slash + 1) + name);
        }
      }
    }
    for (const std::string& path : paths) {
      struct stat status {};
      if (::stat(path.c_str(), &status) != 0) continue;
      state +=
          path + format(" %lld %lld %lld\n", static_cast<long long>(status.st_size),
                        static_cast<long long>(status.st_mtim.tv_sec), static_cast<long long>(status.st_mtim.tv_nsec));
    }
    if (state == source.state && listed_) return false;
    std::vector<TargetGroup> all;
    for (const std::string& path : paths) {
      Result<std::string> text = read_file(path, kTargetListBytesMax);
      Result<std::vector<TargetGroup>> groups = text.ok() ? parse_target_groups(*text, !source.job->relabel.empty())
                                                          : Result<std::vector<TargetGroup>>(text.failure());
      if (!groups.ok()) {
        log_.warn("file", format("job %s: %s: %s; its targets stay as they were", source.job->name.c_str(),
                                 path.c_str(), groups.error().c_str()));
        counters_.add("lockstep_scrape_lists_refused_total");
        return false;
      }
      for (TargetGroup& group : *groups) {
        group.labels.emplace_back("__meta_filepath", path);
        all.push_back(std::move(group));
      }
    }
    source.state = state;
    source.groups = std::move(all);
    return true;
  }

  bool ask_url(Source& source) {
    const std::string& text = source.discovery->url;
    Result<RequestUrl> url = parse_request_url(text);
    auto failed = [&](const std::string& why) {
      log_.warn("http", format("job %s: %s%s; its targets stay as they were", source.job->name.c_str(),
                               url.ok() ? (origin_of(url->server) + ": ").c_str() : "", why.c_str()));
      counters_.add("lockstep_scrape_lists_refused_total");
      return false;
    };
    if (!url.ok()) return failed(url.error());
    const ScrapeAccess& access = source.discovery->access;
    HttpRequest request{"GET", url->target, {{"accept", "application/json"}}, ""};
    if (Result<void> authorized = access.authorize(request); !authorized.ok()) return failed(authorized.error());
    HttpClient client(url->server, 10'000, kTargetListBytesMax, access.tls);
    client.interrupt_by(stop_event_.get());
    Result<HttpResponse> answer = client.send(request);
    if (!answer.ok()) return failed(answer.error());
    if (answer->status != 200) return failed(format("answered %d", answer->status));
    Result<std::vector<TargetGroup>> groups = parse_target_groups(answer->body, !source.job->relabel.empty());
    if (!groups.ok()) return failed(groups.error());
    for (TargetGroup& group : *groups) group.labels.emplace_back("__meta_url", text);
    source.groups = std::move(*groups);
    return true;
  }

  void work() {
    ReleasableMutexLock lock(mutex_);
    while (true) {
      changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !ready_.empty(); });
      if (stopping_) return;
      Target& target = *ready_.front();
      ready_.pop_front();
      const bool is_listed = target.is_listed;
      lock.unlock();
      std::optional<Outcome> outcome;
      const bool done = contained("scrape", "a target", [&] {
        if (is_listed) {
          outcome = scrape(target);
        } else {
          say_stale(target, {});
          target.shown.clear();
          target.has_spoken = false;
        }
      });
      if (!done) {
        counters_.add("lockstep_scrapes_total", "result=\"failed\"");
        if (!is_listed) target.has_spoken = false;
      }
      lock.lock();
      if (outcome) {
        target.what.at_unix_ns = outcome->at_unix_ns;
        target.what.took_ns = outcome->took_ns;
        target.what.error = std::move(outcome->problem);
      }
      target.is_taken = false;
    }
  }

  // nullopt: interrupted, which is not the target's fault.
  std::optional<Outcome> scrape(Target& target) {
    const int64_t began_ns = clock_.monotonic_ns();
    const int64_t began_unix_ns = clock_.unix_ns();
    const int64_t now_ms = began_unix_ns / 1'000'000;
    Result<HttpResponse> answer = fetch(target);
    std::string problem = !answer.ok()            ? answer.error()
                          : answer->status != 200 ? format("answered %d", answer->status)
                                                  : "";
    if (problem.empty()) {
      Result<void> read = target.walk.walk(exposition::format_of(answer->header("content-type")), answer->body,
                                           target.prefix, now_ms, target.job->samples_max);
      if (!read.ok()) problem = read.error();
    }
    if (stop_asked()) return std::nullopt;
    const std::span<const PushedSeries> series =
        problem.empty() ? target.walk.series() : std::span<const PushedSeries>();
    const bool honors_time = target.job->honor_timestamps;
    const std::vector<int64_t> now(1, now_ms);
    std::vector<PushedSeries> ours;
    std::vector<std::string> shown;
    ours.reserve(series.size());
    if (target.relabelled.size() > 2 * series.size() + 1024) target.relabelled.clear();
    const std::string pushed_host = problem.empty() ? pushed_host_of(target) : "";
    uint64_t twice = 0;
    for (size_t k = 0; k < series.size(); ++k) {
      PushedSeries one = series[k];
      if (!pushed_host.empty() && has_host(one.raw_labels, pushed_host)) {
        ++twice;
        continue;
      }
      if (!target.job->metric_relabel.empty()) one.raw_labels = relabelled(target, one.raw_labels);
      if (one.raw_labels.empty()) continue;
      if (!honors_time) one.times_ms = now;  // that of the scrape
      if (!target.walk.has_own_time(k) || !honors_time) shown.emplace_back(one.raw_labels);
      ours.push_back(one);
    }
    if (!ours.empty()) {
      (void)intake_.push(kScrapeReceiver, target.stream, ours, [&](size_t k) { return labels_of(ours[k].raw_labels); });
      for (const exposition::Metadata& one : target.walk.metadata()) {
        intake_.metadata(one.name, one.type, one.help, one.unit);
      }
    }
    if (twice > 0) say_twice(target, pushed_host, twice);
    if (!problem.empty()) {
      log_.warn("target",
                format("job %s: %s: %s", target.job->name.c_str(), target.what.address.c_str(), problem.c_str()));
    }
    counters_.add("lockstep_scrapes_total", problem.empty() ? "result=\"read\"" : "result=\"failed\"");
    const size_t added = not_in(target.shown, shown).size();
    say_stale(target, shown, now_ms);
    target.shown = std::move(shown);
    const int64_t took_ns = clock_.monotonic_ns() - began_ns;
    say_own(target, now_ms,
            {problem.empty() ? 1.0 : 0.0, static_cast<double>(took_ns) / 1e9, static_cast<double>(series.size()),
             static_cast<double>(ours.size()), static_cast<double>(added)});
    return Outcome{began_unix_ns, took_ns, std::move(problem)};
  }

  // As the page has it: raw labels end with the series' own text.
  static bool has_host(std::string_view raw, const std::string& host) {
    const std::string label = "host=" + in_label_quotes(host);
    for (size_t at = raw.find(label); at != std::string_view::npos && at > 0; at = raw.find(label, at + 1)) {
      if (raw[at - 1] == '{' || raw[at - 1] == ',') return true;
    }
    return false;
  }

  void say_twice(const Target& target, const std::string& host, uint64_t series) {
    intake_.refuse(kScrapeReceiver, "pushed_too", series,
                   format("job %s: %s is the page of the agent of %s, which also sends by itself; left out %llu series "
                          "that it sends",
                          target.job->name.c_str(), target.what.address.c_str(), as_one_line(host).c_str(),
                          static_cast<unsigned long long>(series)));
  }

  // Whose page it is, if it is that of an agent that sends to us by itself; else empty.
  std::string pushed_host_of(const Target& target) const {
    const auto metadata = target.walk.metadata();
    const bool is_agent =
        is_pushed_ && std::any_of(metadata.begin(), metadata.end(), [](const exposition::Metadata& one) {
          return one.name.starts_with("lockstep_agent_records");
        });
    if (!is_agent) return {};
    for (const PushedSeries& one : target.walk.series()) {
      if (one.raw_labels.find("host=\"") == std::string_view::npos) continue;
      const Result<Labels> labels = exposition::Walk::labels_of(one.raw_labels);
      if (!labels.ok()) continue;
      // Where the target has a label of that name, the page's is called otherwise.
      for (const char* name : {"exported_host", "host"}) {
        const std::string host(label_value(*labels, name));
        if (!host.empty() && has_host(one.raw_labels, host)) return is_pushed_(host) ? host : "";
      }
    }
    return {};
  }

  // What the job's rules make of a series of the page; empty: it is dropped. What cannot be read stays as it is, to be
  // refused and counted where all others are.
  static std::string_view relabelled(Target& target, std::string_view raw) {
    const auto [known, is_new] = target.relabelled.try_emplace(std::string(raw));
    if (is_new) {
      Result<Labels> labels = exposition::Walk::labels_of(raw);
      if (!labels.ok()) {
        known->second = raw;
      } else if (relabel(target.job->metric_relabel, *labels)) {
        known->second = remote_write::raw_labels_of(*labels);
      }
    }
    return known->second;
  }

  // Of a page, or relabelled: then they are as remote write has them.
  static Result<Labels> labels_of(std::string_view raw) {
    return raw.starts_with('T') ? exposition::Walk::labels_of(raw) : remote_write::Walk::labels_of(raw);
  }

  static std::vector<std::string> not_in(const std::vector<std::string>& other, const std::vector<std::string>& list) {
    if (list == other) return {};
    const std::unordered_set<std::string_view> known(other.begin(), other.end());
    std::vector<std::string> left;
    for (const std::string& raw : list) {
      if (!known.contains(raw)) left.push_back(raw);
    }
    return left;
  }

  Result<HttpResponse> fetch(Target& target) {
    const ScrapeTarget& what = target.what;
    HttpRequest request{"GET", what.path, {{"accept", kAccept}, {"user-agent", "lockstepd"}}, ""};
    request.headers.emplace_back("x-prometheus-scrape-timeout-seconds",
                                 shortest_text(static_cast<double>(what.timeout_ns) / 1e9));
    LOCKSTEP_TRY(target.job->access.authorize(request));
    if (target.client == nullptr) {
      Url url = LOCKSTEP_TRY(parse_url(what.scheme + "://" + what.address));
      target.client = std::make_unique<HttpClient>(url, what.timeout_ns / 1'000'000, target.job->body_bytes_max,
                                                   target.job->access.tls);
      target.client->interrupt_by(stop_event_.get());
    }
    return target.client->send(request);
  }

  // Markers for what was on the last page and is not on this one; without a time, for all that the target ever said.
  void say_stale(Target& target, const std::vector<std::string>& shown, int64_t now_ms = 0) {
    const bool is_gone = now_ms == 0;
    std::vector<std::string> gone = not_in(shown, target.shown);
    if (is_gone) {
      now_ms = clock_.unix_ns() / 1'000'000;
      for (const char* name : kOwnSeries) gone.push_back(target.prefix + name);
    }
    if (!gone.empty()) push_values(target, "stale", gone, std::vector<double>(gone.size(), kStale), now_ms);
  }

  void say_own(Target& target, int64_t now_ms, const std::vector<double>& values) {  // as kOwnSeries
    std::vector<std::string> raws;
    for (const char* name : kOwnSeries) raws.push_back(target.prefix + name);
    push_values(target, "own", raws, values, now_ms);
    target.has_spoken = true;
  }

  void push_values(Target& target, const char* part, const std::vector<std::string>& raws,
                   const std::vector<double>& values, int64_t now_ms) {
    std::vector<PushedSeries> series(raws.size());
    for (size_t k = 0; k < raws.size(); ++k) {
      series[k].raw_labels = raws[k];
      series[k].times_ms = {&now_ms, 1};
      series[k].values = {&values[k], 1};
    }
    (void)intake_.push(kScrapeReceiver, target.stream + part, series, [&](size_t k) { return labels_of(raws[k]); });
  }

  bool stop_asked() {
    MutexLock lock(mutex_);
    return stopping_;
  }

  const IsPushed is_pushed_;
  MetricIntake& intake_;
  const Clock& clock_;
  Counters& counters_;
  RateLimitedLog log_;
  UniqueFd stop_event_;
  // The scheduler's.
  std::shared_ptr<const ScrapeConfig> config_;
  std::vector<Source> sources_;
  bool listed_ = false;

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::map<std::string, std::unique_ptr<Target>> targets_ LOCKSTEP_GUARDED_BY(mutex_);  // but for what is its worker's
  std::vector<ScrapeTarget> dropped_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<Target*> ready_ LOCKSTEP_GUARDED_BY(mutex_);
  std::shared_ptr<const ScrapeConfig> next_config_ LOCKSTEP_GUARDED_BY(mutex_);  // nullptr: it was taken
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread scheduler_;
  std::vector<std::thread> workers_;
};

}  // namespace

std::unique_ptr<Scraper> Scraper::start(ScrapeConfig config, MetricIntake& intake, const Clock& clock,
                                        Counters& counters, size_t threads, IsPushed is_pushed) {
  return std::make_unique<ScraperThreads>(std::move(config), intake, clock, counters, threads, std::move(is_pushed));
}

}  // namespace lockstep
