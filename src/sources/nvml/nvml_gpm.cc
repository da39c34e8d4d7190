#include "sources/nvml/nvml_gpm.h"

#include <cmath>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::nvml {
namespace {
constexpr double kPercent = 0.01;
constexpr double kMiB = 1024 * 1024;
}  // namespace

using enum GpuMetric;

const std::vector<GpmRow> kGpmRows = {
    {1, kEngineActive, kPercent},   {2, kSmActive, kPercent},     {3, kSmOccupancy, kPercent},
    {5, kTensorActive, kPercent},   {7, kPipeHmma, kPercent},     {9, kPipeImma, kPercent},
    {6, kPipeDfma, kPercent},       {4, kPipeInt, kPercent},      {11, kPipeFp64, kPercent},
    {12, kPipeFp32, kPercent},      {13, kPipeFp16, kPercent},    {10, kDramActive, kPercent},
    {20, kPcieTransmitRate, kMiB},  {21, kPcieReceiveRate, kMiB}, {60, kLinksReceiveRate, kMiB},
    {61, kLinksTransmitRate, kMiB},
};

Gpm::~Gpm() {
  for (Handle sample : samples_) {
    if (sample != nullptr) api_->gpm_sample_free.call(sample);
  }
}

bool Gpm::open(Caller& gpu) {
  opened_ = true;
  if (!api_->gpm_support.call || !api_->gpm_sample_alloc.call || !api_->gpm_sample_free.call ||
      !api_->gpm_metrics_get.call) {
    gpu.notes().say_once("gpm", "NVML: this driver has no GPM; SM, matrix unit and memory activity are missing");
    return false;
  }
  GpmSupport support;
  if (!gpu.ask(api_->gpm_support, &support)) return false;
  if (support.supported == 0) {
    gpu.notes().say_once("gpm", format("NVML: GPM is not supported by %s (it begins with Hopper); SM, matrix unit and "
                                       "memory activity are missing",
                                       gpu.who().c_str()));
    return false;
  }
  for (Handle& sample : samples_) {
    if (!gpu.judge(api_->gpm_sample_alloc.id, api_->gpm_sample_alloc.name, api_->gpm_sample_alloc.call(&sample))) {
      sample = nullptr;
      return false;
    }
  }
  rows_ = kGpmRows;
  static_assert(kGpmMetricsMax >= 16);
  return true;
}

bool Gpm::sample(Caller& gpu, Handle into) {
  if (gpu_instance_ == kNoInstance) return gpu.ask(api_->gpm_sample_get, into);
  return gpu.ask(api_->gpm_mig_sample_get, gpu_instance_, into);
}

void Gpm::read(Caller& gpu, GpuState& out) {
  if (!opened_) usable_ = open(gpu);
  if (!usable_ || (have_one_ && SystemClock().monotonic_ns() - sampled_ns_ < kIntervalMinNs)) return;
  const int next = have_one_ ? 1 - newest_ : newest_;
  if (!sample(gpu, samples_[next])) {
    have_one_ = false;  // after a hole the interval would be longer than a tick: begin again
    return;
  }
  sampled_ns_ = SystemClock().monotonic_ns();
  const bool have_two = have_one_;
  have_one_ = true;
  newest_ = next;
  if (!have_two || rows_.empty() || !gpu.may_ask(api_->gpm_metrics_get)) return;

  GpmMetricsGet get;
  get.older = samples_[1 - next];
  get.newer = samples_[next];
  get.count = static_cast<uint32_t>(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    get.metrics[i].id = rows_[i].id;
    get.metrics[i].status = kUnknown;
  }
  if (!gpu.judge(api_->gpm_metrics_get.id, api_->gpm_metrics_get.name, api_->gpm_metrics_get.call(&get))) return;
  size_t kept = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const GpmMetric& metric = get.metrics[i];
    if (metric.status == kOk && std::isfinite(metric.value)) {
      add_gpu_value(out, rows_[i].metric, metric.value * rows_[i].scale);
    } else if (metric.status != kOk) {
      gpu.judge_part(api_->gpm_metrics_get.name, metric.status);
      if (is_final(metric.status)) continue;
    }
    rows_[kept++] = rows_[i];
  }
  rows_.resize(kept);
}

}  // namespace lockstep::nvml
