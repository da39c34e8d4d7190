// GET /api/jobs/{job}/mfu: why MFU is what it is: bars from the peak to what was achieved, and where it fell.
#include "analysis/cost/mfu.h"

#include <limits>

#include "analysis/cost/gpu_peak.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kLastDefault = 50;

std::string note_of(const Mfu& mfu, MfuBar bar) {
  if (bar == MfuBar::kClocks && !mfu.clocks_known)
    return "no SM clocks of these GPUs are known for this time: what they cost is in \"kernels\"";
  if (bar == MfuBar::kClocks)
    return format("SM clocks %.0f MHz, at most %.0f", mfu.clock_hz / 1e6, mfu.clock_max_hz / 1e6);
  if (bar == MfuBar::kKernels) return "memory-bound or small kernels, shapes, precision: a profile shows it";
  if (bar == MfuBar::kUnknown && !mfu.known) return "time at work: how much of it was the model's is not known";
  if (bar == MfuBar::kUnknown && mfu.points[static_cast<size_t>(bar)] < 0)
    return "more FLOPs were reported than the time at work allows";
  if (bar == MfuBar::kUnknown) return "steps whose time the agent could not split";
  return "";
}

// The bar opened, twice: each list adds up to it.
void write_parts(JsonWriter& json, const KernelClasses& classes, double points) {
  for (const auto& [key, list] : {std::pair("by_bound", &classes.by_bound), {"by_family", &classes.by_family}}) {
    json.key(key).begin_array();
    for (const KernelClassShare& one : *list)
      json.begin_object()
          .field("key", one.name)
          .field("words", one.words)
          .field("points", rounded(points * one.share))
          .field("share", rounded(one.share))
          .end_object();
    json.end_array();
  }
}

void write_head(JsonWriter& json, const std::string& job_id, const Mfu& mfu, double achieved) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  json.field("job_id", job_id)
      .field("sentence", mfu.sentence)
      .field("next", mfu.next)
      .field("mfu", mfu.known ? achieved : unknown)
      .field("from_step", mfu.from_step.value())
      .field("to_step", mfu.to_step.value())
      .field("steps", mfu.steps)
      .field("ranks", mfu.ranks)
      .field("ranks_counted", mfu.ranks_counted)
      .key("peak")
      .begin_object()
      .field("tflops", mfu.peak_flops > 0 ? rounded(mfu.peak_flops / 1e12) : unknown)
      .field("from", to_text(mfu.peak_from))
      .field("precision", mfu.peak_from == PeakFrom::kTable ? kUsualPrecision : "")
      .field("gpu", mfu.gpu_name)
      .end_object()
      .key("flops")
      .begin_object()
      .field("per_step", mfu.flops_per_step > 0 ? mfu.flops_per_step : unknown)
      .field("tokens_per_step", mfu.tokens_per_step > 0 ? mfu.tokens_per_step : unknown)
      .field("from", to_text(mfu.flops_from))
      .end_object();
}

void write_bar(JsonWriter& json, const Mfu& mfu, MfuBar bar, double points, const KernelClasses& classes) {
  const bool has_profile = bar == MfuBar::kKernels && classes.kernel_us > 0;
  json.begin_object()
      .field("key", to_text(bar))
      .field("words", words_of(bar))
      .field("points", points)
      .field("known", bar != MfuBar::kUnknown && (bar != MfuBar::kClocks || mfu.clocks_known))
      .field("note", has_profile ? format("by a profile of %d ranks: the time of their kernels", classes.ranks)
                                 : note_of(mfu, bar));
  if (has_profile) write_parts(json, classes, points);
  json.end_object();
}

void write_change(JsonWriter& json, const MfuChange& change) {
  json.begin_object()
      .field("step", change.step.value())
      .field("before", change.before)
      .field("after", change.after)
      .field("sentence", change.sentence)
      .field("verdict", change.verdict_id)
      .key("what")
      .begin_array();
  for (const std::string& what : change.what) json.string(what);
  json.end_array().key("grew").begin_object();
  for (size_t i = 0; i < kMfuBarCount; ++i) write_number(json, to_text(static_cast<MfuBar>(i)), change.grew[i]);
  json.end_object().end_object();
}

}  // namespace

HttpResponse get_mfu(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<int64_t> last = int_parameter(request.http, "last", kLastDefault, 1, kStepsShownMax);
  if (!last.ok()) return error_answer(400, last.error());
  const Mfu mfu = job_mfu(context.steps, context.metrics, *job, context.diagnosis.verdicts(request.job),
                          {.last = *last, .peak_flops = context.peak_flops, .read_gpu = context.read_gpu});
  std::vector<double> points(mfu.points.begin(), mfu.points.end());
  points.push_back(mfu.achieved);
  points = rounded_shares(std::move(points));

  JsonWriter json;
  json.begin_object();
  write_head(json, job->job_id, mfu, points.back());
  const KernelClasses classes = context.kernel_classes ? context.kernel_classes(job->job_id) : KernelClasses{};
  json.key("bars").begin_array();
  for (size_t i = 0; i < kMfuBarCount && mfu.steps > 0; ++i)
    write_bar(json, mfu, static_cast<MfuBar>(i), points[i], classes);
  json.end_array().key("change");
  if (mfu.change) {
    write_change(json, *mfu.change);
  } else {
    json.null();
  }
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
