// What the server has found in a kernel profile (decision 0018):
// GET /api/jobs/{job}/profiles/{capture}/summary: the answer of `lockstep analyze --json`, or why there is none yet.
// GET /api/jobs/{job}/profiles/{capture}/timeline: its ranks on one axis, reduced to the screen that asks.
// GET /api/jobs/{job}/profiles/{capture}/perfetto: all of it as a Perfetto file.
#include <algorithm>
#include <limits>
#include <optional>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "control/captures.h"
#include "model/capture_results.h"
#include "model/rank_text.h"
#include "profile/timeline/timeline_view.h"
#include "store/blobs/blob_store.h"

namespace lockstep {
namespace {

struct Found {
  std::optional<HttpResponse> refused;
  const char* state = "none";
  std::string error;
  std::unique_ptr<BlobReader> file;  // once it is ready
};

Found find_result(const ApiContext& context, const ApiRequest& request, std::string_view file) {
  Found found;
  if (context.captures == nullptr || context.blobs == nullptr) {
    found.refused = error_answer(501, "this server takes no kernel profiles");
    return found;
  }
  const std::optional<Capture> capture = context.captures->find(request.job, request.capture);
  if (!capture) {
    found.refused =
        error_answer(404, format("job %.200s has no profile %.40s", request.job.c_str(), request.capture.c_str()));
    return found;
  }
  const CaptureSummary& summary = capture->summary;
  const bool has_traces = capture->traces() > 0;
  found.error = summary.error;
  if (summary.state == SummaryState::kAnalysing || summary.state == SummaryState::kFailed) {
    found.state = to_text(summary.state);
  } else if (summary.state == SummaryState::kNone && context.analyses_captures && (!capture->ended() || has_traces)) {
    found.state = "waiting";
  } else if (summary.state == SummaryState::kReady) {
    Result<std::unique_ptr<BlobReader>> reader = context.blobs->open({request.job, request.capture, std::string(file)});
    if (!reader.ok() && reader.code() != ErrorCode::kNotFound) {
      found.refused = error_answer(503, reader.error());
      return found;
    }
    // Its files have gone: by age, by size, or because somebody said so.
    if (reader.ok()) {
      found.state = to_text(summary.state);
      found.file = std::move(*reader);
    }
  }
  return found;
}

HttpResponse not_there(const Found& found) {
  return error_answer(404, found.error.empty()
                               ? format("this profile has no such answer; its analysis: %s", found.state)
                               : found.error);
}

void write_view(JsonWriter& json, const profile::TimelineView& view) {
  json.begin_object().field("from_ns", view.from_ns).field("to_ns", view.to_ns);
  json.key("whole").begin_object().field("from_ns", 0).field("to_ns", view.whole_ns).end_object();
  json.key("steps").begin_array();
  for (const profile::TimelineStep& step : view.steps) {
    json.begin_object().field("step", step.number).field("from_ns", step.from_ns).field("to_ns", step.to_ns);
    json.end_object();
  }
  json.end_array().key("names").begin_array();
  for (const std::string& name : view.names) json.string(name);
  json.end_array().key("lanes").begin_array();
  for (const profile::TimelineViewLane& lane : view.lanes) {
    json.begin_object().field("rank", lane.rank.value()).field("lane", lane.name);
    json.field("kind", lane.is_gpu ? "gpu" : "cpu").key("slices").begin_array();
    for (const profile::TimelineSlice& slice : lane.slices) {
      json.begin_array().number(slice.start_ns).number(slice.duration_ns).number(static_cast<uint64_t>(slice.name));
      json.string(to_text(slice.slice_class)).number(slice.count).end_array();
    }
    json.end_array().end_object();
  }
  json.end_array().field("truncated", view.truncated).end_object();
}

}  // namespace

HttpResponse get_profile_summary(const ApiContext& context, const ApiRequest& request) {
  Found found = find_result(context, request, kSummaryFile);
  if (found.refused) return std::move(*found.refused);
  JsonWriter json;
  json.begin_object().field("state", found.state).field("error", found.error);
  if (found.file != nullptr) {
    const Result<std::string> summary = found.file->read(0, std::min<uint64_t>(found.file->bytes(), kSummaryBytesMax));
    if (!summary.ok()) return error_answer(503, summary.error());
    json.key("summary").raw(trim(*summary));
  }
  json.end_object();
  return json_answer(json);
}

HttpResponse get_profile_timeline(const ApiContext& context, const ApiRequest& request) {
  profile::TimelineQuestion question;
  for (const auto& [name, value, least, most] :
       {std::tuple{"from_ns", &question.from_ns, int64_t{0}, profile::kTimelineNsMax},
        {"to_ns", &question.to_ns, int64_t{0}, profile::kTimelineNsMax},
        {"width", &question.width, int64_t{16}, int64_t{8'000}}}) {
    const Result<int64_t> number = int_parameter(request.http, name, *value, least, most);
    if (!number.ok()) return error_answer(400, number.error());
    *value = *number;
  }
  if (question.to_ns >= 0 && question.to_ns < question.from_ns) return error_answer(400, "to_ns is before from_ns");
  if (const std::string text = request.http.parameter("ranks"); !text.empty()) {
    Result<std::vector<Rank>> ranks = ranks_from_text(text, kProfileRanksMax);
    if (!ranks.ok()) return error_answer(400, "ranks: " + ranks.error());
    question.ranks = std::move(*ranks);
  }
  const Found found = find_result(context, request, kTimelineFile);
  if (found.refused) return *found.refused;
  if (found.file == nullptr) return not_there(found);
  const Result<profile::TimelineView> view = profile::view_timeline(
      found.file->bytes(), [&found](uint64_t from, size_t bytes) { return found.file->read(from, bytes); }, question);
  if (!view.ok()) return error_answer(503, view.error());
  JsonWriter json;
  write_view(json, *view);
  return json_answer(json);
}

HttpResponse get_profile_perfetto(const ApiContext& context, const ApiRequest& request) {
  const Found found = find_result(context, request, kPerfettoFile);
  if (found.refused) return *found.refused;
  if (found.file == nullptr) return not_there(found);
  const ApiRequest file{request.http, request.job, {}, {}, {}, {}, request.capture, std::string(kPerfettoFile)};
  HttpResponse answer = get_capture_file(context, file);
  for (auto& [name, value] : answer.headers) {
    if (name == "content-disposition") value = "attachment; filename=\"" + request.capture + ".pftrace.gz\"";
  }
  return answer;
}

}  // namespace lockstep
