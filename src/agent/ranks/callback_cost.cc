#include "agent/ranks/callback_cost.h"

#include "agent/ranks/metrics_table.h"
#include "base/text.h"

namespace lockstep {

void CallbackCost::add(const RecorderCost& before, const RecorderCost& now) {
  MutexLock lock(mutex_);
  total_.total_ns += now.total_ns - before.total_ns;
  for (size_t i = 0; i < total_.buckets.size(); ++i) total_.buckets[i] += now.buckets[i] - before.buckets[i];
}

std::string CallbackCost::prometheus_text() const {
  const MetricDescriptor& metric = descriptor_of(RankMetric::kPluginCallback);
  MutexLock lock(mutex_);
  std::string text = format("# HELP %s %s\n# TYPE %s histogram\n", metric.name, metric.help, metric.name);
  uint64_t count = 0;
  for (size_t i = 0; i < total_.buckets.size(); ++i) {
    count += total_.buckets[i];
    const std::string bound = i < kCostBoundsNs.size() ? format("%g", kCostBoundsNs[i] / 1e9) : "+Inf";
    text += format("%s_bucket{le=\"%s\"} %llu\n", metric.name, bound.c_str(), static_cast<unsigned long long>(count));
  }
  text += format("%s_sum %.9f\n%s_count %llu\n", metric.name, static_cast<double>(total_.total_ns) / 1e9, metric.name,
                 static_cast<unsigned long long>(count));
  return text;
}

}  // namespace lockstep
