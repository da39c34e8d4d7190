// An incident as a responder reads it: what is broken, whom it hits, what it costs, when what happened, the evidence,
// what it is not, what to do. Put together once, written as JSON for the API and the page, and as Markdown for a ticket.
//
// Texts come from others (names of jobs, lines of a kernel's log): Markdown gets them as text, whatever is in them, one
// line each, and without characters that turn or hide what is beside them.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "incident/incident.h"

namespace lockstep::incident {

// What a verdict of the incident says, from its JSON (model/verdict.h).
struct Evidence {
  struct Line {
    std::string text;
    std::string query;  // API path that shows it again
  };
  struct Next {
    std::string action, command;
  };
  std::string verdict_id, job_id, sentence, feedback;
  std::vector<Line> because;  // and what a step would take without it
  std::vector<Line> ruled_out;
  std::vector<Line> less_likely;  // what it could also be, and why that is less likely: not looked at is not ruled out
  std::vector<Next> next;
  std::string json;  // as it is
};
// Nothing but the JSON where it cannot be read.
Evidence evidence_of(std::string verdict_json);

// What it does to one job's end. How many steps a job is going to take is not reported by any, so when it ends is not
// known; how much later is.
struct Outlook {
  std::string job_id;
  int64_t ranks = 0;     // 0: not known, and so neither is the delay
  double delay_s = 0;    // so far
  double slower_by = 0;  // while it lasts: 0.25: an hour's work takes 75 minutes; 0: it does not last
  bool stands_still = false;
  std::string sentence;
};
Outlook outlook_of(const JobCost& cost, int64_t ranks);

struct Moment {
  int64_t at_unix_ns = 0;
  std::string what;  // "began", "over", "event", or of an Entry
  std::string who;
  std::string text;
  std::string path;  // of the page that shows it; empty: none
};
std::vector<Moment> timeline_of(const Incident& incident, int64_t now_unix_ns);  // oldest first

// Another incident, in a line.
struct Brief {
  std::string id, component, sentence;
  State state = State::kOpen;
  int64_t begin_unix_ns = 0;
};

struct Report {
  Incident incident;
  int64_t now_unix_ns = 0;
  GpuPrices prices = {};
  std::string external_url;        // where people reach the server; empty: links are paths
  size_t times = 1;                // that the component was guilty in 30 days, this time included
  std::vector<Brief> earlier;      // others of the same component in the last 30 days
  std::vector<Brief> beside;       // others on the same host at that time
  std::vector<Evidence> evidence;  // most costly verdict first
  std::vector<Outlook> outlooks;
};
inline constexpr size_t kEvidenceMax = 8;
inline constexpr size_t kBriefsMax = 16;

// "GPU-1 of node-17 was guilty 4 times in 30 days."; empty where it is the first time.
std::string repeat_sentence(const FaultPlace& place, size_t times);
// "GPU-1 of node-17", "host node-17"
std::string component_text(const FaultPlace& place);
// What all its jobs have lost.
GpuCost lost_of(const Incident& incident, int64_t now_unix_ns, const GpuPrices& prices);

// The fields that a list has room for, in an object that the caller has begun; times: as offenders() counts.
void write_summary(JsonWriter& json, const Incident& incident, size_t times, int64_t now_unix_ns,
                   const GpuPrices& prices);
void write_report(JsonWriter& json, const Report& report);
std::string to_markdown(const Report& report);
// Text of others as Markdown: nothing in it marks anything up.
std::string markdown_text(std::string_view text);

}  // namespace lockstep::incident
