#include "diagnosis/sequential/shift_monitor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace lockstep {
namespace {

// Influence of one value, in scales: the usual choice of Huber for the level, three for squared differences.
constexpr float kLevelClip = 2;
constexpr float kLevelVariance = 1.2f;  // of a level made of so many values, times their number, in squared scales
// The correlation that is expected before much was seen.
constexpr double kUsualCorrelation = 0.2;
constexpr double kUsualSpread = 0.3;
constexpr double kDifferenceClip = 3;
constexpr int kBlock = 32;              // values whose sum shows what single ones hide
constexpr double kClippedMean = 0.995;  // E min(Z^2, 9) of a normal Z
// Shifts of fixed size: each so many times the one before, from the least to a hundred times that, and a quarter of the
// size wide, so that they overlap.
constexpr float kSizeStep = 2.5f;
constexpr float kSizeWidth = 4;
// Excesses beyond so many scales tell how heavy the shoulders are; those beyond kTailFrom are the tail.
constexpr double kExcessFrom = 2;
constexpr double kTailFrom = 4;
// Own scales of streams differ by some 40 %: so many own differences weigh as much as the pool.
constexpr double kSpreadPrior = 12;
// Pools remember so many values, or kMemorySteps steps where these are fewer: large jobs follow a change of the noise
// within a step or two.
constexpr double kPoolValues = 4096;
// Fewer differences than these do not tell a scale.
constexpr double kDifferencesMin = 24;
// Before excesses were seen the shoulders are taken for heavy, with the weight of so many.
constexpr double kShoulderPrior = 10;
// Fewer siblings than these do not tell how far they are apart.
constexpr size_t kSiblingsMin = 4;
// What takes more of a first step than this is the start of a rank (compilation, loading), not its slowness.
constexpr float kFirstLevelMax = 0.8f;
// So many of the first steps are odd, and tell nothing of anybody.
constexpr float kFirstOdd = 0.1f;
// A stream with this likelihood ratio teaches the pools nothing while it has it. Without a shift one in so many has.
constexpr double kOutsideRatio = 100;
constexpr double kRatioMax = 1e30;
// A hypothesis is not counted further than this beyond what is held (more than ln of their number: each alone must be
// able to reach it): what is over must be seen to be.
constexpr double kHoldNats = 4;

// Student t densities that the body of the noise is described by. These numbers are in units of the scale that clipped
// differences of such noise give, and were integrated numerically.
struct Body {
  int freedom;          // the density is (1 + z^2 / freedom) to the minus half of freedom + 1
  double t_scale;       // of the density
  double density;       // at its middle, at scale one
  double excess_share;  // beyond kExcessFrom
  double log_excess;    // mean of ln(z / kExcessFrom) there, each at most ln 2
};
constexpr std::array<Body, 4> kBodies{{
    {15, 1 / 1.0711, 0.3923, 0.0244, 0.1953},
    {7, 1 / 1.1656, 0.3850, 0.0262, 0.2356},
    {5, 1 / 1.2520, 0.3796, 0.0271, 0.2652},
    {3, 1 / 1.5074, 0.3676, 0.0284, 0.3251},
}};

// Mean over values so far, later over the last `memory`.
void learn_mean(double& mean, double& count, double value, double weight, double memory) {
  count = std::min(count + weight, memory);
  mean += (value - mean) * std::min(1.0, weight / count);
}

const Body& body_of(double log_excess) {
  for (const Body& body : kBodies)
    if (log_excess <= body.log_excess) return body;
  return kBodies.back();
}

// One over a t density, where its middle is one.
template <int kFreedom>
float inverse_density(float z) {
  static_assert(kFreedom % 2 == 1);
  const float base = 1 + z * z / kFreedom;
  float result = base;
  for (int i = 1; i < (kFreedom + 1) / 2; ++i) result *= base;
  return result;
}

}  // namespace

double threshold_nats(double alarms_per_hour, double streams, double steps_per_hour) {
  return std::log(std::max(1.0, streams) * std::max(1.0, steps_per_hour) / alarms_per_hour);
}

// The noise as it stands before a step, and what the step itself says of its spread.
struct ShiftMonitor::StepModel {
  bool known = false;
  float correlation = 0;
  float scale = 0;         // pooled
  int freedom = 0;         // of the body
  float t_scale = 1;       // of the body's density, in units of the scale
  float tail_density = 0;  // at kTailFrom scales
  float allowance = 0;     // for all but the one that stands out most
  size_t foremost = 0;
  float siblings = 0;       // how far the streams are apart in this step; 0: too few tell
  float siblings_tail = 0;  // the share of values that are further out than that tells
  float largest = 0;        // of the values, and whose it is
  size_t largest_of = 0;
};

// Beyond kTailFrom scales: a power law of index one, heavier than that of any noise that has a mean, since few values do
// not tell how a tail goes on. As a part of the body's density at its middle.
float ShiftMonitor::tail_density(const StepModel& model, float scales) {
  constexpr auto kFrom = static_cast<float>(kTailFrom);
  return scales <= kFrom ? 0 : model.tail_density * (kFrom / scales) * (kFrom / scales);
}

double ShiftMonitor::mean_ratio(const Stream& stream) {
  if (stream.values == 0) return static_cast<double>(stream.ratio[kLevel]);
  double sum = 0;
  for (float ratio : stream.ratio) sum += static_cast<double>(ratio);
  return sum / kHypotheses;
}

double ShiftMonitor::evidence_nats(size_t stream) const {
  return std::log(std::max(1e-30, mean_ratio(streams_[stream]))) / long_run_;
}

double ShiftMonitor::baseline(size_t index) const {
  const Stream& stream = streams_[index];
  if (stream.values > 0) return static_cast<double>(stream.level);
  return static_cast<double>(stream.run_excess) / std::max(1, stream.run_values);
}

void ShiftMonitor::hold_at(double nats) {
  hold_ratio_ = std::exp(nats * long_run_);
  ratio_max_ = static_cast<float>(std::min(hold_ratio_ * std::exp(kHoldNats), kRatioMax));
}

void ShiftMonitor::forget(size_t index) {
  Stream& stream = streams_[index];
  std::fill(std::begin(stream.ratio), std::end(stream.ratio), 0.0f);
  stream.run_ratio = 1;
  stream.run_values = 0;
  stream.run_excess = 0;
}

// Of neighbours, around the level of their stream, each with bounded influence.
double ShiftMonitor::correlation() const {
  // Few values tell little: then it is about what steps of jobs have. One and a half standard errors are added: too little
  // correction is false alarms, too much a little delay.
  const double seen = neighbour_square_ > 0 ? neighbour_product_ / neighbour_square_ : 0;
  const double usual_weight = 1 / (kUsualSpread * kUsualSpread);
  const double mean = (neighbours_ * seen + usual_weight * kUsualCorrelation) / (neighbours_ + usual_weight);
  return std::clamp(mean + 1.5 / std::sqrt(neighbours_ + usual_weight), 0.0, 0.9);
}

// From the share of sums beyond one scale, of which no stream alone has much: by how much a normal one must be wider to
// have it, as far as that is sure.
void ShiftMonitor::learn_long_run(double wide, double blocks, double memory) {
  constexpr double kShare = 0.3173;  // of a normal beyond one scale
  learn_mean(wide_share_, wide_of_, wide / blocks, blocks, memory);
  const double share = std::min(0.95, wide_share_ - std::sqrt(kShare * (1 - kShare) / wide_of_));
  double low = 0, high = 1;  // where a normal has that share
  for (int i = 0; share > kShare && i < 20; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > share ? low : high) = middle;
  }
  long_run_ = 1 / (high * high);
}

ShiftMonitor::Noise ShiftMonitor::noise() const {
  Noise noise;
  noise.known = differences_ >= kDifferencesMin;
  noise.correlation = correlation();
  noise.long_run = long_run_;
  const double shoulders =
      (kShoulderPrior * kBodies.back().log_excess + excesses_ * log_excess_) / (kShoulderPrior + excesses_);
  const Body& body = body_of(shoulders * (1 + 1 / std::sqrt(kShoulderPrior + excesses_)));
  noise.freedom = body.freedom;
  // More of the values are far out than such a density has: it is wider by what a power law needs for that.
  const double more = excess_of_ > 0 ? std::max(1.0, excess_share_ / body.excess_share) : 1;
  const double uncertain = 1 + 2 / std::sqrt(std::max(1.0, differences_));
  noise.scale = std::sqrt(variance_ * uncertain);
  noise.t_scale = body.t_scale * std::pow(more, 1.0 / body.freedom);
  noise.tail_share = (tail_share_ * tail_of_ + 1) / (tail_of_ + 1);  // one value more than was seen
  return noise;
}

double ShiftMonitor::scale(size_t stream) const {
  const double correlation = noise().correlation;
  return std::sqrt(variance_ * static_cast<double>(streams_[stream].spread) / (1 - correlation * correlation));
}

ShiftMonitor::StepModel ShiftMonitor::model_of(std::span<const float> values) {
  StepModel model;
  const Noise now = noise();
  model.known = now.known;
  model.correlation = static_cast<float>(now.correlation);
  model.freedom = now.freedom;
  model.t_scale = static_cast<float>(now.t_scale);
  for (const Body& body : kBodies) {
    if (body.freedom == now.freedom)  // as a part of the body's density at its middle
      model.tail_density = static_cast<float>(now.tail_share / kTailFrom * now.t_scale / body.density);
  }
  const float floor = static_cast<float>(options_.least_shift / 16);
  model.scale = std::max(floor, static_cast<float>(now.scale));
  if (options_.shadow > 0) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i]) || mean_ratio(streams_[i]) <= kOutsideRatio) continue;
      const auto allowance = static_cast<float>(options_.shadow) * (values[i] - streams_[i].level_before);
      if (allowance <= model.allowance) continue;
      model.allowance = allowance;
      model.foremost = i;
    }
  }
  // What this step alone says, as far as it is sure.
  scratch_.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    const Stream& stream = streams_[i];
    if (std::isnan(values[i]) || stream.values == 0) continue;
    const float whitened = values[i] - model.correlation * stream.last - (1 - model.correlation) * stream.level;
    scratch_.push_back(std::abs(whitened) / std::sqrt(stream.spread));
  }
  if (model.known && scratch_.size() >= 8) {
    const auto middle = scratch_.begin() + static_cast<std::ptrdiff_t>(scratch_.size() / 2);
    std::nth_element(scratch_.begin(), middle, scratch_.end());
    const float sure = 1 - 2.4f / std::sqrt(static_cast<float>(scratch_.size()));
    model.scale = std::max(model.scale, *middle / 0.6745f * sure);
  }
  return model;
}

// What the pools make of a step, before the streams take it in.
void ShiftMonitor::learn(std::span<const float> values, const StepModel& model) {
  const double r = static_cast<double>(model.correlation);
  double squares = 0, differences = 0, products = 0, neighbour_squares = 0, beyond = 0, judged = 0, logs = 0;
  double tails = 0, blocks = 0, wide = 0;
  size_t here = 0, outside = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    ++here;
    outside += mean_ratio(streams_[i]) > kOutsideRatio ? 1 : 0;
  }
  // Where many stand outside at once the noise has changed, not they.
  const bool all = outside * 4 > here;
  if (differences_ == 0) {
    // The first differences tell roughly how large they are.
    scratch_.clear();
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan(values[i]) && streams_[i].seen >= 2) scratch_.push_back(std::abs(values[i] - streams_[i].last));
    }
    if (!scratch_.empty()) {
      const auto middle = scratch_.begin() + static_cast<std::ptrdiff_t>(scratch_.size() / 2);
      std::nth_element(scratch_.begin(), middle, scratch_.end());
      const double scale = static_cast<double>(*middle) / 0.6745 / std::numbers::sqrt2;
      variance_ = std::max(scale * scale, options_.least_shift * options_.least_shift / 256);
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    Stream& stream = streams_[i];
    if (std::isnan(values[i]) || stream.seen < 2) continue;
    const auto x = static_cast<double>(values[i]);
    const auto last = static_cast<double>(stream.last);
    const double whitened = x - r * last;
    const double difference = whitened - (last - r * static_cast<double>(stream.last_but_one));
    const double own = variance_ * static_cast<double>(stream.spread);
    const double square = std::min(difference * difference / 2, kDifferenceClip * kDifferenceClip * own) / kClippedMean;
    const double count = std::min<double>(stream.seen, kMemorySteps);
    if (variance_ > 0)
      stream.spread +=
          static_cast<float>((square / variance_ - static_cast<double>(stream.spread)) / (count + kSpreadPrior));
    if (!all && mean_ratio(stream) > kOutsideRatio) continue;
    squares += square;
    differences += 1;
    if (stream.values > 0) {
      const double level = static_cast<double>(stream.level);
      const double z = (whitened - (1 - r) * level) /
                       (static_cast<double>(model.scale) * std::sqrt(static_cast<double>(stream.spread)) *
                        std::sqrt(1 + static_cast<double>(kLevelVariance / stream.values)));
      judged += 1;
      const double most = kLevelClip * std::sqrt(own);
      const double here_clipped = std::clamp(x - level, -most, most) / std::sqrt(own);
      const double last_clipped = std::clamp(last - level, -most, most) / std::sqrt(own);
      products += here_clipped * last_clipped;
      neighbour_squares += (here_clipped * here_clipped + last_clipped * last_clipped) / 2;
      if (z > kExcessFrom) {
        beyond += 1;
        logs += std::log(std::min(z, 2 * kExcessFrom) / kExcessFrom);
      }
      tails += z > kTailFrom ? 1 : 0;
      stream.block_sum += static_cast<float>(std::clamp(z, -kDifferenceClip, kDifferenceClip));
      if (++stream.block_values == kBlock) {
        blocks += 1;
        wide += stream.block_sum * stream.block_sum > kBlock ? 1 : 0;
        stream.block_sum = 0;
        stream.block_values = 0;
      }
    }
  }
  const double memory = std::min(kPoolValues, kMemorySteps * std::max(1.0, differences));
  const double memory_all = std::max(memory, 4 * differences);
  if (differences > 0) learn_mean(variance_, differences_, squares / differences, differences, memory_all);
  if (judged > 0 && variance_ > 0) {
    double count = neighbours_;
    learn_mean(neighbour_product_, count, products / judged, judged, 4 * memory_all);
    learn_mean(neighbour_square_, neighbours_, neighbour_squares / judged, judged, 4 * memory_all);
  }
  if (judged > 0) learn_mean(excess_share_, excess_of_, beyond / judged, judged, 4 * memory_all);
  if (beyond > 0) learn_mean(log_excess_, excesses_, logs / beyond, beyond, memory_all);
  if (blocks > 0) learn_long_run(wide, blocks, memory_all);
  if (judged > 0) learn_mean(tail_share_, tail_of_, tails / judged, judged, 16 * memory_all);
}

// One standard error more than it seems: nothing else keeps a stream that is noisier than the others apart from one that
// has shifted a little.
float ShiftMonitor::sure_spread(const Stream& stream) {
  const auto known = static_cast<float>(kSpreadPrior + std::min<double>(stream.seen, kMemorySteps));
  return stream.spread * (1 + std::sqrt(2 / known));
}

// How far apart they are that are not the middle itself, one standard error and a half to the careful side. Half of them
// may be at fault: the other half tells it.
void ShiftMonitor::find_siblings(std::span<const float> values, StepModel& model) {
  scratch_.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    if (values[i] != 0) scratch_.push_back(std::abs(values[i]));
    if (values[i] <= model.largest) continue;
    model.largest = values[i];
    model.largest_of = i;
  }
  if (scratch_.size() < kSiblingsMin) return;
  const auto count = static_cast<float>(scratch_.size());
  const auto middle = scratch_.begin() + static_cast<std::ptrdiff_t>(scratch_.size() / 2);
  std::nth_element(scratch_.begin(), middle, scratch_.end());
  const float careful = 1 + 1.75f / std::sqrt(count);
  model.siblings = std::max(*middle / 0.6745f * careful, static_cast<float>(options_.least_shift / 4));
  model.siblings_tail = 1 / count;  // one more than was seen
  siblings_scale_ = model.siblings;
}

// A value without what the largest of the others may have made of it.
float ShiftMonitor::beside_others(size_t stream, float value, const StepModel& model) const {
  return stream == model.largest_of ? value : value - static_cast<float>(options_.shadow) * model.largest;
}

// The evidence of a stream without a past: that it is on one level, above lasting_max, in every step so far. The first
// value may be on any level (equally likely by its logarithm), the others are on that of those before.
void ShiftMonitor::compare(Stream& stream, float value, const StepModel& model) const {
  if (stream.run_values == 0) stream.ratio[kLevel] = model.siblings > 0 ? head_start_ : 0;
  if (model.siblings > 0 && head_start_ > 0) {
    const auto lasting_max = static_cast<float>(options_.lasting_max);
    const auto least = static_cast<float>(options_.least_shift);
    constexpr int kFreedom = kBodies.back().freedom;
    constexpr auto kMiddle = static_cast<float>(kBodies.back().density);
    // Up to the limit nothing is against it.
    const float limit = std::max(0.0f, (value - lasting_max) / model.siblings);
    constexpr auto kFrom = static_cast<float>(kTailFrom);
    const float tail = limit <= kFrom ? 0 : model.siblings_tail * kFrom / (limit * limit) / kMiddle;
    const float null = 1 / inverse_density<kFreedom>(limit) + tail;
    float other = 0;
    if (stream.run_values == 0) {
      if (value > lasting_max && value < kFirstLevelMax)
        other = model.siblings / (value * std::log(kFirstLevelMax / lasting_max)) / kMiddle;
    } else {
      const auto known = static_cast<float>(stream.run_values);
      const float level = std::max(stream.run_excess / known, lasting_max + least);
      const float width = std::sqrt(1 + 1 / known);
      if (level < kFirstLevelMax)
        other = 1 / (inverse_density<kFreedom>((value - level) / (model.siblings * width)) * width);
    }
    float& ratio = stream.ratio[kLevel];
    ratio = std::min(ratio_max_, (1 + ratio) * (kFirstOdd + (1 - kFirstOdd) * other / null));
  }
  stream.run_excess += value;
  ++stream.run_values;
}

// The first values of a stream stand where its ratios will. Their median begins its level: an outlier among them must
// not.
void ShiftMonitor::begin(Stream& stream, float value) {
  stream.ratio[stream.seen] = value;
  if (stream.seen + 1 < kFirstValues) return;
  std::nth_element(stream.ratio, stream.ratio + kFirstValues / 2, stream.ratio + kFirstValues);
  stream.level = stream.level_before = stream.ratio[kFirstValues / 2];
  stream.values = kFirstValues * 2 / std::numbers::pi_v<float>;  // a median is worth less than a mean
  std::fill(stream.ratio, stream.ratio + kLevel, 0.0f);
  stream.ratio[kLevel] *= kHypotheses;  // from now on one of so many
  stream.run_excess = 0;
  stream.run_values = 0;
}

template <int kFreedom>
void ShiftMonitor::update(StepNumber step, std::span<const float> values, const StepModel& model) {
  const float r = model.correlation;
  const float lasting_max = static_cast<float>(options_.lasting_max);
  const float least = static_cast<float>(options_.least_shift);
  for (size_t i = 0; i < values.size(); ++i) {
    float x = values[i];
    if (std::isnan(x)) continue;
    Stream& stream = streams_[i];
    const bool in_shadow = model.allowance > 0 && model.foremost != i && stream.values > 0;
    if (in_shadow) x = x > stream.level + model.allowance ? x - model.allowance : std::min(x, stream.level);
    if (stream.values == 0) {
      compare(stream, beside_others(i, x, model), model);
      begin(stream, x);
    } else if (model.known) {
      const float y = x - r * stream.last;
      const float sigma = std::max(model.scale * std::sqrt(sure_spread(stream)), least / 16) * model.t_scale;
      // What is not known of the level. Correlation makes it more, and counts as much less in whitened values.
      const float widening = std::sqrt(1 + kLevelVariance / stream.values);
      const float z0 = (y - (1 - r) * stream.level) / (sigma * widening);
      const float tail = tail_density(model, z0 * model.t_scale);
      const float null = 1 / (1 / (inverse_density<kFreedom>(z0) * widening) + tail);
      // The likelihood ratio of a density around that centre, so many times as wide as the noise.
      auto against = [&](float centre, float width) {
        const float ratio = null / (inverse_density<kFreedom>((y - centre) / (sigma * width)) * width);
        return z0 < 0 ? std::min(1.0f, ratio) : ratio;  // what is far below fits a wide density better, but is no shift
      };
      auto grow = [&](int hypothesis, float likelihood) {
        float& ratio = stream.ratio[hypothesis];
        ratio = std::min(ratio_max_, (1 + ratio) * likelihood);
      };
      const float before = (1 - r) * stream.level_before;
      const float smallest = std::max(0.5f * sigma, (1 - r) * least);
      float size = smallest, likelihoods = 0;
      for (int k = 0; k < kSizes; ++k, size *= kSizeStep) {
        // Large ones are wide, so that they are found whatever they are between two sizes.
        const float likelihood = against(before + size, std::max(1.0f, size / (kSizeWidth * sigma)));
        grow(k, likelihood);
        likelihoods += likelihood;
      }
      const float learned =
          std::max(smallest, (1 - r) * stream.run_excess / static_cast<float>(std::max(1, stream.run_values)));
      const float likelihood = against(before + learned, 1);
      grow(kLearned, likelihood);
      likelihoods += likelihood;
      // The level hypothesis has a null of its own: at most lasting_max.
      const float limit = (y - (1 - r) * lasting_max) / sigma;
      const float limit_null = 1 / (1 / inverse_density<kFreedom>(limit) + tail_density(model, limit * model.t_scale));
      const float level = (1 - r) * std::max(stream.level, lasting_max + least);
      grow(kLevel, limit_null / inverse_density<kFreedom>((y - level) / sigma));

      const bool held = hold_ratio_ > 0 && mean_ratio(stream) >= hold_ratio_;
      // The stretch since which it may have shifted. One that is as long as the memory and has not convinced anybody is
      // how the stream is.
      stream.run_ratio = std::min(ratio_max_, stream.run_ratio * likelihoods / (kSizes + 1));
      if (stream.run_ratio <= 1 || (!held && stream.run_values >= kMemorySteps)) {
        stream.run_ratio = 1;
        stream.run_values = 0;
        stream.run_excess = 0;
      } else {
        if (stream.run_values == 0) stream.begin_step = step;
        ++stream.run_values;
        stream.run_excess += x - stream.level_before;
      }
      if (!held && !in_shadow) {
        const float clip = kLevelClip * sigma * widening / std::sqrt(1 - r * r);
        stream.level += std::clamp(x - stream.level, -clip, clip) / (stream.values + 1);
        stream.values = std::min<float>(stream.values + 1, kMemorySteps);
      }
      if (stream.run_values == 0) stream.level_before = stream.level;
    }
    stream.last_but_one = stream.last;
    stream.last = values[i];
    ++stream.seen;
  }
}

void ShiftMonitor::make_room(size_t streams) {
  if (streams <= streams_.size()) return;
  streams_.resize(streams);
  scratch_.reserve(streams);
}

void ShiftMonitor::add_warm_up(std::span<const float> values) {
  make_room(values.size());
  StepModel model;
  find_siblings(values, model);
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isnan(values[i]) && streams_[i].seen == 0)
      compare(streams_[i], beside_others(i, values[i], model), model);
}

void ShiftMonitor::add_step(StepNumber step, std::span<const float> values) {
  make_room(values.size());
  StepModel model = model_of(values);
  if (std::any_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.values == 0; }))
    find_siblings(values, model);
  learn(values, model);
  switch (model.freedom) {
    case 15:
      update<15>(step, values, model);
      break;
    case 7:
      update<7>(step, values, model);
      break;
    case 5:
      update<5>(step, values, model);
      break;
    default:
      update<3>(step, values, model);
      break;
  }
}

ShiftEstimate ShiftMonitor::estimate(size_t index) const {
  const Stream& stream = streams_[index];
  if (stream.values == 0) {
    const double known = std::max(1, stream.run_values);
    return {.size = baseline(index),
            .error = static_cast<double>(siblings_scale_) / std::sqrt(known),
            .steps = stream.run_values,
            .lasting = true};
  }
  const double r = correlation();
  // Of a mean of correlated values: whitening takes the same part off the shift as off the scale.
  const double scale = std::sqrt(variance_ * static_cast<double>(stream.spread)) / (1 - r);
  const double level_values = std::max(1.0, static_cast<double>(stream.values));
  const bool by_level = static_cast<double>(stream.ratio[kLevel]) > kHypotheses * mean_ratio(stream) / 2;
  if (stream.run_values == 0 || by_level)
    return {.size = static_cast<double>(stream.level), .error = scale / std::sqrt(level_values), .lasting = true};
  const double values = stream.run_values;
  return {.size = static_cast<double>(stream.run_excess) / values,
          .error = scale * std::sqrt(1 / values + 1 / level_values),
          .begin_step = stream.begin_step,
          .steps = stream.run_values};
}

}  // namespace lockstep
