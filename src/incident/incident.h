// An incident: one thing that is ill over one stretch of time, with all that was found of it.
//
// What is found is a Finding of the incident: a verdict, an event of a node, or an alert on a node's metric. Each says
// where it belongs (FaultPlace), since when and until when. Whoever groups them is incident_registry.h; here is what they
// are and what follows from them: cost, whether it lasts, what happened when.
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "alert/alert.h"
#include "analysis/cost/gpu_prices.h"
#include "base/json_reader.h"
#include "base/result.h"
#include "model/ids.h"
#include "model/verdict_terms.h"

namespace lockstep::incident {

enum class State : uint8_t { kOpen, kAcknowledged, kResolved };
const char* to_text(State state);  // "open", "acknowledged", "resolved"

enum class FindingKind : uint8_t { kVerdict, kEvent, kAlert };
const char* to_text(FindingKind kind);  // "verdict", "event", "alert"

// Where the fault is. component: as the dependency graph names it ("gpu:GPU-1", "host:node-1", "nic:node-1:mlx5_0",
// "leaf:leaf-1", "job:llm"). part: what else keeps two faults of one component apart: the layer, and of what is the job's
// own the cause, because a job as such is no cause.
struct FaultPlace {
  std::string component;
  std::string part;
  std::string host;      // where it stands; empty: nowhere in particular
  std::string gpu_uuid;  // empty: not about one
  bool operator==(const FaultPlace&) const = default;
  std::string key() const { return component + "|" + part; }
  // Hardware can be guilty again and again; a job is another one next time.
  bool is_hardware() const { return !component.starts_with("job:"); }
};

struct Finding {
  std::string id;  // of the verdict; of an event made of all that it says, so that the same twice is one
  FindingKind kind = FindingKind::kVerdict;
  FaultPlace place;
  bool opens = true;   // false: part of an incident, but none by itself (a port that is up again)
  std::string family;  // events: what a later one may end: "link mlx5_0"
  Cause cause = Cause::kNone;
  AlertSeverity severity = AlertSeverity::kWarning;
  std::string job_id;  // empty: no job's
  std::string sentence;
  std::string action;
  std::string path;  // of the page that shows it as the responder should see it
  int64_t begin_unix_ns = 0;
  int64_t seen_unix_ns = 0;  // the last time that it was so
  int64_t end_unix_ns = 0;   // 0: it lasts. Of an event: it holds until then, unless another ends it
  int64_t count = 1;         // of events: how many alike this one stands for
  double lost_gpu_seconds = 0;
  double lost_share = 0;
  int64_t victims = 0;    // ranks that wait
  GpusByModel gpus = {};  // of the job: what the lost time costs also when the job is no longer known
  bool operator==(const Finding&) const = default;

  // How far it reaches in time. An event is a moment, however long it is held to matter.
  int64_t until_unix_ns() const;
};

// What people did, and what the incident did by itself.
struct Entry {
  int64_t at_unix_ns = 0;
  std::string what;  // "opened", "reopened", "acknowledged", "resolved", "feedback", "merged"
  std::string who;   // empty: by itself
  std::string note;
  bool operator==(const Entry&) const = default;
};

// Who depends on the component, whether it suffers or not.
struct BlastRadius {
  struct Job {
    std::string job_id;
    int64_t ranks_hit = 0;
    int64_t ranks = 0;
    bool operator==(const Job&) const = default;
  };
  bool is_known = false;  // false: neither the topology nor a job's places have the component
  int64_t at_unix_ns = 0;
  int64_t gpus = 0;
  int64_t hosts = 0;
  std::vector<Job> jobs;  // most hit first
  int64_t jobs_total = 0;
  std::string note;
  bool operator==(const BlastRadius&) const = default;
};

inline constexpr size_t kVerdictsMax = 48;  // of one incident; further ones only make it last longer
inline constexpr size_t kEventsMax = 32;    // and alerts
inline constexpr size_t kEntriesMax = 64;   // the first and the newest are kept
inline constexpr size_t kTextBytesMax = 600;
inline constexpr size_t kRadiusJobsMax = 32;
inline constexpr size_t kModelsMax = 16;  // of a job's GPUs; the rest counts as not known

struct Incident {
  std::string id;  // "i-0123456789ab"
  FaultPlace place;
  State state = State::kOpen;
  int64_t begin_unix_ns = 0;
  int64_t until_unix_ns = 0;      // of the finding that reaches furthest
  int64_t resolved_unix_ns = 0;   // 0: it is not
  bool held_open = false;         // a person has opened it again: it is theirs to resolve
  std::vector<Finding> findings;  // by begin
  bool has_more = false;          // findings that were not kept
  std::vector<Entry> entries;     // by time
  std::vector<std::string> also;  // ids of incidents that turned out to be this one
  BlastRadius radius;
  bool operator==(const Incident&) const = default;
};

// Whether anything of it lasts. An event ends with its hold, or with the first later one that ends its family.
bool lasts(const Incident& incident, const Finding& finding, int64_t now_unix_ns);
bool is_active(const Incident& incident, int64_t now_unix_ns);
// When the last of it was over; what lasts counts as over now.
int64_t over_since_unix_ns(const Incident& incident, int64_t now_unix_ns);

// The finding that says most: the verdict that costs most, else the gravest event. nullptr: there is none.
const Finding* main_finding(const Incident& incident);
AlertSeverity severity_of(const Incident& incident);

// What it cost one job. Verdicts of one job that overlap in time count once, with the one that says most: late ranks
// hide each other, so that their prices do not add up.
struct JobCost {
  std::string job_id;
  double lost_gpu_seconds = 0;
  double lost_share = 0;  // of what lasts, or of the last; of the job's time while it was so
  bool suffers = false;   // now
  int64_t victims = 0;
  std::vector<const Finding*> verdicts;  // most costly first; they point into the incident
  std::vector<const Finding*> counted;   // likewise: of those that overlap the dearest; lost_gpu_seconds is their sum
};
std::vector<JobCost> costs_of(const Incident& incident, int64_t now_unix_ns);  // most costly first

// The page of an incident.
std::string incident_path(std::string_view id);

// A text of others as one line of at most kTextBytesMax bytes.
std::string short_line(std::string_view text);
void add_entry(Incident& incident, Entry entry);

// As it is kept on disk. Reads its own writing and nothing else: one line on error.
std::string to_json(const Incident& incident);
Result<Incident> incident_from_json(std::string_view json);

// {"note": "..."}, or nothing at all: the body of a request that changes an incident.
Result<std::string> read_note(std::string_view body);
inline constexpr size_t kNoteBytesMax = 500;

}  // namespace lockstep::incident
