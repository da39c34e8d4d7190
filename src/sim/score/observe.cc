#include "sim/score/observe.h"

#include <time.h>

#include <algorithm>

#include "base/text.h"
#include "model/events.h"
#include "wire/otlp.h"

namespace lockstep::sim {
namespace {

// What a verdict accuses. Its numbers change with every step and are no news.
bool same_accusation(const ReadVerdict& a, const ReadVerdict& b) {
  return a.state == b.state && a.kind == b.kind && a.layer == b.layer && a.cause == b.cause && a.ranks == b.ranks &&
         a.place == b.place;
}

// CPU time of this thread: others may be at work on the machine.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), began_(now()) {}
  ~Stopwatch() { seconds_ += now() - began_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }
  double& seconds_;
  double began_;
};

}  // namespace

void Watcher::read(const std::string& job, std::string_view json, int64_t at_unix_ns) {
  std::string& last = last_answer_[job];
  if (last == json) return;
  last = json;
  Result<std::vector<ReadVerdict>> verdicts = read_verdicts(json);
  if (!verdicts.ok()) {
    if (observed_.problem.empty()) observed_.problem = verdicts.error();
    return;
  }
  for (ReadVerdict& verdict : *verdicts) {
    if (verdict.state == VerdictState::kConfirmed && verdict.lost_share >= 0)
      observed_.prices[{job, verdict.id}] = verdict.lost_share;
    ReadVerdict& known = known_[job + "\n" + verdict.id];
    if (same_accusation(known, verdict)) continue;
    known = verdict;
    observed_.sightings.push_back({at_unix_ns, job, observed_.jobs[job].newest_step, std::move(verdict)});
  }
}

void note_jobs(const Batch& batch, int64_t at_unix_ns, Observed& observed) {
  for (const ResourceGroup& group : batch.groups) {
    const std::string_view id = find_string(group.resource, "lockstep.job_id");
    if (id.empty()) continue;
    ObservedJob& job = observed.jobs[std::string(id)];
    if (job.first_unix_ns == 0) job.first_unix_ns = at_unix_ns;
    job.last_unix_ns = std::max(job.last_unix_ns, at_unix_ns);
    for (const LogRecord& record : group.logs) {
      if (record.event_name == kEventTrainStep)
        job.newest_step = std::max(job.newest_step, StepNumber{find_int(record.attributes, "step", -1)});
    }
  }
}

std::vector<Observed> observe(const NextSent& next, std::span<Subject* const> subjects, const ObserveOptions& options,
                              const std::function<bool()>& keep_on) {
  std::vector<Observed> all(subjects.size());
  std::vector<Watcher> watchers;
  for (Observed& observed : all) watchers.emplace_back(observed);
  std::vector<WarningWatcher> ahead(subjects.size());
  Observed met;  // who was met so far; the same for every subject
  int64_t next_tick = 0, last_arrival = 0;

  const auto tick_until = [&](int64_t until) {
    for (; next_tick != 0 && next_tick <= until; next_tick += options.tick_ns) {
      for (size_t i = 0; i < subjects.size(); ++i) {
        Stopwatch watch(all[i].subject_seconds);
        subjects[i]->tick(next_tick);
        all[i].jobs = met.jobs;
        for (const auto& entry : met.jobs) watchers[i].read(entry.first, subjects[i]->verdicts(entry.first), next_tick);
        if (Result<void> looked = ahead[i].read(subjects[i]->warnings()); !looked.ok() && all[i].problem.empty())
          all[i].problem = looked.error();
      }
    }
  };

  while (std::optional<Sent> sent = next()) {
    const int64_t arrival = std::max(last_arrival, sent->at_unix_ns + options.network_delay_ns);
    last_arrival = arrival;
    if (next_tick == 0) next_tick = arrival + options.tick_ns;
    tick_until(arrival);
    const std::string bytes = otlp::encode(sent->batch);
    note_jobs(sent->batch, arrival, met);
    met.requests += 1;
    met.records += static_cast<int64_t>(sent->batch.record_count());
    met.bytes += static_cast<int64_t>(bytes.size());
    for (size_t i = 0; i < subjects.size(); ++i) {
      Stopwatch watch(all[i].subject_seconds);
      subjects[i]->receive(sent->batch.signal, bytes, arrival);
    }
    if (keep_on && !keep_on()) break;
  }
  tick_until(last_arrival + options.linger_ns);
  for (size_t i = 0; i < all.size(); ++i) all[i].warnings = ahead[i].take();
  for (Observed& observed : all) {
    observed.jobs = met.jobs;
    observed.requests = met.requests;
    observed.records = met.records;
    observed.bytes = met.bytes;
  }
  return all;
}

}  // namespace lockstep::sim
